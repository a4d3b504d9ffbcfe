//! Numbers by which two ends on one host recognise the same file.

use twox_hash::XxHash3_64;

use super::journal::boot;

/// Numbers the files of this host: equal for one file in every process until the next boot.
#[derive(Debug, Clone, Copy)]
pub(super) struct HostFiles {
    seed: u64,
}

impl HostFiles {
    /// `None` if the kernel does not report its boot.
    pub(super) fn of_boot() -> Option<Self> {
        Some(HostFiles { seed: XxHash3_64::oneshot(boot()?.as_bytes()) })
    }

    /// The number of the file with this device and inode.
    pub(super) fn number(&self, (device, inode): (u64, u64)) -> u64 {
        let bytes = [device.to_be_bytes(), inode.to_be_bytes()].concat();
        XxHash3_64::oneshot_with_seed(self.seed, &bytes)
    }
}
