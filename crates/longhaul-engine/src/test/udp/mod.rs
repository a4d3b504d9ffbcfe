//! UDP flows: sending, receiving and accounting for datagrams.
//!
//! The sender numbers datagrams in 64 bits and passes many at a time to the kernel, which splits
//! them (GSO). The receiver reads merged datagrams (GRO) and [accounts](account::Account) for each
//! number. At the end of its data the sender repeats an end mark until the receiver reports it. The
//! receiver reports four times a second from the start: a sender whose receiver is silent stops
//! (RFC 7675), and does not flood the path.
//!
//! Drops at hosts and on the path are distinguished: `ENOBUFS` at the sender comes from the
//! interface's queue, and at the receiver the kernel reports the drops at the socket's buffer with
//! each datagram.

mod account;
mod flow;
mod receive;
mod send;

pub(crate) use account::SequenceTracker;
pub(super) use flow::{UdpFlow, receive_buffer_bytes};
pub(super) use receive::{BUFFER_BYTES as USER_BUFFER_BYTES, receive};
pub(super) use send::send;
