//! A bridge: an emulated link between two Ethernet interfaces of this host.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::plan::{LinkPlan, TopologyPlan};
use longhaul_core::result::{LinkReport, TopologyLinkReport, TopologyReport};
use longhaul_sys::ethernet_socket::EthernetSocket;
use longhaul_sys::interface;
use longhaul_sys::loop_probe::LoopProbe;
use longhaul_sys::tun::TunOffloads;

use super::bundle::{Bundle, BundleLink, End, Queues, RunningBundle};
use super::claim::{Claim, Connection};
use super::fit::check_memory;
use super::running::shared;
use crate::EmuError;
use crate::capture::Capture;
use crate::device::{MOST_FRAMES, PacketDevice};
use crate::link::random_seed;
use crate::packet::Framing;

/// An emulated link between two Ethernet interfaces of this host. It forwards every frame, like a
/// cable between the two, with the properties of the link.
///
/// Dropping the value ends the link. The interfaces receive frames for all addresses while it
/// exists, and have no other changes.
#[derive(Debug)]
pub struct Bridge {
    plan: TopologyPlan,
    /// The names and indices of the interfaces.
    interfaces: [(String, u32); 2],
    started: Instant,
    running: RunningBundle,
    down: bool,
    probe: LoopProbe,
    /// The time of the last probe.
    probed: Instant,
    /// True until a probe after the one of the start is sent.
    is_first_probe: bool,
    _claims: [Claim; 2],
    _connection: Connection,
}

/// A loop of which a bridge is a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BridgeLoop {
    /// The probe of the start returned, before the bridge sent another one.
    OfStart,
    /// A probe returned after the bridge had sent further ones.
    Later,
}

/// The time for which the start waits for a probe. A probe through the kernel or a switch arrives
/// within this time.
const PROBE_WAIT: Duration = Duration::from_millis(200);

/// The interval of probes while the bridge runs.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);

impl Bridge {
    /// Starts to forward between two interfaces of the calling thread's network namespace, the near
    /// and the far end of the only link of `plan`.
    ///
    /// # Errors
    /// The plan is invalid or needs more memory than the machine has, an interface cannot be opened,
    /// or the interfaces are already connected.
    pub fn start(plan: &TopologyPlan, interfaces: [&str; 2]) -> Result<Bridge, EmuError> {
        plan.validate()?;
        check_memory(plan)?;
        let mut plan = plan.clone();
        for link in &mut plan.links {
            link.plan.seed.get_or_insert_with(random_seed);
        }
        let queues = plan.links.first().map_or(1, |link| link.plan.queues);
        let unusable = |interface: &str, source| {
            let interface = interface.to_owned();
            EmuError::Interface { interface, source }
        };
        let find = |name| match interface::index(name) {
            Ok(index) => Ok((name, index)),
            Err(source) => Err(unusable(name, source)),
        };
        let ends = [find(interfaces[0])?, find(interfaces[1])?];
        let [near_claim, far_claim] = ends.map(|(name, index)| Claim::take(name, index));
        let _claims = [near_claim?, far_claim?];
        let _connection = Connection::announce(ends)?;
        let probe = search_loop(ends)?;
        let open = |(name, index): (&str, u32)| -> Result<Queues, EmuError> {
            let shared = |socket| -> Arc<dyn PacketDevice> { Arc::new(socket) };
            let sockets = EthernetSocket::open_queues(index, queues);
            let sockets = sockets.map_err(|source| unusable(name, source))?;
            Ok(sockets.into_iter().map(shared).collect())
        };
        let devices = [open(ends[0])?, open(ends[1])?];
        let bundles = Bundle::all(&plan);
        let links = bundles.iter().flat_map(|bundle| &bundle.members).map(|member| BundleLink {
            member: *member,
            plan: plan.links[member.link].plan.clone(),
        });
        let sites = [0, 1].map(|site| End { site, interface: 0 });
        // The kernel passes super-packets on whenever an interface merges segments.
        let offloads = TunOffloads { tcp: true, udp: true };
        let running =
            RunningBundle::start(links.collect(), sites, devices, offloads, &shared(&plan)?)?;
        let interfaces = ends.map(|(name, index)| (name.to_owned(), index));
        let started = Instant::now();
        Ok(Bridge {
            plan,
            interfaces,
            started,
            running,
            down: false,
            probe,
            probed: started,
            is_first_probe: true,
            _claims,
            _connection,
        })
    }

    /// Returns the plan, with the present state of the link.
    pub fn plan(&self) -> &TopologyPlan {
        &self.plan
    }

