//! The values of options: numbers with suffixes.

use super::ArgumentError;

/// An option and the words after it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Given<'a> {
    /// The option with its letter, for messages.
    pub(super) option: &'a str,
    /// The text directly after the letter.
    pub(super) attached: &'a str,
    /// The words after the option.
    pub(super) after: &'a [String],
}

impl<'a> Given<'a> {
    /// Returns the value and true if it is the next word.
    pub(super) fn required(self) -> Result<(&'a str, bool), ArgumentError> {
        match (self.attached, self.after.first()) {
            ("", None) => Err(ArgumentError::Missing(self.option.to_owned())),
            ("", Some(next)) => Ok((next, true)),
            (attached, _) => Ok((attached, false)),
        }
    }

    /// Returns the value, which may be empty, as nuttcp does: the next word is the value if another
    /// option follows it, or if it is a number and no address.
    pub(super) fn optional(self) -> (&'a str, bool) {
        let Some(next) = self.after.first().filter(|_| self.attached.is_empty()) else {
            return (self.attached, false);
        };
        let before_option = self.after.get(1).is_some_and(|word| word.starts_with('-'));
        let is_host = next.parse::<std::net::IpAddr>().is_ok()
            || next.starts_with(|c: char| c.is_ascii_alphabetic());
        let taken = !next.starts_with('-') && (before_option || !is_host);
        (if taken { next } else { "" }, taken)
    }

    pub(super) fn invalid(self, value: &str) -> ArgumentError {
        ArgumentError::Invalid { option: self.option.to_owned(), value: value.to_owned() }
    }
}

/// Splits a number from the letters after it.
pub(super) fn number(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let value: f64 = text[..end].parse().ok()?;
    value.is_finite().then_some((value, &text[end..]))
}

/// Parses a number of bytes with the suffix k, m, g, t, p (powers of 1024) or b. Without a suffix
/// the unit is `unit` bytes.
pub(super) fn bytes(text: &str, unit: u64) -> Option<u64> {
    let (value, suffix) = number(text)?;
    let unit = match suffix.to_ascii_lowercase().as_str() {
        "" => unit,
        "b" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        "t" => 1 << 40,
        "p" => 1 << 50,
        _ => return None,
    };
    let product = value * unit as f64;
    (product < 1e18).then_some(product as u64)
}

/// Parses a time in seconds with the suffix s, m, h or d.
pub(super) fn seconds(text: &str) -> Option<f64> {
    let (value, suffix) = number(text)?;
    let unit = match suffix.to_ascii_lowercase().as_str() {
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => return None,
    };
    Some(value * unit).filter(|seconds| *seconds <= 7.0 * 86400.0)
}

/// A rate of `-R`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum RateValue {
    /// In kbit/s.
    Kilobits(f64),
    /// In packets per second.
    Packets(f64),
}

/// Parses a rate with the suffix k, m or g (bit/s) or p, kp, mp (packets per second).
pub(super) fn rate(text: &str) -> Option<RateValue> {
    let (value, suffix) = number(text)?;
    Some(match suffix {
        "" | "k" | "K" => RateValue::Kilobits(value),
        "m" | "M" => RateValue::Kilobits(value * 1e3),
        "g" | "G" => RateValue::Kilobits(value * 1e6),
        "p" => RateValue::Packets(value),
        "kp" | "Kp" => RateValue::Packets(value * 1e3),
        "mp" | "Mp" => RateValue::Packets(value * 1e6),
        _ => return None,
    })
}
