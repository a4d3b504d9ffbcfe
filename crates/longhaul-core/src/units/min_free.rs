//! The space that a copy leaves free on a file system.

use std::fmt;
use std::str::FromStr;

use super::{Bytes, UnitError};

/// The space that stays free on a file system: a share of the file system, or an amount.
///
/// In text `5%`, `0.5%` or `10GiB`; `0` means no reserve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MinFree {
    /// Hundredths of a percent of the file system's size, below 10,000.
    Share(u32),
    /// An amount.
    Amount(Bytes),
    /// The smaller one of a share, in hundredths of a percent, and an amount.
    Lesser(u32, Bytes),
}

impl MinFree {
    /// The reserve of a server: 5 % of the file system, at most 1 GiB. Without this limit, the share
    /// would reserve terabytes of a large file system.
    pub const OF_SERVER: MinFree = MinFree::Lesser(500, Bytes::gib(1));
    /// No reserve.
    pub const NONE: MinFree = MinFree::Amount(Bytes::new(0));

    /// Returns the bytes that stay free on a file system of `size`.
    pub fn of(self, size: Bytes) -> Bytes {
        match self {
            MinFree::Share(hundredths) => {
                let bytes = u128::from(size.get()) * u128::from(hundredths) / 10_000;
                Bytes::new(bytes as u64)
            }
            MinFree::Amount(bytes) => bytes,
            MinFree::Lesser(hundredths, bytes) => MinFree::Share(hundredths).of(size).min(bytes),
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
            MinFree::Lesser(hundredths, bytes) => {
                write!(f, "{}, at most {bytes}", MinFree::Share(*hundredths))
            }
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
        assert_eq!(MinFree::OF_SERVER.of(Bytes::gib(10)), Bytes::mib(512));
        assert_eq!(MinFree::OF_SERVER.of(size), Bytes::gib(1));
        assert_eq!(MinFree::OF_SERVER.to_string(), "5%, at most 1.00 GiB");
        assert_eq!("2.5%".parse::<MinFree>().unwrap().to_string(), "2.5%");
        for text in ["100%", "-1%", "%", "five%", "NaN%", "5 parsecs"] {
            assert!(text.parse::<MinFree>().is_err(), "{text}");
        }
        let all = MinFree::Share(9999).of(Bytes::new(u64::MAX));
        assert!(all < Bytes::new(u64::MAX));
    }
}
