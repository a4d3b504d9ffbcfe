//! The loss and order of probes: runs of lost ones, and those that arrive out of order.

use std::collections::{BTreeMap, VecDeque};

/// The maximum number of arrivals with a new highest number that are kept: enough for reordering of
/// 80 ms at a million packets per second. Beyond this an extent is a lower bound.
const MOST_RECORDS: usize = 1 << 16;
/// The number of directly preceding arrivals that are kept: TCP needs three (RFC 5681), and results
/// stop at this many.
const RECENT: usize = 64;

/// Counts packets out of order as in RFC 4737. A packet is reordered if a packet with a higher
/// number arrived before it. Its *extent* is the number of packets that arrived since the first of
/// these. It is *n-reordered* if the `n` packets directly before it all have higher numbers; with n
/// = 3 TCP considers it lost. Duplicates must not be passed.
#[derive(Debug, Clone, Default)]
pub struct Reordering {
    /// The highest number plus one.
    next: u64,
    /// The number of arrivals so far.
    position: u64,
    /// The number, position and time of each arrival that had the highest number so far.
    records: VecDeque<(u64, u64, u64)>,
    recent: VecDeque<u64>,
    reordered: u64,
    extents: u64,
    max_extent: u64,
    three_reordered: u64,
    max_late_ns: u64,
}

impl Reordering {
    /// Records the arrival of packet `number` at a time in ns, on any clock.
    pub fn take(&mut self, number: u64, at_ns: u64) {
        if number >= self.next {
            self.next = number.saturating_add(1);
            if self.records.len() == MOST_RECORDS {
                self.records.pop_front();
            }
            self.records.push_back((number, self.position, at_ns));
        } else {
            self.reordered += 1;
            // Numbers and positions increase together, so bisection finds the first higher number.
            // If that record was dropped, the extent is a lower bound.
            let first = self.records.partition_point(|(known, ..)| *known < number);
            if let Some((_, position, then_ns)) = self.records.get(first) {
                let extent = self.position - position;
                self.extents += extent;
                self.max_extent = self.max_extent.max(extent);
                self.max_late_ns = self.max_late_ns.max(at_ns.saturating_sub(*then_ns));
            }
            let directly = self.recent.iter().rev().take_while(|before| **before > number).count();
            self.three_reordered += u64::from(directly >= 3);
        }
        self.position += 1;
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(number);
    }

    /// Returns the number of reordered packets.
    pub fn reordered(&self) -> u64 {
        self.reordered
    }

    /// Returns the number of packets that TCP would consider lost.
    pub fn three_reordered(&self) -> u64 {
        self.three_reordered
    }

    /// Returns the largest and the mean extent in packets; 0 without reordering.
    pub fn extents(&self) -> (u64, f64) {
        (self.max_extent, self.extents as f64 / self.reordered.max(1) as f64)
    }

    /// Returns the longest time in ms by which a packet arrived after the first with a higher
    /// number.
    pub fn max_late_ms(&self) -> f64 {
        self.max_late_ns as f64 / 1e6
    }
}

/// The maximum number of gaps that are kept; a stream with more has no count of bursts.
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

    fn of(numbers: &[u64]) -> Reordering {
        let mut reordering = Reordering::default();
        for (at, number) in numbers.iter().enumerate() {
            reordering.take(*number, at as u64 * 1_000_000);
        }
        reordering
    }

    #[test]
    fn the_example_of_the_rfc() {
        // RFC 4737, table 1: 1 2 3 5 6 7 8 4 9 10; packet 4 has an extent of 4, and is 4-reordered.
        let one = of(&[1, 2, 3, 5, 6, 7, 8, 4, 9, 10]);
        assert_eq!((one.reordered(), one.extents(), one.three_reordered()), (1, (4, 4.0), 1));
        assert!((one.max_late_ms() - 4.0).abs() < 1e-9);
        // Several: 5, 6 and 4 are reordered, with extents 1, 2 and 4; only 4 is 3-reordered.
        let two = of(&[1, 2, 3, 7, 5, 6, 8, 4, 9, 10]);
        assert_eq!((two.reordered(), two.extents().0, two.three_reordered()), (3, 4, 1));
        assert!((two.extents().1 - 7.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn in_order_or_with_losses_nothing_is_amiss() {
        let none = of(&[0, 1, 5, 6, 9]);
        assert_eq!((none.reordered(), none.extents()), (0, (0, 0.0)));
        assert_eq!(of(&[u64::MAX, 0]).reordered(), 1);
    }

    #[test]
    fn memory_is_bounded_and_counts_go_on() {
        let mut reordering = Reordering::default();
        for number in 10..3 * MOST_RECORDS as u64 {
            reordering.take(number, number);
        }
        reordering.take(0, 0);
        assert_eq!((reordering.reordered(), reordering.records.len()), (1, MOST_RECORDS));
        assert_eq!(reordering.extents().0, MOST_RECORDS as u64, "a lower bound");
    }

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
