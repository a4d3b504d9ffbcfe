use super::Seen;
use crate::units::{Bytes, Rate};

/// A network interface.
#[derive(Debug, Clone)]
pub struct InterfaceFacts {
    /// Its name.
    pub name: String,
    /// How many share the load with it, itself included: the ports of a bond.
    pub sharers: u32,
    /// What it is.
    pub kind: InterfaceKind,
    /// Its driver.
    pub driver: Seen<String>,
    /// `up`, `down`, `unknown` (Documentation/ABI/testing/sysfs-class-net).
    pub state: Seen<String>,
    /// The largest packet in bytes, IP header included.
    pub mtu: Seen<u32>,
    /// Its rate; `None` where the driver makes none.
    pub speed: Seen<Option<Rate>>,
    /// How packets wait to be sent.
    pub queueing: Seen<Queueing>,
    /// What it does for the processor.
    pub offloads: Seen<Offloads>,
    /// Its rings of packets.
    pub rings: Seen<Rings>,
    /// When it interrupts.
    pub coalescing: Seen<Coalescing>,
    /// Whether it asks its neighbour to wait, and waits.
    pub pause: Seen<Pause>,
    /// Its queues for received packets.
    pub queues: Seen<u32>,
    /// What it has carried and dropped.
    pub traffic: Seen<Traffic>,
    /// The NUMA node of its device; `None` where it is near none.
    pub node: Seen<Option<u32>>,
    /// Its interrupts, one a queue.
    pub interrupts: Seen<Vec<Interrupt>>,
    /// Its place on the bus; `None` when it is not on PCI.
    pub pci: Seen<Option<PciFacts>>,
}

/// What an interface is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InterfaceKind {
    /// A network card.
    Hardware,
    /// A network card of a virtual machine, which its host makes.
    Paravirtual,
    /// A radio.
    Wireless,
    /// Of the kernel alone: bridge, veth, TUN, loopback.
    Software,
}

/// How packets wait to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queueing {
    /// The queueing discipline at the root.
    pub root: String,
    /// Those of the hardware queues, where the root is `mq`; each kind once.
    pub leaves: Vec<String>,
}

/// What an interface does for the processor (ethtool(8), `-k`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offloads {
    /// Cuts what TCP sends into segments.
    pub tso: bool,
    /// The kernel cuts as late as it can.
    pub gso: bool,
    /// The kernel joins received segments.
    pub gro: bool,
    /// The card joins received segments.
    pub lro: bool,
    /// The card checks the checksums of what comes.
    pub receive_checksum: bool,
    /// The card makes the checksums of what goes.
    pub send_checksum: bool,
    /// The card gathers a packet from many places.
    pub scatter_gather: bool,
}

/// Rings of packets between driver and card, in packets (ethtool(8), `-g`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rings {
    /// For received packets.
    pub receive: u32,
    /// At most.
    pub receive_max: u32,
    /// For packets to be sent.
    pub send: u32,
    /// At most.
    pub send_max: u32,
}

/// When a card interrupts (ethtool(8), `-c`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coalescing {
    /// It adapts to the traffic.
    pub adaptive_receive: bool,
    /// It waits so many microseconds after a packet.
    pub receive_us: u32,
}

/// Flow control of Ethernet (ethtool(8), `-a`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pause {
    /// It waits when its neighbour asks.
    pub receive: bool,
    /// It asks its neighbour to wait.
    pub send: bool,
}

/// What an interface has carried since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traffic {
    /// Packets received.
    pub received: u64,
    /// Packets lost because the card's ring was full.
    pub missed: u64,
    /// Damaged packets.
    pub errors: u64,
}

/// An interrupt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interrupt {
    /// Its number.
    pub number: u32,
    /// The CPUs it goes to.
    pub cpus: Vec<u32>,
}

/// A device on PCI.
#[derive(Debug, Clone)]
pub struct PciFacts {
    /// How many devices share the load with it, itself included.
    pub sharers: u32,
    /// Domain, bus, device and function.
    pub address: String,
    /// The link now; `None` where there is none, as in a virtual machine.
    pub link: Seen<Option<Link>>,
    /// The best it can do.
    pub link_max: Seen<Option<Link>>,
    /// Payload of one packet on the bus, as set.
    pub payload: Seen<Bytes>,
    /// The largest that every bridge on the way and the device support.
    pub payload_supported: Seen<Bytes>,
    /// What the device asks for at once.
    pub read_request: Seen<Bytes>,
    /// How the kernel translates its addresses (`iommu_group/type`); `None` when it does not.
    pub translation: Seen<Option<String>>,
}

/// A link of PCI Express.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// Of one lane, in GT/s.
    pub giga_transfers: f64,
    /// Lanes.
    pub lanes: u32,
}

impl std::fmt::Display for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} GT/s x{}", self.giga_transfers, self.lanes)
    }
}
