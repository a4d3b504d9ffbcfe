use std::io;
use std::sync::Arc;
use std::time::Instant;

use longhaul_core::plan::{LinkPlan, Side};
use longhaul_core::result::{LinkReport, LinkWarning};
use longhaul_sys::tun::{Offloads, Tun};

use crate::EmuError;
use crate::driver::{Driver, Lane, memory_budget};
use crate::link::LinkModel;
use crate::verdict::{lateness_bound_ms, verdicts};

/// Where a link ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct End {
    /// Index of the site.
    pub(super) site: usize,
    /// Index among that site's interfaces.
    pub(super) interface: usize,
}

/// A link that runs; dropping it stops its packets.
#[derive(Debug)]
pub(super) struct Link {
    plan: LinkPlan,
    /// Near and far.
    pub(super) ends: [End; 2],
    offloads: Offloads,
    /// What was wrong from the start.
    warnings: Vec<LinkWarning>,
    started: Instant,
    driver: Driver,
}

impl Link {
    /// Joins two devices, near and far.
    pub(super) fn start(
        plan: &LinkPlan,
        ends: [End; 2],
        devices: [Tun; 2],
        warnings: Vec<LinkWarning>,
    ) -> Result<Link, EmuError> {
        let offloads = devices[0].offloads();
        let [near, far] = devices.map(Arc::new);
        let lanes = vec![lane(plan, Side::Near, &near, &far)?, lane(plan, Side::Far, &far, &near)?];
        let driver = Driver::start(lanes)
            .map_err(|source| EmuError::Driver { operation: "start a thread", source })?;
        let plan = plan.clone();
        Ok(Link { plan, ends, offloads, warnings, started: Instant::now(), driver })
    }

    /// Stops the link and tells what passed, given what the interfaces at its ends dropped.
    pub(super) fn finish(self, drops: [u64; 2]) -> Result<LinkReport, EmuError> {
        let Link { plan, offloads, mut warnings, started, driver, .. } = self;
        let seconds = started.elapsed().as_secs_f64();
        let lanes = driver.stop();
        let [up, down] = lanes.as_slice() else {
            let source = io::Error::other("its thread panicked");
            return Err(EmuError::Driver { operation: "count packets", source });
        };
        let (up, down) = (up.report(drops[0]), down.report(drops[1]));
        let bound_ms = lateness_bound_ms(&plan);
        warnings.extend(verdicts(&up, bound_ms));
        warnings.extend(verdicts(&down, bound_ms));
        Ok(LinkReport {
            schema: LinkReport::SCHEMA.to_owned(),
            plan,
            seconds,
            tcp_offload: offloads.tcp,
            udp_offload: offloads.udp,
            up,
            down,
            warnings,
        })
    }
}

fn lane(plan: &LinkPlan, side: Side, source: &Arc<Tun>, sink: &Arc<Tun>) -> Result<Lane, EmuError> {
    let model = LinkModel::new(plan.from(side), plan.queue(side));
    let budget = memory_budget(plan, side);
    Lane::new(side, Arc::clone(source), Arc::clone(sink), model, budget)
        .map_err(|source| EmuError::Driver { operation: "reserve memory", source })
}
