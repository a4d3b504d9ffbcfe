//! The connection or flow of a stream.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Instant;

use longhaul_core::plan::Protocol;
use longhaul_core::result::{End, UdpCounts};
use longhaul_sys::tcp::{self, Granted, SocketMemory, TcpInfo};

use crate::test::udp::UdpFlow;

/// The connection or flow of one stream.
#[derive(Debug)]
pub(in crate::test) enum Carrier {
    /// A TCP or MPTCP connection.
    Tcp(TcpStream),
    /// A flow of datagrams.
    Udp(Box<UdpFlow>),
}

impl Carrier {
    /// Shuts it down, which wakes a thread that waits in it.
    pub(in crate::test) fn shut(&self, how: Shutdown) {
        match self {
            // A closed connection needs no shutdown.
            Carrier::Tcp(stream) => drop(stream.shutdown(how)),
            Carrier::Udp(flow) => flow.shut(how),
        }
    }

    pub(in crate::test) fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Carrier::Tcp(stream) => stream.local_addr().ok(),
            Carrier::Udp(flow) => flow.local_address(),
        }
    }

    /// Returns the kernel's state of the connection; `None` for UDP.
    pub(in crate::test) fn tcp_info(&self) -> Option<TcpInfo> {
        match self {
            // A connection that was reset keeps its state until it is closed.
            Carrier::Tcp(stream) => Some(tcp::tcp_info(stream).unwrap_or_default()),
            Carrier::Udp(_) => None,
        }
    }

    /// Returns the bytes in the queues of the socket; `None` if the socket is gone.
    pub(in crate::test) fn memory(&self) -> Option<SocketMemory> {
        match self {
            Carrier::Tcp(stream) => tcp::socket_memory(stream).ok(),
            Carrier::Udp(flow) => flow.memory(),
        }
    }

    /// Returns the datagrams so far; `None` for TCP.
    pub(in crate::test) fn udp_counts(&self) -> Option<UdpCounts> {
        match self {
            Carrier::Tcp(_) => None,
            Carrier::Udp(flow) => Some(flow.counts()),
        }
    }

    /// Returns the options as the kernel applied them.
    pub(in crate::test) fn granted(&self) -> io::Result<Granted> {
        match self {
            Carrier::Tcp(stream) => tcp::granted(stream),
            Carrier::Udp(flow) => flow.granted(),
        }
    }

    /// Returns whether the connection still uses MPTCP; `None` if MPTCP was not requested.
    pub(in crate::test) fn multipath(&self, protocol: Protocol) -> Option<bool> {
        match self {
            Carrier::Tcp(stream) if protocol == Protocol::Mptcp => Some(tcp::is_multipath(stream)),
            Carrier::Tcp(_) | Carrier::Udp(_) => None,
        }
    }

    /// Sends and receives the messages of a UDP flow that are not data.
    pub(in crate::test) fn attend(&self, role: End, now: Instant) {
        if let Carrier::Udp(flow) = self {
            flow.attend(role, now);
        }
    }

    /// Returns a number that grows with the data that the receiver has acknowledged.
    pub(in crate::test) fn acknowledged(&self) -> Option<u64> {
        match self {
            Carrier::Tcp(_) => None,
            Carrier::Udp(flow) => flow.reported(),
        }
    }

    /// Returns whether this is a flow of datagrams whose receiver has seen the end of the data.
    pub(in crate::test) fn data_over(&self) -> bool {
        matches!(self, Carrier::Udp(flow) if flow.end_was_seen())
    }

    /// Returns whether the receiver has acknowledged everything, after the sender's thread has
    /// ended.
    pub(in crate::test) fn drained(&self) -> bool {
        match self {
            Carrier::Tcp(stream) => {
                let info = tcp::tcp_info(stream).unwrap_or_default();
                info.notsent_bytes == 0 && info.unacked_segments == 0
            }
            Carrier::Udp(flow) => flow.end_confirmed(),
        }
    }
}
