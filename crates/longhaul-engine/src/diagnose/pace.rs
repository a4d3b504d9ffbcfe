//! How fast a copy goes once it goes: its progress, looked at from a thread of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::units::{Bytes, Rate};

use crate::copy::Progress;
use crate::lock::lock;

/// Time between two looks; a sink tells how far it is several times a second.
const LOOK: Duration = Duration::from_millis(20);
/// The part of a copy that is left out, in which TCP gathers speed.
const LEFT_OUT: f64 = 0.25;
/// Of copies of less than this the whole counts: a block is counted when all of it is written, and
/// many are under way at a time.
const LEAST_BYTES: u64 = 256 << 20;
/// Round trips from an open session until the first byte is written, and from the last until it is
/// known.
const TRIPS: u32 = 2;
/// A rate over less is as good as none.
const LEAST: Duration = Duration::from_millis(150);

/// What was seen at one time.
#[derive(Debug, Clone, Copy)]
struct Point {
    at: Duration,
    bytes: u64,
}

/// When a copy could begin: its session was open.
#[derive(Debug, Default)]
pub(super) struct Opened(OnceLock<Instant>);

impl Opened {
    /// Notes the time, if it is the first.
    pub(super) fn note(&self) {
        let _ = self.0.set(Instant::now());
    }
}

/// What a copy came to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Pace {
    pub(super) rate: Rate,
    pub(super) bytes: Bytes,
    pub(super) files: u64,
    pub(super) elapsed: Duration,
    /// It was stopped before its end.
    pub(super) cut: bool,
}

/// Runs `copy`, which is told to stop by the flag that it is given: when `stop` is set, or after
/// `limit`. Tells `on` how fast it is now and then. `opened` is noted by the copy, `rtt` the
/// path's.
pub(super) fn follow<T>(
    (progress, opened): (&Progress, &Opened),
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
                if at > limit || stop.load(Ordering::Relaxed) {
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
    // What came after the last word of a copy that was cut, nobody knows.
    let end = if cut { points.last().map_or(elapsed, |last| last.at) } else { elapsed };
    let setting_up = opened.0.get().map_or(Duration::ZERO, |at| *at - begun);
    let rate = rate(&points, setting_up + rtt * TRIPS, Point { at: end, bytes });
    (outcome, Pace { rate, bytes: Bytes::new(bytes), files: progress.files(), elapsed, cut })
}

/// The rate of what moved from `begun` to `end`.
fn rate(points: &[Point], begun: Duration, end: Point) -> Rate {
    let warm = |point: &&Point| {
        point.bytes as f64 >= LEFT_OUT * end.bytes as f64 && end.at >= point.at + LEAST
    };
    let from = match end.bytes >= LEAST_BYTES {
        // A first report that comes when nearly all is done leaves too little.
        true => points.iter().find(warm).filter(|at| (at.bytes as f64) < 0.8 * end.bytes as f64),
        false => None,
    };
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
    fn the_slow_beginning_is_left_out() {
        // Half a second for the first quarter, then a gigabyte in a second.
        let points = [at(0, 0), at(500, 200_000_000), at(700, 400_000_000), at(900, 600_000_000)];
        let none = Duration::ZERO;
        assert_eq!(rate(&points, none, at(1100, 800_000_000)).bps(), 8_000_000_000);
        // One report only, or a few blocks: the whole counts, without opening the session.
        let begun = Duration::from_millis(100);
        let one = [at(0, 0), at(990, 500_000_000)];
        assert_eq!(rate(&one, begun, at(1100, 500_000_000)).bps(), 4_000_000_000);
        assert_eq!(rate(&points, begun, at(1100, 1_000_000)).bps(), 8_000_000);
        assert_eq!(rate(&[], none, at(1000, 0)).bps(), 0);
    }

    #[test]
    fn a_copy_is_stopped_when_its_time_is_up() {
        let (progress, stop) = (Progress::default(), AtomicBool::new(false));
        let (copy, none) = ((&progress, &Opened::default()), Duration::ZERO);
        let limit = Duration::from_millis(60);
        let wait = |enough: &AtomicBool| {
            while !enough.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(5));
            }
        };
        let ((), pace) = follow(copy, (limit, none), &stop, &|_| {}, wait);
        assert!(pace.cut && pace.elapsed >= limit);
        let ((), pace) = follow(copy, (Duration::from_secs(60), none), &stop, &|_| {}, |_| ());
        assert!(!pace.cut);
    }
}
