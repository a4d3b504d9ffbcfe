//! The facts of a host, as plain values.

mod devices;
mod host;
mod seen;

pub use devices::{
    Coalescing, DirectIoSupport, DiskFacts, InterfaceFacts, InterfaceKind, InterfaceOffloads,
    InterfaceTraffic, Interrupt, MountFacts, Pause, PciFacts, PcieLink, Queueing, Rings,
};
pub use host::{
    Chain, ClockFacts, FirewallFacts, HostFacts, IdleState, PathFacts, ProcessorFacts,
    ResourceLimit, TcpMemoryFacts,
};
pub use seen::{Cause, Seen, Unseen};
