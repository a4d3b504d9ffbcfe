//! Counters that many threads add to without sharing a cache line.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The number of cache lines of a counter. A thread uses one of them; with more threads, some share.
const LANES: usize = 32;

/// A part of a counter on a separate pair of cache lines, which processors prefetch together.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Lane(AtomicU64);

/// A counter. The connections of a copy count every piece of a block in such counters.
#[derive(Debug)]
pub(crate) struct Lanes(Box<[Lane]>);

impl Default for Lanes {
    fn default() -> Self {
        Lanes((0..LANES).map(|_| Lane::default()).collect())
    }
}

impl Lanes {
    /// Adds to the part of the calling thread.
    pub(crate) fn add(&self, count: u64) {
        self.own().fetch_add(count, Ordering::Relaxed);
    }

    /// Subtracts what the calling thread has added before.
    pub(crate) fn subtract(&self, count: u64) {
        self.own().fetch_sub(count, Ordering::Relaxed);
    }

    /// The sum over all threads.
    pub(crate) fn sum(&self) -> u64 {
        self.0.iter().fold(0, |sum, lane| sum.wrapping_add(lane.0.load(Ordering::Relaxed)))
    }

    fn own(&self) -> &AtomicU64 {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        thread_local!(static LANE: usize = THREADS.fetch_add(1, Ordering::Relaxed) % LANES);
        &self.0[LANE.with(|lane| *lane)].0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_over_all_threads() {
        let lanes = Lanes::default();
        std::thread::scope(|scope| {
            for thread in 0..2 * LANES as u64 {
                let lanes = &lanes;
                scope.spawn(move || {
                    (0..100).for_each(|_| lanes.add(thread));
                    lanes.subtract(50 * thread);
                });
            }
        });
        let threads = 2 * LANES as u64;
        assert_eq!(lanes.sum(), 50 * threads * (threads - 1) / 2);
    }
}
