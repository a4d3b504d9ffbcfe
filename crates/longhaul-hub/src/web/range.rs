//! The range of times in the URL of a page or request.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::failure::Failure;
use crate::clock::{DAY, HOUR, MINUTE, SECOND};

/// A range of times: `from=now-24h&to=now`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams)]
pub(crate) struct Range {
    /// The start: `now-24h`, RFC 3339 or ms since 1970.
    pub(crate) from: Option<String>,
    /// The end.
    pub(crate) to: Option<String>,
}

impl Range {
    /// Returns the start and end in ms since 1970; the last 24 hours by default.
    pub(crate) fn times(&self, now: i64) -> Result<(i64, i64), Failure> {
        let read = |text: &Option<String>, default: i64| match text.as_deref() {
            None | Some("") => Ok(default),
            Some(text) => time(text, now).ok_or_else(|| {
                Failure::bad(format!(
                    "'{}' is not a time: use now-24h, 2026-11-23T07:00:00Z or ms since 1970",
                    text.chars().take(40).collect::<String>()
                ))
            }),
        };
        let (from, to) = (read(&self.from, now - DAY)?, read(&self.to, now)?);
        if from >= to || to - from > 3660 * DAY {
            return Err(Failure::bad("the range of times is empty or longer than ten years"));
        }
        Ok((from, to))
    }
}

/// Returns a time in ms since 1970; `None` if the text is malformed.
pub(crate) fn time(text: &str, now: i64) -> Option<i64> {
    let text = text.trim();
    if let Some(rest) = text.strip_prefix("now") {
        if rest.is_empty() {
            return Some(now);
        }
        let span = rest.strip_prefix('-')?;
        let (digits, unit) = span.split_at_checked(span.len().checked_sub(1)?)?;
        let unit = match unit {
            "s" => SECOND,
            "m" => MINUTE,
            "h" => HOUR,
            "d" => DAY,
            "w" => 7 * DAY,
            "y" => 365 * DAY,
            _ => return None,
        };
        let span = digits.parse::<u32>().ok().map(i64::from)?.checked_mul(unit)?;
        // The difference of two times must fit.
        return now.checked_sub(span).filter(|at| *at >= 0);
    }
    if let Ok(ms) = text.parse::<i64>() {
        return (0..=4_102_444_800_000).contains(&ms).then_some(ms);
    }
    // A '+' of an offset is a space in a query.
    text.replace(' ', "+").parse::<Timestamp>().ok().map(Timestamp::as_millisecond)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_relative_or_absolute() {
        let now = 1_000_000_000_000;
        assert_eq!(time("now", now), Some(now));
        assert_eq!(time("now-24h", now), Some(now - DAY));
        assert_eq!(time("now-30m", now), Some(now - 30 * MINUTE));
        assert_eq!(time("1970-01-01T00:00:01Z", now), Some(1000));
        assert_eq!(time("1970-01-01T01:00:01 01:00", now), Some(1000));
        assert_eq!(time("1234", now), Some(1234));
        for bad in
            ["now-", "now-h", "now-1x", "now-\u{20ac}", "yesterday", "-5", "99999999999999999999"]
        {
            assert_eq!(time(bad, now), None, "{bad}");
        }
        let backwards = Range { from: Some("now".to_owned()), to: Some("now-1h".to_owned()) };
        assert!(backwards.times(now).is_err());
        // The difference of these times exceeds an i64.
        let all =
            Range { from: Some("now-292471208y".to_owned()), to: Some("4102444800000".to_owned()) };
        assert!(all.times(now).is_err());
    }
}
