//! The facts of a host, as plain values.

mod disk;
mod host;
mod interface;
mod seen;

pub use disk::{DirectIoSupport, DiskFacts, MountFacts};
pub use host::{
    Chain, ClockFacts, FirewallFacts, HostFacts, IdleState, PathFacts, ProcessorFacts,
    ResourceLimit, TcpMemoryFacts,
};
pub use interface::{
    Coalescing, InterfaceFacts, InterfaceKind, InterfaceOffloads, InterfaceTraffic, Interrupt,
    Pause, PciFacts, PcieLink, Queueing, Rings,
};
pub use seen::{Cause, Seen, Unseen};
