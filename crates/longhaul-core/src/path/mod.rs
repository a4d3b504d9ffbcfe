//! What probes of a path add up to: pure, from numbers and times to figures.
//!
//! [`MtuSearch`] chooses the next size to try; [`Reordering`] counts what comes out of order;
//! [`Delays`] keeps the variation of the delay in bounded memory; [`Dispersion`] is what one train
//! of packets says of the capacity, and [`capacity`] what all of them do; [`asymmetry`] judges
//! whether clocks allow to tell the two directions apart. None of them sends anything, and each
//! takes what a hostile peer may report.

mod clocks;
mod delays;
mod mtu;
mod reordering;
mod train;

pub use clocks::{Clock, asymmetry};
pub use delays::Delays;
pub use mtu::MtuSearch;
pub use reordering::Reordering;
pub use train::{Arrival, Dispersion, Train, capacity};
