use super::{PciFacts, Seen};
use crate::units::Bytes;

/// A directory to copy from or to, and what is beneath it.
#[derive(Debug, Clone)]
pub struct DiskFacts {
    /// The directory as it was named.
    pub path: String,
    /// What is mounted there.
    pub mount: Seen<MountFacts>,
    /// Whether files there can be read and written past the page cache.
    pub direct_io: Seen<DirectIo>,
    /// Room for others than root, and all.
    pub room: Seen<(Bytes, Bytes)>,
    /// The block device's name; `None` where the file system is on none.
    pub device: Seen<Option<String>>,
    /// The I/O scheduler in force, of that device or of the first one beneath it.
    pub scheduler: Seen<String>,
    /// What the kernel reads ahead.
    pub read_ahead: Seen<Bytes>,
    /// It turns.
    pub rotational: Seen<bool>,
    /// The NUMA node of the first device beneath; `None` where it is near none.
    pub node: Seen<Option<u32>>,
    /// Its place on the bus; `None` when it is not on PCI.
    pub pci: Seen<Option<PciFacts>>,
}

/// What is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountFacts {
    /// The file system.
    pub kind: String,
    /// Where it is mounted.
    pub point: String,
    /// The options of the mount and of the file system.
    pub options: Vec<String>,
}

/// Whether files can be read and written past the page cache (`O_DIRECT` in open(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectIo {
    /// They can.
    Works,
    /// The file system refuses.
    Refused,
}
