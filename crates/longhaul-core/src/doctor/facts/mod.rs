//! The facts of a host, as plain values.

mod disk;
mod host;
mod interface;
mod seen;

pub use disk::{DirectIo, DiskFacts, MountFacts};
pub use host::{
    Chain, ClockFacts, FirewallFacts, HostFacts, IdleState, Limit, PathFacts, ProcessorFacts,
    TcpMemoryFacts,
};
pub use interface::{
    Coalescing, InterfaceFacts, InterfaceKind, Interrupt, Offloads, Pause, PciFacts, PcieLink,
    Queueing, Rings, Traffic,
};
pub use seen::{Cause, Seen, Unseen};
