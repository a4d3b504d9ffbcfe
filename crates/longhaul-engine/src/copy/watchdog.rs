//! Ends a session without progress: no byte, no message of progress, no work at this end.
//!
//! Keepalive messages do not count as progress. A peer that reports a busy disk gets more time,
//! because a sync can take long.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::plan::CopyOptions;
use longhaul_core::wire::copy::SinkMessage;

use crate::{FUZZ_HASTE, HASTE, lock};

/// The longest silence of a peer, which sends a progress message every second. TCP survives shorter
/// interruptions; after a longer one the copy continues over new connections.
pub(super) const SILENCE_LIMIT: Duration = Duration::from_millis(20_000 / FUZZ_HASTE);
/// The interval at which an end checks for the end of the copy, and the sink reports.
pub(super) const TICK: Duration = Duration::from_millis(200 / HASTE);
/// The default of `--give-up`.
const DEFAULT: Duration = Duration::from_secs(300);
/// The longest time without progress at a server, whatever a client requests.
const SERVER_LIMIT: Duration = Duration::from_secs(3600);
/// The factor of time for a peer that reports a busy disk.
const CLAIMS: u32 = 12;

/// Returns the longest time without progress of a copy with these options.
pub(super) fn patience(options: &CopyOptions) -> Duration {
    options.give_up_ms.map_or(DEFAULT, Duration::from_millis)
}

/// Returns the longest time without progress while the peer reports a busy disk.
pub(super) fn longest_claim(options: &CopyOptions) -> Duration {
    patience(options).saturating_mul(CLAIMS)
}

/// Returns the options of a client, limited to the values that a server accepts.
pub(super) fn bounded(options: CopyOptions) -> CopyOptions {
    let most = patience(&options).min(SERVER_LIMIT);
    CopyOptions { give_up_ms: Some(most.as_millis() as u64), ..options }
}

/// Watches one end of a copy.
pub(super) struct Watchdog {
    patience: Duration,
    /// Bytes and messages of progress.
    steps: AtomicU64,
    /// Messages that report that the peer's disk is busy.
    claims: AtomicU64,
    last: Mutex<LastProgress>,
    /// The counters in the sink's last report.
    reported: Mutex<[u64; 3]>,
    /// The virtual time that has passed besides the real time.
    #[cfg(test)]
    passed: Mutex<Duration>,
}

struct LastProgress {
    steps: u64,
    claims: u64,
    moved: Instant,
    claimed: Instant,
    /// The time since `moved` and `claimed` at the last check.
    idle: Duration,
}

impl Watchdog {
    /// Waits for `patience` while nothing moves.
    pub(super) fn new(patience: Duration) -> Self {
        let now = Instant::now();
        let last =
            LastProgress { steps: 0, claims: 0, moved: now, claimed: now, idle: Duration::ZERO };
        let (steps, claims) = (AtomicU64::new(0), AtomicU64::new(0));
        Watchdog {
            patience,
            steps,
            claims,
            last: Mutex::new(last),
            reported: Mutex::default(),
            #[cfg(test)]
            passed: Mutex::default(),
        }
    }

