//! Probing a path: packets that no router may fragment, with a hop limit each, their arrival by
//! the kernel's clock, and what routers say of those that did not arrive.
//!
//! Works on UDP sockets, and on sockets for ICMP echo where the host allows one. Constants are
//! those of linux/in.h, linux/in6.h, linux/errqueue.h, linux/icmp.h and linux/icmpv6.h. Nothing
//! here decides what is sent, or when.

mod echo;
mod options;
mod receive;
mod send;

pub use echo::{ECHO_HEADER_BYTES, EchoKind, EchoSocket};
pub use options::{now_nanos, prepare};
pub use receive::{Heard, Report, Reported, receive, receive_report};
pub use send::{send, send_train};
