//! The range of times in the URL of a page or request.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::failure::Failure;
use crate::clock::{DAY, HOUR, MINUTE, SECOND};

/// The longest range in ms, and the shortest one to which the links of a page zoom.
const LONGEST: i64 = 3660 * DAY;
const SHORTEST: i64 = 10 * SECOND;

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
        if from >= to || to - from > LONGEST {
            return Err(Failure::bad("the range of times is empty or longer than ten years"));
        }
        Ok((from, to))
    }

    /// Returns the ranges beside this one, whose times are `from` and `to`, as words and queries: the
    /// ranges that are half and twice as long, and those half a length earlier and later. A range that
    /// ends now still ends now when it is zoomed.
    pub(crate) fn steps(&self, (from, to): (i64, i64)) -> Vec<(&'static str, String)> {
        let (length, half) = (to - from, (to - from) / 2);
        let ends_now = matches!(self.to.as_deref(), None | Some("" | "now"));
        let around = |length: i64, from: i64| {
            if ends_now {
                format!("from=now-{}&to=now", span_text(length))
            } else {
                format!("from={}&to={}", from.max(0), from.max(0) + length)
            }
        };
        let mut steps = Vec::new();
        if half >= SHORTEST {
            steps.push(("Zoom in", around(half, from + half / 2)));
        }
        if 2 * length <= LONGEST {
            steps.push(("Zoom out", around(2 * length, from - half)));
        }
        if from > half {
            steps.push(("Earlier", format!("from={}&to={}", from - half, to - half)));
        }
        if !ends_now {
            steps.push(("Later", format!("from={}&to={}", from + half, to + half)));
        }
        steps
    }
}

/// Returns a length as in `now-90m`, in the largest unit that divides it.
fn span_text(ms: i64) -> String {
    let units = [(DAY, "d"), (HOUR, "h"), (MINUTE, "m")];
    let (unit, name) = units.into_iter().find(|(unit, _)| ms % unit == 0).unwrap_or((SECOND, "s"));
    format!("{}{name}", ms / unit)
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

    #[test]
    fn steps_zoom_and_move_a_range() {
        let now = 1_800_000_000_000;
        let steps = |from: &str, to: &str| {
            let range = Range { from: Some(from.to_owned()), to: Some(to.to_owned()) };
            let steps = range.steps(range.times(now).unwrap());
            for (word, query) in &steps {
                let (from, to) = query.strip_prefix("from=").unwrap().split_once("&to=").unwrap();
                let next = Range { from: Some(from.to_owned()), to: Some(to.to_owned()) };
                assert!(next.times(now).is_ok(), "{word} {query}");
            }
            steps
        };
        let day = steps("now-24h", "now");
        let query = |steps: &[(&str, String)], word: &str| {
            let found = steps.iter().find(|(one, _)| *one == word);
            found.map(|(_, query)| query.clone())
        };
        assert_eq!(query(&day, "Zoom in").unwrap(), "from=now-12h&to=now");
        assert_eq!(query(&day, "Zoom out").unwrap(), "from=now-2d&to=now");
        let earlier = format!("from={}&to={}", now - 36 * HOUR, now - 12 * HOUR);
        assert_eq!(query(&day, "Earlier").unwrap(), earlier);
        assert_eq!(query(&day, "Later"), None, "the range ends now");
        let past = steps("1000000000000", "1000000400000");
        assert_eq!(query(&past, "Zoom in").unwrap(), "from=1000000100000&to=1000000300000");
        assert_eq!(query(&past, "Zoom out").unwrap(), "from=999999800000&to=1000000600000");
        assert_eq!(query(&past, "Later").unwrap(), "from=1000000200000&to=1000000600000");
        assert_eq!(query(&steps("now-15s", "now"), "Zoom in"), None, "seconds are the end");
        assert_eq!(query(&steps("now-9y", "now"), "Zoom out"), None, "ten years are the end");
        assert!(steps("0", "4000").iter().all(|(word, _)| *word != "Earlier"));
    }
}
