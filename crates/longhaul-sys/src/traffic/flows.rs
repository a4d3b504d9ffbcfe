//! The state of TCP connections.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::netlink::{Netlink, Request, attribute};
use crate::tcp::{TcpInfo, parse_info};

/// A connection to the kernel for the TCP connections of a network namespace.
#[derive(Debug)]
pub struct FlowReader {
    netlink: Netlink,
}

/// A TCP connection with data to send or receive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TcpFlow<'a> {
    /// The kernel's number of the socket; it is never used again.
    pub cookie: u64,
    /// The number of the socket in `/proc/PID/fd`; 0 if no process has it.
    pub inode: u32,
    /// The local address.
    pub local: SocketAddr,
    /// The address of the peer.
    pub peer: SocketAddr,
    /// The user that owns the socket.
    pub user: u32,
    /// The payload bytes received and not yet read.
    pub unread_bytes: u32,
    /// The payload bytes to send, or sent and not acknowledged.
    pub queued_bytes: u32,
    /// The name of the congestion control.
    pub congestion: &'a str,
    /// The state of the connection.
    pub info: TcpInfo,
}

/// The size of `struct inet_diag_msg` (include/uapi/linux/inet_diag.h) in bytes.
const MESSAGE: usize = 72;
const INET_DIAG_INFO: u16 = 2;
const INET_DIAG_CONG: u16 = 4;

impl FlowReader {
    /// Opens a socket in the network namespace of the calling thread.
    ///
    /// # Errors
    /// No socket could be created.
    pub fn open() -> io::Result<Self> {
        Ok(FlowReader { netlink: Netlink::open(libc::NETLINK_SOCK_DIAG)? })
    }

    /// Passes every connection that can move data to `each`: the states established, FIN-WAIT-1 and
    /// CLOSE-WAIT.
    ///
    /// # Errors
    /// The kernel has no `tcp_diag`, or refuses the query.
    pub fn flows(&self, mut each: impl FnMut(TcpFlow<'_>)) -> io::Result<()> {
        const SOCK_DIAG_BY_FAMILY: u16 = 20; // include/uapi/linux/sock_diag.h
        let states: u32 = 1 << 1 | 1 << 4 | 1 << 8; // include/net/tcp_states.h
        let extensions = 1u8 << (INET_DIAG_INFO - 1) | 1 << (INET_DIAG_CONG - 1);
        for family in [libc::AF_INET, libc::AF_INET6] {
            // struct inet_diag_req_v2: family, protocol, extensions, padding, states, and an empty id.
            let mut structure = vec![family as u8, libc::IPPROTO_TCP as u8, extensions, 0];
            structure.extend(states.to_ne_bytes());
            structure.resize(56, 0);
            let request = Request::new(SOCK_DIAG_BY_FAMILY, libc::NLM_F_DUMP, &structure);
            self.netlink.visit(request, |message| {
                if let Some(flow) = parse(message) {
                    each(flow);
                }
            })?;
        }
        Ok(())
    }
}

/// Parses `struct inet_diag_msg` and its attributes. Ports and addresses are in network byte order.
fn parse(message: &[u8]) -> Option<TcpFlow<'_>> {
    let word = |at: usize| Some(u32::from_ne_bytes(*message.get(at..)?.first_chunk()?));
    let attributes = message.get(MESSAGE..)?;
    let end = |port: usize, address: usize| -> Option<SocketAddr> {
        let port = u16::from_be_bytes(*message.get(port..)?.first_chunk()?);
        let ip: IpAddr = if message[0] == libc::AF_INET as u8 {
            Ipv4Addr::from(*message.get(address..)?.first_chunk::<4>()?).into()
        } else {
            Ipv6Addr::from(*message.get(address..)?.first_chunk::<16>()?).to_canonical()
        };
        Some(SocketAddr::new(ip, port))
    };
    let congestion = attribute(attributes, INET_DIAG_CONG).unwrap_or_default();
    let congestion = congestion.split(|byte| *byte == 0).next().unwrap_or_default();
    Some(TcpFlow {
        cookie: u64::from(word(44)?) | u64::from(word(48)?) << 32,
        local: end(4, 8)?,
        peer: end(6, 24)?,
        unread_bytes: word(56)?,
        queued_bytes: word(60)?,
        user: word(64)?,
        inode: word(68)?,
        congestion: std::str::from_utf8(congestion).unwrap_or_default(),
        info: parse_info(attribute(attributes, INET_DIAG_INFO)?),
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn flow_between(address: &str) {
        let listener = TcpListener::bind(address).unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(&[7; 5000]).unwrap();
        far.read_exact(&mut [0; 4000]).unwrap();
        let ends = (near.local_addr().unwrap(), near.peer_addr().unwrap());
        let mut found = Vec::new();
        FlowReader::open()
            .unwrap()
            .flows(|flow| {
                if (flow.local, flow.peer) == (ends.1, ends.0) {
                    found.push((
                        flow.cookie,
                        flow.info,
                        flow.congestion.to_owned(),
                        flow.unread_bytes,
                    ));
                }
            })
            .unwrap();
        let [(cookie, info, congestion, unread)] = &found[..] else { panic!("{found:?}") };
        assert!(*cookie > 0 && !congestion.is_empty());
        assert_eq!((info.received_bytes, *unread), (5000, 1000));
    }

    #[test]
    fn a_connection_is_listed_with_its_state() {
        flow_between("127.0.0.1:0");
    }

    #[test]
    fn a_short_message_is_no_connection() {
        for length in [0, 1, 71, 72, 80] {
            assert_eq!(parse(&vec![0; length]), None, "{length}");
        }
    }
}
