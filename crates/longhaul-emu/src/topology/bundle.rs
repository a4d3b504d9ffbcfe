//! Bundles of parallel links between the same two sites: their plans, and the threads that move their packets.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::plan::link::Outage;
use longhaul_core::plan::{FlowHash, LinkDirection, LinkPlan, Side, TopologyPlan};
use longhaul_core::result::{DirectionReport, LinkReport, LinkWarning, ProcessorShare};
use longhaul_core::units::Bytes;
use longhaul_sys::tun::TunOffloads;

use super::merge;
use crate::EmuError;
use crate::capture::Tap;
use crate::device::PacketDevice;
use crate::driver::{
    Carrier, Driver, Intake, Lane, PacketMemory, SpinBudget, Steering, memory_budget,
};
use crate::link::LinkModel;
use crate::verdict::{lateness_bound_ms, starvation, verdicts};

/// The links that join the same two sites, usually a single one. They share the interfaces of the
/// sites and the thread that moves packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bundle {
    /// The sites at the near and the far end, which are those of the first link.
    pub(super) sites: [usize; 2],
    pub(super) members: Vec<Member>,
}

/// A link of a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Member {
    /// The index of the link.
    pub(super) link: usize,
    /// True if the near end of the link is at the far end of the bundle.
    pub(super) reversed: bool,
}

impl Bundle {
    /// Returns the bundles of a valid plan, in the order of their first links.
    pub(super) fn all(plan: &TopologyPlan) -> Vec<Bundle> {
        let mut bundles: Vec<Bundle> = Vec::new();
        for link in 0..plan.links.len() {
            let [Some(near), Some(far)] = plan.ends(link) else { continue };
            let same =
                |bundle: &&mut Bundle| bundle.sites == [near, far] || bundle.sites == [far, near];
            match bundles.iter_mut().find(same) {
                Some(bundle) => {
                    let reversed = bundle.sites != [near, far];
                    bundle.members.push(Member { link, reversed });
                }
                None => bundles.push(Bundle {
                    sites: [near, far],
                    members: vec![Member { link, reversed: false }],
                }),
            }
        }
        bundles
    }

    /// Returns the side of a site (by index), if the bundle ends there.
    pub(super) fn side_of(&self, site: usize) -> Option<Side> {
        let [near, far] = self.sites;
        match site {
            site if site == near => Some(Side::Near),
            site if site == far => Some(Side::Far),
            _ => None,
        }
    }

    /// Returns the directions of the links from `side` of the bundle.
    pub(super) fn directions<'p>(
        &self,
        plan: &'p TopologyPlan,
        side: Side,
    ) -> impl Iterator<Item = &'p LinkDirection> {
        self.members.iter().map(move |member| plan.links[member.link].plan.from(member.side(side)))
    }

    /// Returns the number of queues, which is the same for all links of a valid plan.
    pub(super) fn queues(&self, plan: &TopologyPlan) -> u32 {
        self.members.first().map_or(1, |member| plan.links[member.link].plan.queues)
    }

    /// Returns the MTU, which is the same for all links of a valid plan.
    pub(super) fn mtu(&self, plan: &TopologyPlan) -> u32 {
        self.members.first().map_or(0, |member| plan.links[member.link].plan.mtu)
    }
}

impl Member {
    /// Returns the end of the link that is at `side` of the bundle.
    pub(super) fn side(&self, side: Side) -> Side {
        match (self.reversed, side) {
            (false, side) => side,
            (true, Side::Near) => Side::Far,
            (true, Side::Far) => Side::Near,
        }
    }
}

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

/// The queues of a bundle's interface at one end.
pub(super) type Queues = Vec<Arc<dyn PacketDevice>>;

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
    workers: Vec<Worker>,
}

/// A thread that moves the packets of a queue. Workers share no state that changes, so the order of
/// packets is only kept within a queue.
#[derive(Debug)]
struct Worker {
    queue: u32,
    /// The ends of the bundle from which its packets come: both if there is one queue, which is
    /// faster on few processors, otherwise one.
    ways: &'static [Side],
    /// Its lanes are those of the links from the first of `ways`, in their order, and then those from
    /// the second.
    driver: Driver,
}

impl Worker {
    /// Starts a worker between two queues, near and far.
    fn start(
        links: &[BundleLink],
        ways: &'static [Side],
        devices: [Arc<dyn PacketDevice>; 2],
        (queue, queues): (u32, u32),
        shared: &Shared,
    ) -> Result<Worker, EmuError> {
        let [near, far] = devices;
        let lane = |side: Side, link: &BundleLink| {
            let devices = match side {
                Side::Near => [near.clone(), far.clone()],
                Side::Far => [far.clone(), near.clone()],
            };
            let from = link.member.side(side);
            let model = LinkModel::new(&link.plan.of_queue(queue), from);
            let budget = share(memory_budget(&link.plan, from), queues);
            Lane::new(from, devices, model, budget, &shared.memory)
                .map_err(|source| EmuError::Driver { operation: "reserve memory", source })
        };
        let lanes = ways.iter().flat_map(|side| links.iter().map(move |link| (*side, link)));
        let lanes = lanes.map(|(side, link)| lane(side, link));
        let lanes: Vec<Lane> = lanes.collect::<Result<_, _>>()?;
        let count = links.len();
        let intake = |way: usize| match count {
            1 => Intake::of(way),
            _ => {
                let carriers =
                    links.iter().map(|link| Carrier::new(&link.plan, shared.failover)).collect();
                let steering = Steering::new(shared.hash, carriers);
                Intake::parallel(way * count..(way + 1) * count, steering)
            }
        };
        let intakes = (0..ways.len()).map(intake).collect();
        let driver = Driver::start(lanes, intakes, shared.spins.clone())
            .map_err(|source| EmuError::Driver { operation: "start a thread", source })?;
        Ok(Worker { queue, ways, driver })
    }

