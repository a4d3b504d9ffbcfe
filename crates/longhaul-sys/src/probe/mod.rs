//! Path probes: packets that are never fragmented, with individual hop limits, kernel arrival
//! times, and ICMP errors for packets that did not arrive.
//!
//! The functions work on UDP sockets, and on ICMP echo sockets if the host permits these. Constants
//! are those of linux/in.h, linux/in6.h, linux/errqueue.h, linux/icmp.h and linux/icmpv6.h. This
//! module does not decide which packets are sent, or when.

mod echo;
mod hardware;
mod receive;
mod send;
mod stamped;

pub use echo::{ECHO_HEADER_BYTES, EchoKind, EchoSocket};
pub use hardware::{HardwareClocks, HardwareTime, hardware_clock};
pub use receive::{ReceivedProbe, ReceivedReport, Report, receive, receive_report};
pub use send::{now_nanos, prepare};
pub use send::{send, send_train};
pub use stamped::{
    Header, Note, Stamped, prepare_hardware_stamps, prepare_stamped, receive_note, receive_stamped,
    send_stamped,
};