    /// Applies another plan to frames that enter from now on.
    ///
    /// # Errors
    /// The plan is invalid or needs more memory than the machine has; the link is unchanged.
    pub fn set(&mut self, plan: LinkPlan) -> Result<(), EmuError> {
        let mut changed = self.plan.clone();
        for link in &mut changed.links {
            link.plan = LinkPlan { seed: link.plan.seed, ..plan.clone() };
        }
        changed.validate()?;
        check_memory(&changed)?;
        self.plan = changed;
        self.apply();
        Ok(())
    }

    /// Takes the link down or up. A link that is down loses the frames that enter it.
    pub fn set_down(&mut self, down: bool) {
        self.down = down;
        self.apply();
    }

    /// Returns whether the link is down by request.
    pub fn is_down(&self) -> bool {
        self.down
    }

    fn apply(&mut self) {
        for (place, link) in self.plan.links.iter().enumerate() {
            self.running.set(place, &link.plan, self.down);
        }
    }

    /// Captures the frames of the link from now on, in a capture of Ethernet frames.
    pub fn capture(&self, capture: &Capture) {
        self.running.capture(0, |from| capture.tap(0, from));
    }

    /// Returns the name of an interface that no longer exists, or that another one has replaced.
    /// The calling thread must be in the network namespace of the interfaces.
    pub fn lost_interface(&self) -> Option<&str> {
        let is_lost =
            |name: &str, index: u32| !interface::index(name).is_ok_and(|now| now == index);
        let mut lost = self.interfaces.iter().filter(|(name, index)| is_lost(name, *index));
        lost.next().map(|(name, _)| name.as_str())
    }

    /// Returns the names of the interfaces.
    pub fn interfaces(&self) -> [&str; 2] {
        self.interfaces.each_ref().map(|(name, _)| name.as_str())
    }

    /// Returns the loop of which the bridge is a part, if a probe from one interface has arrived at the
    /// other one. Sends further probes every five seconds.
    pub fn find_loop(&mut self) -> Option<BridgeLoop> {
        if self.probe.has_returned() {
            let is_first = self.is_first_probe;
            return Some(if is_first { BridgeLoop::OfStart } else { BridgeLoop::Later });
        }
        if self.probed.elapsed() >= PROBE_INTERVAL {
            (self.probed, self.is_first_probe) = (Instant::now(), false);
            self.probe.send();
        }
        None
    }

    /// Returns the counters so far.
    ///
    /// # Errors
    /// The thread of the link has ended.
    pub fn report(&self) -> Result<TopologyReport, EmuError> {
        let reports = self.running.report([0; 2])?;
        let links = self.plan.links.iter().zip(reports).map(|(planned, link)| TopologyLinkReport {
            name: planned.name.clone(),
            near: planned.near.clone(),
            far: planned.far.clone(),
            down: self.down,
            link,
        });
        Ok(TopologyReport {
            schema: TopologyReport::SCHEMA.to_owned(),
            name: self.plan.name.clone(),
            seconds: self.started.elapsed().as_secs_f64(),
            sites: Vec::new(),
            links: links.collect(),
        })
    }

    /// Ends the link and returns the last counters.
    ///
    /// # Errors
    /// The thread of the link has ended.
    pub fn finish(self) -> Result<LinkReport, EmuError> {
        let mut reports = self.running.report([0; 2])?;
        reports.pop().ok_or_else(|| EmuError::Driver {
            operation: "count packets",
            source: io::ErrorKind::NotFound.into(),
        })
    }
}

/// Checks that a probe from one of the interfaces does not arrive at the other one.
fn search_loop(ends: [(&str, u32); 2]) -> Result<LoopProbe, EmuError> {
    let interfaces = || ends.map(|(name, _)| name.to_owned());
    let probe = LoopProbe::open(ends.map(|(_, index)| index)).map_err(|source| {
        let [interface, _] = interfaces();
        EmuError::Interface { interface, source }
    })?;
    probe.send();
    if probe.returns_within(PROBE_WAIT) {
        return Err(EmuError::Loop { interfaces: interfaces() });
    }
    Ok(probe)
}

impl PacketDevice for EthernetSocket {
    fn readiness(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }

    fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        EthernetSocket::read(self, buffer)
    }

    fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        EthernetSocket::write(self, slices)
    }

    fn batch(&self) -> usize {
        MOST_FRAMES
    }

    fn read_many(&self, buffers: &mut [&mut [u8]], lengths: &mut [usize]) -> io::Result<usize> {
        EthernetSocket::read_many(self, buffers, lengths)
    }

    fn write_many(&self, frames: &[&[u8]]) -> io::Result<usize> {
        EthernetSocket::write_many(self, frames)
    }

    fn framing(&self) -> Framing {
        Framing::Ethernet
    }

    fn dropped(&self) -> u64 {
        EthernetSocket::dropped(self)
    }
}
