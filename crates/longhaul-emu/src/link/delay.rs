//! The delay stage: propagation delay, jitter and delay traces.

use std::f64::consts::TAU;
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::plan::link::{
    DelayDistribution, DelaySamples, DelaySchedule, Jitter, PathRecording,
};
use longhaul_core::plan::{LinkPlan, Side};

use super::batch::Batch;
use super::random::{Purpose, Stream};
use super::{LinkTime, Piece};

/// The delay between the sender's end and the receiver's end.
#[derive(Debug, Clone)]
pub(super) struct Delay {
    constant: Duration,
    trace: Option<Arc<DelaySchedule>>,
    /// The recorded path, and the direction of it.
    replay: Option<(Arc<PathRecording>, Side)>,
    jitter: Option<Variation>,
    /// The latest departure so far. A segment leaves before it only if jitter may reorder.
    last: LinkTime,
}

impl Delay {
    /// Creates the delay of `plan` in the direction from `from`, after a departure at `last`.
    pub(super) fn new(plan: &LinkPlan, from: Side, last: LinkTime) -> Self {
        let direction = plan.from(from);
        let stream = Stream::new(plan.seed.unwrap_or(0), from, Purpose::Jitter);
        Delay {
            constant: direction.delay,
            trace: direction.delay_trace.as_ref().and_then(|file| file.content()).cloned(),
            replay: direction
                .replay
                .as_ref()
                .and_then(|file| Some((Arc::clone(file.content()?), from))),
            jitter: direction.jitter.as_ref().and_then(|jitter| Variation::new(jitter, stream)),
            last,
        }
    }

    /// Returns the latest departure so far.
    pub(super) fn last(&self) -> LinkTime {
        self.last
    }

    /// Returns whether the delay is the same for all segments.
    pub(super) fn is_constant(&self) -> bool {
        self.trace.is_none() && self.jitter.is_none() && self.replay.is_none()
    }

    /// Returns the departure time of segments sent at `sent` with the constant delay.
    pub(super) fn depart(&mut self, sent: LinkTime) -> LinkTime {
        self.last = self.last.max(sent + self.constant);
        self.last
    }

    /// Adds the delay to the times of all pieces.
    pub(super) fn apply(&mut self, batch: &mut Batch) {
        if self.jitter.is_some() {
            batch.replace_pieces(|batch, piece| self.vary(batch, &piece));
        } else if self.replay.as_ref().is_some_and(|(path, from)| path.direction(*from).reorders())
        {
            for piece in &mut *batch.pieces {
                piece.at = piece.at + self.at(piece.at);
                if piece.at < self.last {
                    batch.counts.reordered += batch.packet.count_of(piece.segments.clone());
                }
                self.last = self.last.max(piece.at);
            }
        } else {
            for piece in &mut *batch.pieces {
                self.last = self.last.max(piece.at + self.at(piece.at));
                piece.at = self.last;
            }
        }
    }

    /// Adds each segment of `piece` with its delay to `batch`.
    fn vary(&mut self, batch: &mut Batch, piece: &Piece) {
        let Some(jitter) = &self.jitter else { return };
        let delay = self.at(piece.at);
        for segment in piece.segments.clone() {
            let own = piece.at + jitter.apply(delay, batch.number(segment));
            let at = if jitter.reorders { own } else { own.max(self.last) };
            if at < self.last && !piece.treatment.duplicate {
                batch.counts.reordered += batch.packet.count_of(segment..segment + 1);
            }
            self.last = at.max(self.last);
            batch.pieces.push(Piece { segments: segment..segment + 1, at, ..piece.clone() });
        }
    }

    /// Returns the delay of a segment sent at `time`.
    fn at(&self, time: LinkTime) -> Duration {
        if let Some((recording, from)) = &self.replay {
            return recording.direction(*from).delay_at(time.since(LinkTime::default()));
        }
        match &self.trace {
            None => self.constant,
            Some(trace) => trace.at(time.since(LinkTime::default())).0,
        }
    }
}

/// The random addition to the delay of each segment.
#[derive(Debug, Clone)]
struct Variation {
    spread: Distribution,
    stream: Stream,
    /// True if segments may overtake each other.
    reorders: bool,
}

#[derive(Debug, Clone)]
enum Distribution {
    /// Uniform, with half the width in nanoseconds.
    Uniform(f64),
    /// Normal, with the standard deviation in nanoseconds.
    Normal(f64),
    Pareto(f64),
    Samples(Arc<DelaySamples>),
}

/// The shape of the Pareto distribution. With shape 3 and minimum 1, its mean is 3/2 and its
/// standard deviation the square root of 3/4.
const PARETO_SHAPE: f64 = 3.0;
const PARETO_MEAN: f64 = 1.5;
const PARETO_DEVIATION: f64 = 0.866_025_403_784_438_6;

