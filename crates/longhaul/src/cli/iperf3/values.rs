//! The values of iperf3's options.

use std::time::Duration;

use longhaul_core::units::Rate;
use longhaul_interop::iperf3::output::Format;

/// Parses a number with a suffix of K, M, G or T, which are powers of `base`.
fn scaled(text: &str, base: f64) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a number with an optional K, M, G or T");
    let (number, factor) = match text.char_indices().last() {
        Some((at, letter)) if letter.is_ascii_alphabetic() => {
            let prefix = "KMGT".find(letter.to_ascii_uppercase()).ok_or_else(wrong)?;
            (&text[..at], base.powi(prefix as i32 + 1))
        }
        _ => (text, 1.0),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let value = number * factor;
    // The limit of a 64-bit float without rounding.
    if (0.0..9e15).contains(&value) { Ok(value as u64) } else { Err(wrong()) }
}

/// Parses a number of bytes: suffixes are powers of 1024.
pub(super) fn parse_bytes(text: &str) -> Result<u64, String> {
    scaled(text, 1024.0)
}

/// Parses a rate in bit/s, with powers of 1000, and the packets of a burst after a slash.
pub(super) fn parse_rate(text: &str) -> Result<(Rate, Option<u64>), String> {
    let (rate, burst) = match text.split_once('/') {
        Some((rate, burst)) => (rate, Some(burst)),
        None => (text, None),
    };
    let burst = burst.map(|burst| burst.parse::<u64>());
    let burst = burst.transpose().map_err(|_| format!("'{text}' has no number after the slash"))?;
    Ok((Rate::from_bps(scaled(rate, 1000.0)?), burst.filter(|burst| *burst > 0)))
}

/// Parses seconds, which may have a fraction.
pub(super) fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: Option<f64> = text.parse().ok().filter(|s| (0.0..=86_400.0).contains(s));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("'{text}' is not a number of seconds from 0 to 86400"))
}

/// Parses a letter of `-f`.
pub(super) fn parse_format(text: &str) -> Result<Format, String> {
    let mut letters = text.chars();
    let format = letters.next().filter(|_| letters.next().is_none()).and_then(Format::of);
    format.ok_or_else(|| format!("'{text}' is not one of k, m, g, t, K, M, G and T"))
}

/// Parses a type of service in decimal, octal (`0...`) or hexadecimal (`0x...`), and returns its
/// upper six bits.
pub(super) fn parse_tos(text: &str) -> Result<u8, String> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None if text.len() > 1 && text.starts_with('0') => (text, 8),
        None => (text, 10),
    };
    let byte = u8::from_str_radix(digits, radix);
    byte.map(|byte| byte >> 2).map_err(|_| format!("'{text}' is not a byte"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_are_those_of_iperf3() {
        assert_eq!(parse_bytes("128K"), Ok(131_072));
        assert_eq!(parse_bytes("1.5m"), Ok(1_572_864));
        assert_eq!(parse_rate("10M"), Ok((Rate::from_bps(10_000_000), None)));
        assert_eq!(parse_rate("1G/40"), Ok((Rate::from_bps(1_000_000_000), Some(40))));
        for text in ["", "x", "-1", "1P", "1KB", "1e300", "inf"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
        assert_eq!([parse_tos("0xb8"), parse_tos("184"), parse_tos("0270")], [const { Ok(46) }; 3]);
        assert_eq!(parse_seconds("0.5"), Ok(Duration::from_millis(500)));
        assert!(parse_format("x").is_err() && parse_format("mm").is_err());
    }
}
