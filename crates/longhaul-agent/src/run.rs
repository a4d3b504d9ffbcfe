//! The execution of runs: the queue of accepted runs, which starts each within its window, once; the
//! commands of a lease, and their processes.

mod allowed;
mod child;
mod command;
mod execute;
mod run_dir;

pub use allowed::AllowedPeers;
pub(crate) use child::{ChildOutcome, run_child};
pub(crate) use execute::Executor;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::Scope;
use std::time::{Duration, Instant};

use longhaul_fleet::protocol::{Lease, Role, RunOutcome, RunReason, RunReport};

use crate::clock::{End, HubClock, Signal};
use crate::error::{Notice, Result};
use crate::journal::{Acceptance, Journal};
use execute::report_of;

/// The longest wait for the next run: the clock of the hub may step meanwhile.
const LOOK: Duration = Duration::from_secs(1);
/// The wait for the clock of the hub after the start of the agent, and the time between two checks.
const CLOCK_WAIT: Duration = Duration::from_secs(5);
const CLOCK_LOOK: Duration = Duration::from_millis(100);
/// The maximum number of reports in memory that the journal could not store.
const MOST_UNSTORED: usize = 256;
/// The maximum number of runs that an agent accepts or runs at a time.
const MOST_RUNS: usize = 256;

/// The accepted and running runs.
pub(crate) struct RunQueue<'a> {
    pub(crate) journal: &'a Journal,
    pub(crate) clock: &'a HubClock,
    pub(crate) executor: &'a Executor,
    pub(crate) allow: &'a AllowedPeers,
    pub(crate) notice: &'a (dyn Fn(Notice<'_>) + Sync),
    runs: Mutex<BTreeMap<(String, Role), Entry>>,
    /// Sent if there is a new run.
    news: Signal,
    /// The start of the agent.
    begun: Instant,
    /// True once the agent ends.
    stopping: AtomicBool,
    /// Reports that the journal could not store.
    unstored: Mutex<Vec<RunReport>>,
}

struct Entry {
    lease: Lease,
    running: bool,
    cancelled: Arc<AtomicBool>,
}

impl Entry {
    /// Returns the time of the start, or the earliest time of the result.
    fn next_news_ms(&self) -> i64 {
        let Lease { role, spec, start_ms, end_ms, .. } = &self.lease;
        match (self.running, role) {
            (false, _) => *start_ms,
            // The server of a run serves until the end of its window.
            (true, Role::Target) => *end_ms,
            (true, Role::Source) if spec.kind.is_timed() => {
                *start_ms + i64::from(spec.seconds) * 1000
            }
            (true, Role::Source) => *start_ms,
        }
    }
}

/// Returns the time from `now_ms` until `at_ms`.
fn left(at_ms: i64, now_ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(at_ms - now_ms).unwrap_or(0))
}

