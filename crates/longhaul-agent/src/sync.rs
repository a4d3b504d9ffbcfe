//! The exchange with the hub: uploads the contents of the journal and of the memory, and takes
//! leases.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use longhaul_engine::session::Identity;
use longhaul_fleet::protocol::{
    AgentEvent, AgentState, DeclaredCapacity, MAX_EVENTS, MAX_LEASES, MAX_ROWS, MAX_RUNS,
    MAX_WAIT_SECONDS, RefusalCode, SYNC_PATH, SampleBatch, Severity, StampPeer, SyncRequest,
    SyncResponse,
};
use serde_json::Value;

use crate::client::HubClient;
use crate::clock::{End, HubClock, local_ms};
use crate::error::{AgentError, Notice, Result};
use crate::journal::{BatchLimits, Journal, samples_dropped};
use crate::measure::{Samples, host_addresses, host_state};
use crate::run::{AllowedPeers, RunQueue};
use crate::signer::Signer;

/// The pauses after failures: they double up to the longest.
const SHORTEST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The shortest time from the start of an exchange to the start of the next one.
const LEAST_CYCLE: Duration = Duration::from_millis(200);
/// The wait while the result of a run is due, so that the result is sent soon.
const ACTIVE_WAIT_SECONDS: u64 = 1;
/// The maximum number of bytes of journal entries in one request; the rest of a body is samples and
/// facts.
const BATCH_BYTES: usize = 5 << 20;
/// The journal's entries have smaller numbers than the samples in memory.
const MOST_JOURNAL_ID: u64 = 1 << 52;
/// The difference of two clocks that is a step.
const CLOCK_STEP_MS: i64 = 1000;
/// The longest delay of the answer to a long poll, for the error of its time.
const LATE: Duration = Duration::from_millis(250);
/// The time between two deletions of old runs.
const PRUNE: Duration = Duration::from_secs(3600);

/// The exchange of one agent.
pub(crate) struct Sync<'a> {
    pub(crate) client: &'a HubClient,
    pub(crate) identity: &'a Identity,
    pub(crate) agent: String,
    pub(crate) state: PathBuf,
    pub(crate) boot: String,
    pub(crate) stamp_port: u16,
    pub(crate) started: Instant,
    pub(crate) journal: &'a Journal,
    pub(crate) clock: &'a HubClock,
    pub(crate) queue: &'a RunQueue<'a>,
    pub(crate) samples: &'a Samples,
    pub(crate) peers: &'a Mutex<Vec<StampPeer>>,
    pub(crate) allow: &'a AllowedPeers,
    pub(crate) facts: &'a Mutex<Option<Value>>,
    pub(crate) capacity: &'a Mutex<Option<DeclaredCapacity>>,
    pub(crate) notice: &'a (dyn Fn(Notice<'_>) + std::marker::Sync),
}

/// The state between exchanges.
struct Progress {
    /// The time between two uploads of samples. Exchanges about runs are more frequent.
    upload_seconds: u64,
    /// The time of the latest upload of samples.
    uploaded: Option<Instant>,
    /// The time of the last exchange without a wait.
    trip: Duration,
    /// The largest error of the last answer's time.
    clock_error: Duration,
    pause: Duration,
    away: bool,
    pruned: Instant,
    /// True while the disk is known to be full.
    full: bool,
    /// True after the first answer.
    answered: bool,
    /// Readings of this host's clock and of a clock that never steps.
    clocks: (i64, Instant),
}

impl Progress {
    fn new() -> Self {
        Progress {
            upload_seconds: 5,
            uploaded: None,
            trip: Duration::ZERO,
            clock_error: LATE,
            pause: SHORTEST_PAUSE,
            away: false,
            pruned: Instant::now(),
            full: false,
            answered: false,
            clocks: (local_ms(), Instant::now()),
        }
    }

    /// Returns the time until the next upload of samples, rounded to seconds.
    fn until_upload(&self) -> u64 {
        let interval = Duration::from_secs(self.upload_seconds);
        let left = self.uploaded.map(|at| interval.saturating_sub(at.elapsed()));
        // Rounded, so that an exchange that begins slightly early still uploads the samples.
        left.map_or(0, |left| left.as_secs_f64().round() as u64)
    }
}

