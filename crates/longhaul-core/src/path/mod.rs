//! The evaluation of path probes: pure functions from numbers and times to figures.
//!
//! [`MtuSearch`] chooses the next packet size to try. [`Reordering`] counts packets out of order.
//! [`Delays`] keeps the variation of the delay in bounded memory. [`Dispersion`] evaluates one
//! train of packets, and [`capacity`] all of them. [`certify`] compares two recordings of a path. [`asymmetry`] judges whether the clocks are
//! accurate enough to compare the two directions. None of them sends anything, and each accepts
//! whatever a hostile peer may report.

mod certify;
mod delays;
mod mtu;
mod reordering;
mod train;

pub use certify::certify;
pub use delays::{Clock, Delays, asymmetry};
pub use mtu::MtuSearch;
pub use reordering::Reordering;
pub use train::{Arrival, Dispersion, Train, capacity};