impl<'a> RunQueue<'a> {
    /// Creates the queue with the accepted runs of the journal. Runs that were running when the agent
    /// ended have failed.
    pub(crate) fn new(
        journal: &'a Journal,
        clock: &'a HubClock,
        (executor, allow): (&'a Executor, &'a AllowedPeers),
        notice: &'a (dyn Fn(Notice<'_>) + Sync),
    ) -> Result<Self> {
        let queue = RunQueue {
            journal,
            clock,
            executor,
            allow,
            notice,
            runs: Mutex::default(),
            news: Signal::default(),
            begun: Instant::now(),
            stopping: AtomicBool::new(false),
            unstored: Mutex::default(),
        };
        for run in journal.open_runs()? {
            match run.started_ms {
                None if !allow.allows(run.lease.peer) => {
                    queue.refuse(&run.lease, RunReason::AddressRefused);
                }
                None => queue.add(run.lease),
                Some(started_ms) => queue.finish(RunReport {
                    started_ms: Some(started_ms),
                    reason: Some(RunReason::AgentRestarted),
                    // The clock of this host may have stepped since.
                    ended_ms: clock.now_ms().min(run.lease.end_ms).max(started_ms),
                    ..report_of(&run.lease)
                }),
            }
        }
        Ok(queue)
    }

    fn runs(&self) -> MutexGuard<'_, BTreeMap<(String, Role), Entry>> {
        self.runs.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn add(&self, lease: Lease) {
        let key = (lease.run.clone(), lease.role);
        let entry = Entry { lease, running: false, cancelled: Arc::default() };
        self.runs().insert(key, entry);
        self.wake();
    }

    /// Ends the sleep of [`run`](Self::run).
    pub(crate) fn wake(&self) {
        self.news.send();
    }

    /// Returns the ids of the running runs, and of the accepted ones that have not started.
    pub(crate) fn ids(&self) -> (Vec<String>, Vec<String>) {
        let runs = self.runs();
        let ids = |running| {
            let chosen = runs.values().filter(move |entry| entry.running == running);
            chosen.map(|entry| entry.lease.run.clone()).collect()
        };
        (ids(true), ids(false))
    }

    /// Accepts the new ones of `leases`.
    pub(crate) fn accept(&self, leases: Vec<Lease>) {
        for lease in leases {
            let key = (lease.run.clone(), lease.role);
            if self.runs().contains_key(&key) || self.runs().len() >= MOST_RUNS {
                continue;
            }
            // If the journal cannot store a lease, the hub repeats it.
            match self.journal.accept(&lease) {
                Ok(Acceptance::New) if !self.allow.allows(lease.peer) => {
                    self.refuse(&lease, RunReason::AddressRefused);
                }
                Ok(Acceptance::New) => self.add(lease),
                Ok(Acceptance::Stale) => self.refuse(&lease, RunReason::StaleLease),
                Err(error) if error.is_full_disk() => self.refuse(&lease, RunReason::DiskFull),
                Ok(Acceptance::Known) | Err(_) => {}
            }
        }
    }

    /// Stops or forgets the runs `ids`.
    pub(crate) fn cancel(&self, ids: &[String]) {
        let mut forgotten = Vec::new();
        for entry in self.runs().values() {
            if ids.contains(&entry.lease.run) {
                entry.cancelled.store(true, Ordering::Release);
                if !entry.running {
                    forgotten.push(entry.lease.clone());
                }
            }
        }
        for lease in forgotten {
            self.runs().remove(&(lease.run.clone(), lease.role));
            self.finish(RunReport {
                outcome: RunOutcome::Cancelled,
                reason: Some(RunReason::Cancelled),
                ended_ms: self.clock.now_ms(),
                ..report_of(&lease)
            });
        }
    }

    fn refuse(&self, lease: &Lease, reason: RunReason) {
        self.finish(RunReport {
            outcome: RunOutcome::NotRun,
            reason: Some(reason),
            ended_ms: self.clock.now_ms(),
            ..report_of(lease)
        });
    }

    /// Stores a report, or keeps it in memory while the journal cannot store it.
    fn finish(&self, report: RunReport) {
        let reason = report.reason.map(RunReason::as_str);
        (self.notice)(Notice::RunOver { run: &report.run, reason });
        if self.journal.finish(&report).is_err() {
            let mut unstored =
                self.unstored.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            if unstored.iter().all(|other| (&other.run, other.role) != (&report.run, report.role)) {
                unstored.push(report);
            }
            // The hub gives a reason to a run without a report; one that ran is worth more.
            if unstored.len() > MOST_UNSTORED {
                let idle = unstored.iter().position(|one| one.outcome == RunOutcome::NotRun);
                unstored.remove(idle.unwrap_or(0));
            }
        }
    }

    /// Stores the reports that the journal could not store before.
    pub(crate) fn store_again(&self) {
        let mut unstored = self.unstored.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        unstored.retain(|report| self.journal.finish(report).is_err());
    }

    /// Starts the runs that are due until `end` is reached, and stops the running ones then.
    pub(crate) fn run<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, end: &End) {
        while !end.is_reached() {
            let known = self.news.count();
            for lease in self.due() {
                self.start(scope, lease);
            }
            self.news.wait(known, self.time_to_start());
        }
        self.stopping.store(true, Ordering::Release);
    }

    /// Returns the time until the next start, at most `LOOK`.
    fn time_to_start(&self) -> Duration {
        let now = self.clock.now_ms();
        let runs = self.runs();
        let starts = runs.values().filter(|entry| !entry.running).map(|one| one.lease.start_ms);
        match starts.min() {
            Some(_) if self.waits_for_clock() => CLOCK_LOOK,
            Some(start_ms) => left(start_ms, now).min(LOOK),
            None => Duration::MAX,
        }
    }

    /// Returns the time until a run starts or a result is expected; `None` without runs.
    pub(crate) fn time_to_news(&self) -> Option<Duration> {
        let now = self.clock.now_ms();
        let runs = self.runs();
        runs.values().map(|entry| left(entry.next_news_ms(), now)).min()
    }

    /// Returns true while only the clock of this host is available to decide on the runs of the
    /// journal.
    fn waits_for_clock(&self) -> bool {
        !self.clock.is_known() && self.begun.elapsed() < CLOCK_WAIT
    }

    /// Returns the runs that are due.
    fn due(&self) -> Vec<Lease> {
        if self.waits_for_clock() {
            return Vec::new();
        }
        let now = self.clock.now_ms();
        let runs = self.runs();
        let waiting = runs.values().filter(|entry| !entry.running && entry.lease.start_ms <= now);
        waiting.map(|entry| entry.lease.clone()).collect()
    }

    fn start<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, lease: Lease) {
        let now = self.clock.now_ms();
        let key = (lease.run.clone(), lease.role);
        // The target may be late: the source repeats its attempts.
        let needed = match lease.role {
            Role::Source => i64::from(lease.spec.seconds) * 1000,
            Role::Target => 0,
        };
        let refused = if now + needed >= lease.end_ms {
            Some(RunReason::WindowMissed)
        } else if self.journal.is_full() && !self.journal.check_space() {
            Some(RunReason::DiskFull)
        } else {
            match self.journal.start(&lease, now) {
                Ok(true) => None,
                // The run is over: the journal has its outcome.
                Ok(false) => {
                    self.runs().remove(&key);
                    return;
                }
                Err(_) => Some(RunReason::DiskFull),
            }
        };
        if let Some(reason) = refused {
            self.runs().remove(&key);
            self.refuse(&lease, reason);
            return;
        }
        let cancelled = match self.runs().get_mut(&key) {
            Some(entry) => {
                entry.running = true;
                entry.cancelled.clone()
            }
            None => return,
        };
        (self.notice)(Notice::RunStarted { run: &lease.run, test: &lease.test });
        let refused = lease.clone();
        let work = move || {
            let by_hub = || cancelled.load(Ordering::Acquire);
            let stopped = || by_hub() || self.stopping.load(Ordering::Acquire);
            let mut report = self.executor.run(&lease, self.clock, &stopped);
            if report.outcome == RunOutcome::Cancelled && !by_hub() {
                report.outcome = RunOutcome::Failed;
                report.reason = Some(RunReason::AgentRestarted);
            }
            self.finish(report);
            self.runs().remove(&key);
        };
        // A host without threads fails this run, and not the agent.
        if let Err(error) = std::thread::Builder::new().spawn_scoped(scope, work) {
            self.finish(RunReport {
                started_ms: Some(now),
                reason: Some(RunReason::Failed),
                message: Some(format!("cannot start a thread: {error}")),
                ended_ms: self.clock.now_ms(),
                ..report_of(&refused)
            });
            self.runs().remove(&(refused.run, refused.role));
        }
    }
}
