//! The stage for bit errors: drops segments with a wrong bit.

use std::ops::Range;

use longhaul_core::plan::{LinkPlan, Side};

use super::DropReason;
use super::batch::Batch;
use super::random::{Purpose, Stream};

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
