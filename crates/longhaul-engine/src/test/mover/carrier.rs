use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Instant;

use longhaul_core::plan::Protocol;
use longhaul_core::result::{End, UdpCounts};
use longhaul_sys::tcp::{self, Granted, SocketMemory, TcpInfo};

use crate::test::udp::UdpFlow;

/// What carries one stream's bytes.
#[derive(Debug)]
pub(in crate::test) enum Carrier {
    /// A connection of TCP or MPTCP.
    Tcp(TcpStream),
    /// A flow of datagrams.
    Udp(Box<UdpFlow>),
}

impl Carrier {
    /// Shuts it, which wakes a thread that waits in it.
    pub(in crate::test) fn shut(&self, how: Shutdown) {
        match self {
            // A connection that is closed already needs no closing.
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

    /// What the kernel knows of the connection; `None` for UDP.
    pub(in crate::test) fn tcp_info(&self) -> Option<TcpInfo> {
        match self {
            // A connection that is reset keeps its structure until it is closed.
            Carrier::Tcp(stream) => Some(tcp::tcp_info(stream).unwrap_or_default()),
            Carrier::Udp(_) => None,
        }
    }

    /// What its queues hold; `None` for a socket that is gone.
    pub(in crate::test) fn memory(&self) -> Option<SocketMemory> {
        match self {
            Carrier::Tcp(stream) => tcp::socket_memory(stream).ok(),
            Carrier::Udp(flow) => flow.memory(),
        }
    }

    /// The datagrams so far; `None` for TCP.
    pub(in crate::test) fn udp_counts(&self) -> Option<UdpCounts> {
        match self {
            Carrier::Tcp(_) => None,
            Carrier::Udp(flow) => Some(flow.counts()),
        }
    }

    /// What the kernel made of the options.
    pub(in crate::test) fn granted(&self) -> io::Result<Granted> {
        match self {
            Carrier::Tcp(stream) => tcp::granted(stream),
            Carrier::Udp(flow) => flow.granted(),
        }
    }

    /// Whether it is multipath still; `None` where that was not asked for.
    pub(in crate::test) fn multipath(&self, protocol: Protocol) -> Option<bool> {
        match self {
            Carrier::Tcp(stream) if protocol == Protocol::Mptcp => Some(tcp::is_multipath(stream)),
            Carrier::Tcp(_) | Carrier::Udp(_) => None,
        }
    }

    /// Says and hears in the background what the flow needs beside its data.
    pub(in crate::test) fn attend(&self, role: End, now: Instant) {
        if let Carrier::Udp(flow) = self {
            flow.attend(role, now);
        }
    }

    /// A number that grows with what the receiver has told to have.
    pub(in crate::test) fn acknowledged(&self) -> Option<u64> {
        match self {
            Carrier::Tcp(_) => None,
            Carrier::Udp(flow) => Some(flow.reported()),
        }
    }

    /// Whether the receiver knows all that was sent, once the sender's thread has ended.
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
