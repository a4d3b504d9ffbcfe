//! A set of the blocks of a file.

use std::collections::BTreeMap;

/// Returns the runs of bytes that `extents` form together, each as an offset and a length.
pub(super) fn joined(mut extents: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    extents.sort_unstable();
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for (offset, length) in extents {
        let end = offset.saturating_add(length);
        match runs.last_mut() {
            Some((start, known)) if offset <= *start + *known => {
                *known = (*known).max(end - *start);
            }
            _ => runs.push((offset, length)),
        }
    }
    runs
}

/// A set of a file's blocks. Its memory follows the number of gaps, not the size of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct BlockSet {
    /// By the first block of each run, the block after its last.
    runs: BTreeMap<u64, u64>,
    count: u64,
}

impl BlockSet {
    /// Creates the set of `spans`, each a first block and a count; `None` if a span is empty or
    /// ends after `blocks`.
    pub(super) fn from_spans(spans: &[(u64, u64)], blocks: u64) -> Option<Self> {
        let mut set = BlockSet::default();
        for (first, count) in spans {
            let end = first.checked_add(*count).filter(|end| *end <= blocks && *count > 0)?;
            set.insert(*first, end);
        }
        Some(set)
    }

    /// Returns the blocks of a file of `size` bytes that `extents` cover completely. An extent is
    /// an offset and a length in bytes; the part after the end of the file is ignored.
    pub(super) fn whole_in(extents: &[(u64, u64)], block_bytes: u64, size: u64) -> Self {
        let mut set = BlockSet::default();
        for (offset, length) in extents {
            let end = offset.saturating_add(*length);
            let first = offset.div_ceil(block_bytes);
            let end = if end >= size { size.div_ceil(block_bytes) } else { end / block_bytes };
            if first < end {
                set.insert(first, end);
            }
        }
        set
    }

    /// Returns the blocks of the set that overlap the bytes from `offset` to before `offset +
    /// length`.
    pub(super) fn touching(&self, (offset, length): (u64, u64), block_bytes: u64) -> Vec<u64> {
        let end = offset.saturating_add(length).div_ceil(block_bytes);
        (offset / block_bytes..end).filter(|block| self.contains(*block)).collect()
    }

    /// Adds the blocks from `first` to before `end`, and returns how many are new.
    pub(super) fn insert(&mut self, first: u64, end: u64) -> u64 {
        let (mut start, mut stop, mut known) = (first, end, 0);
        // The runs that touch the new one, from the last backwards.
        while let Some((&run, &run_end)) = self.runs.range(..=stop).next_back() {
            if run_end < start {
                break;
            }
            known += run_end - run;
            start = start.min(run);
            stop = stop.max(run_end);
            self.runs.remove(&run);
        }
        self.runs.insert(start, stop);
        let new = stop - start - known;
        self.count += new;
        new
    }

    pub(super) fn contains(&self, block: u64) -> bool {
        self.runs.range(..=block).next_back().is_some_and(|(_, end)| block < *end)
    }

    /// Returns the number of blocks in the set.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the blocks of the set that are not in `other`.
    pub(super) fn without(&self, other: &BlockSet) -> BlockSet {
        let mut set = BlockSet::default();
        for (&first, &end) in &self.runs {
            let mut at = first;
            let before = other.runs.range(..=first).next_back();
            let within = other.runs.range(first + 1..).take_while(|(run, _)| **run < end);
            for (&run, &run_end) in before.into_iter().chain(within) {
                if run > at {
                    set.insert(at, run);
                }
                at = at.max(run_end);
            }
            if at < end {
                set.insert(at, end);
            }
        }
        set
    }

    /// Returns the block after the last one of the set.
    pub(super) fn end(&self) -> u64 {
        self.runs.last_key_value().map_or(0, |(_, end)| *end)
    }

    /// Returns the number of blocks from the first one to the first gap.
    pub(super) fn leading(&self) -> u64 {
        self.runs.get(&0).copied().unwrap_or(0)
    }

