//! Property tests of the schedule: a hub in virtual time, with agents that go away and runs that
//! fail.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use proptest::prelude::*;

use super::*;
use crate::mesh::{Mesh, parse};
use crate::protocol::RunReason;

fn mesh(hosts: usize, rest: &str) -> Mesh {
    let mut text = String::new();
    for host in 0..hosts {
        text +=
            &format!("[hosts.h{host}]\naddress = \"10.0.0.{}\"\ncapacity = \"10G\"\n", host + 1);
    }
    parse(&(text + rest)).unwrap_or_else(|error| panic!("{error}"))
}

/// A hub in virtual time.
struct Hub<'a> {
    mesh: &'a Mesh,
    schedule: Schedule,
    states: BTreeMap<String, TaskState>,
    active: Vec<(usize, i64, ActiveRun)>,
    /// Task, start, end and success of all runs that are over.
    log: Vec<(usize, i64, i64, bool)>,
    missed: Vec<(usize, i64, RunReason, u32)>,
    away: BTreeSet<String>,
    now: i64,
    since: i64,
}

impl<'a> Hub<'a> {
    fn new(mesh: &'a Mesh) -> Self {
        let schedule = Schedule::new(mesh);
        let states =
            schedule.tasks.iter().map(|task| (task.id.clone(), TaskState::new(0))).collect();
        let (active, log, missed, away) = (vec![], vec![], vec![], BTreeSet::new());
        Hub { mesh, schedule, states, active, log, missed, away, now: 0, since: 0 }
    }

    /// Plans once, and ends the runs that are over after `pass_ms`; `good` is the success of each.
    fn pass(&mut self, pass_ms: i64, good: &mut dyn FnMut(usize) -> bool) {
        let active: Vec<ActiveRun> = self.active.iter().map(|(_, _, run)| run.clone()).collect();
        let situation = Situation {
            now_ms: self.now,
            planning_since_ms: self.since,
            states: &self.states,
            active: &active,
            away: &self.away,
        };
        for decision in self.schedule.plan(self.mesh, &situation) {
            let task = &self.schedule.tasks[decision.task];
            let state = self.states[&task.id];
            self.states.insert(task.id.clone(), decision.next_state(&self.schedule, state));
            match decision.verdict {
                Verdict::Run { start_ms, end_ms, port } => {
                    assert!(start_ms > self.now && start_ms >= decision.due_ms);
                    let run = ActiveRun {
                        resources: self.schedule.resource_names(task),
                        destination: task.destination.clone(),
                        port,
                        start_ms,
                        end_ms,
                    };
                    self.active.push((decision.task, decision.due_ms, run));
                }
                Verdict::Missed { reason, occurrences, .. } => {
                    self.missed.push((decision.task, decision.due_ms, reason, occurrences));
                }
            }
        }
        self.now += pass_ms;
        let now = self.now;
        let (over, active) = self.active.drain(..).partition(|(_, _, run)| run.end_ms <= now);
        self.active = active;
        let over: Vec<(usize, i64, ActiveRun)> = over;
        for (at, due_ms, run) in over {
            let task = &self.schedule.tasks[at];
            let state = self.states.get_mut(&task.id).unwrap();
            let good = good(at);
            if good {
                state.finished();
            } else {
                state.missed(task, due_ms, now);
            }
            self.log.push((at, run.start_ms, run.end_ms, good));
        }
    }

    fn check_no_overlap(&self) {
        let mut times: HashMap<usize, Vec<(i64, i64)>> = HashMap::new();
        for (at, start, end, _) in &self.log {
            for resource in &self.schedule.tasks[*at].resources {
                times.entry(*resource).or_default().push((*start, *end));
            }
        }
        for (resource, mut intervals) in times {
            intervals.sort_unstable();
            let name = &self.schedule.resources[resource].name;
            assert!(
                intervals.windows(2).all(|pair| pair[0].1 <= pair[1].0),
                "{name}: {intervals:?}"
            );
        }
    }
}

#[test]
fn a_full_mesh_runs_in_rounds_and_repeats_in_the_predicted_time() {
    let mesh =
        mesh(24, "[tests.t]\nkind = \"throughput\"\nseconds = 2\nmargin = \"4s\"\nevery = 0\n");
    let mut hub = Hub::new(&mesh);
    assert_eq!(hub.schedule.tests[0].rounds, 23);
    assert_eq!(hub.schedule.cycle_ms, 23 * 6000);
    let cycles = 3;
    while hub.now < cycles * hub.schedule.cycle_ms + 10_000 {
        hub.pass(1000, &mut |_| true);
    }
    hub.check_no_overlap();
    let tasks = hub.schedule.tasks.len();
    assert_eq!(tasks, 24 * 23);
    let first = hub.log.iter().map(|(_, start, _, _)| *start).min().unwrap();
    let mut runs = vec![0; tasks];
    for (at, _, end, _) in &hub.log {
        runs[*at] += i64::from(*end <= first + cycles * hub.schedule.cycle_ms * 11 / 10);
    }
    assert!(runs.iter().all(|count| *count >= cycles), "{runs:?}");
    assert!(hub.missed.is_empty());
}

