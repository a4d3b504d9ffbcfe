//! The threads that move bytes. Each owns its counter and buffer; other threads only read the
//! counter.

mod blocks;
mod carrier;
mod pacer;
mod slot;
mod supply;
mod tcp;

pub(super) use blocks::{Turns, send_blocks};
pub(super) use carrier::Carrier;
pub(super) use pacer::Pacer;
pub(super) use slot::Slot;
pub(super) use supply::{Supply, payload};
pub(super) use tcp::{Reading, Sending, Watch, receive, send};
