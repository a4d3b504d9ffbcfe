//! The hub's clock, as this host knows it, and the sleeps of the agent's threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The hub's clock. It follows the monotonic clock of this host between two answers of the hub, so
/// steps of this host's clock do not move windows.
#[derive(Debug)]
pub(crate) struct HubClock(Mutex<Reference>);

/// The drift of a host's monotonic clock, in millionths: that of a poor quartz.
const DRIFT_PPM: i64 = 200;
/// The difference of two answers in ms, in addition to their errors, that is a step of the hub's clock.
const STEP_MS: i64 = 50;

/// The latest time that a hub can have: the year 9999. Windows and periods are added to it.
const LATEST_MS: i64 = 253_402_300_799_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reference {
    at: Instant,
    hub_ms: i64,
    /// The largest difference from the hub's clock at `at`; `None` before the first answer.
    error_ms: Option<i64>,
}

impl Reference {
    fn elapsed_ms(&self, now: Instant) -> i64 {
        milliseconds(now.saturating_duration_since(self.at))
    }

    fn hub_ms_at(&self, now: Instant) -> i64 {
        self.hub_ms.saturating_add(self.elapsed_ms(now))
    }

    /// Returns the better of this reference and `answer`. A difference that the errors do not explain
    /// is a step of the hub's clock.
    fn improved(self, answer: Reference) -> Reference {
        let Some(error_ms) = self.error_ms else { return answer };
        let drift_ms = self.elapsed_ms(answer.at) / (1_000_000 / DRIFT_PPM);
        let (error_ms, new_ms) = (error_ms + drift_ms, answer.error_ms.unwrap_or(0));
        let difference = answer.hub_ms.abs_diff(self.hub_ms_at(answer.at));
        let explained = error_ms.saturating_add(new_ms).saturating_add(STEP_MS);
        let stepped = difference > explained.unsigned_abs();
        if stepped || new_ms <= error_ms { answer } else { self }
    }
}

fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

impl HubClock {
    /// Returns a clock that starts with the time of this host.
    pub(crate) fn new() -> Self {
        let reference = Reference { at: Instant::now(), hub_ms: local_ms(), error_ms: None };
        HubClock(Mutex::new(reference))
    }

    fn lock(&self) -> MutexGuard<'_, Reference> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Returns whether the agent knows the time of the hub.
    pub(crate) fn is_known(&self) -> bool {
        self.lock().error_ms.is_some()
    }

    /// Returns the hub's time in ms since 1970.
    pub(crate) fn now_ms(&self) -> i64 {
        self.lock().hub_ms_at(Instant::now())
    }

    /// Notes an answer with the time `hub_ms`, received now after about `trip` / 2 on the way, with
    /// an error of at most `error`. The clock follows the most exact answers, so that the windows of
    /// different agents agree, also if some answers are late.
    pub(crate) fn set(&self, hub_ms: i64, trip: Duration, error: Duration) {
        let hub_ms = hub_ms.clamp(0, LATEST_MS).saturating_add(milliseconds(trip / 2));
        let error_ms = Some(milliseconds(error));
        let answer = Reference { at: Instant::now(), hub_ms, error_ms };
        let mut reference = self.lock();
        *reference = reference.improved(answer);
    }
}

/// Returns this host's time in ms since 1970.
pub(crate) fn local_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| i64::try_from(now.as_millis()).unwrap_or(i64::MAX))
}

/// A signal to the threads that wait for it. A thread that sleeps without one costs no time of a core.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    count: Mutex<u64>,
    changed: Condvar,
}

impl Signal {
    fn lock(&self) -> MutexGuard<'_, u64> {
        self.count.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Returns the number of signals until now.
    pub(crate) fn count(&self) -> u64 {
        *self.lock()
    }

    /// Ends all waits.
    pub(crate) fn send(&self) {
        *self.lock() += 1;
        self.changed.notify_all();
    }

    /// Waits for at most `limit`, or until there were more than `known` signals.
    pub(crate) fn wait(&self, known: u64, limit: Duration) {
        let count = self.lock();
        // A poisoned lock ends the wait.
        drop(self.changed.wait_timeout_while(count, limit, |count| *count == known));
    }
}

/// The end of the agent.
#[derive(Debug, Default)]
pub(crate) struct End {
    reached: AtomicBool,
    signal: Signal,
}

impl End {
    /// Returns the flag, for loops that poll it.
    pub(crate) fn flag(&self) -> &AtomicBool {
        &self.reached
    }

    pub(crate) fn is_reached(&self) -> bool {
        self.reached.load(Ordering::Acquire)
    }

    /// Ends the agent, and all sleeps.
    pub(crate) fn reach(&self) {
        self.reached.store(true, Ordering::Release);
        self.signal.send();
    }

    /// Sleeps for `time`, or until the end.
    pub(crate) fn sleep(&self, time: Duration) {
        let until = Instant::now() + time;
        loop {
            let known = self.signal.count();
            let left = until.saturating_duration_since(Instant::now());
            if self.is_reached() || left.is_zero() {
                return;
            }
            self.signal.wait(known, left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_answers_do_not_move_the_clock_and_steps_do() {
        let start = Instant::now();
        let answer = |seconds, hub_ms, error_ms| Reference {
            at: start + Duration::from_secs(seconds),
            hub_ms,
            error_ms: Some(error_ms),
        };
        let unknown = Reference { error_ms: None, ..answer(0, 0, 0) };
        let first = unknown.improved(answer(1, 50_000, 20));
        assert_eq!(first, answer(1, 50_000, 20));
        // This answer was 150 ms late.
        assert_eq!(first.improved(answer(11, 59_850, 200)), first);
        // A more exact one, and one after a time in which the clock may have drifted by 40 ms.
        assert_eq!(first.improved(answer(11, 60_010, 5)), answer(11, 60_010, 5));
        assert_eq!(first.improved(answer(201, 250_030, 55)), answer(201, 250_030, 55));
        let stepped = answer(11, 3_660_000, 200);
        assert_eq!(first.improved(stepped), stepped);
    }

    #[test]
    fn any_time_of_a_hub_can_be_computed_with() {
        let clock = HubClock::new();
        for hub_ms in [i64::MAX, i64::MIN, 0, i64::MAX] {
            clock.set(hub_ms, Duration::MAX, Duration::MAX);
            clock.set(hub_ms, Duration::ZERO, Duration::ZERO);
            let now = clock.now_ms();
            assert!((0..=LATEST_MS + 60_000).contains(&now), "{hub_ms}: {now}");
        }
    }

    #[test]
    fn a_signal_before_the_wait_is_not_lost_and_the_end_ends_sleeps() {
        let signal = Signal::default();
        let known = signal.count();
        signal.send();
        signal.wait(known, Duration::from_secs(3600));
        let end = End::default();
        end.sleep(Duration::from_millis(1));
        assert!(!end.is_reached());
        std::thread::scope(|scope| {
            scope.spawn(|| end.sleep(Duration::from_secs(3600)));
            end.reach();
        });
        assert!(end.is_reached() && end.flag().load(Ordering::Relaxed));
    }
}
