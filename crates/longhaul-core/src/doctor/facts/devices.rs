//! Facts about network interfaces and disks, and about their bus.

use super::FactResult;
use crate::units::{Bytes, Rate};

/// A network interface.
#[derive(Debug, Clone)]
pub struct InterfaceFacts {
    /// The name of the interface.
    pub name: String,
    /// The number of interfaces that share the load, including this one, such as the ports of a
    /// bond.
    pub sharers: u32,
    /// The kind of interface.
    pub kind: InterfaceKind,
    /// The name of the driver.
    pub driver: FactResult<String>,
    /// The operational state: `up`, `down`, `unknown` (Documentation/ABI/testing/sysfs-class-net).
    pub state: FactResult<String>,
    /// The MTU in bytes, including the IP header.
    pub mtu: FactResult<u32>,
    /// The rate; `None` if the driver reports none.
    pub speed: FactResult<Option<Rate>>,
    /// The queueing disciplines.
    pub queueing: FactResult<Queueing>,
    /// The active offloads.
    pub offloads: FactResult<InterfaceOffloads>,
    /// The ring sizes.
    pub rings: FactResult<Rings>,
    /// The interrupt coalescing.
    pub coalescing: FactResult<Coalescing>,
    /// The Ethernet flow control.
    pub pause: FactResult<Pause>,
    /// The number of receive queues.
    pub queues: FactResult<u32>,
    /// The packet counters.
    pub traffic: FactResult<InterfaceTraffic>,
    /// The NUMA node of the device; `None` if it has none.
    pub node: FactResult<Option<u32>>,
    /// The interrupts, one per queue.
    pub interrupts: FactResult<Vec<Interrupt>>,
    /// The PCI device; `None` if the interface is not on PCI.
    pub pci: FactResult<Option<PciFacts>>,
}

/// The kind of a network interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InterfaceKind {
    /// A physical network card.
    Hardware,
    /// A virtual network card of a virtual machine.
    Paravirtual,
    /// A wireless card.
    Wireless,
    /// A software interface of the kernel: bridge, veth, TUN, loopback.
    Software,
}

/// The queueing disciplines of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queueing {
    /// The queueing discipline at the root.
    pub root: String,
    /// The disciplines of the hardware queues if the root is `mq`, without duplicates.
    pub leaves: Vec<String>,
}

/// The offloads of an interface (ethtool(8), `-k`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterfaceOffloads {
    /// The card splits TCP super-packets into segments.
    pub tso: bool,
    /// The kernel splits super-packets as late as possible.
    pub gso: bool,
    /// The kernel merges received segments.
    pub gro: bool,
    /// The card merges received segments.
    pub lro: bool,
    /// The card verifies the checksums of received packets.
    pub receive_checksum: bool,
    /// The card computes the checksums of sent packets.
    pub send_checksum: bool,
    /// The card sends packets from scattered memory.
    pub scatter_gather: bool,
}

/// The rings between driver and card, in packets (ethtool(8), `-g`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rings {
    /// The receive ring.
    pub receive: u32,
    /// The largest receive ring.
    pub receive_max: u32,
    /// The send ring.
    pub send: u32,
    /// The largest send ring.
    pub send_max: u32,
}

/// Interrupt coalescing (ethtool(8), `-c`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coalescing {
    /// True if the driver adapts the wait to the received traffic.
    pub adaptive_receive: bool,
    /// The time from a received packet to its interrupt, in microseconds.
    pub receive_us: u32,
}

/// Ethernet flow control (ethtool(8), `-a`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pause {
    /// True if the interface obeys pause frames.
    pub receive: bool,
    /// True if the interface sends pause frames.
    pub send: bool,
}

/// The packet counters since the interface was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterfaceTraffic {
    /// Packets received.
    pub received: u64,
    /// Packets lost because the receive ring was full.
    pub missed: u64,
    /// Damaged packets.
    pub errors: u64,
}

/// An interrupt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interrupt {
    /// The interrupt number.
    pub number: u32,
    /// The CPUs that handle the interrupt.
    pub cpus: Vec<u32>,
}

/// A device on PCI.
#[derive(Debug, Clone)]
pub struct PciFacts {
    /// The number of devices that share the load, including this one.
    pub sharers: u32,
    /// Domain, bus, device and function.
    pub address: String,
    /// The current link; `None` without one, as in a virtual machine.
    pub link: FactResult<Option<PcieLink>>,
    /// The fastest link that the device supports.
    pub link_max: FactResult<Option<PcieLink>>,
    /// The configured maximum payload of a packet on the bus (`MaxPayload`).
    pub payload: FactResult<Bytes>,
    /// The largest payload that the device and all bridges above it support.
    pub payload_supported: FactResult<Bytes>,
    /// The size of the device's read requests.
    pub read_request: FactResult<Bytes>,
    /// The kind of IOMMU translation (`iommu_group/type`); `None` without translation.
    pub translation: FactResult<Option<String>>,
}

/// A PCI Express link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PcieLink {
    /// The rate of one lane in GT/s.
    pub giga_transfers: f64,
    /// The number of lanes.
    pub lanes: u32,
}

impl std::fmt::Display for PcieLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} GT/s x{}", self.giga_transfers, self.lanes)
    }
}

/// A directory to copy from or to, and the devices that store it.
#[derive(Debug, Clone)]
pub struct DiskFacts {
    /// The directory as the user named it.
    pub path: String,
    /// The mount that contains it.
    pub mount: FactResult<MountFacts>,
    /// The support of direct I/O.
    pub direct_io: FactResult<DirectIoSupport>,
    /// The space available to ordinary users, and the total space.
    pub room: FactResult<(Bytes, Bytes)>,
    /// The name of the block device; `None` if the file system has none.
    pub device: FactResult<Option<String>>,
    /// The active I/O scheduler of `device`, or of the first device below a RAID or volume.
    pub scheduler: FactResult<String>,
    /// The read-ahead of the kernel.
    pub read_ahead: FactResult<Bytes>,
    /// True if the disk is rotational.
    pub rotational: FactResult<bool>,
    /// The NUMA node of that device; `None` if it has none.
    pub node: FactResult<Option<u32>>,
    /// The PCI device; `None` if the disk is not on PCI.
    pub pci: FactResult<Option<PciFacts>>,
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