#[test]
fn independent_interfaces_and_light_tests_run_at_once() {
    let text = "[hosts.a]\ninterfaces = [{name=\"x\",address=\"10.1.0.1\",capacity=\"1G\"},\
         {name=\"y\",address=\"10.2.0.1\",capacity=\"1G\"}]\n\
         [hosts.b]\ninterfaces = [{name=\"x\",address=\"10.1.0.2\",capacity=\"1G\"},\
         {name=\"y\",address=\"10.2.0.2\",capacity=\"1G\"}]\n\
         [tests.x]\nkind=\"throughput\"\nfrom=\"a\"\nto=\"b\"\ninterface=\"x\"\n\
         [tests.y]\nkind=\"throughput\"\nfrom=\"a\"\nto=\"b\"\ninterface=\"y\"\n\
         [tests.light]\nkind=\"path\"\nfrom=\"a\"\nto=\"b\"\nexclusive=false\n";
    let mesh = parse(text).unwrap();
    let mut hub = Hub::new(&mesh);
    assert_eq!(hub.schedule.cycle_ms, 65_000);
    hub.pass(1000, &mut |_| true);
    let starts: BTreeSet<i64> = hub.active.iter().map(|(_, _, run)| run.start_ms).collect();
    let ports: BTreeSet<u16> = hub.active.iter().map(|(_, _, run)| run.port).collect();
    assert_eq!((hub.active.len(), starts.len(), ports.len()), (3, 1, 3));
}

#[test]
fn trunks_are_exclusive_and_maintenance_delays() {
    let mesh = mesh(
        4,
        "[trunks.sea]\ncapacity=\"10G\"\nleft=[\"h0\",\"h1\"]\nright=[\"h2\",\"h3\"]\n\
         [tests.t]\nkind=\"throughput\"\nseconds=5\nevery=\"10m\"\n\
         [[maintenance]]\nhosts=\"h0\"\nstart=1970-01-01T00:00:05Z\nend=1970-01-01T00:05:00Z\n",
    );
    let mut hub = Hub::new(&mesh);
    // Four runs cross the trunk in each direction.
    assert_eq!(hub.schedule.cycle_ms, 4 * 10_000);
    let load = |name: &str| hub.schedule.load.iter().find(|load| load.resource == name).unwrap();
    assert!((load("trunk/sea/left").busy_share - 4.0 * 10.0 / 600.0).abs() < 1e-9);
    while hub.now < 600_000 {
        hub.pass(2000, &mut |_| true);
    }
    hub.check_no_overlap();
    assert!(hub.log.len() >= hub.schedule.tasks.len());
    for (at, start, end, _) in &hub.log {
        let task = &hub.schedule.tasks[*at];
        let touches = task.source == "h0" || task.destination == "h0";
        assert!(!touches || *end <= 5_000 || *start >= 300_000, "{} at {start}", task.id);
    }
}

