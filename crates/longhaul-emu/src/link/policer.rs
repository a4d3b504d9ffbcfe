//! The policer stage: a token bucket that drops segments at arrival.

use std::ops::Range;

use longhaul_core::plan::LinkDirection;

use super::batch::Batch;
use super::capacity::units_of;
use super::{DropReason, LinkTime};

/// A token bucket. The units of tokens are those of [`units_of`], in which a rate in bit/s is the
/// number of units per nanosecond, so no token is lost to rounding.
#[derive(Debug, Clone)]
pub(super) struct TokenBucket {
    rate: u128,
    burst: u128,
    /// The bytes that each segment uses in addition to its IP bytes.
    overhead: u32,
    tokens: u128,
    filled_at: LinkTime,
}

impl TokenBucket {
    /// Creates the full bucket of `direction` at `now`; `None` if it has no policer.
    pub(super) fn new(direction: &LinkDirection, now: LinkTime) -> Option<Self> {
        let policer = direction.police?;
        let burst = units_of(policer.burst_bytes.get());
        Some(TokenBucket {
            rate: u128::from(policer.rate_bps.bps()),
            burst,
            overhead: direction.overhead_bytes,
            tokens: burst,
            filled_at: now,
        })
    }

    /// Drops the segments for which the bucket lacks tokens.
    pub(super) fn apply(&mut self, batch: &mut Batch) {
        self.fill(batch.now);
        if let [piece] = batch.pieces.as_slice()
            && self.take(batch, piece.segments.clone())
        {
            return;
        }
        batch.retain_segments(|batch, segment| {
            let conforms = self.take(batch, segment..segment + 1);
            if !conforms {
                batch.lose(DropReason::Policed, segment..segment + 1);
            }
            conforms
        });
    }

    fn fill(&mut self, now: LinkTime) {
        let added = now.since(self.filled_at).as_nanos() * self.rate;
        self.tokens = (self.tokens + added).min(self.burst);
        self.filled_at = self.filled_at.max(now);
    }

    /// Takes the tokens of adjacent segments, if there are enough for all of them.
    fn take(&mut self, batch: &Batch, segments: Range<u32>) -> bool {
        let count = u64::from(segments.end - segments.start);
        let bytes = batch.packet.bytes_of(segments) + count * u64::from(self.overhead);
        let left = self.tokens.checked_sub(units_of(bytes));
        self.tokens = left.unwrap_or(self.tokens);
        left.is_some()
    }
}
