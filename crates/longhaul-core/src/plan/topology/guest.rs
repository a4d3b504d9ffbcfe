//! Guest sites: virtual machines with a separate kernel.

use serde::{Deserialize, Serialize};

use super::{TopologyFault, TopologyPlan};
use crate::units::Bytes;

/// A virtual machine that the emulator boots as a site. It has a separate kernel, and reads the
/// files of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestPlan {
    /// The memory of the machine.
    #[serde(rename = "memory_bytes")]
    pub memory: Bytes,
    /// The number of its processors.
    pub processors: u32,
}

impl GuestPlan {
    /// The smallest memory: below it Debian's kernel ends before the guest is ready.
    pub const MIN_MEMORY: Bytes = Bytes::mib(256);
    /// The largest number of processors, a limit against typing errors.
    pub const MAX_PROCESSORS: u32 = 64;
}

impl Default for GuestPlan {
    fn default() -> Self {
        GuestPlan { memory: Bytes::mib(1024), processors: 1 }
    }
}

/// Checks the guest of a site (by index), if the site is one.
pub(super) fn check(plan: &TopologyPlan, site: usize) -> Result<(), TopologyFault> {
    let name = &plan.sites[site];
    let Some(guest) = plan.guests.get(name) else { return Ok(()) };
    if plan.attachments.contains_key(name) {
        return Err(TopologyFault::GuestAttached { site: name.clone() });
    }
    if guest.memory < GuestPlan::MIN_MEMORY {
        return Err(TopologyFault::GuestMemory { site: name.clone(), memory: guest.memory });
    }
    if !(1..=GuestPlan::MAX_PROCESSORS).contains(&guest.processors) {
        let processors = guest.processors;
        return Err(TopologyFault::GuestProcessors { site: name.clone(), processors });
    }
    Ok(())
}
