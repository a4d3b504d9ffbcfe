//! The propagation delay of a direction, with jitter or a delay trace.

use std::sync::Arc;
use std::time::Duration;

use longhaul_core::plan::link::DelaySchedule;
use longhaul_core::plan::{LinkPlan, Side};
use longhaul_core::result::Impairments;

use super::jitter::Variation;
use super::model::segments_of;
use super::random::{Purpose, Stream};
use super::{LinkTime, PacketShape, Piece};

/// The delay between the sender's end and the receiver's end.
#[derive(Debug, Clone)]
pub(super) struct Delay {
    constant: Duration,
    trace: Option<Arc<DelaySchedule>>,
    jitter: Option<Variation>,
    spare: Vec<Piece>,
}

impl Delay {
    pub(super) fn new(plan: &LinkPlan, from: Side) -> Self {
        let direction = plan.from(from);
        let stream = Stream::new(plan.seed.unwrap_or(0), from, Purpose::Jitter);
        Delay {
            constant: direction.delay,
            trace: direction.delay_trace.as_ref().and_then(|file| file.content()).cloned(),
            jitter: direction.jitter.as_ref().and_then(|jitter| Variation::new(jitter, stream)),
            spare: Vec::new(),
        }
    }

    /// Returns the delay if it is the same for all segments.
    pub(super) fn constant(&self) -> Option<Duration> {
        (self.trace.is_none() && self.jitter.is_none()).then_some(self.constant)
    }

    /// Replaces the times at which pieces were sent by the times at which they leave. `last` is the
    /// latest departure so far; a segment leaves before it only if jitter may reorder.
    pub(super) fn apply(
        &mut self,
        packet: &PacketShape,
        first: u64,
        last: &mut LinkTime,
        pieces: &mut Vec<Piece>,
        counts: &mut Impairments,
    ) {
        let Some(jitter) = &self.jitter else {
            for piece in pieces {
                *last = (*last).max(piece.at + self.at(piece.at));
                piece.at = *last;
            }
            return;
        };
        self.spare.clear();
        self.spare.append(pieces);
        for piece in &self.spare {
            let delay = self.at(piece.at);
            for segment in piece.segments.clone() {
                let own = piece.at + jitter.apply(delay, first + u64::from(segment));
                let at = if jitter.reorders { own } else { own.max(*last) };
                if at < *last && !piece.treatment.duplicate {
                    counts.reordered += segments_of(packet, segment..segment + 1);
                }
                *last = at.max(*last);
                pieces.push(Piece { segments: segment..segment + 1, at, ..piece.clone() });
            }
        }
    }

    /// Returns the delay of a segment sent at `time`.
    fn at(&self, time: LinkTime) -> Duration {
        match &self.trace {
            None => self.constant,
            Some(trace) => trace.at(time.since(LinkTime::default())).0,
        }
    }
}