    /// Returns the longest time without progress.
    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    /// Notes progress.
    pub(super) fn step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that the peer reports work of its disk.
    pub(super) fn claim(&self) {
        self.claims.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a message of the sink: any other than a report without progress is a step.
    pub(super) fn note_message(&self, message: &SinkMessage) {
        let SinkMessage::Progress {
            written_bytes, checked_bytes, stages, done, stream_blocks, ..
        } = message
        else {
            return self.step();
        };
        let counters = [written_bytes.get(), checked_bytes.get(), *stream_blocks];
        let before = std::mem::replace(&mut *lock(&self.reported), counters);
        if before != counters || !done.is_empty() {
            self.step();
        } else if stages.write.unwrap_or(0.0) > 0.0 || stages.sync.unwrap_or(0.0) > 0.0 {
            self.claim();
        }
    }

    /// Returns the time since the last progress or claim, as of the last check.
    pub(super) fn idle(&self) -> Duration {
        lock(&self.last).idle
    }

    /// Returns the time without progress, if it is too long. `moved` is a number that changes with
    /// the bytes on the path; `working` is true while the disk of this end works, or its input or
    /// output blocks.
    pub(super) fn stalled(&self, moved: u64, working: bool) -> Option<Duration> {
        #[cfg(test)]
        let now = Instant::now() + *lock(&self.passed);
        #[cfg(not(test))]
        let now = Instant::now();
        self.stalled_at(now, moved, working)
    }

    /// Lets virtual time pass.
    #[cfg(test)]
    pub(super) fn pass(&self, time: Duration) {
        *lock(&self.passed) += time;
    }

    /// Returns the number of steps and claims.
    #[cfg(test)]
    pub(super) fn noted(&self) -> u64 {
        self.steps.load(Ordering::Relaxed) + self.claims.load(Ordering::Relaxed)
    }

    fn stalled_at(&self, now: Instant, moved: u64, working: bool) -> Option<Duration> {
        let mut last = lock(&self.last);
        let steps = self.steps.load(Ordering::Relaxed).wrapping_add(moved);
        if working || steps != last.steps {
            last.steps = steps;
            last.moved = now;
        }
        let claims = self.claims.load(Ordering::Relaxed);
        if claims != last.claims {
            last.claims = claims;
            last.claimed = now;
        }
        let since = |then: Instant| now.saturating_duration_since(then);
        let still = since(last.moved);
        let idle = still.min(since(last.claimed));
        last.idle = idle;
        (idle >= self.patience || still >= self.patience.saturating_mul(CLAIMS)).then_some(still)
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::result::StageTimes;
    use longhaul_core::units::Bytes;

    use super::*;

    #[test]
    fn only_what_moves_puts_the_end_off() {
        let dog = Watchdog::new(Duration::from_secs(10));
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(dog.stalled_at(at(9), 0, false), None);
        assert!(dog.stalled_at(at(12), 0, false).is_some());
        dog.step();
        assert_eq!(dog.stalled_at(at(12), 0, false), None);
        assert_eq!(dog.stalled_at(at(30), 1, false), None, "bytes moved");
        assert_eq!(dog.stalled_at(at(50), 1, true), None, "this end works");
        assert_eq!(dog.stalled_at(at(59), 1, false), None);
        assert!(dog.stalled_at(at(61), 1, false).is_some());
    }

    #[test]
    fn a_peer_is_believed_for_a_while() {
        let dog = Watchdog::new(Duration::from_secs(10));
        let start = Instant::now();
        for second in 0..115 {
            dog.claim();
            assert_eq!(dog.stalled_at(start + Duration::from_secs(second), 0, false), None);
        }
        dog.claim();
        assert!(dog.stalled_at(start + Duration::from_secs(121), 0, false).is_some());
    }

    #[test]
    fn bytes_that_are_read_again_are_progress_and_a_busy_disk_is_a_claim() {
        let dog = Watchdog::new(Duration::from_secs(10));
        let report = |checked: u64, stages: StageTimes| SinkMessage::Progress {
            written_bytes: Bytes::new(0),
            resumed_bytes: Bytes::new(0),
            stages,
            done: Vec::new(),
            stream_blocks: 0,
            checked_bytes: Bytes::new(checked),
            kept_bytes: Bytes::new(0),
        };
        let counts = || (dog.steps.load(Ordering::Relaxed), dog.claims.load(Ordering::Relaxed));
        dog.note_message(&report(0, StageTimes::default()));
        assert_eq!(counts(), (0, 0));
        dog.note_message(&report(5, StageTimes::default()));
        assert_eq!(counts(), (1, 0));
        dog.note_message(&report(5, StageTimes::default()));
        assert_eq!(counts(), (1, 0), "the same report again");
        let syncing = StageTimes { sync: Some(0.5), ..StageTimes::default() };
        dog.note_message(&report(5, syncing));
        assert_eq!(counts(), (1, 1));
    }

    #[test]
    fn a_server_has_a_limit() {
        let requested = |ms| bounded(CopyOptions { give_up_ms: ms, ..CopyOptions::default() });
        assert_eq!(patience(&requested(None)), DEFAULT);
        assert_eq!(patience(&requested(Some(7))), Duration::from_millis(7));
        assert_eq!(patience(&requested(Some(u64::MAX))), SERVER_LIMIT);
    }
}
