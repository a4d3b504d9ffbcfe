//! The load of resources.

use longhaul_core::units::Rate;

use super::resource::path_of;
use super::task::Task;
use crate::mesh::Mesh;

/// The load of one resource by the tests of a mesh.
#[derive(Debug, Clone, PartialEq)]
pub struct ResourceLoad {
    /// The name of the resource.
    pub resource: String,
    /// The capacity of the resource.
    pub capacity_bps: Rate,
    /// The share of time that exclusive runs with their margins occupy; above 1 if they do not fit.
    pub busy_share: f64,
    /// The mean rate of the exclusive runs, if each runs at its target rate, or else at its
    /// expected rate, or else at the capacity of its path.
    pub mean_bps: Rate,
    /// The constant rate of STAMP packets.
    pub light_bps: Rate,
}

/// The bits of a STAMP packet of the agents on an Ethernet with IPv6: 44 bytes of STAMP, 20 of
/// extensions, 8 of UDP, 40 of IPv6 and 38 of Ethernet with its gap and preamble.
const STAMP_PACKET_BITS: f64 = 150.0 * 8.0;

/// Returns the loads of `resources` in their order.
pub(super) fn loads(
    mesh: &Mesh,
    tasks: &[Task],
    resources: &[super::ExclusiveResource],
    cycle_ms: i64,
) -> Vec<ResourceLoad> {
    let mut busy = vec![0.0; resources.len()];
    let mut mean = vec![0.0; resources.len()];
    for task in tasks {
        let test = &mesh.tests[task.test];
        let period = if task.every_ms > 0 { task.every_ms } else { cycle_ms.max(task.slot_ms) };
        let path = task.resources.iter().map(|one| resources[*one].capacity_bps).min();
        let rate = test.spec.rate_bps.or(test.judgement.expect_bps).or(path).unwrap_or_default();
        let active = f64::from(test.spec.seconds) * 1e3 / period as f64;
        for resource in &task.resources {
            busy[*resource] += task.slot_ms as f64 / period as f64;
            mean[*resource] += rate.bps() as f64 * active;
        }
    }
    let light = light_rates(mesh, resources);
    let row = |(at, resource): (usize, &super::ExclusiveResource)| ResourceLoad {
        resource: resource.name.clone(),
        capacity_bps: resource.capacity_bps,
        busy_share: busy[at],
        mean_bps: Rate::from_bps(mean[at] as u64),
        light_bps: Rate::from_bps(light[at] as u64),
    };
    resources.iter().enumerate().map(row).collect()
}

/// Returns the rates of STAMP requests and replies in bit/s.
fn light_rates(mesh: &Mesh, resources: &[super::ExclusiveResource]) -> Vec<f64> {
    let mut light = vec![0.0; resources.len()];
    let Some(stamp) = &mesh.stamp else { return light };
    let rate = STAMP_PACKET_BITS * 1e3 / f64::from(stamp.interval_ms.max(1));
    let index: std::collections::HashMap<&str, usize> =
        resources.iter().enumerate().map(|(at, one)| (one.name.as_str(), at)).collect();
    for (source, destination) in &stamp.pairs {
        // A request uses the forward direction, and its reply the reverse direction.
        for (from, to) in [(source, destination), (destination, source)] {
            for resource in path_of(mesh, None, from, to) {
                if let Some(at) = index.get(resource.name.as_str()) {
                    light[*at] += rate;
                }
            }
        }
    }
    light
}
