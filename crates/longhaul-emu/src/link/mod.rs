//! The link model: when, if at all, does a packet arrive?
//!
//! A [`LinkModel`] is one direction of a link. [`LinkModel::offer`] takes the time at which a
//! packet enters and its shape, and says when it leaves or why it does not. The answer depends on
//! nothing but the plan and the offers so far, in order: the same offers give the same verdicts.
//!
//! Times are [`LinkTime`], nanoseconds since an origin of the caller's choice: a clock in the
//! driver, a number in a test. An offer must not lie before the one before it.

mod model;
mod piece;
mod shape;
mod time;

pub use model::{DropReason, LinkModel, Verdict};
pub use piece::{Corruption, Piece, Treatment};
pub use shape::PacketShape;
pub use time::LinkTime;
