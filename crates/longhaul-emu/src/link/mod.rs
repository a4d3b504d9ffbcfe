//! The link model: computes whether and when each segment of a packet leaves the link.
//!
//! A [`LinkModel`] is one direction of a link. [`LinkModel::offer`] takes the time at which a
//! packet enters and its shape, and returns the segments that leave, their departure times and
//! their treatment. The answer depends only on the plan and the sequence of offers: equal offers
//! produce equal pieces.
//!
//! Times are [`LinkTime`], nanoseconds since an origin that the caller chooses: a clock in the
//! driver, a number in a test. The times of successive offers must not decrease.

mod accidents;
mod aqm;
mod backlog;
mod batch;
mod bit_errors;
mod capacity;
mod chain;
mod cross;
mod delay;
mod loss;
mod model;
mod outages;
mod piece;
mod pipe;
mod policer;
mod queue;
mod random;
mod reorder;
mod replay;
mod scheduler;
mod slots;
mod stages;

#[cfg(test)]
mod tests;

pub use model::LinkModel;
pub use piece::{Corruption, DropReason, Dropped, LinkTime, PacketShape, Piece, Served, Treatment};
pub use random::random_seed;
