//! Counters of interfaces by `rtnetlink(7)`, and the state of TCP connections by `sock_diag(7)`, of a
//! network namespace.
//!
//! Handles stay in the namespace of the thread that opened them.

mod flows;
mod links;

pub use flows::{FlowReader, TcpFlow};
pub use links::{LinkCounters, LinkQueue, LinkReader, LinkState};
