//! Numbers of bytes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{UnitError, scale, split_number};

/// A number of bytes.
///
/// In text `4GiB` and `4G` are 4 x 2^30, and `4GB` is 4 x 10^9. In JSON and SQL it is a number in a
/// field whose name ends in `_bytes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(u64);

impl Bytes {
    /// Creates `count` bytes.
    pub const fn new(count: u64) -> Self {
        Bytes(count)
    }

    /// Creates `count` x 2^10 bytes.
    pub const fn kib(count: u64) -> Self {
        Bytes(count << 10)
    }

    /// Creates `count` x 2^20 bytes.
    pub const fn mib(count: u64) -> Self {
        Bytes(count << 20)
    }

    /// Creates `count` x 2^30 bytes.
    pub const fn gib(count: u64) -> Self {
        Bytes(count << 30)
    }

    /// Returns the number of bytes.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl FromStr for Bytes {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        const EXAMPLE: &str = "64MiB, 4GiB or 16GB";
        let (number, unit) = split_number(text, "size", EXAMPLE)?;
        let factor = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 1.0,
            "k" | "kib" => 1024.0,
            "m" | "mib" => 1024.0 * 1024.0,
            "g" | "gib" => 1024.0 * 1024.0 * 1024.0,
            "t" | "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
            "kb" => 1e3,
            "mb" => 1e6,
            "gb" => 1e9,
            "tb" => 1e12,
            _ => {
                return Err(UnitError::UnknownUnit {
                    text: text.to_owned(),
                    unit: unit.to_owned(),
                    quantity: "size",
                    example: EXAMPLE,
                });
            }
        };
        Ok(Bytes(scale(text, "size", number, factor)?))
    }
}

impl fmt::Display for Bytes {
    /// Formats three significant digits in binary units: `1.50 GiB`; whole bytes below 1 KiB.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
        if self.0 < 1024 {
            return f.pad(&format!("{} B", self.0));
        }
        let mut value = self.0 as f64 / 1024.0;
        let mut unit = 0;
        while value >= 1023.5 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        let digits = match value {
            v if v >= 99.95 => 0,
            v if v >= 9.995 => 1,
            _ => 2,
        };
        f.pad(&format!("{value:.digits$} {}", UNITS[unit]))
    }
}

impl Serialize for Bytes {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Quantity::new(Bytes))
    }
}

/// Deserializes a quantity from an integer or from text with a unit.
pub(super) struct Quantity<T> {
    from_number: fn(u64) -> T,
}

impl<T> Quantity<T> {
    pub(super) fn new(from_number: fn(u64) -> T) -> Self {
        Quantity { from_number }
    }
}

impl<T: FromStr<Err = UnitError>> serde::de::Visitor<'_> for Quantity<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, or text with a unit such as \"10G\" or \"64MiB\"")
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<T, E> {
        Ok((self.from_number)(value))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<T, E> {
        u64::try_from(value)
            .map(self.from_number)
            .map_err(|_| E::custom(format!("{value} is negative")))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_binary_and_decimal_units() {
        for (text, count) in [
            ("4GiB", 4 << 30),
            ("4G", 4 << 30),
            ("4GB", 4_000_000_000),
            ("64 MiB", 64 << 20),
            ("1.5k", 1536),
            ("0", 0),
        ] {
            assert_eq!(text.parse(), Ok(Bytes(count)), "{text}");
        }
        assert!("4 parsecs".parse::<Bytes>().is_err());
    }

    #[test]
    fn prints_binary_units() {
        assert_eq!(Bytes(1 << 30).to_string(), "1.00 GiB");
        assert_eq!(Bytes(1000).to_string(), "1000 B");
        assert_eq!(Bytes(1536).to_string(), "1.50 KiB");
        assert_eq!(Bytes((1 << 30) - 1).to_string(), "1.00 GiB");
    }

    #[test]
    fn a_number_and_a_text_are_the_same_in_a_document() {
        assert_eq!(serde_json::from_str::<Bytes>("1024").unwrap(), Bytes(1024));
        assert_eq!(serde_json::from_str::<Bytes>("\"1KiB\"").unwrap(), Bytes(1024));
        assert!(serde_json::from_str::<Bytes>("-1").is_err());
    }
}