impl Variation {
    fn new(plan: &Jitter, stream: Stream) -> Option<Self> {
        let nanos = |span: &Duration| span.as_nanos() as f64;
        let spread = match &plan.spread {
            DelayDistribution::Uniform { spread } => Distribution::Uniform(nanos(spread)),
            DelayDistribution::Normal { spread } => Distribution::Normal(nanos(spread)),
            DelayDistribution::Pareto { spread } => Distribution::Pareto(nanos(spread)),
            DelayDistribution::File(file) => Distribution::Samples(Arc::clone(file.content()?)),
        };
        Some(Variation { spread, stream, reorders: plan.reorder })
    }

    /// Returns the delay of the segment `number`, which would be `delay` without jitter.
    fn apply(&self, delay: Duration, number: u64) -> Duration {
        let (u, v) = self.stream.units(number);
        let added = match &self.spread {
            Distribution::Uniform(width) => (2.0 * u - 1.0) * width,
            // The method of Box and Muller (1958).
            Distribution::Normal(deviation) => (-2.0 * u.ln()).sqrt() * (TAU * v).cos() * deviation,
            Distribution::Pareto(deviation) => {
                let late = (u.powf(-1.0 / PARETO_SHAPE) - PARETO_MEAN) / PARETO_DEVIATION;
                (late * deviation).min(LinkPlan::MAX_DELAY.as_nanos() as f64)
            }
            Distribution::Samples(samples) => {
                let values = samples.values();
                let index = ((1.0 - u) * values.len() as f64) as usize;
                return delay + values[index.min(values.len() - 1)];
            }
        };
        // The cast from a float turns negative values into zero.
        Duration::from_nanos((delay.as_nanos() as f64 + added).round() as u64)
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::plan::Side;
    use longhaul_core::plan::link::{LinkOptions, NO_FILES, Trace};

    use super::super::random::Purpose;
    use super::*;

    /// Returns the sorted delays in ms of 100,000 segments of a link with 100 ms and this jitter.
    fn delays(jitter: &str) -> Vec<f64> {
        let mut options = LinkOptions::default();
        options.set("jitter", jitter).unwrap();
        let plan = options.plan(&|_| Ok(Box::new(&b"0ms\n30ms\n0ms\n0ms"[..]))).unwrap();
        let stream = Stream::new(11, Side::Near, Purpose::Jitter);
        let variation = Variation::new(plan.up.jitter.as_ref().unwrap(), stream).unwrap();
        let base = Duration::from_millis(100);
        let mut all: Vec<f64> =
            (0..100_000).map(|number| variation.apply(base, number).as_secs_f64() * 1e3).collect();
        all.sort_by(f64::total_cmp);
        all
    }

    /// Compares quantiles with those of the distribution. The standard error of a quantile is
    /// sqrt(q(1-q)/n) divided by the density at the quantile; the tolerance is about four standard
    /// errors.
    fn assert_quantiles(sorted: &[f64], expected: &[(f64, f64, f64)]) {
        for (q, value, tolerance) in expected {
            let found = sorted[(q * sorted.len() as f64) as usize];
            assert!((found - value).abs() < *tolerance, "quantile {q}: {found}, not {value}");
        }
    }

    #[test]
    fn quantiles_are_those_of_the_distributions() {
        assert_quantiles(
            &delays("10ms:uniform"),
            &[(0.01, 90.2, 0.03), (0.25, 95.0, 0.12), (0.5, 100.0, 0.13), (0.99, 109.8, 0.03)],
        );
        assert_quantiles(
            &delays("10ms"),
            &[(0.0228, 80.0, 0.4), (0.1587, 90.0, 0.2), (0.5, 100.0, 0.17), (0.9772, 120.0, 0.4)],
        );
        // The minimum is at -0.577 deviations; quantile q is at ((1-q)^(-1/3) - 1.5) / 0.866.
        assert_quantiles(
            &delays("10ms:pareto"),
            &[(0.0, 94.226, 0.01), (0.5, 97.228, 0.06), (0.9, 107.557, 0.3), (0.999, 198.15, 15.0)],
        );
    }

    #[test]
    fn samples_are_drawn_alike_and_added() {
        let all = delays("file:samples.txt");
        let late = all.iter().filter(|ms| **ms > 129.0).count();
        assert!((24_400..25_600).contains(&late), "{late}");
        assert!(DelaySamples::parse("1ms\nsoon").is_err());
    }

    #[test]
    fn a_delay_does_not_fall_below_zero() {
        let mut options = LinkOptions::default();
        options.set("jitter", "10ms:uniform").unwrap();
        let plan = options.plan(NO_FILES).unwrap();
        let stream = Stream::new(11, Side::Near, Purpose::Jitter);
        let variation = Variation::new(plan.up.jitter.as_ref().unwrap(), stream).unwrap();
        let zero = (0..1000).filter(|n| variation.apply(Duration::ZERO, *n).is_zero()).count();
        assert!((400..600).contains(&zero), "{zero}");
    }
}
