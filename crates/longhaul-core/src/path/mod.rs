//! The evaluation of path probes: pure functions from numbers and times to figures.
//!
//! [`MtuSearch`] chooses the next packet size to try. [`Reordering`] counts packets out of order.
//! [`Bursts`] counts the runs of lost packets.
//! [`Delays`] keeps the variation of the delay in bounded memory. [`Dispersion`] evaluates one
//! train of packets, and [`capacity`] all of them. [`asymmetry`] judges whether the clocks are
//! accurate enough to compare the two directions. [`certify`] compares two recordings of a path.
//! None of them sends anything, and each accepts whatever a hostile peer may report.

mod certify;
mod delays;
mod mtu;
mod reordering;
mod train;

pub use certify::certify;
pub use delays::{Clock, Delays, asymmetry};
pub use mtu::MtuSearch;
pub use reordering::{Bursts, Reordering};
pub use train::{Dispersion, Train, TrainPacket, capacity};
