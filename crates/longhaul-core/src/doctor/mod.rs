//! The rules by which a host is judged fit for a rate over a round-trip time.
//!
//! [`HostFacts`] are what was seen of a host: plain values, each of which may be
//! [unseen](Unseen) with a reason. [`examine`] puts them to the [rules](RULES), a table; a rule is
//! a name, what it is about, and a function of a few lines from facts and [`Target`] to what it
//! says. A fact that a rule asks for and that was not seen makes its finding "unseen" by itself,
//! through `?`.
//!
//! Wanted values follow the kernel's own arithmetic and the guide of ESnet for data-transfer
//! nodes (<https://fasterdata.es.net/host-tuning/>), which the rules cite where they rest on it.
//!
//! Nothing here reads a host: that is `longhaul_sys::inspect`, and what it read of a host can be
//! kept as a [`Recording`] and examined elsewhere.

mod bus;
mod examine;
mod facts;
mod recording;
mod rule;
mod rules;
mod target;

pub use bus::{Capability, PCIE_OVERHEAD_BYTES, express_capability, theoretical_maximum};
pub use examine::{examine, summary};
pub use facts::{
    Cause, Chain, ClockFacts, Coalescing, DirectIo, DiskFacts, FirewallFacts, HostFacts, IdleState,
    InterfaceFacts, InterfaceKind, Interrupt, Limit, Link, MountFacts, Offloads, PathFacts, Pause,
    PciFacts, ProcessorFacts, Queueing, Rings, Seen, TcpMemoryFacts, Traffic, Unseen,
};
pub use recording::{Entry, Recording, RecordingError};
pub use rule::{Answer, Judge, Rule, Said};
pub use rules::{RULES, SETTINGS};
pub use target::Target;
