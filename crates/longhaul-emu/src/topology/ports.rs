//! The ports of a topology: the interfaces of this host behind which sites are.

use std::io;
use std::sync::Arc;

use longhaul_core::plan::{Attachment, TopologyPlan};
use longhaul_sys::interface::Interface;
use longhaul_sys::tun;

use crate::EmuError;
use crate::edge::Edge;
use crate::site::Host;

/// The TAP devices that were created for a topology. Dropping the value removes them.
#[derive(Debug, Default)]
pub(super) struct Ports {
    taps: Vec<String>,
}

impl Ports {
    /// Opens the edge of a site (by index), or returns `None` if the site is not behind an
    /// interface. Creates a missing TAP device.
    pub(super) fn open(
        &mut self,
        plan: &TopologyPlan,
        site: usize,
        own: &Host,
    ) -> Result<Option<Arc<Edge>>, EmuError> {
        let attachment = plan.attachments.get(&plan.sites[site]);
        let Some((attachment, name)) = attachment.and_then(|to| Some((to, to.interface()?))) else {
            return Ok(None);
        };
        let opened =
            self.prepare(attachment, name).and_then(|index| Edge::open(index, own.clone()));
        opened
            .map(|edge| Some(Arc::new(edge)))
            .map_err(|source| EmuError::Interface { interface: name.to_owned(), source })
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
