//! What a path is like: the engine of `longhaul path`.
//!
//! Whoever measures has a [prober](ask::Ask) that sends packets which no router may fragment and
//! hears what comes of each: an answer, a router's word, or nothing. On it are built, alike for
//! every kind of packet and for both ends, [round trips](echo), the [path MTU](mtu) and the
//! [hops]. Between two longhauls the prober is a [flow](flow::ProbeFlow) of the session, at
//! both ends the same: it answers requests, counts the [streams](stream) by which loss is found, and
//! keeps the arrival times of the [trains] by which capacity is. So the client has the
//! server do in its direction what it does in its own. A host without longhaul is asked by
//! [ICMP echo, closed ports and TCP](alone).
//!
//! - Times are the kernel's own times of arrival, on the clock of the day; of a round trip the time
//!   that the far end took is taken off.
//! - Nothing here fills a path: streams take a tenth of it, trains a fifth while they run.
//! - A peer is hostile: what it may have sent, and reports, is bounded; answers are no longer than
//!   requests; data goes to no other address than the flow's, which has proved itself.

mod alone;
mod ask;
mod client;
mod echo;
mod flow;
mod hops;

mod mtu;
mod probers;
mod serve;
mod stream;
mod tally;
mod tcp;
mod trains;

pub use alone::run_without_server;
pub use client::run;
pub use serve::serve;

#[cfg(test)]
mod tests;
