//! The stage for the losses of a recorded path.

use std::sync::Arc;

use longhaul_core::plan::link::Recording;
use longhaul_core::plan::{LinkPlan, Side};

use super::batch::Batch;
use super::random::{Purpose, Stream};
use super::{DropReason, LinkTime};

/// The losses of a recorded path: every segment during an outage, and otherwise the recorded share
/// at the time.
#[derive(Debug, Clone)]
pub(super) struct ReplayedLoss {
    recording: Arc<Recording>,
    from: Side,
    stream: Stream,
}

impl ReplayedLoss {
    /// Creates the losses of `plan` in the direction from `from`; `None` if there are none.
    pub(super) fn new(plan: &LinkPlan, from: Side) -> Option<Self> {
        let recording = plan.from(from).replay.as_ref()?.content()?;
        let stream = Stream::new(plan.seed.unwrap_or(0), from, Purpose::Replay);
        let recording = Arc::clone(recording);
        let loses = recording.way(from).has_losses();
        loses.then_some(ReplayedLoss { recording, from, stream })
    }

    /// Drops the segments that are lost at the time of their arrival.
    pub(super) fn apply(&self, batch: &mut Batch) {
        let time = batch.now.since(LinkTime::default());
        let share = self.recording.way(self.from).loss_at(time);
        if share > 0.0 {
            batch.retain_segments(|batch, segment| {
                let stays = self.stream.unit(batch.number(segment)) > share;
                if !stays {
                    batch.lose(DropReason::Lost, segment..segment + 1);
                }
                stays
            });
        }
    }
}
