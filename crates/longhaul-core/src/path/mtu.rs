use std::collections::BTreeSet;
use std::ops::Range;

/// Sizes at which paths often end, in bytes of IP packet: jumbo frames, FDDI, Ethernet, PPPoE
/// (RFC 2516), tunnels over IPv4 and IPv6, VXLAN, WireGuard, the least of IPv6 (RFC 8200), X.25 and
/// the least that every host of IPv4 takes (RFC 791); compare RFC 1191, section 7.1.
const COMMON: [u32; 16] =
    [9216, 9000, 8000, 4352, 2000, 1500, 1492, 1480, 1460, 1450, 1420, 1400, 1380, 1280, 1006, 576];

/// Finds the largest packet that passes, by as few tries as possible: what a router said, sizes
/// that are common, then halves.
///
/// A size is known to pass or not to; with loss the caller tries often enough to be sure of that. An
/// answer that comes late may show that a size passes which was given up.
#[derive(Debug, Clone)]
pub struct MtuSearch {
    /// The largest that passed.
    passed: Option<u32>,
    /// Those that did not; all are larger.
    stopped: BTreeSet<u32>,
    floor: u32,
    ceiling: u32,
    hint: Option<u32>,
}

impl MtuSearch {
    /// A search from `floor` to `ceiling`, both included.
    pub fn new(floor: u32, ceiling: u32) -> Self {
        let ceiling = ceiling.max(floor);
        MtuSearch { passed: None, stopped: BTreeSet::new(), floor, ceiling, hint: None }
    }

    /// The size to try next; `None` when all is known.
    pub fn next(&self) -> Option<u32> {
        let open = self.open();
        if open.is_empty() {
            return None;
        }
        if let Some(hint) = self.hint.filter(|hint| open.contains(hint)) {
            return Some(hint);
        }
        let top = open.end - 1;
        match self.passed {
            None if self.stopped.is_empty() => Some(top),
            None => Some(COMMON.into_iter().find(|size| open.contains(size)).unwrap_or(open.start)),
            // A size that was said or is common is most often the answer itself.
            Some(passed) if COMMON.contains(&passed) || self.hint == Some(passed) => {
                Some(open.start)
            }
            Some(_) => Some(open.start + (top - open.start) / 2),
        }
    }

    /// A packet of `size` arrived.
    pub fn passed(&mut self, size: u32) {
        if (self.floor..=self.ceiling).contains(&size) {
            self.passed = self.passed.max(Some(size));
            self.stopped.retain(|stopped| *stopped > size);
        }
    }

    /// None of `size` arrives; `said` is how much a router lets through, where one said it.
    pub fn stopped(&mut self, size: u32, said: Option<u32>) {
        if self.open().contains(&size) {
            self.stopped.insert(size);
            self.hint = said;
        }
    }

    /// The largest packet that arrived.
    pub fn largest(&self) -> Option<u32> {
        self.passed
    }

    /// The smallest that did not; `None` when the largest that can be tried did.
    pub fn smallest_stopped(&self) -> Option<u32> {
        self.stopped.first().copied()
    }

    /// What is not known yet.
    fn open(&self) -> Range<u32> {
        let end = self.smallest_stopped().unwrap_or(self.ceiling + 1);
        self.passed.map_or(self.floor, |passed| passed + 1)..end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches a path of `mtu`; routers say what they let through where `said` is true. Returns
    /// what was found and how many tries that took.
    fn search(floor: u32, ceiling: u32, mtu: u32, said: bool) -> (Option<u32>, u32) {
        let mut search = MtuSearch::new(floor, ceiling);
        let mut tries = 0;
        while let Some(size) = search.next() {
            tries += 1;
            assert!(tries < 64, "it ends");
            match size <= mtu {
                true => search.passed(size),
                false => search.stopped(size, said.then_some(mtu)),
            }
        }
        if let Some(found) = search.largest() {
            assert_eq!(search.smallest_stopped(), (found < ceiling).then_some(found + 1));
        }
        (search.largest(), tries)
    }

    #[test]
    fn every_mtu_is_found_exactly() {
        for mtu in (68..=9100).step_by(7).chain([1500, 1499, 1501, 9000, 8999, 68, 69]) {
            for said in [false, true] {
                let expected = mtu.min(9000);
                assert_eq!(search(68, 9000, mtu, said).0, Some(expected), "{mtu} {said}");
            }
        }
        assert_eq!(search(576, 1500, 500, false).0, None);
        assert_eq!(search(1500, 100, 1500, false).0, Some(1500));
    }

    #[test]
    fn the_usual_takes_few_tries() {
        // The whole size passes.
        assert_eq!(search(68, 1500, 1500, false), (Some(1500), 1));
        // A router says it: the large one, what was said, one more.
        assert_eq!(search(68, 9000, 1437, true), (Some(1437), 3));
        // Nobody says it, but it is a common one.
        assert_eq!(search(68, 9000, 1500, false).1, 6);
        assert!(search(68, 65_535, 1437, false).1 < 25);
    }

    #[test]
    fn what_a_router_says_is_tried_and_not_believed() {
        let mut search = MtuSearch::new(68, 9000);
        search.stopped(9000, Some(0));
        assert_eq!(search.next(), Some(8000));
        search.stopped(8000, Some(u32::MAX));
        assert_eq!(search.next(), Some(4352));
        search.stopped(4352, Some(3000));
        assert_eq!(search.next(), Some(3000));
        search.passed(3000);
        // What is known already, and what cannot be.
        search.stopped(2000, None);
        search.passed(10_000);
        assert_eq!((search.largest(), search.next()), (Some(3000), Some(3001)));
    }

    #[test]
    fn an_answer_that_comes_late_counts() {
        let mut search = MtuSearch::new(68, 9000);
        for size in [9000, 8000, 4352] {
            search.stopped(size, None);
        }
        search.passed(8000);
        assert_eq!((search.largest(), search.smallest_stopped()), (Some(8000), Some(9000)));
        search.passed(9000);
        assert_eq!((search.largest(), search.smallest_stopped()), (Some(9000), None));
        assert_eq!(search.next(), None);
    }
}
