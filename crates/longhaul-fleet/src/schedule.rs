//! The schedule of the exclusive tests of a mesh: tasks with exclusive resources, their rounds, the
//! time of a full cycle, the load of the resources, and the choice of the next runs.
//!
//! A [`Schedule`] depends on the mesh only. [`Schedule::plan`] is a pure function of the schedule,
//! the states of the tasks and the active runs: the hub calls it every few seconds and stores its
//! decisions. A resource is an interface direction or a trunk direction. Two exclusive runs never
//! overlap on a resource. `docs/design/fleet.md` describes the order and its bounds.

mod book;
mod color;
mod load;
mod plan;
#[cfg(test)]
mod plan_tests;
mod resource;
mod task;

pub use load::ResourceLoad;
pub use plan::{ActiveRun, Decision, Situation, Verdict};
pub use resource::{ExclusiveResource, path_capacity, resources_of};
pub use task::{Task, TaskState};

use std::collections::HashMap;

use crate::mesh::{Mesh, MeshTest};
use book::Book;

/// The tasks of a mesh with their resources and rounds.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    /// The tasks, by test, source and destination in the order of the mesh.
    pub tasks: Vec<Task>,
    /// The resources that the tasks occupy.
    pub resources: Vec<ExclusiveResource>,
    /// The rounds of each test, in the order of the mesh.
    pub tests: Vec<TestRounds>,
    /// The predicted time in ms in which every task runs once.
    pub cycle_ms: i64,
    /// The loads of the resources, in their order.
    pub load: Vec<ResourceLoad>,
    by_id: HashMap<String, usize>,
}

/// The rounds of one test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TestRounds {
    /// The number of rounds.
    pub rounds: u32,
    /// The predicted time in ms in which every task of the test runs once, without the other tests.
    pub cycle_ms: i64,
}

/// The shortest time in ms after which a due run of a test without a period counts as missed.
const LEAST_PERIOD_MS: i64 = 60_000;

impl Schedule {
    /// Creates the schedule of `mesh`.
    pub fn new(mesh: &Mesh) -> Self {
        let mut made = Schedule {
            tasks: Vec::new(),
            resources: Vec::new(),
            tests: Vec::new(),
            cycle_ms: 0,
            load: Vec::new(),
            by_id: HashMap::new(),
        };
        let mut names = HashMap::new();
        for (at, test) in mesh.tests.iter().enumerate() {
            made.add_test(mesh, at, test, &mut names);
        }
        let mut order: Vec<usize> = (0..made.tasks.len()).collect();
        order.sort_by_key(|at| made.rank(*at));
        let starts = starts(&made.tasks, &order, made.resources.len());
        made.cycle_ms = makespan(&made.tasks, &starts);
        starts.iter().for_each(|(task, start)| made.tasks[*task].offset_ms = *start);
        let least = made.cycle_ms.max(LEAST_PERIOD_MS);
        for task in made.tasks.iter_mut().filter(|task| task.every_ms == 0) {
            task.period_ms = least;
        }
        made.load = load::loads(mesh, &made.tasks, &made.resources, made.cycle_ms);
        made.by_id =
            made.tasks.iter().enumerate().map(|(at, task)| (task.id.clone(), at)).collect();
        made
    }

    /// Returns the task with the id `TEST/SOURCE/DESTINATION`.
    pub fn task(&self, id: &str) -> Option<&Task> {
        self.by_id.get(id).map(|at| &self.tasks[*at])
    }

    /// Returns the names of the resources of `task`.
    pub fn resource_names(&self, task: &Task) -> Vec<String> {
        task.resources.iter().map(|at| self.resources[*at].name.clone()).collect()
    }

    /// Returns the order of tasks that are due at the same time.
    fn rank(&self, at: usize) -> (std::cmp::Reverse<u8>, usize, u32, usize) {
        let task = &self.tasks[at];
        (std::cmp::Reverse(task.priority), task.test, task.round, at)
    }

    fn add_test(
        &mut self,
        mesh: &Mesh,
        at: usize,
        test: &MeshTest,
        names: &mut HashMap<String, usize>,
    ) {
        let first = self.tasks.len();
        for (source, destination) in &test.pairs {
            let needed = if test.exclusive {
                resources_of(mesh, test, source, destination)
            } else {
                Vec::new()
            };
            let mut resources = Vec::with_capacity(needed.len());
            for resource in needed {
                let index = *names.entry(resource.name.clone()).or_insert(self.resources.len());
                if index == self.resources.len() {
                    self.resources.push(resource);
                }
                resources.push(index);
            }
            let every_ms = i64::from(test.every_seconds) * 1000;
            self.tasks.push(Task {
                id: format!("{}/{source}/{destination}", test.name),
                test: at,
                source: source.clone(),
                destination: destination.clone(),
                resources,
                slot_ms: test.slot_ms(),
                every_ms,
                period_ms: every_ms,
                priority: test.priority,
                round: 0,
                offset_ms: 0,
            });
        }
        let own = &self.tasks[first..];
        let edges: Vec<&[usize]> = own.iter().map(|task| task.resources.as_slice()).collect();
        let rounds = color::rounds(&edges, self.resources.len());
        for (task, round) in self.tasks[first..].iter_mut().zip(&rounds) {
            task.round = *round;
        }
        let mut order: Vec<usize> = (first..self.tasks.len()).collect();
        order.sort_by_key(|task| self.rank(*task));
        let cycle_ms = makespan(&self.tasks, &starts(&self.tasks, &order, self.resources.len()));
        self.tests.push(TestRounds { rounds: color::count(&rounds), cycle_ms });
    }
}

/// Returns the tasks in `order` with their starts, each as early as its resources permit.
fn starts(tasks: &[Task], order: &[usize], resources: usize) -> Vec<(usize, i64)> {
    let mut book = Book::new(resources);
    let mut place = |at: &usize| {
        let task = &tasks[*at];
        let start = book.earliest(&task.resources, 0, task.slot_ms);
        task.resources.iter().for_each(|one| book.occupy(*one, start, start + task.slot_ms));
        (*at, start)
    };
    order.iter().map(&mut place).collect()
}

/// Returns the time in which tasks with these starts run once.
fn makespan(tasks: &[Task], starts: &[(usize, i64)]) -> i64 {
    starts.iter().map(|(at, start)| start + tasks[*at].slot_ms).max().unwrap_or(0)
}
