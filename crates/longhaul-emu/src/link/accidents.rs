//! The stage for marks, damage and duplicates of single segments.

use longhaul_core::plan::{LinkPlan, Side};

use super::batch::Batch;
use super::random::{Chance, Purpose, Stream};
use super::{Corruption, Piece, Treatment};

/// The impairments of delivered segments: marks, damage and duplicates.
#[derive(Debug, Clone)]
pub(super) struct Accidents {
    mark: Chance,
    corrupt: Chance,
    corrupt_silent: Chance,
    duplicate: Chance,
    /// The random numbers that select the bit to damage.
    bits: Stream,
}

impl Accidents {
    /// Creates the impairments of `plan` for the direction from `from`, from segment `number` on;
    /// `None` if the plan has none.
    pub(super) fn new(plan: &LinkPlan, from: Side, number: u64) -> Option<Self> {
        let direction = plan.from(from);
        let stream = |purpose| Stream::new(plan.seed.unwrap_or(0), from, purpose);
        let chance = |purpose, p| Chance::new(stream(purpose), p, number);
        let probabilities =
            [direction.mark_ce, direction.corrupt, direction.corrupt_silent, direction.duplicate];
        let [mark_ce, corrupt, corrupt_silent, duplicate] = probabilities;
        probabilities.iter().any(|p| !p.is_zero()).then(|| Accidents {
            mark: chance(Purpose::Mark, mark_ce),
            corrupt: chance(Purpose::Corrupt, corrupt),
            corrupt_silent: chance(Purpose::CorruptSilent, corrupt_silent),
            duplicate: chance(Purpose::Duplicate, duplicate),
            bits: stream(Purpose::CorruptBit),
        })
    }

    /// Changes the treatment of single segments, and adds duplicates.
    pub(super) fn apply(&mut self, batch: &mut Batch) {
        let (numbers, packet) = (batch.numbers.clone(), batch.packet);
        let size = |batch: &Batch, number| {
            let segment = batch.segment(number);
            packet.count_of(segment..segment + 1)
        };
        while let Some(number) = self.mark.take(&numbers) {
            if !packet.ecn_capable {
                continue;
            }
            let Some(at) = batch.isolate(number) else { continue };
            if !std::mem::replace(&mut batch.pieces[at].treatment.mark_ce, true) {
                batch.counts.marked_ce += size(batch, number);
            }
        }
        while let Some(number) = self.corrupt.take(&numbers) {
            if let Some(at) = batch.isolate(number) {
                let bit = self.bits.bits(number);
                batch.pieces[at].treatment.corruption = Some(Corruption::Detected { bit });
                batch.counts.corrupted += size(batch, number);
            }
        }
        while let Some(number) = self.corrupt_silent.take(&numbers) {
            let Some(at) = batch.isolate(number) else { continue };
            // Detected damage takes precedence over silent damage.
            if batch.pieces[at].treatment.corruption.is_none() {
                let bit = self.bits.bits(number);
                batch.pieces[at].treatment.corruption = Some(Corruption::Silent { bit });
                batch.counts.corrupted_silent += size(batch, number);
            }
        }
        while let Some(number) = self.duplicate.take(&numbers) {
            if let Some(at) = batch.isolate(number) {
                // The duplicate is not damaged.
                let mark_ce = batch.pieces[at].treatment.mark_ce;
                let treatment = Treatment { mark_ce, duplicate: true, ..Treatment::default() };
                let duplicate = Piece { treatment, ..batch.pieces[at].clone() };
                batch.pieces.insert(at + 1, duplicate);
                batch.counts.duplicated += size(batch, number);
            }
        }
    }
}
