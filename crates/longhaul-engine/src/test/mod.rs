//! Memory to memory over TCP, MPTCP or UDP: the engine of `longhaul test`.
//!
//! Both hosts run the same code. An [end](end::run) of one direction has a thread per stream,
//! which only sends or receives and stores its count. The thread that started them takes a sample
//! per interval, checks the time, and stops them. Threads that move bytes share no counter.
//! [`run`] is the client and [`serve`] the service of `longhaul serve`; they exchange the plan and
//! their samples over the session's control channel.
//!
//! - The receiver counts. Its clock runs from the first byte to the end of the data, which the
//!   sender marks in-band: it shuts its half of the connection down after the last byte. On every
//!   TCP test that was not interrupted, both totals are therefore equal. Datagrams are [accounted
//!   for](udp) individually.
//! - A test with a duration ends when the sender's time is up. `TCP_NOTSENT_LOWAT` keeps the
//!   unsent data small, so that only the data in flight arrive later.
//! - The client opens every data connection in both directions, unless the plan requests that the
//!   server does. Data are sent only to the peer of the session.
//! - The ends also run over sockets that another protocol opened: [`EndRun`].
//! - A peer that vanishes or falls silent ends the test in bounded time: see
//!   [`IDLE_LIMIT`](limits::IDLE_LIMIT).

mod block_format;
mod client;
mod connect;
mod context;
mod end;
mod end_run;
mod latency;
mod limits;
mod memory;
mod mover;
mod observe;
mod options;
mod placement;
mod sampler;
mod serve;
mod snapshot;
mod table;
mod third;
mod ticks;
mod udp;

pub use block_format::{BlockFormat, BlockState, DatagramFormat, ReceivedDatagram, SentDatagram};
pub use client::run;
pub use context::Ending;
pub use end_run::{EndRun, TestMemory, set_options};
pub use limits::TestLimits;
pub(crate) use limits::{PLAN_LIMIT, STEP_LIMIT};
pub use serve::serve;
pub use third::{refuse_third, run_third, serve_third};
pub(crate) use udp::SequenceTracker;

#[cfg(test)]
mod tests;
