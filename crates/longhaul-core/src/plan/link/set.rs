//! Sets of segments. The segments of a direction are numbered from 1.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A set of segment numbers. `3,17,100-105` selects each segment once; `5-9/1000` selects the
/// segments 5 to 9 of every 1000.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SegmentSet {
    /// Sorted, disjoint and non-empty ranges of numbers from 1.
    ranges: Vec<(u64, u64)>,
    /// The number of segments after which the numbers start again at 1.
    period: Option<u64>,
}

/// The reason why a text is not a set of segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}", SegmentSet::FORM)]
pub struct NotASegmentSet;

impl SegmentSet {
    /// The form of a valid text, for error messages.
    pub const FORM: &str = "segments are numbered from 1 and written like 3,17,100-105, or like \
                            5-9/1000 for those of every 1000";

    /// Creates the set of `ranges`, sorted and joined; `None` if a range is empty, contains 0 or
    /// exceeds `period`.
    pub fn new(
        ranges: impl IntoIterator<Item = RangeInclusive<u64>>,
        period: Option<u64>,
    ) -> Option<Self> {
        let mut sorted: Vec<(u64, u64)> =
            ranges.into_iter().map(RangeInclusive::into_inner).collect();
        let last = period.unwrap_or(u64::MAX - 1);
        if sorted.iter().any(|(first, end)| *first == 0 || first > end || *end > last) {
            return None;
        }
        sorted.sort_unstable();
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for (first, end) in sorted {
            match ranges.last_mut() {
                Some(before) if first <= before.1 + 1 => before.1 = before.1.max(end),
                _ => ranges.push((first, end)),
            }
        }
        (period != Some(0)).then_some(SegmentSet { ranges, period })
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the first and last number of the first range that ends at `from` or later. The
    /// ranges of a periodic set continue without end.
    pub fn run_from(&self, from: u64) -> Option<(u64, u64)> {
        let period = self.period.unwrap_or(u64::MAX);
        let from = from.max(1);
        let start = (from - 1) / period * period;
        let inside = from - start;
        let at = self.ranges.partition_point(|(_, end)| *end < inside);
        match (self.ranges.get(at), self.ranges.first(), self.period) {
            (Some((first, end)), ..) => Some((start + first, start + end)),
            (None, Some((first, end)), Some(period)) => {
                Some((start + period + first, start + period + end))
            }
            _ => None,
        }
    }
}

impl FromStr for SegmentSet {
    type Err = NotASegmentSet;

    fn from_str(text: &str) -> Result<Self, NotASegmentSet> {
        let number = |text: &str| text.trim().parse::<u64>().map_err(|_| NotASegmentSet);
        let (list, period) = match text.split_once('/') {
            Some((list, period)) => (list, Some(number(period)?)),
            None => (text, None),
        };
        let range = |item: &str| match item.split_once('-') {
            Some((first, last)) => Ok(number(first)?..=number(last)?),
            None => number(item).map(|n| n..=n),
        };
        let ranges = list.split(',').map(range).collect::<Result<Vec<_>, _>>()?;
        SegmentSet::new(ranges, period).ok_or(NotASegmentSet)
    }
}

impl TryFrom<String> for SegmentSet {
    type Error = NotASegmentSet;

    fn try_from(text: String) -> Result<Self, NotASegmentSet> {
        text.parse()
    }
}

impl From<SegmentSet> for String {
    fn from(set: SegmentSet) -> String {
        set.to_string()
    }
}

impl fmt::Display for SegmentSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (first, last)) in self.ranges.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        match self.period {
            Some(period) => write!(f, "/{period}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_sorted_joined_and_printed_as_read() {
        let set: SegmentSet = "100-105, 3,17,4".parse().unwrap();
        assert_eq!(set.to_string(), "3-4,17,100-105");
        assert_eq!(set.run_from(0), Some((3, 4)));
        assert_eq!(set.run_from(5), Some((17, 17)));
        assert_eq!(set.run_from(101), Some((100, 105)));
        assert_eq!(set.run_from(106), None);
        for text in ["", "0", "5-3", "x", "1-", "7/5", "1/0", "3,,4"] {
            assert!(text.parse::<SegmentSet>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_period_starts_the_numbers_again() {
        let set: SegmentSet = "1,10/10".parse().unwrap();
        let runs: Vec<_> = [1, 2, 11, 12, 20, 21].map(|from| set.run_from(from).unwrap()).into();
        assert_eq!(runs, [(1, 1), (10, 10), (11, 11), (20, 20), (20, 20), (21, 21)]);
    }
}
