//! How fast a copy goes once it goes: its progress, looked at from a thread of its own.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::units::{Bytes, Rate};

use crate::copy::Progress;
use crate::lock::lock;

/// Time between two looks; a sink tells how far it is several times a second.
const LOOK: Duration = Duration::from_millis(20);
/// The part of a copy that is left out, in which TCP gathers speed.
const LEFT_OUT: f64 = 0.25;
/// A rate over less is as good as none.
const LEAST: Duration = Duration::from_millis(150);

/// What was seen at one time.
#[derive(Debug, Clone, Copy)]
struct Point {
    at: Duration,
    bytes: u64,
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
/// `limit`. Tells `on` how fast it is now and then.
pub(super) fn follow<T>(
    progress: &Progress,
    limit: Duration,
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
    let rate = rate(&points, Point { at: end, bytes });
    (outcome, Pace { rate, bytes: Bytes::new(bytes), files: progress.files(), elapsed, cut })
}

fn rate(points: &[Point], end: Point) -> Rate {
    let between = |from: &Point| {
        let time = end.at.saturating_sub(from.at);
        (time >= LEAST).then(|| Rate::mean(Bytes::new(end.bytes.saturating_sub(from.bytes)), time))
    };
    let warm = |point: &&Point| point.bytes as f64 >= LEFT_OUT * end.bytes as f64;
    let moving = |point: &&Point| point.bytes > 0;
    // A first report that comes when nearly all is done leaves too little.
    let rest = |point: &&Point| (point.bytes as f64) < 0.8 * end.bytes as f64;
    points
        .iter()
        .find(|point| warm(point) && moving(point))
        .filter(rest)
        .and_then(between)
        .unwrap_or_else(|| Rate::mean(Bytes::new(end.bytes), end.at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64, bytes: u64) -> Point {
        Point { at: Duration::from_millis(ms), bytes }
    }

    #[test]
    fn the_slow_beginning_is_left_out() {
        // Half a second for the first quarter, then a megabyte in 100 ms.
        let points = [at(0, 0), at(500, 2_000_000), at(700, 4_000_000), at(900, 6_000_000)];
        assert_eq!(rate(&points, at(1100, 8_000_000)).bps(), 80_000_000);
        // One report only: the whole counts.
        assert_eq!(rate(&[at(0, 0), at(990, 1_000_000)], at(1000, 1_000_000)).bps(), 8_000_000);
        assert_eq!(rate(&[], at(1000, 0)).bps(), 0);
    }

    #[test]
    fn a_copy_is_stopped_when_its_time_is_up() {
        let (progress, stop) = (Progress::default(), AtomicBool::new(false));
        let limit = Duration::from_millis(60);
        let wait = |enough: &AtomicBool| {
            while !enough.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(5));
            }
        };
        let ((), pace) = follow(&progress, limit, &stop, &|_| {}, wait);
        assert!(pace.cut && pace.elapsed >= limit);
        let ((), pace) = follow(&progress, Duration::from_secs(60), &stop, &|_| {}, |_| ());
        assert!(!pace.cut);
    }
}
