use std::ops::Range;

use longhaul_core::plan::link::Probability;

use super::random::Stream;

/// Something that happens to each segment with the same chance, by itself.
///
/// The next segment that it happens to is drawn, not each segment's fate: a packet to which
/// nothing happens costs one comparison.
#[derive(Debug, Clone)]
pub(super) struct Chance {
    stream: Stream,
    p: f64,
    /// The number of the next segment that it happens to.
    next: u64,
}

impl Chance {
    /// With the chance `probability` for every segment from number `from` on.
    pub(super) fn new(stream: Stream, probability: Probability, from: u64) -> Self {
        let mut chance = Chance { stream, p: probability.get(), next: u64::MAX };
        if !probability.is_zero() {
            chance.next = from.saturating_add(chance.stream.failures(from, chance.p));
        }
        chance
    }

    /// The first of `segments` that it happens to and that was not asked for before.
    pub(super) fn take(&mut self, segments: &Range<u64>) -> Option<u64> {
        while self.next < segments.end {
            let hit = self.next;
            let after = hit + 1;
            // The number of a segment is the index of the draw that follows it, so that no draw
            // depends on how many were made.
            self.next = after.saturating_add(self.stream.failures(after, self.p));
            if hit >= segments.start {
                return Some(hit);
            }
        }
        None
    }
}
