//! A UDP port whose flows get a connected socket each.

use std::io;
use std::net::{SocketAddr, UdpSocket};

use longhaul_sys::udp;
use socket2::{Domain, Protocol, Socket, Type};

/// A UDP port on which datagrams of unknown senders arrive, and from which a connected socket can
/// be made per sender.
#[derive(Debug)]
pub struct FlowPort(UdpSocket);

impl FlowPort {
    /// Binds to `address` with its port. An IPv6 wildcard accepts IPv4, too.
    ///
    /// # Errors
    /// The port is in use or not permitted.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::from(shared_socket(address)?);
        udp::enable_destination(&socket, address.is_ipv6())?;
        if address.is_ipv6() {
            // For IPv4 addresses mapped into IPv6.
            udp::enable_destination(&socket, false)?;
        }
        socket.set_nonblocking(true)?;
        Ok(FlowPort(socket))
    }

    /// Returns the socket, which does not block.
    pub fn socket(&self) -> &UdpSocket {
        &self.0
    }

    /// Receives a datagram of a sender without a separate socket.
    ///
    /// # Errors
    /// `WouldBlock` if none has arrived.
    pub fn receive(&self, bytes: &mut [u8]) -> io::Result<udp::Addressed> {
        Ok(udp::receive_addressed(&self.0, bytes)?.canonical())
    }

    /// Returns a socket for the flow of a received datagram: the kernel prefers it for datagrams
    /// from that sender.
    ///
    /// # Errors
    /// No socket can be created.
    pub fn flow(&self, found: &udp::Addressed) -> io::Result<UdpSocket> {
        let ours = found.to.ok_or(io::ErrorKind::AddrNotAvailable)?;
        let mut ours = SocketAddr::new(ours, self.0.local_addr()?.port());
        if let (SocketAddr::V6(ours), SocketAddr::V6(from)) = (&mut ours, found.from) {
            // Both ends of a link-local flow are in one zone.
            ours.set_scope_id(from.scope_id());
        }
        let socket = shared_socket(ours)?;
        socket.connect(&found.from.into())?;
        Ok(socket.into())
    }
}

/// Returns a socket on an address that the port and its flows share.
fn shared_socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}
