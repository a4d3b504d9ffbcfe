//! Routes and queueing disciplines of the calling thread's network namespace, by `rtnetlink(7)`.

use std::io;
use std::net::IpAddr;

use socket2::{Domain, Socket, Type};

use crate::interface;
use crate::netlink::{Netlink, Request, attribute};

/// The route of packets to a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRoute {
    /// The outgoing interface.
    pub interface: String,
    /// The MTU of the route in bytes, configured or learned from the path; `None` if it is the
    /// interface's MTU.
    pub mtu: Option<u32>,
}

/// Queries the kernel for the route to `to`.
///
/// # Errors
/// There is no route.
pub fn route_to(to: IpAddr) -> io::Result<HostRoute> {
    const RTAX_MTU: u16 = 2; // include/uapi/linux/rtnetlink.h
    let (family, octets) = interface::family_and_octets(to);
    let bits = octets.len() as u8 * 8;
    // struct rtmsg: family, destination's and source's prefix, type of service, table, protocol,
    // scope, type; then 32 bits of flags.
    let structure = [family, bits, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let request = Request::new(libc::RTM_GETROUTE, 0, &structure).with(libc::RTA_DST, &octets);
    let answers = Netlink::open(libc::NETLINK_ROUTE)?.answers(request)?;
    let route = answers.first().and_then(|route| route.get(structure.len()..));
    let route = route.ok_or(io::ErrorKind::InvalidData)?;
    let metrics = attribute(route, libc::RTA_METRICS).unwrap_or_default();
    let index = attribute(route, libc::RTA_OIF).and_then(number).ok_or(io::ErrorKind::NotFound)?;
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    let interface = rustix::net::netdevice::index_to_name(&socket, index)?;
    Ok(HostRoute {
        interface,
        mtu: attribute(metrics, RTAX_MTU).and_then(number).filter(|mtu| *mtu > 0),
    })
}

/// The queueing disciplines of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disciplines {
    /// The kind of the root discipline.
    pub root: String,
    /// The kinds of the disciplines below it, without duplicates, in order.
    pub leaves: Vec<String>,
}

/// Returns the queueing disciplines of interface `name`.
///
/// # Errors
/// The interface does not exist.
pub fn queueing(name: &str) -> io::Result<Disciplines> {
    const TC_H_ROOT: u32 = 0xffff_ffff; // include/uapi/linux/pkt_sched.h
    const TC_H_INGRESS: u32 = 0xffff_fff1; // the parent of the ingress and clsact disciplines
    const TCMSG_BYTES: usize = 20; // family, padding; index, handle, parent, info
    let index = interface::index(name)?;
    let request = Request::new(libc::RTM_GETQDISC, libc::NLM_F_DUMP, &[0; TCMSG_BYTES]);
    let mut root = None;
    let mut leaves: Vec<String> = Vec::new();
    for answer in Netlink::open(libc::NETLINK_ROUTE)?.answers(request)? {
        let field = |at: usize| answer.get(at..at + 4).and_then(number);
        if field(4) != Some(index) {
            continue;
        }
        let kind = attribute(answer.get(TCMSG_BYTES..).unwrap_or_default(), libc::TCA_KIND);
        let kind = String::from_utf8_lossy(kind.unwrap_or_default());
        let kind = kind.trim_end_matches('\0').to_owned();
        match field(12) {
            Some(TC_H_ROOT) => root = Some(kind),
            Some(TC_H_INGRESS) => {}
            _ if leaves.contains(&kind) => {}
            _ => leaves.push(kind),
        }
    }
    leaves.sort();
    // An interface that is down has no disciplines.
    Ok(Disciplines { root: root.ok_or(io::ErrorKind::NotFound)?, leaves })
}

fn number(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_is_reached_by_loopback() {
        let route = route_to([127, 0, 0, 1].into()).unwrap();
        assert_eq!(route.interface, "lo");
        assert_eq!(queueing("lo").unwrap().root, "noqueue");
        assert!(queueing("no-such-if").is_err());
    }
}
