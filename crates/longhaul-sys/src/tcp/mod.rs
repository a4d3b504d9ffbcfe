//! TCP sockets beyond the standard library: options to set before and after connecting
//! ([`SocketOptions`], [`granted`]), and what the kernel knows about a connection ([`TcpInfo`]).
//!
//! All of it works on anything with a file descriptor, so that it serves a socket before
//! `connect(2)`, a `TcpStream` and an accepted connection alike.

mod info;
mod memory;
mod multipath;
mod options;

pub use info::{TcpInfo, tcp_info};
pub use memory::{SocketMemory, socket_memory};
pub use multipath::is_multipath;
pub use options::{
    Granted, OptionError, SocketOptions, granted, set_max_pacing_rate, set_receive_low_water,
};
