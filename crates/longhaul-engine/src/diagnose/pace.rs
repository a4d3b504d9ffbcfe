//! The rate of a running copy, sampled by a separate thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::units::{Bytes, Rate};

use crate::copy::CopyProgress;
use crate::lock::lock;

/// The interval between two samples; a sink reports its progress several times a second.
const LOOK: Duration = Duration::from_millis(20);
/// The share of a copy that is omitted from its rate, because TCP still increases its window.
const LEFT_OUT: f64 = 0.25;
/// The smallest copy of which a part is omitted. A block counts when all of it is written, and many
/// are in flight at once.
const LEAST_BYTES: u64 = 256 << 20;
/// The round trips from the opening of a session to the first written byte, and from the last one
/// to its report.
const TRIPS: u32 = 2;
/// The shortest time over which a rate is meaningful.
const LEAST: Duration = Duration::from_millis(150);
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

/// The result of a copy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Pace {
    pub(super) rate: Rate,
    pub(super) bytes: Bytes,
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
) -> (T, Pace) {
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
                thread::park_timeout(LOOK);
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
    let rate = rate(&points, setting_up + rtt * TRIPS, Point { at: end, bytes });
    (outcome, Pace { rate, bytes: Bytes::new(bytes), files: progress.files(), elapsed, cut })
}

/// Returns the rate from `begun` to `end`.
fn rate(points: &[Point], begun: Duration, end: Point) -> Rate {
    let warm = |point: &&Point| {
        point.bytes as f64 >= LEFT_OUT * end.bytes as f64 && end.at >= point.at + LEAST
    };
    // A first report near the end leaves too little to measure.
    let early = |point: &&Point| (point.bytes as f64) < 0.8 * end.bytes as f64;
    let from = points.iter().find(warm).filter(early).filter(|_| end.bytes >= LEAST_BYTES);
    let from = from.copied().unwrap_or(Point { at: begun.min(end.at / 2), bytes: 0 });
    Rate::mean(Bytes::new(end.bytes - from.bytes.min(end.bytes)), end.at - from.at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64, bytes: u64) -> Point {
        Point { at: Duration::from_millis(ms), bytes }
    }

    #[test]
    fn slow_start_is_omitted() {
        // The first quarter takes half a second; then a gigabyte moves per second.
        let points = [at(0, 0), at(500, 200_000_000), at(700, 400_000_000), at(900, 600_000_000)];
        let none = Duration::ZERO;
        assert_eq!(rate(&points, none, at(1100, 800_000_000)).bps(), 8_000_000_000);
        // With one report, or a few blocks, the whole copy counts without the opening of its
        // session.
        let begun = Duration::from_millis(100);
        let one = [at(0, 0), at(990, 500_000_000)];
        assert_eq!(rate(&one, begun, at(1100, 500_000_000)).bps(), 4_000_000_000);
        assert_eq!(rate(&points, begun, at(1100, 1_000_000)).bps(), 8_000_000);
        assert_eq!(rate(&[], none, at(1000, 0)).bps(), 0);
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
        let ((), pace) = follow(copy, (limit, none), &stop, &|_| {}, wait);
        assert!(pace.cut && pace.elapsed >= opening + limit);
        let copy = (&progress, &Opened::default());
        let ((), pace) = follow(copy, (Duration::from_secs(60), none), &stop, &|_| {}, |_| ());
        assert!(!pace.cut);
    }
}
