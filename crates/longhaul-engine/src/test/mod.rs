//! Memory to memory over TCP, MPTCP or UDP: the engine of `longhaul test`.
//!
//! Both ends are built alike. An [end](end::run) of each direction has one thread for each stream
//! that does nothing but send or receive and store its own count; the thread that started them
//! takes a sample each interval, watches the clock, and stops them. No counter is shared between threads that
//! move bytes. Around that, [`run`] is the client and [`serve`] the service of `longhaul serve`;
//! they exchange the plan and their samples over the session's control channel.
//!
//! - The receiver counts. Its clock runs from the first byte to the end of data, which the sender
//!   marks in-band by closing its half after the last byte, so that both totals agree to the byte
//!   on every TCP test that was not cut. Datagrams are [accounted for](udp) one by one.
//! - A test by time ends when the sender's time is up. `TCP_NOTSENT_LOWAT` keeps the unsent data
//!   small, so that what is still to drain is what is in flight.
//! - The client opens every data connection, whichever way the bytes go, unless the plan has the
//!   server do it; who opens is told where no other than the session's own peer is sent data.
//! - The ends also run over sockets that another protocol opened: [`EndRun`].
//! - A peer that vanishes or falls silent ends the test in bounded time: see
//!   [`IDLE_LIMIT`](limits::IDLE_LIMIT).

mod block_format;
mod client;
mod connect;
mod context;
mod datagram_format;
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
mod third;
mod ticks;
mod udp;

pub use block_format::{BlockFormat, BlockState};
pub use client::run;
pub use context::Ending;
pub use datagram_format::{DatagramFormat, ReceivedDatagram, SentDatagram};
pub use end_run::{EndRun, TestMemory, set_options};
pub use limits::TestLimits;
pub(crate) use limits::{PLAN_LIMIT, STEP_LIMIT};
pub use serve::serve;
pub use third::{refuse_third, run_third, serve_third};
pub(crate) use udp::SequenceTracker;

#[cfg(test)]
mod tests;
