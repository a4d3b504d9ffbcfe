//! The plan and the application of a mesh.

use serde::{Deserialize, Serialize};

use crate::change::{Change, changes};
use crate::mesh::Mesh;
use crate::schedule::Schedule;

/// The schema of [`PlanDocument`].
pub const PLAN_SCHEMA: &str = "longhaul.fleet-plan/1";
/// The schema of [`ApplyDocument`].
pub const APPLY_SCHEMA: &str = "longhaul.fleet-apply/1";

/// The body of `POST /api/v1/mesh/plan` and `POST /api/v1/mesh/apply`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MeshText {
    /// The text of `mesh.toml`, at most 1 MiB.
    pub text: String,
    /// The revision that the change is relative to; `apply` refuses another one. Any if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
}

/// The effect of a mesh before it is applied.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PlanDocument {
    /// [`PLAN_SCHEMA`].
    pub schema: String,
    /// The name of the mesh.
    pub mesh: String,
    /// The revision of the applied mesh; 0 if there is none.
    pub revision: u64,
    /// The number of hosts.
    pub hosts: u32,
    /// The tests.
    pub tests: Vec<PlannedTest>,
    /// The number of rounds of a full cycle of all tests.
    pub rounds: u32,
    /// The time of a full cycle of all tests in seconds.
    pub cycle_seconds: u64,
    /// The runs of a full cycle in the order of their starts; at most [`MAX_PLANNED_RUNS`].
    #[serde(default)]
    pub runs: Vec<CycleRun>,
    /// The load of interfaces and trunks, the highest share first.
    pub load: Vec<LoadDocument>,
    /// The differences from the applied mesh, one line each.
    pub changes: Vec<String>,
}

/// The most runs of a plan.
pub const MAX_PLANNED_RUNS: usize = 2000;

/// A run of a full cycle, if all tests are due together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CycleRun {
    /// The start in seconds after the start of the cycle.
    pub offset_seconds: u64,
    /// The name of the test.
    pub test: String,
    /// The source's host.
    pub source: String,
    /// The destination's host.
    pub destination: String,
}

/// A test of a plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PlannedTest {
    /// The name.
    pub test: String,
    /// The number of directed pairs.
    pub pairs: u32,
    /// The number of rounds that the test needs without the other tests.
    pub rounds: u32,
    /// The time of a run with its margin, in seconds.
    pub slot_seconds: u32,
    /// The time between two runs of a pair in seconds.
    pub every_seconds: u32,
}

/// The load of one resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LoadDocument {
    /// The resource: `HOST/INTERFACE/out`, `HOST/INTERFACE/in` or `trunk/NAME/right`.
    pub resource: String,
    /// The capacity in bit/s.
    pub capacity_bps: u64,
    /// The share of time in which an exclusive test occupies the resource; 0 to 1.
    pub busy_share: f64,
    /// The mean rate of the tests at the expected rates, in bit/s.
    pub mean_bps: u64,
    /// The constant rate of STAMP, in bit/s.
    pub light_bps: u64,
}

/// The outcome of `apply`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ApplyDocument {
    /// [`APPLY_SCHEMA`].
    pub schema: String,
    /// The name of the mesh.
    pub mesh: String,
    /// The new revision; the previous one if nothing differs.
    pub revision: u64,
    /// The differences that were applied, one line each.
    pub changes: Vec<String>,
}

/// Returns the plan of `mesh`, with its differences from the `applied` mesh of the revision
/// `revision`; 0 if there is none.
pub fn plan_document(mesh: &Mesh, applied: Option<&Mesh>, revision: u64) -> PlanDocument {
    let schedule = Schedule::new(mesh);
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let tests = mesh.tests.iter().zip(&schedule.tests).map(|(test, rounds)| PlannedTest {
        test: test.name.clone(),
        pairs: count(test.pairs.len()),
        rounds: rounds.rounds,
        slot_seconds: (test.slot_ms() / 1000) as u32,
        every_seconds: test.every_seconds,
    });
    let mut load: Vec<LoadDocument> = schedule
        .load
        .iter()
        .map(|load| LoadDocument {
            resource: load.resource.clone(),
            capacity_bps: load.capacity_bps.bps(),
            busy_share: load.busy_share,
            mean_bps: load.mean_bps.bps(),
            light_bps: load.light_bps.bps(),
        })
        .collect();
    load.sort_by(|one, other| {
        let order = other.busy_share.total_cmp(&one.busy_share);
        order.then_with(|| one.resource.cmp(&other.resource))
    });
    PlanDocument {
        schema: PLAN_SCHEMA.to_owned(),
        mesh: mesh.name.clone(),
        revision,
        hosts: count(mesh.hosts.len()),
        tests: tests.collect(),
        rounds: schedule.tests.iter().map(|test| test.rounds).sum(),
        cycle_seconds: (schedule.cycle_ms as u64).div_ceil(1000),
        runs: planned_runs(mesh, &schedule),
        load,
        changes: changes(applied, mesh).iter().map(Change::to_string).collect(),
    }
}

/// Returns the first runs of a full cycle in the order of their starts.
fn planned_runs(mesh: &Mesh, schedule: &Schedule) -> Vec<CycleRun> {
    let mut tasks: Vec<_> = schedule.tasks.iter().collect();
    tasks.sort_by_key(|task| (task.offset_ms, task.test));
    let run = |task: &&crate::schedule::Task| CycleRun {
        offset_seconds: task.offset_ms.unsigned_abs() / 1000,
        test: mesh.tests[task.test].name.clone(),
        source: task.source.clone(),
        destination: task.destination.clone(),
    };
    tasks.iter().take(MAX_PLANNED_RUNS).map(run).collect()
}