    /// Returns the runs of consecutive blocks, each as its first block and the number of blocks.
    pub(super) fn spans(&self) -> Vec<(u64, u64)> {
        self.runs.iter().map(|(first, end)| (*first, end - first)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_grow_together() {
        let mut set = BlockSet::default();
        assert_eq!(set.insert(5, 6), 1);
        assert_eq!(set.insert(5, 6), 0, "a block that comes twice is one");
        assert_eq!(set.insert(7, 9), 2);
        assert_eq!(set.insert(0, 2), 2);
        assert_eq!(set.spans(), [(0, 2), (5, 1), (7, 2)]);
        assert_eq!((set.leading(), BlockSet::default().leading()), (2, 0));
        assert_eq!((set.end(), BlockSet::default().end()), (9, 0));
        assert_eq!(set.insert(6, 7), 1);
        assert_eq!(set.spans(), [(0, 2), (5, 4)]);
        assert_eq!(set.insert(1, 20), 14);
        assert_eq!((set.spans(), set.count()), (vec![(0, 20)], 20));
        assert!(set.contains(0) && set.contains(19) && !set.contains(20));
    }

    #[test]
    fn blocks_of_one_size_become_those_of_another() {
        let whole =
            |extents: &[(u64, u64)], block, size| BlockSet::whole_in(extents, block, size).spans();
        let extents = [(10, 20), (40, 15)];
        assert_eq!(whole(&extents, 10, 55), [(1, 2), (4, 2)], "the same size changes nothing");
        assert_eq!(whole(&extents, 20, 55), [(2, 1)], "10 to 19 and 20 to 29 are halves");
        assert_eq!(whole(&extents, 5, 55), [(2, 4), (8, 3)]);
        assert_eq!(whole(&extents, 7, 55), [(2, 2), (6, 2)]);
        assert_eq!(whole(&[(0, 60)], 40, 55), [(0, 2)], "whole, as far as it goes");
        let hostile = [(u64::MAX, u64::MAX), (70, 9), (3, 0), (0, u64::MAX)];
        assert_eq!(whole(&hostile, 10, 55), [(0, 6)]);
        assert!(whole(&[(0, 9)], 10, u64::MAX).is_empty(), "a stream has no end yet");
    }

    #[test]
    fn a_set_is_cut_by_another() {
        let set = |runs: &[(u64, u64)]| BlockSet::from_spans(runs, 100).unwrap();
        let all = set(&[(2, 8), (20, 5)]);
        let without = |runs: &[(u64, u64)]| all.without(&set(runs)).spans();
        assert_eq!(without(&[]), all.spans());
        assert_eq!(without(&[(0, 100)]), []);
        assert_eq!(without(&[(0, 3), (5, 1), (9, 12), (24, 1)]), [(3, 2), (6, 3), (21, 3)]);
        assert_eq!(all.without(&set(&[(2, 1), (22, 1)])).count(), 11);
    }

    #[test]
    fn extents_that_touch_are_one_run() {
        assert_eq!(joined(vec![(20, 5), (0, 10), (10, 3), (21, 2), (12, 4)]), [(0, 16), (20, 5)]);
        assert!(joined(Vec::new()).is_empty());
    }

    #[test]
    fn blocks_are_found_by_their_bytes() {
        let mut set = BlockSet::default();
        set.insert(1, 3);
        set.insert(4, 6);
        assert_eq!(set.touching((25, 20), 10), [2, 4]);
        assert_eq!(set.touching((30, 10), 10), [0; 0]);
    }

    #[test]
    fn spans_from_a_peer_are_bounded() {
        let set = BlockSet::from_spans(&[(3, 2), (0, 1)], 5).unwrap();
        assert_eq!(set.spans(), [(0, 1), (3, 2)]);
        for bad in [(3, 3), (0, 0), (u64::MAX, 1), (1, u64::MAX)] {
            assert_eq!(BlockSet::from_spans(&[bad], 5), None, "{bad:?}");
        }
    }
}