    /// Returns the lanes of a link (by index in the bundle), each with the end that it starts from.
    fn lanes(&self, link: usize, links: usize) -> impl Iterator<Item = (usize, Side)> {
        self.ways.iter().enumerate().map(move |(way, side)| (way * links + link, *side))
    }
}

/// Returns the part of a memory budget that one of the queues has.
fn share(budget: Bytes, queues: u32) -> Bytes {
    Bytes::new(budget.get() / u64::from(queues.max(1)))
}

impl RunningBundle {
    /// Joins two interfaces with equal numbers of queues, near and far, which accept super-packets of
    /// the kinds `offloads`.
    pub(super) fn start(
        links: Vec<BundleLink>,
        ends: [End; 2],
        devices: [Queues; 2],
        offloads: TunOffloads,
        shared: &Shared,
    ) -> Result<RunningBundle, EmuError> {
        const ONE: &[&[Side]] = &[&[Side::Near, Side::Far]];
        const EACH: &[&[Side]] = &[&[Side::Near], &[Side::Far]];
        let [near, far] = devices;
        let queues = near.len().min(far.len()) as u32;
        let parts = if queues == 1 { ONE } else { EACH };
        let mut workers = Vec::new();
        for (queue, (near, far)) in (0..).zip(near.into_iter().zip(far)) {
            for ways in parts {
                let devices = [near.clone(), far.clone()];
                workers.push(Worker::start(&links, ways, devices, (queue, queues), shared)?);
            }
        }
        let (warnings, started) = (Vec::new(), Instant::now());
        Ok(RunningBundle { links, ends, offloads, warnings, started, workers })
    }

    /// Returns the time at which the clock of the first worker was zero. The clocks of others differ by
    /// the time to start a thread.
    pub(super) fn clock_started(&self) -> Option<Instant> {
        self.workers.first().map(|worker| worker.driver.origin())
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
        let (links, queues) = (self.links.len(), plan.queues);
        for worker in &self.workers {
            for (lane, side) in worker.lanes(link, links) {
                let changed = effective.of_queue(worker.queue);
                let budget = share(memory_budget(plan, member.side(side)), queues);
                worker.driver.set(lane, budget, move |model, now| model.set(now, &changed));
            }
            let plan = plan.clone();
            worker.driver.steer(link, move |carrier, now| {
                carrier.set_plan(&plan);
                carrier.force(now, down);
            });
        }
    }

    /// Captures the packets of a link (by index in the bundle) from now on; `tap` captures those from
    /// a side of the link.
    pub(super) fn capture(&self, link: usize, tap: impl Fn(Side) -> Tap) {
        let Some(BundleLink { member, .. }) = self.links.get(link) else { return };
        let queues = self.workers.len().div_ceil(2) as u64;
        for worker in &self.workers {
            for (lane, side) in worker.lanes(link, self.links.len()) {
                let tap = tap(member.side(side)).of_queue(u64::from(worker.queue), queues);
                worker.driver.capture(lane, tap);
            }
        }
    }

    /// Returns the counters of the links so far, given the drops of the interfaces at both ends,
    /// which the first link reports.
    pub(super) fn report(&self, drops: [u64; 2]) -> Result<Vec<LinkReport>, EmuError> {
        let gone = || {
            let source = io::Error::other("its thread panicked");
            EmuError::Driver { operation: "count packets", source }
        };
        let mut processor = ProcessorShare::default();
        let mut ways: [Vec<DirectionReport>; 2] = [Vec::new(), Vec::new()];
        for worker in &self.workers {
            let snapshot = worker.driver.snapshot().ok_or_else(gone)?;
            merge::add_share(&mut processor, &snapshot.processor);
            let mut lanes = snapshot.lanes.into_iter();
            for side in worker.ways {
                let own = lanes.by_ref().take(self.links.len());
                let way = &mut ways[usize::from(*side == Side::Far)];
                if way.is_empty() {
                    way.extend(own);
                } else {
                    way.iter_mut().zip(own).for_each(|(total, own)| merge::add(total, &own));
                }
            }
        }
        let [lanes, from_far] = ways;
        if lanes.len() != self.links.len() || from_far.len() != self.links.len() {
            return Err(gone());
        }
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

#[cfg(test)]
mod tests;
