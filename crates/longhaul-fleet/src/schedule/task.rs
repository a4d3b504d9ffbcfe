//! Tasks: the repeated runs of one test between one pair of hosts.

use serde::{Deserialize, Serialize};

/// The runs of one test from one host to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// `TEST/SOURCE/DESTINATION`, unique in the mesh.
    pub id: String,
    /// The index of the test in the mesh.
    pub test: usize,
    /// The source's host.
    pub source: String,
    /// The destination's host.
    pub destination: String,
    /// The indices of its resources in [`Schedule::resources`](super::Schedule::resources); none if
    /// the test is not exclusive.
    pub resources: Vec<usize>,
    /// The time of one run with its margin, in ms.
    pub slot_ms: i64,
    /// The time between the due times of two runs in ms; 0 if the task is due again when its run
    /// ends.
    pub every_ms: i64,
    /// The time in ms after which a due run counts as missed: `every_ms`, or the time of a full
    /// cycle, but at least a minute, if that is 0.
    pub period_ms: i64,
    /// The priority; 0 to 9.
    pub priority: u8,
    /// The round within its test, from 0. Tasks of one round have no common resource.
    pub round: u32,
    /// The predicted start of its run in ms after the start of a cycle, if all tasks are due together.
    pub offset_ms: i64,
}

/// The progress of a task. The hub stores it with the runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskState {
    /// The due time of the next run to plan, in ms since 1970.
    pub due_ms: i64,
    /// The time since which the task waits for a window, in ms since 1970: the due time of the first
    /// run after the last planned one. The order of tasks depends on it.
    pub waiting_ms: i64,
    /// The earliest start of the next run, in ms since 1970.
    pub ready_ms: i64,
    /// The number of runs in a row without a result.
    pub misses: u32,
    /// The due time of the latest run that is recorded as missed, in ms since 1970.
    pub noted_ms: Option<i64>,
}

/// The longest pause after repeated misses of a task without a period.
const MOST_PAUSE_MS: i64 = 600_000;

impl TaskState {
    /// Returns the state of a task that has been in the mesh since `now_ms`: it is due at once.
    pub fn new(now_ms: i64) -> Self {
        TaskState {
            due_ms: now_ms,
            waiting_ms: now_ms,
            ready_ms: now_ms,
            misses: 0,
            noted_ms: None,
        }
    }

    /// Returns the state for a clock that shows `now_ms`. A schedule that plans `horizon_ms` ahead cannot
    /// have reached a later state by then: the clock stepped back since, and the task is due at once.
    /// Otherwise it would not run until the clock shows the former time again.
    #[must_use]
    pub fn reachable(self, task: &Task, now_ms: i64, horizon_ms: i64) -> Self {
        let pause = task.period_ms.max(MOST_PAUSE_MS).saturating_add(2 * task.slot_ms);
        let latest = now_ms.saturating_add(horizon_ms).saturating_add(pause);
        let times = [self.due_ms, self.waiting_ms, self.ready_ms, self.noted_ms.unwrap_or(now_ms)];
        if times.iter().all(|time| *time <= latest) { self } else { TaskState::new(now_ms) }
    }

    /// Notes that the due run is planned to start at `start_ms`.
    pub fn booked(&mut self, task: &Task, start_ms: i64) {
        self.ready_ms = start_ms + task.slot_ms;
        self.due_ms = if task.every_ms > 0 { self.due_ms + task.every_ms } else { self.ready_ms };
        self.waiting_ms = self.due_ms;
    }

    /// Notes that a run has a result.
    pub fn finished(&mut self) {
        self.misses = 0;
    }

    /// Notes that the planned run that was due at `due_ms` has no result. The task is planned again,
    /// unless its next run is already planned, after a pause that doubles with each miss, up to its
    /// period or ten minutes.
    pub fn missed(&mut self, task: &Task, due_ms: i64, now_ms: i64) {
        let most = if task.every_ms > 0 { task.every_ms } else { MOST_PAUSE_MS };
        let pause = task.slot_ms.saturating_mul(1 << self.misses.min(20));
        self.misses = self.misses.saturating_add(1);
        self.ready_ms = self.ready_ms.max(now_ms + pause.min(most.max(task.slot_ms)));
        self.noted_ms = Some(self.noted_ms.map_or(due_ms, |noted| noted.max(due_ms)));
        if task.every_ms > 0 && self.due_ms == due_ms + task.every_ms {
            self.due_ms = due_ms;
            self.waiting_ms = due_ms;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(every_ms: i64) -> Task {
        Task {
            id: "t/a/b".to_owned(),
            test: 0,
            source: "a".to_owned(),
            destination: "b".to_owned(),
            resources: vec![],
            slot_ms: 15_000,
            every_ms,
            period_ms: every_ms.max(60_000),
            priority: 5,
            round: 0,
            offset_ms: 0,
        }
    }

    #[test]
    fn a_clock_that_steps_back_does_not_stop_a_task() {
        const HORIZON: i64 = 33_000;
        let now = 1_800_000_000_000;
        for task in [task(0), task(3_600_000)] {
            // Every state of a steady clock stays.
            let mut state = TaskState::new(now);
            for _ in 0..30 {
                state.booked(&task, now + HORIZON);
                state.due_ms = state.due_ms.min(now + HORIZON + task.every_ms);
                state.missed(&task, now + HORIZON, now);
                state.waiting_ms = state.due_ms;
                assert_eq!(state.reachable(&task, now, HORIZON), state, "{state:?}");
            }
            // A year ahead, and back.
            let mut ahead = TaskState::new(now + 366 * 86_400_000);
            ahead.booked(&task, now + 366 * 86_400_000);
            assert_eq!(ahead.reachable(&task, now, HORIZON), TaskState::new(now));
            let noted = TaskState { noted_ms: Some(i64::MAX), ..TaskState::new(now) };
            assert_eq!(noted.reachable(&task, now, HORIZON), TaskState::new(now));
        }
    }
}
