//! TCP sockets beyond the standard library: options before and after connecting ([`SocketOptions`],
//! [`granted`]), and the kernel's state of a connection ([`TcpInfo`]).
//!
//! The functions accept any file descriptor of a TCP socket: before `connect(2)`, a `TcpStream`, or
//! an accepted connection.

mod info;
mod memory;
mod options;

pub(crate) use info::parse as parse_info;
pub use info::{TcpInfo, tcp_info};
pub use memory::{SocketMemory, socket_memory};
pub use options::is_multipath;
pub use options::{
    Granted, OptionError, SocketOptions, granted, set_max_pacing_rate, set_receive_low_water,
};
