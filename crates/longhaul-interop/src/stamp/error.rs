//! Errors of a STAMP measurement.

use std::io;
use std::net::SocketAddr;

use super::sender::NoReply;

/// The reason why a measurement failed. The program makes the sentences.
#[derive(Debug, thiserror::Error)]
pub enum StampError {
    /// The packet size is too small for the requested information.
    #[error("a packet of {bytes} bytes is smaller than {least} bytes")]
    PacketSize {
        /// The size in the plan.
        bytes: u32,
        /// The smallest size.
        least: usize,
    },
    /// The socket cannot be opened, or there is no route.
    #[error("no UDP socket for {address}")]
    Socket {
        /// The reflector.
        address: SocketAddr,
        /// The kernel's error.
        source: io::Error,
    },
    /// No program listens on the port.
    #[error("the port {address} is closed")]
    PortClosed {
        /// The reflector.
        address: SocketAddr,
    },
    /// The first packets got no valid reply.
    #[error("no valid reply from {address}")]
    Silent {
        /// The reflector.
        address: SocketAddr,
        /// The packets that arrived instead.
        silence: NoReply,
    },
}
