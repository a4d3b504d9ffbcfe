//! Rates.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Bytes, UnitError, scale, split_number};

/// A rate in bit/s with decimal prefixes: `10G` is 10^10 bit/s.
///
/// In text it is written `10G`, `2.5Gb/s`, `100Mbit` or `9600`. A capital B means bytes: `10MB/s` is
/// 80 Mb/s, and `1MiB/s` is 8.39 Mb/s. In JSON and SQL it is a number of
/// bit/s in a field whose name ends in `_bps`; in TOML it is the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Rate(u64);

impl Rate {
    /// Creates a rate of `bps` bit/s.
    pub const fn from_bps(bps: u64) -> Self {
        Rate(bps)
    }

    /// Returns the mean rate of `bytes` in `elapsed`; zero if no time passed.
    pub fn mean(bytes: Bytes, elapsed: Duration) -> Self {
        let seconds = elapsed.as_secs_f64();
        if seconds > 0.0 { Rate((bytes.get() as f64 * 8.0 / seconds) as u64) } else { Rate(0) }
    }

    /// Returns the rate in bit/s.
    pub const fn bps(self) -> u64 {
        self.0
    }

    /// Returns the rate in bytes per second, rounded down.
    pub const fn bytes_per_second(self) -> u64 {
        self.0 / 8
    }

    /// Returns the time that `bytes` take at this rate; zero for a zero rate, which means
    /// "unlimited".
    pub fn time_for(self, bytes: u64) -> Duration {
        if self.0 == 0 {
            return Duration::ZERO;
        }
        Duration::from_nanos((u128::from(bytes) * 8_000_000_000 / u128::from(self.0)) as u64)
    }

    /// Returns the bandwidth-delay product: the bytes in flight when this rate fills a path of
    /// `rtt`.
    pub fn bdp(self, rtt: Duration) -> Bytes {
        Bytes::new((self.0 as f64 / 8.0 * rtt.as_secs_f64()) as u64)
    }
}

impl FromStr for Rate {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let (number, unit) = split_number(text, "rate", EXAMPLE)?;
        let Some(factor) = bits_per_unit(unit) else {
            return Err(UnitError::UnknownUnit {
                text: text.to_owned(),
                unit: unit.to_owned(),
                quantity: "rate",
                example: EXAMPLE,
            });
        };
        Ok(Rate(scale(text, "rate", number, factor)?))
    }
}

const EXAMPLE: &str = "10G, 2.5Gb/s or 100M (bit/s), or 100MB/s (bytes per second)";

/// Returns the bit/s of one `unit`, such as `G`, `Mb/s`, `kB/s` or `MiB/s`.
fn bits_per_unit(unit: &str) -> Option<f64> {
    let strip = |suffixes: &[&str]| suffixes.iter().find_map(|suffix| unit.strip_suffix(suffix));
    let (prefix, bits) = match strip(&["B/s", "Bps", "bytes/s"]) {
        Some(prefix) => (prefix, 8.0),
        None => (strip(&["bit/s", "bits/s", "b/s", "bps", "bit"]).unwrap_or(unit), 1.0),
    };
    let (prefix, base) = match prefix.strip_suffix('i') {
        Some(prefix) if !prefix.is_empty() => (prefix, 1024.0_f64),
        _ => (prefix, 1000.0),
    };
    let power = match prefix {
        "" => 0,
        "k" | "K" => 1,
        "m" | "M" => 2,
        "g" | "G" => 3,
        "t" | "T" => 4,
        _ => return None,
    };
    Some(bits * base.powi(power))
}

impl fmt::Display for Rate {
    /// Formats three significant digits with the largest prefix that gives at least one:
    /// `9.41 Gb/s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bps = self.0 as f64;
        let (value, unit) = match bps {
            b if b >= 999.5e9 => (bps / 1e12, "Tb/s"),
            b if b >= 999.5e6 => (bps / 1e9, "Gb/s"),
            b if b >= 999.5e3 => (bps / 1e6, "Mb/s"),
            b if b >= 999.5 => (bps / 1e3, "kb/s"),
            _ => (bps, "b/s"),
        };
        let digits = match value {
            v if v >= 99.95 => 0,
            v if v >= 9.995 => 1,
            _ => 2,
        };
        f.pad(&format!("{value:.digits$} {unit}"))
    }
}

impl Serialize for Rate {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(super::bytes::Quantity::new(Rate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_prefixes_of_the_field() {
        for (text, bps) in [
            ("10G", 10_000_000_000),
            ("2.5Gb/s", 2_500_000_000),
            ("100 Mbit", 100_000_000),
            ("9600", 9600),
            ("1e9", 1_000_000_000),
            ("56kbps", 56_000),
            ("56Kbit/s", 56_000),
            ("10 Mbits/s", 10_000_000),
            ("10MB/s", 80_000_000),
            ("10MBps", 80_000_000),
            ("64kB/s", 512_000),
            ("1MiB/s", 8 << 20),
            ("2Mibit/s", 2 << 20),
            ("5B/s", 40),
        ] {
            assert_eq!(text.parse(), Ok(Rate(bps)), "{text}");
        }
    }

    #[test]
    fn refuses_an_unknown_unit_by_name() {
        assert!(matches!("fast".parse::<Rate>(), Err(UnitError::NotANumber { .. })));
        assert!(matches!("10MB".parse::<Rate>(), Err(UnitError::UnknownUnit { .. })));
        assert!(matches!("10Q".parse::<Rate>(), Err(UnitError::UnknownUnit { .. })));
        assert!(matches!("-1G".parse::<Rate>(), Err(UnitError::OutOfRange { .. })));
        assert!(matches!("1e300T".parse::<Rate>(), Err(UnitError::OutOfRange { .. })));
        assert!("".parse::<Rate>().is_err());
    }

    #[test]
    fn prints_three_digits() {
        assert_eq!(Rate(9_414_000_000).to_string(), "9.41 Gb/s");
        assert_eq!(Rate(24_960_000_000).to_string(), "25.0 Gb/s");
        assert_eq!(Rate(999_600_000).to_string(), "1.00 Gb/s");
        assert_eq!(Rate(570_000_000).to_string(), "570 Mb/s");
        assert_eq!(Rate(0).to_string(), "0.00 b/s");
    }

    #[test]
    fn knows_the_bandwidth_delay_product() {
        let bdp = Rate(10_000_000_000).bdp(Duration::from_millis(90));
        assert_eq!(bdp, Bytes::new(112_500_000));
        assert_eq!(Rate(8_000_000_000).time_for(1_000_000), Duration::from_millis(1));
    }
}
