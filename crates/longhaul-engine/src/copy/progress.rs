//! The progress of a copy, for its display.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use longhaul_core::plan::CopyOptions;
use longhaul_core::result::{CopyLimit, StageTimes};
use longhaul_core::units::{Bytes, Rate};

use super::large_files::{FileProgress, LargeFiles};
use super::verdict::slowest_stage;
use crate::lock;

/// The surroundings of a copy at one end.
#[derive(Debug, Clone, Copy)]
pub struct CopyRun<'a> {
    /// The options of the copy.
    pub options: &'a CopyOptions,
    /// The progress, which other threads read.
    pub progress: &'a CopyProgress,
    /// Ends the copy when set.
    pub stop: &'a AtomicBool,
}

/// The progress of a copy, which the engine updates and any thread can read.
#[derive(Debug, Default)]
pub struct CopyProgress {
    pub(super) total_bytes: AtomicU64,
    pub(super) moved_bytes: AtomicU64,
    /// The moved bytes that an earlier session or attempt had left.
    pub(super) resumed_bytes: AtomicU64,
    /// Bytes that the sink's journal returns to a later attempt.
    pub(super) kept_bytes: AtomicU64,
    pub(super) total_files: AtomicU64,
    pub(super) files: AtomicU64,
    pub(super) listed: AtomicBool,
    pub(super) large_files: LargeFiles,
    limit: RateLimit,
    /// The utilization of the stages: the source's, then the sink's.
    stages: Mutex<(StageTimes, StageTimes)>,
    began: Mutex<Option<Instant>>,
    outages: Mutex<Outages>,
}

/// The rate limit of a running copy, which its clones share.
#[derive(Debug, Clone, Default)]
pub(super) struct RateLimit {
    /// In bit/s; 0 is none.
    bps: Arc<AtomicU64>,
}

impl RateLimit {
    pub(super) fn get(&self) -> Option<Rate> {
        Some(Rate::from_bps(self.bps.load(Ordering::Relaxed))).filter(|rate| rate.bps() > 0)
    }

    pub(super) fn set(&self, limit: Option<Rate>) {
        self.bps.store(limit.map_or(0, Rate::bps), Ordering::Relaxed);
    }
}

/// The shortest time without any sign of work that counts as an outage. A retransmission timeout
/// on a lossy path is shorter.
const LEAST_OUTAGE: Duration = Duration::from_secs(2);

/// The outages of a copy over all of its sessions.
#[derive(Debug, Default)]
struct Outages {
    ended: Duration,
    present: Duration,
    lost: Option<Instant>,
}

impl Outages {
    fn note_idle(&mut self, idle: Duration) {
        if idle < self.present {
            self.end_present();
        }
        if idle >= LEAST_OUTAGE {
            self.present = idle;
        }
    }

    fn end_present(&mut self) {
        self.ended += std::mem::take(&mut self.present);
    }
}

impl CopyProgress {
    /// Resets the counters for a new session.
    pub(super) fn begin(&self) {
        for counter in [
            &self.total_bytes,
            &self.moved_bytes,
            &self.resumed_bytes,
            &self.kept_bytes,
            &self.total_files,
            &self.files,
        ] {
            counter.store(0, Ordering::Relaxed);
        }
        self.listed.store(false, Ordering::Relaxed);
        self.large_files.clear();
        *lock(&self.began) = Some(Instant::now());
        {
            let mut outages = lock(&self.outages);
            let lost = outages.lost.take().map_or(Duration::ZERO, |lost| lost.elapsed());
            outages.ended += lost;
        }
        *lock(&self.stages) = Default::default();
    }

    /// Returns the stage that limits the copy at present; `None` if no stage does.
    pub fn busiest(&self) -> Option<CopyLimit> {
        let (source, sink) = *lock(&self.stages);
        slowest_stage(&source, &sink)
    }

    /// Notes that the copy did no work for `idle` until now.
    pub(super) fn note_idle(&self, idle: Duration) {
        lock(&self.outages).note_idle(idle);
    }

    /// Notes that the connection was lost. The outage lasts until the next session.
    pub(super) fn note_lost(&self) {
        let mut outages = lock(&self.outages);
        outages.end_present();
        outages.lost.get_or_insert_with(Instant::now);
    }

    /// Returns the time of all outages: without a connection, or without progress over one.
    pub(super) fn outage(&self) -> Duration {
        let outages = lock(&self.outages);
        outages.ended + outages.present
    }

    pub(super) fn source_is(&self, stages: StageTimes) {
        lock(&self.stages).0 = stages;
    }

    pub(super) fn sink_is(&self, stages: StageTimes) {
        lock(&self.stages).1 = stages;
    }

    /// Returns the mean rate of this session.
    pub fn rate(&self) -> Rate {
        let began = *lock(&self.began);
        let moved = self.moved().get().saturating_sub(self.resumed().get());
        began.map_or(Rate::from_bps(0), |began| Rate::mean(Bytes::new(moved), began.elapsed()))
    }

    /// Returns the rate limit in force.
    pub fn limit(&self) -> Option<Rate> {
        self.limit.get()
    }

    /// Changes the rate limit while the copy runs.
    pub fn set_limit(&self, limit: Option<Rate>) {
        self.limit.set(limit);
    }

    /// Returns the rate limit, which follows its changes.
    pub(super) fn shared_limit(&self) -> RateLimit {
        self.limit.clone()
    }

    /// Returns the bytes known to be copied, which increase while the source's tree is walked.
    pub fn total(&self) -> Bytes {
        Bytes::new(self.total_bytes.load(Ordering::Relaxed))
    }

    /// Returns the bytes written to files at the sink.
    pub fn moved(&self) -> Bytes {
        Bytes::new(self.moved_bytes.load(Ordering::Relaxed))
    }

    /// Returns the part of [`moved`](Self::moved) that existed before.
    pub fn resumed(&self) -> Bytes {
        Bytes::new(self.resumed_bytes.load(Ordering::Relaxed))
    }

    /// Returns the bytes that the same copy does not transfer again if it is interrupted now, as
    /// far as this end knows. The journal can have more, never fewer.
    pub fn kept(&self) -> Bytes {
        Bytes::new(self.kept_bytes.load(Ordering::Relaxed))
    }

    /// Returns the number of files known to be copied.
    pub fn total_files(&self) -> u64 {
        self.total_files.load(Ordering::Relaxed)
    }

    /// Returns the number of files with their final names at the sink.
    pub fn files(&self) -> u64 {
        self.files.load(Ordering::Relaxed)
    }

    /// The large files that have begun and are not complete, at most 64.
    pub fn moving_files(&self) -> Vec<FileProgress> {
        self.large_files.moving()
    }

    /// Returns whether the totals are final.
    pub fn listed(&self) -> bool {
        self.listed.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_counted_once_and_a_short_pause_never() {
        let progress = CopyProgress::default();
        let idle = |ms: u64| progress.note_idle(Duration::from_millis(ms));
        for ms in [200, 1900, 0, 1000, 0] {
            idle(ms);
        }
        assert_eq!(progress.outage(), Duration::ZERO);
        for ms in [1900, 2100, 5000, 200] {
            idle(ms);
        }
        assert_eq!(progress.outage(), Duration::from_secs(5));
        idle(3000);
        progress.note_lost();
        progress.begin();
        let outage = progress.outage();
        assert!(outage >= Duration::from_secs(8) && outage < Duration::from_secs(9), "{outage:?}");
    }
}
