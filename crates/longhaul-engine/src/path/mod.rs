//! The measurements of `longhaul path`.
//!
//! A [prober](probe_socket::ProbeSocket) sends packets that no router may fragment, and receives the answer or error
//! of each. [Round trips](echo), the [path MTU](mtu) and the [hops] build on it for every kind of
//! packet and at both ends. Between two longhauls the prober is a [flow](flow::ProbeFlow) of the
//! session: it answers requests, counts the [streams](stream) that measure loss, and records the
//! arrival times of the [trains] that measure capacity. The client orders the server to measure the
//! opposite direction in the same way. A host without longhaul is probed by [ICMP echo, closed
//! ports and TCP](serverless).
//!
//! A [recording](record()) sends requests for a long time and keeps the delay and fate of each in both
//! directions.
//!
//! - Times of arrival are the kernel's timestamps of the realtime clock. A round-trip time
//!   excludes the time between the arrival of the request and the answer at the other end.
//! - No measurement fills a path: streams use a tenth of its capacity, trains a fifth while they
//!   run.
//! - A peer is hostile. The numbers that it sends are bounded, answers are not longer than
//!   requests, and data go only to the address of the flow, which has proved that it takes part in
//!   the session.

mod client;
mod echo;
mod flow;
mod hops;
mod mtu;
mod probe_socket;
mod probers;
mod record;
mod series;
mod serve;
mod serverless;
mod stream;
mod tally;
mod tcp;
mod trains;

pub use client::run;
pub use record::{RecordSpec, record};
pub use serve::serve;
pub use serverless::{ServerlessHost, run_without_server};

#[cfg(test)]
mod tests;
