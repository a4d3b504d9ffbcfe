//! Quantities as types: [`Rate`] in bit/s (decimal), [`Bytes`], and time spans.
//!
//! This is the only place that parses or prints a quantity. Rates use decimal prefixes (`10G` is
//! 10^10 bit/s). Sizes use both kinds (`4GB` is 4 x 10^9 bytes; `4GiB` and `4G` are 4 x 2^30, as in
//! iperf3 and dd). Spans are written `90ms`, `1.5s`, `2m`.

mod bytes;
mod min_free;
mod rate;
mod span;

pub use bytes::Bytes;
pub use min_free::MinFree;
pub use rate::Rate;
pub(crate) use span::seconds;
pub use span::{format_span, parse_delay, parse_span, text as span_text};

/// The reason why a text is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// The text does not start with a number.
    #[error("'{text}' is not a {quantity}: expected a number and a unit, such as {example}")]
    NotANumber {
        /// The given text.
        text: String,
        /// `rate`, `size` or `time`.
        quantity: &'static str,
        /// A valid value.
        example: &'static str,
    },
    /// A delay without a unit, which other programs read as milliseconds.
    #[error("'{text}' has no unit: did you mean {text}ms?")]
    NoUnit {
        /// The given text.
        text: String,
    },
    /// The unit after the number is unknown.
    #[error("'{text}' has the unknown unit '{unit}': a {quantity} is written like {example}")]
    UnknownUnit {
        /// The given text.
        text: String,
        /// The part after the number.
        unit: String,
        /// `rate`, `size` or `time`.
        quantity: &'static str,
        /// A valid value.
        example: &'static str,
    },
    /// The value is negative, not finite, or too large.
    #[error("'{text}' is out of range for a {quantity}")]
    OutOfRange {
        /// The given text.
        text: String,
        /// `rate`, `size` or `time`.
        quantity: &'static str,
    },
}

/// Splits `text` into number and unit, both trimmed.
fn split_number<'a>(
    text: &'a str,
    quantity: &'static str,
    example: &'static str,
) -> Result<(f64, &'a str), UnitError> {
    let trimmed = text.trim();
    // An exponent belongs to the number only if digits follow it, so that "1e-4" is a number and
    // "5E" is five of the (unknown) unit E.
    let mut end = 0;
    let bytes = trimmed.as_bytes();
    while end < bytes.len() {
        let rest = &bytes[end + 1..];
        let exponent = matches!(bytes[end], b'e' | b'E')
            && match rest.first() {
                Some(b'+' | b'-') => rest.get(1).is_some_and(u8::is_ascii_digit),
                Some(next) => next.is_ascii_digit(),
                None => false,
            };
        let sign = matches!(bytes[end], b'+' | b'-')
            && (end == 0 || matches!(bytes[end - 1], b'e' | b'E'));
        if bytes[end].is_ascii_digit() || bytes[end] == b'.' || exponent || sign {
            end += 1;
        } else {
            break;
        }
    }
    let number: f64 = trimmed[..end].parse().map_err(|_| UnitError::NotANumber {
        text: text.to_owned(),
        quantity,
        example,
    })?;
    if !number.is_finite() || number < 0.0 {
        return Err(UnitError::OutOfRange { text: text.to_owned(), quantity });
    }
    Ok((number, trimmed[end..].trim()))
}

/// Returns `number * factor` as an integer, or an error that contains `text`.
fn scale(text: &str, quantity: &'static str, number: f64, factor: f64) -> Result<u64, UnitError> {
    let value = (number * factor).round();
    // The limit of 2^63 keeps the sum of two quantities within a u64.
    if value >= 9.223_372_036_854_775e18 {
        return Err(UnitError::OutOfRange { text: text.to_owned(), quantity });
    }
    Ok(value as u64)
}
