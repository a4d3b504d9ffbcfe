//! The rate of a running copy, sampled by a separate thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::units::{Bytes, Rate};

use crate::copy::CopyProgress;
use crate::lock;

/// The interval between two samples; a sink reports its progress several times a second.
const STOP_CHECK: Duration = Duration::from_millis(20);
/// The share of a copy that is omitted from its steady rate, because TCP still increases its window.
const LEFT_OUT: f64 = 0.25;
/// The share of a copy up to which its steady rate is measured: the last blocks leave connections
/// idle.
const UP_TO: f64 = 0.97;
/// The smallest copy that has a steady rate. A block counts when all of it is written, and many
/// are in flight at once.
const LEAST_BYTES: u64 = 256 << 20;
/// The round trips from the opening of a session to the first written byte, and from the last one
/// to its report.
const TRIPS: u32 = 2;
/// The shortest time over which a steady rate is meaningful.
const LEAST: Duration = Duration::from_millis(300);
/// The ratio of the rates of the second and the first half of the steady part above which the rate
/// still rises.
const RISING: f64 = 1.25;
/// The share of the steady rate at which the ramp-up ends.
const RAMPED: f64 = 0.9;
/// The longest time that the opening of a session may take: ssh asks a name server and a user's shell.
const OPENING_LIMIT: Duration = Duration::from_secs(60);

/// The progress at one time.
#[derive(Debug, Clone, Copy)]
struct Point {
    at: Duration,
    bytes: u64,
}

/// The time at which the session of a copy was open.
#[derive(Debug, Default)]
pub(super) struct Opened(OnceLock<Instant>);

impl Opened {
    /// Notes the present time unless one is noted.
    pub(super) fn note(&self) {
        let _ = self.0.set(Instant::now());
    }

    /// Returns whether a copy that began at `begun` has had `limit` since its session was open.
    fn has_had(&self, limit: Duration, begun: Instant) -> bool {
        match self.0.get() {
            Some(opened) => opened.elapsed() > limit,
            None => begun.elapsed() > limit + OPENING_LIMIT,
        }
    }
}

/// The rate of a copy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Pace {
    /// The rate of the whole copy, without the opening of its session.
    pub(super) mean: Rate,
    pub(super) steady: Option<SteadyPace>,
}

/// The rate of a copy after its ramp-up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct SteadyPace {
    pub(super) rate: Rate,
    /// The time from the opening of the session to the first report at 90 % of the rate.
    pub(super) ramp_up: Duration,
}

/// The progress of a copy over time.
#[derive(Debug, Clone)]
pub(super) struct Trace {
    points: Vec<Point>,
    /// The time at which the copy could begin.
    from: Duration,
    end: Point,
    pub(super) files: u64,
    pub(super) elapsed: Duration,
    /// True if the copy was stopped before its end.
    pub(super) cut: bool,
}

/// Runs `copy`, which stops when the flag that it gets is set: when `stop` is set, or `limit` after
/// the copy has noted in `opened` that its session is open. Reports the present rate to `on`
/// repeatedly. `rtt` is the round-trip time of the path.
pub(super) fn follow<T>(
    (progress, opened): (&CopyProgress, &Opened),
    (limit, rtt): (Duration, Duration),
    stop: &AtomicBool,
    on: &(dyn Fn(Rate) + Sync),
    copy: impl FnOnce(&AtomicBool) -> T,
) -> (T, Trace) {
    let (over, enough) = (AtomicBool::new(false), AtomicBool::new(false));
    let points = Mutex::new(Vec::new());
    let begun = Instant::now();
    let outcome = thread::scope(|scope| {
        let (over, enough, points) = (&over, &enough, &points);
        let looking = scope.spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let at = begun.elapsed();
                if opened.has_had(limit, begun) || stop.load(Ordering::Relaxed) {
                    enough.store(true, Ordering::Relaxed);
                }
                let bytes = progress.moved().get();
                let mut points = lock(points);
                if points.last().is_none_or(|last: &Point| last.bytes != bytes) {
                    points.push(Point { at, bytes });
                    on(progress.rate());
                }
                drop(points);
                thread::park_timeout(STOP_CHECK);
            }
        });
        let outcome = copy(enough);
        over.store(true, Ordering::Relaxed);
        looking.thread().unpark();
        outcome
    });
    let elapsed = begun.elapsed();
    let cut = enough.load(Ordering::Relaxed);
    let points = points.into_inner().unwrap_or_default();
    let bytes = progress.moved().get();
    // The progress after the last report of a stopped copy is unknown.
    let end = if cut { points.last().map_or(elapsed, |last| last.at) } else { elapsed };
    let setting_up = opened.0.get().map_or(Duration::ZERO, |at| *at - begun);
    let from = (setting_up + rtt * TRIPS).min(end / 2);
    let (end, files) = (Point { at: end, bytes }, progress.files());
    (outcome, Trace { points, from, end, files, elapsed, cut })
}

impl Trace {
    pub(super) fn bytes(&self) -> Bytes {
        Bytes::new(self.end.bytes)
    }

