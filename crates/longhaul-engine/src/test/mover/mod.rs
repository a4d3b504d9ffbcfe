//! The threads that move bytes. Each owns its count and its buffer; other threads only look.

mod carrier;
mod pacer;
mod receive;
mod send;
mod slot;
mod supply;

pub(super) use carrier::Carrier;
pub(super) use pacer::Pacer;
pub(super) use receive::{Reading, receive};
pub(super) use send::send;
pub(super) use slot::Slot;
pub(super) use supply::{Supply, payload};
