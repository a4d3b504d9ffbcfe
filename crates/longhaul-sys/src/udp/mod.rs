//! UDP sockets beyond the standard library: many datagrams per call by segmentation and merging in
//! the kernel ([`segment_sends`], [`merge_receives`]), and drop counters.
//!
//! The functions work on any UDP socket. Constants are those of linux/udp.h, linux/in.h and
//! asm-generic/socket.h.

mod options;
mod receive;
mod send;

pub use options::{
    count_drops, drops, force_receive_buffer, merge_receives, report_send_drops, segment_sends,
    tell_destination,
};
pub use receive::{Addressed, Received, receive, receive_addressed};
pub use send::send_from;
