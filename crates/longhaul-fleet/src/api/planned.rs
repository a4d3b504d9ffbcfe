//! The plan of a mesh as a document.

use super::meshes::{LoadDocument, PLAN_SCHEMA, PlanDocument, PlannedTest};
use crate::change::{Change, changes};
use crate::mesh::Mesh;
use crate::schedule::Schedule;

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
        load,
        changes: changes(applied, mesh).iter().map(Change::to_string).collect(),
    }
}
