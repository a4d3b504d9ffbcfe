//! A running bundle: parallel links, usually a single one, and the thread that moves their packets.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::plan::link::Outage;
use longhaul_core::plan::{FlowHash, LinkPlan, Side};
use longhaul_core::result::{DirectionReport, LinkReport, LinkWarning, ProcessorShare};
use longhaul_sys::tun::TunOffloads;

use super::bundles::Member;
use crate::EmuError;
use crate::capture::Tap;
use crate::device::PacketDevice;
use crate::driver::{
    Carrier, Driver, Intake, Lane, PacketMemory, Snapshot, SpinBudget, Steering, memory_budget,
};
use crate::link::LinkModel;
use crate::verdict::{lateness_bound_ms, starvation, verdicts};

/// An end of a bundle.
#[derive(Debug, Clone, Copy)]
pub(super) struct End {
    /// The index of the site.
    pub(super) site: usize,
    /// The index of the site's interface.
    pub(super) interface: usize,
}

/// A link of a bundle that is to be started.
#[derive(Debug, Clone)]
pub(super) struct BundleLink {
    pub(super) member: Member,
    pub(super) plan: LinkPlan,
}

/// The resources that all bundles of a topology share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) memory: Arc<PacketMemory>,
    pub(super) spins: Arc<SpinBudget>,
    pub(super) hash: FlowHash,
    pub(super) failover: Duration,
}

/// A running bundle. Dropping it stops its packets.
#[derive(Debug)]
pub(super) struct RunningBundle {
    links: Vec<BundleLink>,
    /// The near and the far end.
    pub(super) ends: [End; 2],
    offloads: TunOffloads,
    /// Warnings that hold from the start.
    warnings: Vec<LinkWarning>,
    started: Instant,
    /// The driver. Its lanes are those of the links from the near end of the bundle, in their
    /// order, and then those from the far end.
    driver: Driver,
}

impl RunningBundle {
    /// Joins two devices, near and far, which accept super-packets of the kinds `offloads`.
    pub(super) fn start(
        links: Vec<BundleLink>,
        ends: [End; 2],
        devices: [Arc<dyn PacketDevice>; 2],
        offloads: TunOffloads,
        shared: &Shared,
    ) -> Result<RunningBundle, EmuError> {
        let [near, far] = devices;
        let ways = [(Side::Near, [near.clone(), far.clone()]), (Side::Far, [far, near])];
        let lane = |(side, devices): &(Side, [Arc<dyn PacketDevice>; 2]), link: &BundleLink| {
            let from = link.member.side(*side);
            let model = LinkModel::new(&link.plan, from);
            let budget = memory_budget(&link.plan, from);
            Lane::new(from, devices.clone(), model, budget, &shared.memory)
                .map_err(|source| EmuError::Driver { operation: "reserve memory", source })
        };
        let lanes = ways.iter().flat_map(|way| links.iter().map(move |link| lane(way, link)));
        let lanes: Vec<Lane> = lanes.collect::<Result<_, _>>()?;
        let count = links.len();
        let carriers = links.iter().map(|link| Carrier::new(&link.plan, shared.failover)).collect();
        let intakes = match count {
            1 => vec![Intake::of(0), Intake::of(1)],
            _ => {
                let steering = Steering::new(shared.hash, carriers);
                let intake = |from: usize| Intake::parallel(from..from + count, steering.clone());
                vec![intake(0), intake(count)]
            }
        };
        let driver = Driver::start(lanes, intakes, shared.spins.clone())
            .map_err(|source| EmuError::Driver { operation: "start a thread", source })?;
        let (warnings, started) = (Vec::new(), Instant::now());
        Ok(RunningBundle { links, ends, offloads, warnings, started, driver })
    }

    /// Adds warnings that hold from the start.
    pub(super) fn warn(&mut self, warnings: Vec<LinkWarning>) {
        self.warnings.extend(warnings);
    }

    /// Applies `plan` to packets that enter a link (by index in the bundle) from now on. With
    /// `down` the link loses them.
    pub(super) fn set(&mut self, link: usize, plan: &LinkPlan, down: bool) {
        let Some(present) = self.links.get_mut(link) else { return };
        present.plan = plan.clone();
        let member = present.member;
        let effective = if down { without_carrier(plan) } else { plan.clone() };
        for (way, side) in Side::BOTH.into_iter().enumerate() {
            let changed = effective.clone();
            let budget = memory_budget(plan, member.side(side));
            let lane = way * self.links.len() + link;
            self.driver.set(lane, budget, move |model, now| model.set(now, &changed));
        }
        let plan = plan.clone();
        self.driver.steer(link, move |carrier, now| {
            carrier.set_plan(&plan);
            carrier.force(now, down);
        });
    }

    /// Captures the packets of a link (by index in the bundle) from now on; `tap` captures those from
    /// a side of the link.
    pub(super) fn capture(&self, link: usize, tap: impl Fn(Side) -> Tap) {
        let Some(BundleLink { member, .. }) = self.links.get(link) else { return };
        for (way, side) in Side::BOTH.into_iter().enumerate() {
            self.driver.capture(way * self.links.len() + link, tap(member.side(side)));
        }
    }

    /// Returns the counters of the links so far, given the drops of the interfaces at both ends,
    /// which the first link reports.
    pub(super) fn report(&self, drops: [u64; 2]) -> Result<Vec<LinkReport>, EmuError> {
        let gone = || {
            let source = io::Error::other("its thread panicked");
            EmuError::Driver { operation: "count packets", source }
        };
        let Snapshot { mut lanes, processor } = self.driver.snapshot().ok_or_else(gone)?;
        if lanes.len() != 2 * self.links.len() {
            return Err(gone());
        }
        let from_far = lanes.split_off(self.links.len());
        let links = self.links.iter().zip(lanes.into_iter().zip(from_far));
        Ok(links
            .enumerate()
            .map(|(index, (link, (mut near, mut far)))| {
                // The links share their interfaces.
                for (way, drops) in [&mut near, &mut far].into_iter().zip(drops) {
                    way.interface_drops = if index == 0 { way.interface_drops + drops } else { 0 };
                }
                let ways = if link.member.reversed { [far, near] } else { [near, far] };
                self.link_report(&link.plan, ways, processor)
            })
            .collect())
    }

    fn link_report(
        &self,
        plan: &LinkPlan,
        [up, down]: [DirectionReport; 2],
        processor: ProcessorShare,
    ) -> LinkReport {
        let mut warnings = self.warnings.clone();
        let bound_ms = lateness_bound_ms(plan);
        warnings.extend(verdicts(&up, bound_ms));
        warnings.extend(verdicts(&down, bound_ms));
        let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
        warnings.extend(starvation(&processor, processors));
        LinkReport {
            schema: LinkReport::SCHEMA.to_owned(),
            plan: plan.clone(),
            seconds: self.started.elapsed().as_secs_f64(),
            processor,
            tcp_offload: self.offloads.tcp,
            udp_offload: self.offloads.udp,
            up,
            down,
            warnings,
        }
    }
}

/// Returns `plan` with an outage in both directions that does not end.
fn without_carrier(plan: &LinkPlan) -> LinkPlan {
    /// A century.
    const LONG: Duration = Duration::from_secs(100 * 365 * 86_400);
    let mut plan = plan.clone();
    for direction in [&mut plan.up, &mut plan.down] {
        direction.outages = vec![Outage { start: Duration::ZERO, length: LONG, every: None }];
    }
    plan
}
