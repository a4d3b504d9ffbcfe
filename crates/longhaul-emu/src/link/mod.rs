//! The link model: when, if at all, does a packet arrive?
//!
//! A [`LinkModel`] is one direction of a link. [`LinkModel::offer`] takes the time at which a
//! packet enters and its shape, and says which of its segments leave, when, and what happens to
//! them. The answer depends on nothing but the plan and the offers so far, in order: the same offers
//! give the same pieces.
//!
//! Times are [`LinkTime`], nanoseconds since an origin of the caller's choice: a clock in the
//! driver, a number in a test. An offer must not lie before the one before it.

mod accidents;
mod capacity;
mod chance;
mod codel;
mod cross;
mod delay;
mod jitter;
mod loss;
mod model;
mod outages;
mod pie;
mod piece;
mod queue;
mod random;
mod reorder;
mod seed;
mod shape;
mod stages;
mod time;

#[cfg(test)]
mod tests;

pub use model::LinkModel;
pub use piece::{Corruption, Piece, Treatment};
pub use seed::random_seed;
pub use shape::PacketShape;
pub use time::LinkTime;
