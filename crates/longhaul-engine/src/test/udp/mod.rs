//! Datagrams: how a flow of them is sent, received and accounted for.
//!
//! The sender numbers datagrams in 64 bits and hands them to the kernel many at a time, which
//! cuts them apart (segmentation offload); the receiver takes what the kernel merged, by the real
//! size of the datagrams, and [accounts](account::Account) for each number. When its data is over
//! the sender marks the end in-band, again and again, until the receiver reports to have seen it.
//! The receiver reports four times a second from the beginning: a sender whose receiver has gone
//! silent stops (in the sense of RFC 7675), instead of flooding a path for nobody.
//!
//! What hosts drop is told from what the path drops: `ENOBUFS` at the sender is its interface's
//! queue, and at the receiver the kernel says with each datagram how often the socket's buffer
//! was full before it.

mod account;
mod flow;
mod receive;
mod send;

pub(crate) use account::Account;
pub(super) use flow::{UdpFlow, receive_buffer_bytes};
pub(super) use receive::{BUFFER_BYTES as USER_BUFFER_BYTES, receive};
pub(super) use send::send;
