//! Guest sites: virtual machines with a separate kernel.

use serde::{Deserialize, Serialize};

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
