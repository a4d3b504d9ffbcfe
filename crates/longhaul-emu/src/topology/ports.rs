//! The interfaces at the ends of the links of a topology: those of its sites, and those of this host
//! behind which sites are.

use std::io;
use std::sync::Arc;

use longhaul_core::plan::{Attachment, TopologyPlan};
use longhaul_sys::interface::{self, Interface};
use longhaul_sys::tun::{self, TunOffloads};

use super::bundle::{End, Queues};
use super::claim::{Claim, Connection};
use crate::EmuError;
use crate::device::{Device, PacketDevice};
use crate::edge::Edge;
use crate::site::{Host, Site};

/// The queues of the interfaces of each site.
pub(super) type Devices = Vec<Vec<Vec<Device>>>;

/// The interfaces of a topology whose links start.
pub(super) struct Interfaces<'p> {
    plan: &'p TopologyPlan,
    devices: Devices,
    ports: Ports,
}

impl<'p> Interfaces<'p> {
    pub(super) fn new(plan: &'p TopologyPlan, devices: Devices) -> Self {
        Interfaces { plan, devices, ports: Ports::default() }
    }

    /// Returns the queues of the interface at an end of a bundle, and the super-packets that it
    /// accepts. Each end is opened once.
    pub(super) fn open(
        &mut self,
        end: End,
        sites: &[Site],
    ) -> Result<(Queues, TunOffloads), EmuError> {
        let own = &sites[end.site].spec().own;
        if let Some(edge) = self.ports.open(self.plan, end.site, own)? {
            return Ok((vec![edge], TunOffloads { tcp: true, udp: true }));
        }
        let queues = self.devices[end.site].get_mut(end.interface).map(std::mem::take);
        let queues = queues.unwrap_or_default();
        let gone = || EmuError::SiteGone { site: own.name.clone() };
        let offloads = queues.first().ok_or_else(gone)?.offloads();
        let shared = |queue| -> Arc<dyn PacketDevice> { Arc::new(queue) };
        Ok((queues.into_iter().map(shared).collect(), offloads))
    }

    /// Returns the interfaces of this host, which the topology keeps.
    pub(super) fn into_ports(self) -> Ports {
        self.ports
    }
}

/// The interfaces of a topology, with the TAP devices that were created for it. Dropping the value
/// removes these.
#[derive(Debug, Default)]
pub(super) struct Ports {
    taps: Vec<String>,
    /// The names and indices of all interfaces, with the claims to them.
    claims: Vec<(String, u32, Claim)>,
    /// The connections between each interface and the previous one.
    connections: Vec<Connection>,
}

impl Ports {
    /// Opens the edge of a site (by index), or returns `None` if the site is not behind an
    /// interface. Creates a missing TAP device.
    fn open(
        &mut self,
        plan: &TopologyPlan,
        site: usize,
        own: &Host,
    ) -> Result<Option<Arc<Edge>>, EmuError> {
        let attachment = plan.attachments.get(&plan.sites[site]);
        let Some((attachment, name)) = attachment.and_then(|to| Some((to, to.interface()?))) else {
            return Ok(None);
        };
        let unusable = |source| EmuError::Interface { interface: name.to_owned(), source };
        let index = self.prepare(attachment, name).map_err(unusable)?;
        let claim = Claim::take(name, index)?;
        if let Some((other, other_index, _)) = self.claims.last() {
            // The links of the topology may connect all of its interfaces.
            let both = [(other.as_str(), *other_index), (name, index)];
            self.connections.push(Connection::announce(both)?);
        }
        self.claims.push((name.to_owned(), index, claim));
        let edge = Edge::open(index, own.clone()).map_err(unusable)?;
        Ok(Some(Arc::new(edge)))
    }

    /// Returns whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    /// Checks that all interfaces exist. The calling thread must be in their network namespace.
    pub(super) fn check(&self) -> Result<(), EmuError> {
        let is_lost = |name: &str, index| interface::index(name).ok() != Some(index);
        match self.claims.iter().find(|(name, index, _)| is_lost(name, *index)) {
            Some((name, ..)) => Err(EmuError::InterfaceGone { interface: name.clone() }),
            None => Ok(()),
        }
    }

    fn prepare(&mut self, attachment: &Attachment, name: &str) -> io::Result<u32> {
        let is_missing = Interface::named(name).is_err();
        if is_missing && matches!(attachment, Attachment::Tap(_)) {
            tun::create_tap(name)?;
            self.taps.push(name.to_owned());
            Interface::named(name)?.up()?;
        }
        Ok(Interface::named(name)?.index())
    }
}

impl Drop for Ports {
    fn drop(&mut self) {
        for name in &self.taps {
            // Another program may have removed the device.
            let _ = Interface::named(name).and_then(|interface| interface.remove());
        }
    }
}