impl Sync<'_> {
    /// Exchanges messages until `stop` is set.
    ///
    /// # Errors
    /// The hub will never accept this agent again.
    pub(crate) fn run(&self, end: &End) -> Result<()> {
        let mut progress = Progress::new();
        while !end.is_reached() {
            let begun = Instant::now();
            self.do_minor_work(&mut progress);
            match self.exchange(&mut progress) {
                Ok(()) => {
                    if std::mem::take(&mut progress.away) {
                        (self.notice)(Notice::HubBack);
                    }
                    progress.pause = SHORTEST_PAUSE;
                    end.sleep(LEAST_CYCLE.saturating_sub(begun.elapsed()));
                }
                Err(error) if error.is_final() => return Err(error),
                Err(AgentError::Refused { code: RefusalCode::Replayed, counter, .. }) => {
                    // With a full disk the agent continues, and skips the counters later.
                    let skipped = self.journal.skip_counter(counter.unwrap_or(0));
                    end.sleep(if skipped.is_ok() { LEAST_CYCLE } else { LONGEST_PAUSE });
                }
                Err(error) => {
                    if !end.is_reached() && !std::mem::replace(&mut progress.away, true) {
                        (self.notice)(Notice::HubAway(&error));
                    }
                    end.sleep(progress.pause);
                    progress.pause = (progress.pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
        self.keep(self.samples.take());
        Ok(())
    }

    /// Does the work that is not urgent.
    fn do_minor_work(&self, progress: &mut Progress) {
        self.queue.store_again();
        let (wall, monotonic) = progress.clocks;
        let step = local_ms() - wall - monotonic.elapsed().as_millis() as i64;
        progress.clocks = (local_ms(), Instant::now());
        if step.abs() > CLOCK_STEP_MS {
            let message = format!("the clock of this host stepped by {step} ms");
            self.event(Severity::Warning, "clock_step", message);
        }
        if self.journal.is_full() {
            if !std::mem::replace(&mut progress.full, true) {
                (self.notice)(Notice::DiskFull);
            }
            if self.journal.check_space() {
                progress.full = false;
                let message = "the disk of the journal was full".to_owned();
                self.event(Severity::Error, "disk_full", message);
            }
        }
        if progress.pruned.elapsed() >= PRUNE {
            progress.pruned = Instant::now();
            // Old rows are harmless.
            let _ = self.journal.prune(self.clock.now_ms());
        }
    }

    fn event(&self, severity: Severity, kind: &str, message: String) {
        let at_ms = self.clock.now_ms();
        let event = AgentEvent { id: 0, at_ms, severity, kind: kind.to_owned(), message };
        // Without space in the journal the event is lost.
        let _ = self.journal.push_event(&event);
    }

    fn exchange(&self, progress: &mut Progress) -> Result<()> {
        let limits = BatchLimits {
            bytes: BATCH_BYTES,
            rows: MAX_ROWS / 2,
            results: MAX_RUNS,
            events: MAX_EVENTS,
        };
        let batch = self.journal.batch(limits)?;
        let (running, accepted) = self.queue.ids();
        let is_due = progress.until_upload() == 0;
        let next = if is_due { progress.upload_seconds } else { progress.until_upload() };
        let most = next.clamp(1, MAX_WAIT_SECONDS);
        // The first answer sets the clock.
        let wait = match (batch.more || !progress.answered, self.queue.time_to_news()) {
            (true, _) => 0,
            (false, Some(time)) => time.as_secs().clamp(ACTIVE_WAIT_SECONDS, most),
            (false, None) => most,
        };
        let state = self.agent_state(running, accepted)?;
        if is_due {
            progress.uploaded = Some(Instant::now());
        }
        let samples = if is_due { self.within_limit(self.samples.take()) } else { Vec::new() };
        let facts = self.facts.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
        let mut request = SyncRequest {
            boot: self.boot.clone(),
            clock_ms: local_ms(),
            state,
            facts,
            samples: batch.samples,
            snapshot: if is_due { self.samples.take_snapshot() } else { None },
            results: batch.results,
            stamp: batch.stamp,
            events: batch.events,
        };
        request.samples.extend(samples.iter().cloned());
        let sent = Instant::now();
        let answer = self.send(&request, wait);
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                self.keep(samples);
                if is_due {
                    // The snapshot is lost, so the next exchange has a new one.
                    progress.uploaded = None;
                }
                return Err(error);
            }
        };
        let spent = sent.elapsed();
        if wait == 0 || spent < 2 * LATE {
            progress.trip = spent;
            progress.clock_error = spent / 2;
        } else {
            progress.clock_error = LATE;
        }
        self.take(answer, request.facts.as_ref(), samples, progress)
    }

    /// Keeps the samples of one request within its limit; the rest goes to the journal.
    fn within_limit(&self, samples: Vec<SampleBatch>) -> Vec<SampleBatch> {
        let mut rows = 0;
        let (sent, kept) = samples.into_iter().partition(|series| {
            rows += series.row_count();
            rows <= MAX_ROWS / 2
        });
        self.keep(kept);
        sent
    }

    /// Stores samples in the journal.
    fn keep(&self, samples: Vec<SampleBatch>) {
        for series in samples {
            // Without space in the journal the samples are a gap.
            if let Ok(dropped @ 1..) = self.journal.push_samples(&series) {
                let _ = self.journal.push_event(&samples_dropped(dropped, self.clock.now_ms()));
            }
        }
    }

    fn agent_state(&self, running: Vec<String>, accepted: Vec<String>) -> Result<AgentState> {
        let (disk_free_bytes, memory_bytes) = host_state(&self.state);
        Ok(AgentState {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: self.started.elapsed().as_secs(),
            running,
            accepted,
            disk_free_bytes,
            journal_bytes: self.journal.bytes(),
            backlog: self.journal.backlog()?,
            memory_bytes,
            stamp_port: self.stamp_port,
            addresses: host_addresses(),
        })
    }

    fn send(&self, request: &SyncRequest, wait: u64) -> Result<SyncResponse> {
        let path = format!("{SYNC_PATH}?wait={wait}");
        let body = serde_json::to_vec(request).unwrap_or_default();
        let counter = self.journal.next_counter()?;
        let signer = Signer { identity: self.identity, agent: &self.agent };
        let headers = signer.headers(("POST", &path), counter, &body);
        let headers = headers.map_err(AgentError::file("use", self.state.join("identity")))?;
        let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
        self.client.post_bytes(&path, &headers, &body, Duration::from_secs(wait))
    }

    /// Forgets the facts that the hub has stored, unless newer ones have come since.
    fn forget_facts(&self, stored: Option<&Value>) {
        let mut facts = self.facts.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if facts.as_ref() == stored {
            *facts = None;
        }
    }

    fn take(
        &self,
        answer: SyncResponse,
        facts: Option<&Value>,
        samples: Vec<SampleBatch>,
        progress: &mut Progress,
    ) -> Result<()> {
        self.clock.set(answer.settings.hub_ms, progress.trip, progress.clock_error);
        progress.answered = true;
        progress.upload_seconds = answer.settings.upload_seconds.clamp(1, 300).into();
        self.samples.set_interval(answer.settings.sample_interval_ms);
        *self.capacity.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) =
            answer.settings.capacity;
        let acknowledged = answer.acknowledged;
        let stored: Vec<u64> =
            acknowledged.iter().copied().filter(|id| *id < MOST_JOURNAL_ID).collect();
        self.journal.acknowledge(&stored)?;
        self.keep(samples.into_iter().filter(|one| !acknowledged.contains(&one.id)).collect());
        if answer.facts_stored {
            self.forget_facts(facts);
        }
        let peers = answer.stamp_peers.into_iter().filter(|peer| self.allow.allows(peer.address));
        *self.peers.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = peers.collect();
        self.queue.cancel(&answer.cancel);
        let leases = answer.leases.into_iter().take(MAX_LEASES).filter(|lease| lease.is_valid());
        let wanted = leases.filter(|lease| !answer.cancel.contains(&lease.run));
        self.queue.accept(wanted.collect());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_wait_for_their_interval() {
        let mut progress = Progress::new();
        assert_eq!(progress.until_upload(), 0, "the first exchange");
        progress.upload_seconds = 60;
        progress.uploaded = Some(Instant::now());
        assert_eq!(progress.until_upload(), 60);
        progress.uploaded = Instant::now().checked_sub(Duration::from_millis(59_600));
        assert_eq!(progress.until_upload(), 0);
    }
}
