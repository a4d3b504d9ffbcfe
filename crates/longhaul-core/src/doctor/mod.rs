//! The rules that judge whether a host can reach a rate over a round-trip time.
//!
//! [`HostFacts`] are plain values; each may be [unseen](Unseen) with a reason. [`examine`] applies
//! the table of [rules](RULES) to them. A rule has a name, its cases, and a short function from
//! facts and [`Target`] to a case with values. If a fact that a rule needs is unseen, `?` makes the
//! finding "unseen". The program has the sentences of the cases.
//!
//! Wanted values follow the kernel's arithmetic and the guide of ESnet for data-transfer nodes
//! (<https://fasterdata.es.net/host-tuning/>); rules cite the guide if they depend on it.
//!
//! This module does not read a host. `longhaul_sys::doctor` does, and its answers can be stored as
//! a [`Recording`] and examined elsewhere.

mod bus;
mod examine;
mod facts;
mod recording;
mod rule;
mod rules;

pub use bus::{Capability, PCIE_OVERHEAD_BYTES, express_capability, theoretical_maximum};
pub use examine::{examine, summary};
pub use facts::{
    Cause, Chain, ClockFacts, Coalescing, DirectIoSupport, DiskFacts, FirewallFacts, HostFacts,
    IdleState, InterfaceFacts, InterfaceKind, InterfaceOffloads, InterfaceTraffic, Interrupt,
    MountFacts, PathFacts, Pause, PciFacts, PcieLink, ProcessorFacts, Queueing, ResourceLimit,
    Rings, Seen, TcpMemoryFacts, Unseen,
};
pub use recording::{RecordedAnswer, Recording, RecordingError};
pub use rule::{Answer, Judge, Judgement, Rule, Target, UNSEEN_CASES};
pub use rules::{RULES, SETTINGS};