    /// Returns the rate of a copy whose connections receive `in_flight` bytes in blocks that are not
    /// complete.
    pub(super) fn pace(&self, in_flight: Bytes) -> Pace {
        let mean = rate(self.end.bytes, self.end.at - self.from);
        let steady = self.steady(in_flight.get()).filter(|steady| steady.rate >= mean);
        Pace { mean, steady }
    }

    /// Returns the rate between the first quarter and the last blocks. A part of the bytes that are
    /// reported first had arrived before: at most `in_flight`, which do not count, so that no rate
    /// exceeds that of the path.
    fn steady(&self, in_flight: u64) -> Option<SteadyPace> {
        let share = |point: &Point| point.bytes as f64 / self.end.bytes.max(1) as f64;
        let first = self.points.iter().position(|point| share(point) >= LEFT_OUT)?;
        let last = self.points.iter().rposition(|point| share(point) <= UP_TO)?;
        let part = self.points.get(first..=last)?;
        let [from, .., to] = part else { return None };
        let time = to.at - from.at;
        if self.end.bytes < LEAST_BYTES || time < LEAST {
            return None;
        }
        let half = part.iter().find(|point| point.at >= from.at + time / 2)?;
        let early = rate(half.bytes - from.bytes, half.at - from.at).bps() as f64;
        let late = rate(to.bytes - half.bytes, to.at - half.at).bps() as f64;
        if late > RISING * early {
            return None;
        }
        let rate = rate((to.bytes - from.bytes).saturating_sub(in_flight), time);
        Some(SteadyPace { rate, ramp_up: self.ramp_up(rate) })
    }

    /// Returns the time until the rate between two reports first is near `steady`.
    fn ramp_up(&self, steady: Rate) -> Duration {
        let reached = |pair: &&[Point]| {
            let present = rate(pair[1].bytes - pair[0].bytes, pair[1].at - pair[0].at);
            present.bps() as f64 >= RAMPED * steady.bps() as f64
        };
        let first = self.points.windows(2).find(reached).map_or(self.end.at, |pair| pair[0].at);
        first.saturating_sub(self.from)
    }
}

fn rate(bytes: u64, time: Duration) -> Rate {
    Rate::mean(Bytes::new(bytes), time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64, bytes: u64) -> Point {
        Point { at: Duration::from_millis(ms), bytes }
    }

    /// Returns the trace of a copy with these reports, whose last one is its end.
    fn trace(points: &[(u64, u64)]) -> Trace {
        let points: Vec<Point> = points.iter().map(|(ms, bytes)| at(*ms, *bytes)).collect();
        let end = *points.last().unwrap();
        let from = Duration::from_millis(100).min(end.at / 2);
        Trace { points, from, end, files: 1, elapsed: end.at, cut: false }
    }

    #[test]
    fn ramp_up_and_steady_rate_are_stated_apart() {
        // The first quarter takes half a second; then a gigabyte moves per second.
        let slow: Vec<_> =
            (0..=10).map(|i| (500 + 100 * i, 200_000_000 + i * 100_000_000)).collect();
        let copy = trace(&[&[(0, 0)], slow.as_slice()].concat());
        let pace = copy.pace(Bytes::new(0));
        assert_eq!(pace.mean.bps(), 1_200_000_000 * 8 * 10 / 14);
        let steady = pace.steady.unwrap();
        assert_eq!(steady.rate.bps(), 8_000_000_000);
        assert_eq!(steady.ramp_up, Duration::from_millis(400));
        // Bytes that may have arrived before the first report do not count.
        let steady = copy.pace(Bytes::new(80_000_000)).steady.unwrap();
        assert_eq!(steady.rate.bps(), 7_200_000_000);
    }

    #[test]
    fn a_short_or_rising_copy_has_no_steady_rate() {
        let rising: Vec<_> = (0..=10u64).map(|i| (100 * i, 10_000_000 * i * i)).collect();
        let few = [(0, 0), (990, 500_000_000), (1100, 500_000_000)];
        let small: Vec<_> = (0..=10u64).map(|i| (100 * i, 1_000_000 * i)).collect();
        for points in [&rising[..], &few[..], &small[..], &[(0, 0)][..]] {
            assert_eq!(trace(points).pace(Bytes::new(0)).steady, None, "{points:?}");
        }
        let pace = trace(&few).pace(Bytes::new(0));
        assert_eq!(pace.mean.bps(), 4_000_000_000);
    }

    #[test]
    fn a_copy_is_stopped_when_its_time_is_up() {
        let (progress, stop) = (CopyProgress::default(), AtomicBool::new(false));
        let opened = Opened::default();
        let (copy, none) = ((&progress, &opened), Duration::ZERO);
        let (limit, opening) = (Duration::from_millis(60), Duration::from_millis(120));
        let wait = |enough: &AtomicBool| {
            thread::sleep(opening);
            assert!(!enough.load(Ordering::Relaxed), "the session is not open yet");
            opened.note();
            while !enough.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(5));
            }
        };
        let ((), trace) = follow(copy, (limit, none), &stop, &|_| {}, wait);
        assert!(trace.cut && trace.elapsed >= opening + limit);
        let copy = (&progress, &Opened::default());
        let ((), trace) = follow(copy, (Duration::from_secs(60), none), &stop, &|_| {}, |_| ());
        assert!(!trace.cut);
    }
}
