//! Facts about a directory and its disk.

use super::{PciFacts, Seen};
use crate::units::Bytes;

/// A directory to copy from or to, and the devices that store it.
#[derive(Debug, Clone)]
pub struct DiskFacts {
    /// The directory as the user named it.
    pub path: String,
    /// The mount that contains it.
    pub mount: Seen<MountFacts>,
    /// The support of direct I/O.
    pub direct_io: Seen<DirectIoSupport>,
    /// The space available to ordinary users, and the total space.
    pub room: Seen<(Bytes, Bytes)>,
    /// The name of the block device; `None` if the file system has none.
    pub device: Seen<Option<String>>,
    /// The active I/O scheduler of `device`, or of the first device below a RAID or volume.
    pub scheduler: Seen<String>,
    /// The read-ahead of the kernel.
    pub read_ahead: Seen<Bytes>,
    /// True if the disk is rotational.
    pub rotational: Seen<bool>,
    /// The NUMA node of that device; `None` if it has none.
    pub node: Seen<Option<u32>>,
    /// The PCI device; `None` if the disk is not on PCI.
    pub pci: Seen<Option<PciFacts>>,
}

/// A mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountFacts {
    /// The type of the file system.
    pub kind: String,
    /// The mount point.
    pub point: String,
    /// The options of the mount and of the file system.
    pub options: Vec<String>,
}

/// The support of direct I/O (`O_DIRECT` in open(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectIoSupport {
    /// Direct I/O works.
    Works,
    /// The file system refuses direct I/O.
    Refused,
}
