//! A random event that affects each segment independently with the same probability.

use std::ops::Range;

use longhaul_core::plan::link::Probability;

use super::random::Stream;

/// A random event that affects each segment independently with the same probability.
///
/// The generator draws the number of the next affected segment instead of deciding for each one, so
/// that a packet without an event costs one comparison.
#[derive(Debug, Clone)]
pub(super) struct Chance {
    stream: Stream,
    p: f64,
    /// The number of the next affected segment.
    next: u64,
}

impl Chance {
    /// Creates an event of `probability` for every segment from number `from` on.
    pub(super) fn new(stream: Stream, probability: Probability, from: u64) -> Self {
        let mut chance = Chance { stream, p: probability.get(), next: u64::MAX };
        if !probability.is_zero() {
            chance.next = from.saturating_add(chance.stream.failures(from, chance.p));
        }
        chance
    }

    /// Returns the first affected segment in `segments` that was not returned before.
    pub(super) fn take(&mut self, segments: &Range<u64>) -> Option<u64> {
        while self.next < segments.end {
            let hit = self.next;
            let after = hit + 1;
            // The draw after a segment is indexed by its number, so that no draw depends on how
            // many were made.
            self.next = after.saturating_add(self.stream.failures(after, self.p));
            if hit >= segments.start {
                return Some(hit);
            }
        }
        None
    }
}
