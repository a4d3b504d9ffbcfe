//! A running link.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use longhaul_core::plan::{LinkPlan, Side};
use longhaul_core::result::{DirectionReport, LinkReport, LinkWarning};
use longhaul_sys::tun::TunOffloads;

use crate::EmuError;
use crate::capture::Tap;
use crate::device::Device;
use crate::driver::{Driver, Lane, Snapshot, memory_budget};
use crate::link::LinkModel;
use crate::verdict::{lateness_bound_ms, starvation, verdicts};

/// An end of a link.
#[derive(Debug, Clone, Copy)]
pub(super) struct End {
    /// The index of the site.
    pub(super) site: usize,
    /// The index of the site's interface.
    pub(super) interface: usize,
}

/// A running link. Dropping it stops its packets.
#[derive(Debug)]
pub(super) struct RunningLink {
    plan: LinkPlan,
    /// The near and the far end.
    pub(super) ends: [End; 2],
    offloads: TunOffloads,
    /// Warnings that hold from the start of the link.
    warnings: Vec<LinkWarning>,
    started: Instant,
    /// The driver; its lanes are the directions from near and from far.
    driver: Driver,
}

impl RunningLink {
    /// Joins two devices, near and far.
    pub(super) fn start(
        plan: &LinkPlan,
        ends: [End; 2],
        devices: [Device; 2],
        warnings: Vec<LinkWarning>,
    ) -> Result<RunningLink, EmuError> {
        let offloads = devices[0].offloads();
        let [near, far] = devices.map(Arc::new);
        let lanes = vec![lane(plan, Side::Near, &near, &far)?, lane(plan, Side::Far, &far, &near)?];
        let driver = Driver::start(lanes)
            .map_err(|source| EmuError::Driver { operation: "start a thread", source })?;
        let plan = plan.clone();
        Ok(RunningLink { plan, ends, offloads, warnings, started: Instant::now(), driver })
    }

    /// Applies `plan` to packets that enter from now on.
    pub(super) fn set(&mut self, plan: &LinkPlan) {
        for (lane, side) in Side::BOTH.into_iter().enumerate() {
            let changed = plan.clone();
            let budget = memory_budget(plan, side);
            self.driver.set(lane, budget, move |model, now| model.set(now, &changed));
        }
        self.plan = plan.clone();
    }

    /// Captures the packets of both directions from now on.
    pub(super) fn capture(&self, taps: [Tap; 2]) {
        for (lane, tap) in taps.into_iter().enumerate() {
            self.driver.capture(lane, tap);
        }
    }

    /// Returns the counters so far, given the drops of the interfaces at its ends.
    pub(super) fn report(&self, drops: [u64; 2]) -> Result<LinkReport, EmuError> {
        let gone = || {
            let source = io::Error::other("its thread panicked");
            EmuError::Driver { operation: "count packets", source }
        };
        let Snapshot { lanes, processor } = self.driver.snapshot().ok_or_else(gone)?;
        let [mut up, mut down] = <[DirectionReport; 2]>::try_from(lanes).map_err(|_| gone())?;
        up.interface_drops += drops[0];
        down.interface_drops += drops[1];
        let mut warnings = self.warnings.clone();
        let bound_ms = lateness_bound_ms(&self.plan);
        warnings.extend(verdicts(&up, bound_ms));
        warnings.extend(verdicts(&down, bound_ms));
        let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
        warnings.extend(starvation(&processor, processors));
        Ok(LinkReport {
            schema: LinkReport::SCHEMA.to_owned(),
            plan: self.plan.clone(),
            seconds: self.started.elapsed().as_secs_f64(),
            processor,
            tcp_offload: self.offloads.tcp,
            udp_offload: self.offloads.udp,
            up,
            down,
            warnings,
        })
    }
}

fn lane(
    plan: &LinkPlan,
    side: Side,
    source: &Arc<Device>,
    sink: &Arc<Device>,
) -> Result<Lane, EmuError> {
    let model = LinkModel::new(plan, side);
    let budget = memory_budget(plan, side);
    Lane::new(side, source.clone(), sink.clone(), model, budget)
        .map_err(|source| EmuError::Driver { operation: "reserve memory", source })
}
