use std::fmt;
use std::str::FromStr;

use super::{Bytes, UnitError};

/// The space that stays free on a file system: a share of the file system, or an amount.
///
/// In text `5%`, `0.5%` or `10GiB`; `0` is no reserve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MinFree {
    /// Hundredths of a percent of the file system's size, below 10,000.
    Share(u32),
    /// An amount.
    Amount(Bytes),
}

impl MinFree {
    /// No reserve.
    pub const NONE: MinFree = MinFree::Amount(Bytes::new(0));

    /// The bytes that stay free of a file system of `size`.
    pub fn of(self, size: Bytes) -> Bytes {
        match self {
            MinFree::Share(hundredths) => {
                let bytes = u128::from(size.get()) * u128::from(hundredths) / 10_000;
                Bytes::new(bytes as u64)
            }
            MinFree::Amount(bytes) => bytes,
        }
    }
}

impl FromStr for MinFree {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        const EXAMPLE: &str = "5%, 0.5% or 10GiB";
        let Some(percent) = text.strip_suffix('%') else {
            return text.parse().map(MinFree::Amount);
        };
        match percent.trim().parse::<f64>() {
            Ok(0.0) => Ok(MinFree::NONE),
            Ok(share) if (0.0..100.0).contains(&share) => {
                Ok(MinFree::Share((share * 100.0).round() as u32))
            }
            _ => {
                let text = text.to_owned();
                Err(UnitError::NotANumber { text, quantity: "share", example: EXAMPLE })
            }
        }
    }
}

impl fmt::Display for MinFree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MinFree::Share(hundredths) => write!(f, "{}%", f64::from(*hundredths) / 100.0),
            MinFree::Amount(bytes) => bytes.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_and_an_amount_are_read() {
        let size = Bytes::gib(100);
        for (text, keeps) in [
            ("5%", Bytes::gib(5)),
            ("0.5%", Bytes::mib(512)),
            ("10GiB", Bytes::gib(10)),
            ("0", Bytes::new(0)),
            ("0%", Bytes::new(0)),
        ] {
            assert_eq!(text.parse::<MinFree>().unwrap().of(size), keeps, "{text}");
        }
        assert_eq!("0%".parse(), Ok(MinFree::NONE));
        assert_eq!("2.5%".parse::<MinFree>().unwrap().to_string(), "2.5%");
        for text in ["100%", "-1%", "%", "five%", "NaN%", "5 parsecs"] {
            assert!(text.parse::<MinFree>().is_err(), "{text}");
        }
        let all = MinFree::Share(9999).of(Bytes::new(u64::MAX));
        assert!(all < Bytes::new(u64::MAX));
    }
}
