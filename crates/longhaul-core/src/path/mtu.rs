//! The search for the path MTU.

use std::collections::BTreeSet;
use std::ops::Range;

/// Common path MTUs in bytes of IP packet: jumbo frames, FDDI, Ethernet, PPPoE (RFC 2516), tunnels
/// over IPv4 and IPv6, VXLAN, WireGuard, the minimum of IPv6 (RFC 8200), X.25 and the minimum of
/// IPv4 (RFC 791); compare RFC 1191, section 7.1.
const COMMON: [u32; 16] =
    [9216, 9000, 8000, 4352, 2000, 1500, 1492, 1480, 1460, 1450, 1420, 1400, 1380, 1280, 1006, 576];

/// Finds the largest packet that passes, with as few tries as possible: first the size that a
/// router reported, then common sizes, then bisection.
///
/// Each size passes or does not; with loss the caller must try often enough to be sure. A late
/// answer may show that a size passes that was considered stopped.
#[derive(Debug, Clone)]
pub struct MtuSearch {
    /// The largest size that passed.
    passed: Option<u32>,
    /// The sizes that did not pass; all are larger.
    stopped: BTreeSet<u32>,
    floor: u32,
    ceiling: u32,
    hint: Option<u32>,
}

impl MtuSearch {
    /// Creates a search from `floor` to `ceiling`, both inclusive.
    pub fn new(floor: u32, ceiling: u32) -> Self {
        let ceiling = ceiling.max(floor);
        MtuSearch { passed: None, stopped: BTreeSet::new(), floor, ceiling, hint: None }
    }

    /// Returns the size to try next; `None` if the search is complete.
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
            // A size that was reported or is common is usually the answer.
            Some(passed) if COMMON.contains(&passed) || self.hint == Some(passed) => {
                Some(open.start)
            }
            Some(_) => Some(open.start + (top - open.start) / 2),
        }
    }

    /// Records that a packet of `size` arrived.
    pub fn passed(&mut self, size: u32) {
        if (self.floor..=self.ceiling).contains(&size) {
            self.passed = self.passed.max(Some(size));
            self.stopped.retain(|stopped| *stopped > size);
        }
    }

    /// Records that no packet of `size` arrives; `said` is the MTU that a router reported, if one
    /// did.
    pub fn stopped(&mut self, size: u32, said: Option<u32>) {
        if self.open().contains(&size) {
            self.stopped.insert(size);
            self.hint = said;
        }
    }

    /// Returns the largest packet that arrived.
    pub fn largest(&self) -> Option<u32> {
        self.passed
    }

    /// Returns the smallest size that did not arrive; `None` if the largest possible size did.
    pub fn smallest_stopped(&self) -> Option<u32> {
        self.stopped.first().copied()
    }

    /// Returns the range of sizes not decided yet.
    fn open(&self) -> Range<u32> {
        let end = self.smallest_stopped().unwrap_or(self.ceiling + 1);
        self.passed.map_or(self.floor, |passed| passed + 1)..end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches a path of `mtu`. Routers report their MTU if `said` is true. Returns the result and
    /// the number of tries.
    fn search(floor: u32, ceiling: u32, mtu: u32, said: bool) -> (Option<u32>, u32) {
        let mut search = MtuSearch::new(floor, ceiling);
        let mut tries = 0;
        while let Some(size) = search.next() {
            tries += 1;
            assert!(tries < 64, "it ends");
            if size <= mtu {
                search.passed(size);
            } else {
                search.stopped(size, said.then_some(mtu));
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
        // The largest size passes.
        assert_eq!(search(68, 1500, 1500, false), (Some(1500), 1));
        // A router reports its MTU: the large size, the reported one, one more.
        assert_eq!(search(68, 9000, 1437, true), (Some(1437), 3));
        // No router reports, but the size is common.
        assert_eq!(search(68, 9000, 1500, false).1, 6);
        assert!(search(68, 65_535, 1437, false).1 < 25);
    }

    #[test]
    fn an_mtu_reported_by_a_router_is_probed() {
        let mut search = MtuSearch::new(68, 9000);
        search.stopped(9000, Some(0));
        assert_eq!(search.next(), Some(8000));
        search.stopped(8000, Some(u32::MAX));
        assert_eq!(search.next(), Some(4352));
        search.stopped(4352, Some(3000));
        assert_eq!(search.next(), Some(3000));
        search.passed(3000);
        // Sizes that are known already, and impossible ones.
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
