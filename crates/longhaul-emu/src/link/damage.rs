//! The stages that change single segments: bit errors, marks, damage and duplicates.

use std::ops::Range;

use longhaul_core::plan::{LinkPlan, Side};

use super::batch::Batch;
use super::random::{Chance, Purpose, Stream};
use super::{Corruption, DropReason, Piece, Treatment};

/// The impairments of delivered segments: marks, damage and duplicates.
#[derive(Debug, Clone)]
pub(super) struct DamageStage {
    mark: Chance,
    corrupt: Chance,
    corrupt_silent: Chance,
    duplicate: Chance,
    /// The random numbers that select the bit to damage.
    bits: Stream,
}

impl DamageStage {
    /// Creates the impairments of `plan` for the direction from `from`, from segment `number` on;
    /// `None` if the plan has none.
    pub(super) fn new(plan: &LinkPlan, from: Side, number: u64) -> Option<Self> {
        let direction = plan.from(from);
        let stream = |purpose| Stream::new(plan.seed.unwrap_or(0), from, purpose);
        let chance = |purpose, p| Chance::new(stream(purpose), p, number);
        let probabilities =
            [direction.mark_ce, direction.corrupt, direction.corrupt_silent, direction.duplicate];
        let [mark_ce, corrupt, corrupt_silent, duplicate] = probabilities;
        probabilities.iter().any(|p| !p.is_zero()).then(|| DamageStage {
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

/// Independent errors of single bits. The model draws the number of correct bits before the next
/// error, so the cost is proportional to the errors.
#[derive(Debug, Clone)]
pub(super) struct BitErrors {
    stream: Stream,
    rate: f64,
    overhead: u32,
    /// The number of correct bits before the next wrong one.
    correct: u64,
}

impl BitErrors {
    /// Creates the errors of `plan` in the direction from `from`, from segment `number` on; `None`
    /// if there are none.
    pub(super) fn new(plan: &LinkPlan, from: Side, number: u64) -> Option<Self> {
        let direction = plan.from(from);
        let rate = direction.bit_errors.get();
        let stream = Stream::new(plan.seed.unwrap_or(0), from, Purpose::BitError);
        (rate > 0.0).then(|| BitErrors {
            stream,
            rate,
            overhead: direction.overhead_bytes,
            correct: stream.failures(number, rate),
        })
    }

    /// Drops the segments that have a wrong bit.
    pub(super) fn apply(&mut self, batch: &mut Batch) {
        if let [piece] = batch.pieces.as_slice()
            && self.pass(self.bits(batch, piece.segments.clone()))
        {
            return;
        }
        batch.retain_segments(|batch, segment| {
            let one = segment..segment + 1;
            let is_correct = self.pass(self.bits(batch, one.clone()));
            if !is_correct {
                batch.lose(DropReason::BitError, one);
                // Further errors in this segment have no effect.
                self.correct = self.stream.failures(batch.number(segment) + 1, self.rate);
            }
            is_correct
        });
    }

    /// Counts `bits` as correct if they precede the next error.
    fn pass(&mut self, bits: u64) -> bool {
        let left = self.correct.checked_sub(bits);
        self.correct = left.unwrap_or(self.correct);
        left.is_some()
    }

    fn bits(&self, batch: &Batch, segments: Range<u32>) -> u64 {
        let count = u64::from(segments.end - segments.start);
        8 * (batch.packet.bytes_of(segments) + count * u64::from(self.overhead))
    }
}
