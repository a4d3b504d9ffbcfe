//! The loss stages: random, by pattern, by trace, and as recorded on a path.

use std::ops::Range;
use std::sync::Arc;

use longhaul_core::plan::link::{Loss, LossTrace, PathRecording, Probability, SegmentSet};
use longhaul_core::plan::{LinkPlan, Side};

use super::batch::Batch;
use super::chain::{Chain, ChainStreams, Correlated};
use super::random::{Chance, Purpose, Stream};
use super::{DropReason, LinkTime};

/// Determines which segments are lost.
#[derive(Debug, Clone)]
pub(super) enum Losses {
    /// Losses whose next run is known.
    Runs(Runs),
    Chain(Chain),
    Correlated(Correlated),
}

/// Losses as runs of adjacent segments.
#[derive(Debug, Clone)]
pub(super) struct Runs {
    source: Source,
    /// The next run of lost segments, by number.
    next: Range<u64>,
}

#[derive(Debug, Clone)]
enum Source {
    Independent(Chance),
    Bursty(GilbertElliott),
    Pattern(SegmentSet),
    Trace(Arc<LossTrace>),
}

/// A two-state loss model: the good state delivers every segment, the bad state loses every
/// segment. Each state ends after a segment with a fixed probability, so the lengths of both are
/// geometric.
#[derive(Debug, Clone)]
struct GilbertElliott {
    gaps: Stream,
    bursts: Stream,
    /// The probability that the good state ends after a segment.
    to_bad: f64,
    /// The probability that the bad state ends after a segment.
    to_good: f64,
}

impl Losses {
    /// Creates the losses of `plan` from segment number `from` on; `None` if there are none.
    /// `stream` returns the random numbers of a purpose.
    pub(super) fn new(plan: &Loss, stream: impl Fn(Purpose) -> Stream, from: u64) -> Option<Self> {
        match plan {
            Loss::Correlated { rate, .. } if rate.is_zero() => None,
            Loss::Correlated { rate, correlation } => {
                let numbers = stream(Purpose::LossCorrelated);
                Some(Losses::Correlated(Correlated::new(*rate, *correlation, numbers, from)))
            }
            Loss::GilbertElliott { .. } | Loss::FourState { .. } => {
                let streams = ChainStreams {
                    stays: stream(Purpose::LossStay),
                    choices: stream(Purpose::LossChoice),
                    losses: stream(Purpose::LossInState),
                };
                Chain::new(plan, streams, from).map(Losses::Chain)
            }
            _ => Runs::new(plan, stream, from).map(Losses::Runs),
        }
    }

    /// Drops the lost segments of a packet whose segments are all present.
    pub(super) fn apply(&mut self, batch: &mut Batch) {
        let mut rest = batch.numbers.clone();
        while let Some(lost) = self.first_in(&rest) {
            rest.start = lost.end;
            let segments = batch.segment(lost.start)..batch.segment(lost.end);
            batch.remove_last(&segments);
            batch.lose(DropReason::Lost, segments);
        }
    }

    fn first_in(&mut self, segments: &Range<u64>) -> Option<Range<u64>> {
        match self {
            Losses::Runs(runs) => runs.first_in(segments),
            Losses::Chain(chain) => chain.first_in(segments),
            Losses::Correlated(correlated) => correlated.first_in(segments),
        }
    }
}

impl Runs {
    fn new(plan: &Loss, stream: impl Fn(Purpose) -> Stream, from: u64) -> Option<Self> {
        let (gaps, bursts) = (stream(Purpose::LossGap), stream(Purpose::LossBurst));
        let source = match plan {
            Loss::Independent { rate } | Loss::Bursty { rate, .. } if rate.is_zero() => {
                return None;
            }
            Loss::Independent { rate } => Source::Independent(Chance::new(gaps, *rate, from)),
            Loss::Bursty { rate, mean_burst_segments } => {
                Source::Bursty(GilbertElliott::new(*rate, *mean_burst_segments, gaps, bursts))
            }
            Loss::Pattern { segments } => Source::Pattern(segments.clone()),
            Loss::Trace(file) => Source::Trace(Arc::clone(file.content()?)),
            Loss::Correlated { .. } | Loss::GilbertElliott { .. } | Loss::FourState { .. } => {
                return None;
            }
        };
        let mut losses = Runs { source, next: 0..0 };
        losses.next = losses.run_from(from);
        Some(losses)
    }

    /// Returns the first run of lost segments that overlaps `segments`, cut to this range.
    fn first_in(&mut self, segments: &Range<u64>) -> Option<Range<u64>> {
        while self.next.end <= segments.start {
            self.next = self.run_from(self.next.end);
        }
        let run = self.next.start.max(segments.start)..self.next.end.min(segments.end);
        (!run.is_empty()).then_some(run)
    }

    /// Returns the first run at or after `from`.
    fn run_from(&mut self, from: u64) -> Range<u64> {
        const NEVER: Range<u64> = u64::MAX - 1..u64::MAX;
        // The plan numbers segments from 1, the model from 0.
        let from_set = |set: &SegmentSet| {
            set.run_from(from.saturating_add(1)).map_or(NEVER, |(first, last)| first - 1..last)
        };
        match &mut self.source {
            Source::Independent(chance) => {
                chance.take(&(from..u64::MAX)).map_or(NEVER, |hit| hit..hit + 1)
            }
            Source::Bursty(channel) => channel.run_from(from),
            Source::Pattern(set) => from_set(set),
            Source::Trace(trace) => from_set(trace.lost()),
        }
    }
}

impl GilbertElliott {
    fn new(rate: Probability, mean: f64, gaps: Stream, bursts: Stream) -> Self {
        // In the long run the share of segments in the bad state is to_bad / (to_bad + to_good).
        let to_good = 1.0 / mean;
        let to_bad = (to_good * rate.get() / (1.0 - rate.get())).min(1.0);
        GilbertElliott { gaps, bursts, to_bad, to_good }
    }

    /// Returns the burst after a good segment with number `from`. The link starts in the good
    /// state, whose remaining length is independent of its past length.
    fn run_from(&self, from: u64) -> Range<u64> {
        let start = from.saturating_add(1).saturating_add(self.gaps.failures(from, self.to_bad));
        let start = start.min(u64::MAX - 1);
        let more = self.bursts.failures(start, self.to_good);
        start..start.saturating_add(1).saturating_add(more)
    }
}

/// The losses of a recorded path: every segment during an outage, and otherwise the recorded share
/// at the time.
#[derive(Debug, Clone)]
pub(super) struct ReplayedLoss {
    recording: Arc<PathRecording>,
    from: Side,
    stream: Stream,
}

impl ReplayedLoss {
    /// Creates the losses of `plan` in the direction from `from`; `None` if there are none.
    pub(super) fn new(plan: &LinkPlan, from: Side) -> Option<Self> {
        let recording = plan.from(from).replay.as_ref()?.content()?;
        let stream = Stream::new(plan.seed.unwrap_or(0), from, Purpose::Replay);
        let recording = Arc::clone(recording);
        let loses = recording.direction(from).has_losses();
        loses.then_some(ReplayedLoss { recording, from, stream })
    }

    /// Drops the segments that are lost at the time of their arrival.
    pub(super) fn apply(&self, batch: &mut Batch) {
        let time = batch.now.since(LinkTime::default());
        let share = self.recording.direction(self.from).loss_at(time);
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
