//! Times of `CLOCK_MONOTONIC` as numbers, which another process of this host understands.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Returns an instant in nanoseconds of the clock.
pub(crate) fn nanos_of(instant: Instant) -> u64 {
    let (same, nanos) = now();
    let since = |later: Instant, earlier: Instant| later.duration_since(earlier).as_nanos() as u64;
    nanos.saturating_add(since(instant, same)).saturating_sub(since(same, instant))
}

/// Returns the instant at `nanos` of the clock; the present time if that is out of range.
pub(crate) fn instant_of(nanos: u64) -> Instant {
    let (same, now) = now();
    let moved = match nanos.checked_sub(now) {
        Some(ahead) => same.checked_add(Duration::from_nanos(ahead)),
        None => same.checked_sub(Duration::from_nanos(now - nanos)),
    };
    moved.unwrap_or(same)
}

/// Returns the present time in both forms. `Instant` does not reveal its number.
fn now() -> (Instant, u64) {
    /// The time between two readings of the clock on a processor that does nothing else.
    const CLOSE: Duration = Duration::from_micros(20);
    const ATTEMPTS: usize = 100;
    let read = || {
        let same = Instant::now();
        let now = clock_gettime(ClockId::Monotonic);
        let nanos = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
        (same.elapsed(), (same, nanos))
    };
    let mut best = read();
    for _ in 0..ATTEMPTS {
        if best.0 < CLOSE {
            break;
        }
        best = std::cmp::min_by_key(best, read(), |(took, _)| *took);
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_survives_the_way_through_a_number() {
        let second = Duration::from_secs(1);
        for instant in [Instant::now(), Instant::now() - second, Instant::now() + second] {
            let back = instant_of(nanos_of(instant));
            let moved = back.max(instant) - back.min(instant);
            // A busy host may interrupt every attempt.
            assert!(moved < Duration::from_millis(100), "{moved:?}");
        }
    }
}
