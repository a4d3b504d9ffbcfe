//! The values of options: numbers with suffixes.

use super::ArgumentError;

/// An option and the words after it.
#[derive(Debug, Clone, Copy)]
pub(super) struct GivenOption<'a> {
    /// The option with its letter, for messages.
    pub(super) option: &'a str,
    /// The text directly after the letter.
    pub(super) attached: &'a str,
    /// The words after the option.
    pub(super) after: &'a [String],
}

impl<'a> GivenOption<'a> {
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

/// Returns the bits of `m` (minimum), `a` (mean) and `x` (maximum), or `default`.
pub(super) fn bits(text: &str, default: u8) -> u8 {
    let bit = |letter, bit| if text.contains(letter) { bit } else { 0 };
    match bit('m', 1) | bit('a', 2) | bit('x', 4) {
        0 => default,
        bits => bits,
    }
}

pub(super) fn burst(option: &str, value: &str) -> Result<u32, ArgumentError> {
    let invalid = || ArgumentError::Invalid { option: option.to_owned(), value: value.to_owned() };
    value.parse().ok().filter(|burst| *burst > 0).ok_or_else(invalid)
}

/// Parses a socket buffer in KB, or with a suffix.
pub(super) fn window(given: GivenOption<'_>, value: &str) -> Result<u64, ArgumentError> {
    let window = bytes(value, 1024).filter(|window| *window <= i32::MAX as u64);
    window.ok_or_else(|| given.invalid(value))
}

pub(super) fn port(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| *port >= 1024)
}

/// Parses a DSCP, with `t` a whole traffic class, with `p` a precedence.
pub(super) fn class(text: &str) -> Option<u8> {
    let (digits, radix) = text.strip_prefix("0x").map_or((text, 10), |hex| (hex, 16));
    let suffix = digits.chars().last().filter(|c| "tTpP".contains(*c));
    let digits = digits.trim_end_matches(['t', 'T', 'p', 'P']);
    let value =
        u8::from_str_radix(digits, radix).ok().or_else(|| number(digits).map(|(v, _)| v as u8))?;
    match suffix {
        Some('t' | 'T') => Some(value),
        Some(_) => (value <= 7).then_some(value << 5),
        None => (value <= 63).then_some(value << 2),
    }
}
