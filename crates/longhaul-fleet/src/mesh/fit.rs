//! The checks of a mesh as a whole: agents, addresses, interfaces, capacities, and the time of a
//! cycle.

use std::ops::Range;
use std::time::Duration;

use toml::Spanned;

use super::error::{Fault, MeshFault};
use super::model::{Mesh, MeshTest};
use super::raw::RawTest;
use crate::schedule::{Schedule, resources_of};

/// The places of the settings of a test, for errors.
pub(super) struct Places {
    name: Range<usize>,
    rate: Range<usize>,
    every: Range<usize>,
    interface: Range<usize>,
}

impl Places {
    pub(super) fn new(name: &Spanned<String>, raw: &RawTest) -> Self {
        let rate = raw.rate.as_ref().map(Spanned::span);
        let expect = raw.expect.as_ref().map(Spanned::span);
        Places {
            name: name.span(),
            rate: rate.or(expect).unwrap_or(name.span()),
            every: raw.every.as_ref().map_or(name.span(), Spanned::span),
            interface: raw.interface.as_ref().map_or(name.span(), Spanned::span),
        }
    }
}

pub(super) fn check(mesh: &Mesh, places: &[Places]) -> Result<(), Fault> {
    for (test, places) in mesh.tests.iter().zip(places) {
        check_pairs(mesh, test, places)?;
    }
    let schedule = Schedule::new(mesh);
    for ((test, places), rounds) in mesh.tests.iter().zip(places).zip(&schedule.tests) {
        let every = i64::from(test.every_seconds) * 1000;
        if every > 0 && rounds.cycle_ms > every {
            let fault = MeshFault::Cycle {
                test: test.name.clone(),
                cycle: Duration::from_millis(rounds.cycle_ms as u64),
                every: Duration::from_millis(every as u64),
            };
            return Err(Fault::at(&places.every, fault));
        }
    }
    check_load(&schedule, places)
}

/// Checks that the tests with a period leave no resource occupied for more than all of its time.
fn check_load(schedule: &Schedule, places: &[Places]) -> Result<(), Fault> {
    let mut busy = vec![0.0; schedule.resources.len()];
    for task in schedule.tasks.iter().filter(|task| task.every_ms > 0) {
        for at in &task.resources {
            busy[*at] += task.slot_ms as f64 / task.every_ms as f64;
            if busy[*at] > 1.0 + 1e-9 {
                let total: f64 = schedule
                    .tasks
                    .iter()
                    .filter(|other| other.every_ms > 0 && other.resources.contains(at))
                    .map(|other| other.slot_ms as f64 / other.every_ms as f64)
                    .sum();
                let resource = schedule.resources[*at].name.clone();
                let fault = MeshFault::Overload { resource, percent: (total * 100.0) as u64 };
                return Err(Fault::at(&places[task.test].every, fault));
            }
        }
    }
    Ok(())
}

fn check_pairs(mesh: &Mesh, test: &MeshTest, places: &Places) -> Result<(), Fault> {
    let rate = test.spec.rate_bps.or(test.judgement.expect_bps);
    for (source, destination) in &test.pairs {
        let named = test.interface.as_deref();
        let ends = [(source, true), (destination, test.spec.kind.needs_target_agent())];
        for (name, needs_agent) in ends {
            let Some(host) = mesh.host(name) else { continue };
            if needs_agent && !host.agent {
                let fault = MeshFault::NoAgent { test: test.name.clone(), host: name.clone() };
                return Err(Fault::at(&places.name, fault));
            }
            // A host with one interface has no choice.
            let missing = |name: &str| host.interfaces.iter().all(|one| one.name != name);
            if let Some(interface) = named.filter(|name| host.interfaces.len() > 1 && missing(name))
            {
                let fault = MeshFault::UnknownInterface {
                    host: name.clone(),
                    interface: interface.to_owned(),
                };
                return Err(Fault::at(&places.interface, fault));
            }
        }
        let address = |name| mesh.host(name)?.interface(named).map(|one| one.address.is_ipv4());
        if address(source) != address(destination) {
            let fault =
                MeshFault::Family { source_host: source.clone(), destination: destination.clone() };
            return Err(Fault::at(&places.name, fault));
        }
        let Some(rate) = rate else { continue };
        let resources = resources_of(mesh, test, source, destination);
        if let Some(low) = resources.into_iter().find(|one| one.capacity_bps < rate) {
            let fault = MeshFault::Capacity {
                test: test.name.clone(),
                rate,
                resource: low.name,
                capacity: low.capacity_bps,
            };
            return Err(Fault::at(&places.rate, fault));
        }
    }
    Ok(())
}
