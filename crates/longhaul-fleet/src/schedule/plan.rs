//! The choice of the next runs.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::Schedule;
use super::book::Book;
use super::task::{Task, TaskState};
use crate::mesh::Mesh;
use crate::protocol::RunReason;

/// The facts on which the choice of the next runs depends.
#[derive(Debug, Clone)]
pub struct Situation<'a> {
    /// The hub's clock, in ms since 1970.
    pub now_ms: i64,
    /// The time since which the hub has planned without a pause, in ms since 1970.
    pub planning_since_ms: i64,
    /// The states by the id of the task. A task without a state is due at once.
    pub states: &'a BTreeMap<String, TaskState>,
    /// All runs that are planned, leased or running, of this and of earlier meshes.
    pub active: &'a [ActiveRun],
    /// The hosts whose agents are not in contact.
    pub away: &'a BTreeSet<String>,
}

/// A run that is not over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveRun {
    /// The names of its resources.
    pub resources: Vec<String>,
    /// The destination's host.
    pub destination: String,
    /// The port of its server.
    pub port: u16,
    /// The start of its window, in ms since 1970.
    pub start_ms: i64,
    /// The end of its window, in ms since 1970.
    pub end_ms: i64,
}

/// A decision on one task. The hub stores the run and the changed state of the task together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The index of the task in [`Schedule::tasks`].
    pub task: usize,
    /// The due time of the run, in ms since 1970.
    pub due_ms: i64,
    /// The decision.
    pub verdict: Verdict,
}

/// The decision on a due run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The run gets a window.
    Run {
        /// The start of the window, in ms since 1970.
        start_ms: i64,
        /// The end of the window, in ms since 1970.
        end_ms: i64,
        /// The port of the server at the destination.
        port: u16,
    },
    /// The run is recorded as missed. The task is planned again as soon as possible.
    Missed {
        /// The reason.
        reason: RunReason,
        /// The number of consecutive runs, one per period from `due_ms` on.
        occurrences: u32,
        /// True if the time of these runs is over, so that the task continues with a later one.
        over: bool,
    },
}

/// The time in ms between a decision and the earliest start of its run: the agents fetch their leases
/// in it.
const LEAD_MS: i64 = 3_000;
/// The minimum time in ms for which runs are planned ahead.
const LEAST_HORIZON_MS: i64 = 15_000;
/// The minimum time in ms after its due time at which a run that cannot start is recorded as
/// missed.
const LEAST_GRACE_MS: i64 = 10_000;
/// The time in ms for which the port of a run is not used again: its server may end late.
const PORT_REST_MS: i64 = 10_000;
/// The number of ports per host for simultaneous runs.
const PORTS: u16 = 100;

impl Decision {
    /// Returns the state of the task after this decision.
    pub fn next_state(&self, schedule: &Schedule, state: TaskState) -> TaskState {
        let task = &schedule.tasks[self.task];
        let mut state = TaskState { due_ms: self.due_ms, ..state };
        match self.verdict {
            Verdict::Run { start_ms, .. } => state.booked(task, start_ms),
            Verdict::Missed { occurrences, over, .. } => {
                let periods = i64::from(occurrences);
                let last = self.due_ms + (periods - 1).max(0) * task.period_ms;
                state.noted_ms = Some(last);
                if over {
                    state.due_ms = last + task.period_ms;
                }
            }
        }
        state
    }
}

impl Schedule {
    /// Returns the time in ms for which [`plan`](Self::plan) plans ahead.
    pub fn horizon_ms(&self) -> i64 {
        let longest = self.tasks.iter().map(|task| task.slot_ms).max().unwrap_or(0);
        LEAST_HORIZON_MS.max(2 * longest + LEAD_MS)
    }

    /// Decides on the due runs. Decisions on one task are in the order in which they apply.
    ///
    /// The order of due runs is the time since which they wait, delayed by a quarter of the cycle per step of
    /// priority. Every due run reserves its earliest window in this order, also beyond the horizon, so
    /// that a later run never delays an earlier one, and no task starves.
    pub fn plan(&self, mesh: &Mesh, situation: &Situation<'_>) -> Vec<Decision> {
        let mut round = Planning::new(self, mesh, situation);
        let mut decisions = Vec::new();
        let mut candidates = Vec::new();
        for at in 0..self.tasks.len() {
            candidates.extend(round.note_missed(at, &mut decisions));
        }
        let step = (self.cycle_ms / 4).max(1);
        candidates.sort_by_key(|candidate| {
            let delay = i64::from(9 - self.tasks[candidate.task].priority.min(9)) * step;
            (candidate.waiting_ms + delay, self.rank(candidate.task))
        });
        for Candidate { task, due_ms, ready_ms, .. } in candidates {
            if let Some(verdict) = round.reserve(task, ready_ms) {
                decisions.push(Decision { task, due_ms, verdict });
            }
        }
        decisions
    }
}

/// A run that is due within the horizon.
struct Candidate {
    task: usize,
    due_ms: i64,
    waiting_ms: i64,
    ready_ms: i64,
}

struct Planning<'a> {
    schedule: &'a Schedule,
    mesh: &'a Mesh,
    situation: &'a Situation<'a>,
    book: Book,
    /// The ports in use at each host: port, start and end.
    ports: HashMap<&'a str, Vec<(u16, i64, i64)>>,
    last_start_ms: i64,
}

