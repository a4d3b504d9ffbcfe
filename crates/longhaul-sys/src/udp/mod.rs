//! UDP sockets beyond the standard library: many datagrams in one call, by the kernel's
//! segmentation and merging ([`segment_sends`], [`merge_receives`]), and what the host dropped.
//!
//! Works on any UDP socket. Constants are those of linux/udp.h, linux/in.h and
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
