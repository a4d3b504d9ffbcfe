//! The bursts in which packets of a numbered stream were lost.

use std::collections::BTreeMap;

/// The most gaps that are kept; a stream with more has no count of bursts.
const MOST_GAPS: usize = 1 << 16;

/// Counts the maximal runs of missing numbers. A packet that arrives late closes, shortens or
/// splits its run. Memory is bounded by 65,536 runs.
#[derive(Debug, Default)]
pub struct Bursts {
    /// The runs of missing numbers: first number to the number after the last.
    gaps: BTreeMap<u64, u64>,
    /// The number after the highest one that arrived.
    next: u64,
    overflowed: bool,
}

impl Bursts {
    /// Records the arrival of packet `number`, counted from 0. Duplicates are allowed.
    pub fn take(&mut self, number: u64) {
        if number >= self.next {
            self.insert(self.next, number);
            self.next = number.saturating_add(1);
            return;
        }
        let Some((&first, &end)) = self.gaps.range(..=number).next_back() else { return };
        if number < end {
            self.gaps.remove(&first);
            self.insert(first, number);
            self.insert(number + 1, end);
        }
    }

    /// Returns the number of runs in a stream of `sent` packets; `None` if there were too many to
    /// keep.
    pub fn count(&self, sent: u64) -> Option<u64> {
        let tail = u64::from(sent > self.next);
        (!self.overflowed).then_some(self.gaps.len() as u64 + tail)
    }

    fn insert(&mut self, first: u64, end: u64) {
        if first >= end {
            return;
        }
        if self.gaps.len() < MOST_GAPS {
            self.gaps.insert(first, end);
        } else {
            self.overflowed = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bursts(numbers: impl IntoIterator<Item = u64>, sent: u64) -> Option<u64> {
        let mut bursts = Bursts::default();
        numbers.into_iter().for_each(|number| bursts.take(number));
        bursts.count(sent)
    }

    #[test]
    fn runs_of_missing_numbers_are_bursts() {
        assert_eq!(bursts([0, 1, 2], 3), Some(0));
        assert_eq!(bursts([], 3), Some(1));
        assert_eq!(bursts([0, 4, 5, 9], 12), Some(3), "1-3, 6-8 and 10-11");
    }

    #[test]
    fn a_late_packet_closes_shortens_or_splits_its_run() {
        assert_eq!(bursts([0, 2, 1], 3), Some(0));
        assert_eq!(bursts([0, 9, 1, 8], 10), Some(1), "2-7");
        assert_eq!(bursts([0, 9, 5, 5], 10), Some(2), "1-4 and 6-8");
    }

    #[test]
    fn a_peer_with_invented_numbers_uses_bounded_memory() {
        assert_eq!(bursts((0..100_000).map(|n| n * 2), 200_000), None);
        assert_eq!(bursts([u64::MAX, 0, u64::MAX], 10), Some(1));
    }
}