#[test]
fn an_absent_agent_and_an_absent_hub_are_recorded_once_per_occurrence() {
    let mesh = mesh(
        2,
        "[tests.t]\nkind=\"throughput\"\nseconds=5\nevery=\"1m\"\nfrom=\"h0\"\nto=\"h1\"\n",
    );
    let mut hub = Hub::new(&mesh);
    hub.away.insert("h1".to_owned());
    while hub.now < 180_000 {
        hub.pass(1000, &mut |_| true);
    }
    let expected = [0, 60_000, 120_000].map(|due| (0, due, RunReason::PeerAway, 1));
    assert_eq!(hub.missed, expected);
    hub.away.clear();
    while hub.now < 240_000 {
        hub.pass(1000, &mut |_| true);
    }
    assert_eq!((hub.missed.len(), hub.log.len()), (3, 1));
    hub.now += 600_000;
    hub.since = hub.now;
    hub.pass(1000, &mut |_| true);
    assert_eq!(hub.missed[3..], [(0, 300_000, RunReason::HubAway, 9)]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Two tests of different priority compete for all of the time, runs fail at random, and agents
    /// come and go: no two runs overlap on a resource, and every pair of present hosts runs again
    /// within a bounded time.
    #[test]
    fn no_overlap_and_no_starvation(
        hosts in 2_usize..6,
        trunk in any::<bool>(),
        priorities in (0_u8..=9, 0_u8..=9),
        seconds in (1_u32..20, 1_u32..20),
        (failures, absences) in (
            proptest::collection::vec(any::<bool>(), 1..50),
            proptest::collection::vec(0_usize..12, 1..20),
        ),
    ) {
        let mut rest = format!(
            "[tests.a]\nkind=\"throughput\"\nseconds={}\nevery=0\npriority={}\n\
             [tests.b]\nkind=\"copy\"\nseconds={}\nevery=0\npriority={}\n",
            seconds.0, priorities.0, seconds.1, priorities.1,
        );
        if trunk {
            rest += "[trunks.t]\ncapacity=\"10G\"\nleft=\"h0\"\nright=\"h1\"\n";
        }
        let mesh = mesh(hosts, &rest);
        let mut hub = Hub::new(&mesh);
        let mut turn = 0;
        for host in absences {
            // Hosts above the last are a time in which all are present.
            hub.away = (host < hosts).then(|| format!("h{host}")).into_iter().collect();
            let end = hub.now + 40_000;
            while hub.now < end {
                hub.pass(2500, &mut |_| { turn += 1; failures[turn % failures.len()] });
            }
        }
        hub.away.clear();
        let began = hub.now;
        // A step of priority delays by a quarter of the cycle, and a failure by up to ten minutes.
        let bound = 5 * hub.schedule.cycle_ms + 700_000;
        while hub.now < began + bound {
            hub.pass(2500, &mut |_| true);
        }
        hub.check_no_overlap();
        for (at, task) in hub.schedule.tasks.iter().enumerate() {
            let ran = hub.log.iter().any(|(of, start, _, _)| *of == at && *start >= began);
            prop_assert!(ran, "{} starved: {:?}", task.id, hub.states[&task.id]);
        }
        prop_assert!(hub.missed.iter().all(|(_, _, reason, _)| matches!(
            reason,
            RunReason::AgentAway | RunReason::PeerAway | RunReason::ResourceBusy
        )));
    }

    #[test]
    fn a_window_is_planned_only_for_free_resources(
        busy in proptest::collection::vec((0_i64..60_000, 1_i64..30_000), 0..6)
    ) {
        let mesh = mesh(2, "[tests.t]\nkind=\"throughput\"\nseconds=5\n");
        let schedule = Schedule::new(&mesh);
        let active: Vec<ActiveRun> = busy.iter().map(|(start, length)| ActiveRun {
            resources: vec!["h0/default/out".into()],
            destination: "h1".into(),
            port: 5290,
            start_ms: *start,
            end_ms: start + length,
        }).collect();
        let situation = Situation {
            now_ms: 0, planning_since_ms: 0, states: &BTreeMap::new(), active: &active,
            away: &BTreeSet::new(),
        };
        for decision in schedule.plan(&mesh, &situation) {
            let Verdict::Run { start_ms, end_ms, port } = decision.verdict else { panic!() };
            if schedule.tasks[decision.task].source == "h0" {
                for run in &active {
                    let apart = end_ms <= run.start_ms || run.end_ms <= start_ms;
                    prop_assert!(apart);
                }
                prop_assert!(port >= 5290);
            }
        }
    }
}

#[test]
fn the_runs_of_a_cycle_are_where_the_plan_shows_them() {
    let trunk =
        "[trunks.sea]\ncapacity = \"1G\"\nleft = [\"h0\", \"h1\"]\nright = [\"h2\", \"h3\"]\n";
    let tests = "[tests.long]\nkind = \"throughput\"\nseconds = 20\nevery = \"6h\"\n\
                 [tests.short]\nkind = \"path\"\nseconds = 3\nevery = \"6h\"\npriority = 9\n";
    let schedule = Schedule::new(&mesh(5, &format!("{trunk}{tests}")));
    let mut booked: HashMap<usize, Vec<(i64, i64)>> = HashMap::new();
    for task in &schedule.tasks {
        for resource in &task.resources {
            let window = (task.offset_ms, task.offset_ms + task.slot_ms);
            booked.entry(*resource).or_default().push(window);
        }
    }
    for windows in booked.values_mut() {
        windows.sort_unstable();
        assert!(windows.windows(2).all(|two| two[0].1 <= two[1].0), "{windows:?}");
    }
    let ends = schedule.tasks.iter().map(|task| task.offset_ms + task.slot_ms);
    assert_eq!(ends.max(), Some(schedule.cycle_ms));
    let first = schedule.tasks.iter().filter(|task| task.offset_ms == 0);
    assert!(first.clone().count() > 1, "independent runs start together");
}
