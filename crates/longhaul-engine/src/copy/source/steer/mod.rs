//! Chooses, while the copy runs, how many connections carry it, what controls their congestion,
//! and how fast they may go.
//!
//! It begins with four connections and doubles them as long as the rate goes up by a tenth with
//! it. It stops when it does not, when more gets lost since, when the senders wait for the disk
//! rather than for the network, or when the processors are used up. A kernel's own congestion
//! control is left alone unless segments get lost and BBR, which does not take loss for congestion,
//! is to be had.
//!
//! What is decided ([`Course`](course::Course), [`Yielding`](yielding::Yielding)) is a function of
//! what was measured, without a clock or a socket, and is tested so; the [`Pilot`] measures and acts
//! through the [`Helm`].

mod bound;
mod course;
mod helm;
mod pilot;
mod yielding;

pub(in crate::copy) use course::{FIRST_STREAMS, MOST_STREAMS};
pub(super) use helm::Helm;
pub(super) use pilot::{Pacemaker, Pilot};
