//! Time spans.

use std::time::Duration;

use super::{UnitError, split_number};

/// Parses a time span: `90ms`, `1.5s`, `200us`, `2m`, `1h`, `3d`. A number without unit is seconds.
///
/// # Errors
/// The text is not a number with one of these units, or it is negative or more than ten years.
pub fn parse_span(text: &str) -> Result<Duration, UnitError> {
    const EXAMPLE: &str = "90ms, 1.5s or 2m";
    let (number, unit) = split_number(text, "time", EXAMPLE)?;
    let factor = match unit {
        "" | "s" | "sec" => 1.0,
        "ms" => 1e-3,
        "us" => 1e-6,
        "ns" => 1e-9,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => {
            return Err(UnitError::UnknownUnit {
                text: text.to_owned(),
                unit: unit.to_owned(),
                quantity: "time",
                example: EXAMPLE,
            });
        }
    };
    let seconds = number * factor;
    if seconds > 315_360_000.0 {
        return Err(UnitError::OutOfRange { text: text.to_owned(), quantity: "time" });
    }
    // Rounded to whole nanoseconds, so that "90ms" is exactly 90 ms.
    Ok(Duration::from_nanos((seconds * 1e9).round() as u64))
}

/// Parses a round-trip time or a delay: a time span with a unit. Other programs read a number
/// without a unit as milliseconds, so it is invalid, except 0.
///
/// # Errors
/// As for [`parse_span`], and if there is no unit.
pub fn parse_delay(text: &str) -> Result<Duration, UnitError> {
    match text.trim().parse::<f64>() {
        Ok(number) if number != 0.0 => Err(UnitError::NoUnit { text: text.trim().to_owned() }),
        _ => parse_span(text),
    }
}

/// Formats a span in the form that [`parse_span`] accepts, with at most three decimals: `90ms`,
/// `1.5s`.
pub fn format_span(span: Duration) -> String {
    let nanos = span.as_nanos();
    let (value, unit) = match nanos {
        0 => return "0ms".to_owned(),
        1..1_000 => (nanos as f64, "ns"),
        1_000..1_000_000 => (nanos as f64 / 1e3, "us"),
        1_000_000..1_000_000_000 => (nanos as f64 / 1e6, "ms"),
        _ => (nanos as f64 / 1e9, "s"),
    };
    let text = format!("{value:.3}");
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Serializes a span as text, for `#[serde(with = "longhaul_core::units::span_text")]`.
pub mod text {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    /// Serializes the span as text.
    ///
    /// # Errors
    /// The serializer's error.
    pub fn serialize<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&super::format_span(*value))
    }

    /// Deserializes the span from text.
    ///
    /// # Errors
    /// The text is not a time span.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(deserializer)?;
        super::parse_span(&text).map_err(serde::de::Error::custom)
    }
}

/// Serializes a span as a number of seconds, for `#[serde(with = "seconds")]`.
pub(crate) mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(d: &Duration, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_f64(d.as_secs_f64())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Duration, D::Error> {
        let seconds = f64::deserialize(d)?;
        Duration::try_from_secs_f64(seconds).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_prints_the_same_text() {
        for text in ["90ms", "1.5s", "200us", "0ms", "1.124s", "45.5ms"] {
            assert_eq!(format_span(parse_span(text).unwrap()), text);
        }
        assert_eq!(parse_span("2m").unwrap(), Duration::from_secs(120));
        assert_eq!(parse_span("10").unwrap(), Duration::from_secs(10));
        assert!(parse_span("90 parsecs").is_err());
        assert_eq!(parse_delay("1.5s").unwrap(), Duration::from_millis(1500));
        assert_eq!(parse_delay("0").unwrap(), Duration::ZERO);
        let error = parse_delay("90").unwrap_err().to_string();
        assert_eq!(error, "'90' has no unit: did you mean 90ms?");
        assert!(parse_span("1e99s").is_err());
    }
}