impl<'a> Planning<'a> {
    fn new(schedule: &'a Schedule, mesh: &'a Mesh, situation: &'a Situation<'a>) -> Self {
        let mut book = Book::new(schedule.resources.len());
        let mut ports: HashMap<&str, Vec<_>> = HashMap::new();
        let resources = schedule.resources.iter().enumerate();
        let index: HashMap<&str, usize> =
            resources.map(|(at, resource)| (resource.name.as_str(), at)).collect();
        for run in situation.active {
            for at in run.resources.iter().filter_map(|name| index.get(name.as_str())) {
                book.occupy(*at, run.start_ms, run.end_ms);
            }
            let used = ports.entry(&run.destination).or_default();
            used.push((run.port, run.start_ms, run.end_ms));
        }
        let last_start_ms = situation.now_ms + schedule.horizon_ms();
        Planning { schedule, mesh, situation, book, ports, last_start_ms }
    }

    /// Records the missed runs of a task. Returns the run that is due now, if the task can run.
    fn note_missed(&self, at: usize, decisions: &mut Vec<Decision>) -> Option<Candidate> {
        let task = &self.schedule.tasks[at];
        let now = self.situation.now_ms;
        let unplanned = TaskState::new(now);
        let state = self.situation.states.get(&task.id).unwrap_or(&unplanned);
        let mut due_ms = state.due_ms;
        if due_ms > self.last_start_ms {
            return None;
        }
        let noted = |due_ms: i64| state.noted_ms.is_some_and(|noted| noted >= due_ms);
        let missed = |due_ms, reason, occurrences, over| Decision {
            task: at,
            due_ms,
            verdict: Verdict::Missed { reason, occurrences, over },
        };
        let over = ((now - due_ms) / task.period_ms.max(1)).max(0);
        if over > 0 {
            let recorded = i64::from(noted(due_ms));
            let first = due_ms + recorded * task.period_ms;
            due_ms += over * task.period_ms;
            if over > recorded {
                let reason = self.reason_of_delay(task, first);
                let count = u32::try_from(over - recorded).unwrap_or(u32::MAX);
                decisions.push(missed(first, reason, count, true));
            }
        }
        if let Some(reason) = self.reason_of_absence(task) {
            let grace = task.slot_ms.max(LEAST_GRACE_MS).min(task.period_ms);
            if now >= due_ms + grace && !noted(due_ms) {
                decisions.push(missed(due_ms, reason, 1, false));
            }
            return None;
        }
        let ready_ms = due_ms.max(state.ready_ms).max(now + LEAD_MS);
        let waiting_ms = state.waiting_ms;
        let candidate = Candidate { task: at, due_ms, waiting_ms, ready_ms };
        (ready_ms <= self.last_start_ms).then_some(candidate)
    }

    fn reason_of_absence(&self, task: &Task) -> Option<RunReason> {
        let away = |host: &str| {
            let has_agent = self.mesh.host(host).is_none_or(|host| host.agent);
            has_agent && self.situation.away.contains(host)
        };
        if away(&task.source) {
            return Some(RunReason::AgentAway);
        }
        away(&task.destination).then_some(RunReason::PeerAway)
    }

    fn reason_of_delay(&self, task: &Task, due_ms: i64) -> RunReason {
        if due_ms + task.period_ms <= self.situation.planning_since_ms {
            return RunReason::HubAway;
        }
        let in_maintenance = |host: &str| self.mesh.maintenance_at(host, due_ms).is_some();
        if in_maintenance(&task.source) || in_maintenance(&task.destination) {
            return RunReason::HostMaintenance;
        }
        self.reason_of_absence(task).unwrap_or(RunReason::ResourceBusy)
    }

    /// Reserves the earliest window of a task, and returns it if it starts within the horizon.
    fn reserve(&mut self, at: usize, ready_ms: i64) -> Option<Verdict> {
        let task = &self.schedule.tasks[at];
        let mut start_ms = ready_ms;
        loop {
            start_ms = self.book.earliest(&task.resources, start_ms, task.slot_ms);
            match self.maintenance_end(task, start_ms) {
                Some(end_ms) => start_ms = end_ms,
                None => break,
            }
        }
        let end_ms = start_ms + task.slot_ms;
        task.resources.iter().for_each(|one| self.book.occupy(*one, start_ms, end_ms));
        if start_ms > self.last_start_ms {
            return None;
        }
        let port = self.free_port(task, start_ms, end_ms)?;
        Some(Verdict::Run { start_ms, end_ms, port })
    }

    /// Returns the end of a maintenance window that a run from `start_ms` on would touch.
    fn maintenance_end(&self, task: &Task, start_ms: i64) -> Option<i64> {
        let end_ms = start_ms + task.slot_ms;
        let touching = self.mesh.maintenance.iter().filter(|window| {
            let hosts = [&task.source, &task.destination];
            window.start_ms < end_ms
                && window.end_ms > start_ms
                && window.hosts.iter().any(|host| hosts.contains(&host))
        });
        touching.map(|window| window.end_ms).max()
    }

    fn free_port(&mut self, task: &'a Task, start_ms: i64, end_ms: i64) -> Option<u16> {
        let host = task.destination.as_str();
        let target = self.mesh.host(host)?;
        let first = target.server_port(self.mesh.tests[task.test].spec.kind);
        if !target.agent {
            // Its server always listens there.
            return Some(first);
        }
        let used = self.ports.entry(host).or_default();
        let free = |port: &u16| {
            !used.iter().any(|(other, from, to)| {
                other == port && *from < end_ms + PORT_REST_MS && *to + PORT_REST_MS > start_ms
            })
        };
        let port = (first..first.saturating_add(PORTS)).find(free)?;
        used.push((port, start_ms, end_ms));
        Some(port)
    }
}
