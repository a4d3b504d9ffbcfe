/// Why a text is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// The text does not begin with a number.
    #[error("'{text}' is not a {quantity}: expected a number and a unit, such as {example}")]
    NotANumber {
        /// What was given.
        text: String,
        /// `rate`, `size` or `time`.
        quantity: &'static str,
        /// A value that would have been taken.
        example: &'static str,
    },
    /// The number is followed by a unit that is not known.
    #[error("'{text}' has the unknown unit '{unit}': a {quantity} is written like {example}")]
    UnknownUnit {
        /// What was given.
        text: String,
        /// The part after the number.
        unit: String,
        /// `rate`, `size` or `time`.
        quantity: &'static str,
        /// A value that would have been taken.
        example: &'static str,
    },
    /// The value is negative, not finite, or larger than can be held.
    #[error("'{text}' is out of range for a {quantity}")]
    OutOfRange {
        /// What was given.
        text: String,
        /// `rate`, `size` or `time`.
        quantity: &'static str,
    },
}

/// Splits `text` into its number and its unit, both trimmed.
pub(super) fn split_number<'a>(
    text: &'a str,
    quantity: &'static str,
    example: &'static str,
) -> Result<(f64, &'a str), UnitError> {
    let trimmed = text.trim();
    // An exponent is part of the number only when digits follow it, so that "1e-4" is one number
    // and "5E" is five of the (unknown) unit E.
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

/// `number * factor` as a whole number, or the error that names `text`.
pub(super) fn scale(
    text: &str,
    quantity: &'static str,
    number: f64,
    factor: f64,
) -> Result<u64, UnitError> {
    let value = (number * factor).round();
    // 2^63 keeps every later sum of two quantities inside a u64.
    if value >= 9.223_372_036_854_775e18 {
        return Err(UnitError::OutOfRange { text: text.to_owned(), quantity });
    }
    Ok(value as u64)
}
