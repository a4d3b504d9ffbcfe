//! The state of a network interface, and its addresses and routes as messages that can be replayed.
//!
//! Layouts: `include/uapi/linux/if_link.h`, `if_addr.h` and `rtnetlink.h`.

use std::io;

use crate::interface;
use crate::netlink::{Netlink, Request, attribute};

/// The sizes of `struct ifinfomsg`, `ifaddrmsg` and `rtmsg` in bytes.
const IFINFOMSG: usize = 16;
const RTMSG: usize = 12;

/// The state of a network interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkFacts {
    /// The kernel's index of the interface.
    pub index: u32,
    /// The MTU in bytes, without the Ethernet header.
    pub mtu: u32,
    /// True if the interface is administratively up.
    pub is_up: bool,
    /// True if its frames have an Ethernet header.
    pub is_ethernet: bool,
    /// The Ethernet address.
    pub address: Option<[u8; 6]>,
    /// True if the interface is a bridge of the kernel.
    pub is_bridge: bool,
    /// The index of the bridge, bond or other device to which the interface belongs.
    pub master: Option<u32>,
    /// The index of the parent interface (of a VLAN) or of the other end (of a veth pair) in the
    /// same network namespace.
    pub peer: Option<u32>,
    /// The tag that the parent interface adds to the frames, if the interface is a VLAN.
    pub tag: Option<VlanTag>,
}

/// The tag of the frames of a VLAN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct VlanTag {
    /// The EtherType, 0x8100 (IEEE 802.1Q) or 0x88a8 (IEEE 802.1ad).
    pub protocol: u16,
    /// The id of the VLAN.
    pub id: u16,
}

/// An address or a route of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedEntry {
    kind: SavedKind,
    body: Vec<u8>,
}

/// The kinds of [`SavedEntry`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SavedKind {
    /// An address.
    Address,
    /// A route that a user or a program has added.
    Route,
    /// A default route.
    DefaultRoute,
}

/// Returns the state of interface `name` of the calling thread's network namespace.
///
/// # Errors
/// The interface does not exist.
pub fn link_facts(name: &str) -> io::Result<LinkFacts> {
    link_facts_at(interface::index(name)?)
}

/// Returns the state of the interface with this index of the calling thread's network namespace.
///
/// # Errors
/// The interface does not exist.
pub fn link_facts_at(index: u32) -> io::Result<LinkFacts> {
    let mut structure = vec![0; 4];
    structure.extend(index.to_ne_bytes());
    structure.resize(IFINFOMSG, 0);
    let request = Request::new(libc::RTM_GETLINK, 0, &structure);
    let answers = Netlink::open(libc::NETLINK_ROUTE)?.answers(request)?;
    let facts = answers.first().and_then(|message| facts(message));
    facts.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// Returns the states of all interfaces of the calling thread's network namespace.
///
/// # Errors
/// The kernel does not answer.
pub fn all_link_facts() -> io::Result<Vec<LinkFacts>> {
    let request = Request::new(libc::RTM_GETLINK, libc::NLM_F_DUMP, &[0; IFINFOMSG]);
    let answers = Netlink::open(libc::NETLINK_ROUTE)?.answers(request)?;
    Ok(answers.iter().filter_map(|message| facts(message)).collect())
}

/// Reads the kernel's message about an interface.
fn facts(message: &[u8]) -> Option<LinkFacts> {
    let (structure, attributes) = message.split_at_checked(IFINFOMSG)?;
    let kind = u16::from_ne_bytes([structure[2], structure[3]]);
    let flags = number(&structure[8..])?;
    let field = |kind| attribute(attributes, kind).and_then(number).filter(|value| *value != 0);
    let is_elsewhere = attribute(attributes, libc::IFLA_LINK_NETNSID).is_some();
    let info = attribute(attributes, libc::IFLA_LINKINFO).unwrap_or_default();
    let is_driver = |name| attribute(info, libc::IFLA_INFO_KIND) == Some(name);
    Some(LinkFacts {
        index: number(&structure[4..])?,
        mtu: field(libc::IFLA_MTU).unwrap_or_default(),
        is_up: flags & libc::IFF_UP as u32 != 0,
        is_ethernet: kind == libc::ARPHRD_ETHER,
        address: attribute(attributes, libc::IFLA_ADDRESS)
            .and_then(|address| address.try_into().ok()),
        is_bridge: is_driver(b"bridge\0"),
        master: field(libc::IFLA_MASTER),
        peer: field(libc::IFLA_LINK).filter(|_| !is_elsewhere),
        tag: attribute(info, libc::IFLA_INFO_DATA).filter(|_| is_driver(b"vlan\0")).and_then(tag),
    })
}

/// Reads the tag of a VLAN from the attributes of its driver (`IFLA_VLAN_...`).
fn tag(data: &[u8]) -> Option<VlanTag> {
    const IFLA_VLAN_ID: u16 = 1;
    const IFLA_VLAN_PROTOCOL: u16 = 5;
    let field = |kind| attribute(data, kind)?.first_chunk::<2>().copied();
    Some(VlanTag {
        protocol: field(IFLA_VLAN_PROTOCOL).map_or(0x8100, u16::from_be_bytes),
        id: u16::from_ne_bytes(field(IFLA_VLAN_ID)?),
    })
}

/// Returns the addresses and routes of the interface with this index, in an order in which they can
/// be restored.
///
/// # Errors
/// The kernel does not answer.
pub fn entries(index: u32) -> io::Result<Vec<SavedEntry>> {
    let netlink = Netlink::open(libc::NETLINK_ROUTE)?;
    let dump = |kind, length: usize| {
        netlink.answers(Request::new(kind, libc::NLM_F_DUMP, &vec![0; length]))
    };
    let mut entries = Vec::new();
    for body in dump(libc::RTM_GETADDR, 8)? {
        if body.get(4..).and_then(number) == Some(index) {
            entries.push(SavedEntry { kind: SavedKind::Address, body });
        }
    }
    for body in dump(libc::RTM_GETROUTE, RTMSG)? {
        if let Some(kind) = route_kind(&body, index) {
            entries.push(SavedEntry { kind, body });
        }
    }
    Ok(entries)
}

/// Returns the kind of a route, or `None` if it leads elsewhere or the kernel maintains it.
fn route_kind(body: &[u8], index: u32) -> Option<SavedKind> {
    /// `RTM_F_CLONED`: an entry of a cache.
    const CLONED: u32 = 0x200;
    let [_, bits, _, _, table, protocol, _, kind] = *body.first_chunk::<8>()?;
    let flags = number(body.get(8..)?)?;
    let through = attribute(body.get(RTMSG..)?, libc::RTA_OIF).and_then(number);
    let is_kept = table != libc::RT_TABLE_LOCAL
        && protocol != libc::RTPROT_KERNEL
        && kind == libc::RTN_UNICAST
        && flags & CLONED == 0;
    let kind = if bits == 0 { SavedKind::DefaultRoute } else { SavedKind::Route };
    (through == Some(index) && is_kept).then_some(kind)
}

impl SavedEntry {
    /// Returns the entry with this kind and this [message](SavedEntry::message).
    pub fn new(kind: SavedKind, message: Vec<u8>) -> Self {
        SavedEntry { kind, body: message }
    }

    /// Returns the kernel's message about the entry.
    pub fn message(&self) -> &[u8] {
        &self.body
    }

    /// Returns the kind.
    pub fn kind(&self) -> SavedKind {
        self.kind
    }

    /// Removes the entry from its interface.
    ///
    /// # Errors
    /// The entry no longer exists, or `CAP_NET_ADMIN` is missing.
    pub fn remove(&self) -> io::Result<()> {
        let message = match self.kind {
            SavedKind::Address => libc::RTM_DELADDR,
            SavedKind::Route | SavedKind::DefaultRoute => libc::RTM_DELROUTE,
        };
        Netlink::open(libc::NETLINK_ROUTE)?.request(Request::new(message, 0, &self.body))
    }

    /// Adds the entry again.
    ///
    /// # Errors
    /// The interface no longer exists, or `CAP_NET_ADMIN` is missing.
    pub fn restore(&self) -> io::Result<()> {
        let message = match self.kind {
            SavedKind::Address => libc::RTM_NEWADDR,
            SavedKind::Route | SavedKind::DefaultRoute => libc::RTM_NEWROUTE,
        };
        let flags = libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
        Netlink::open(libc::NETLINK_ROUTE)?.request(Request::new(message, flags, &self.body))
    }
}

fn number(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_up_and_no_ethernet_bridge_port() {
        let facts = link_facts("lo").unwrap();
        assert!(facts.is_up && facts.mtu >= 1500 && !facts.is_ethernet && !facts.is_bridge);
        assert!(all_link_facts().unwrap().contains(&facts));
        assert_eq!((facts.master, facts.peer, facts.tag), (None, None, None));
        let entries = entries(facts.index).unwrap();
        assert!(entries.iter().any(|entry| entry.kind() == SavedKind::Address));
        assert!(link_facts("no-such-if").is_err());
    }

    #[test]
    fn a_vlan_has_a_tag() {
        let data = [6, 0, 1, 0, 100, 0, 0, 0, 6, 0, 5, 0, 0x88, 0xa8, 0, 0];
        let number = u16::from_ne_bytes([100, 0]);
        assert_eq!(tag(&data), Some(VlanTag { protocol: 0x88a8, id: number }));
        assert_eq!(tag(&data[..8]), Some(VlanTag { protocol: 0x8100, id: number }));
        assert_eq!(tag(&data[8..]), None);
    }

    #[test]
    fn a_route_is_kept_if_a_user_added_it() {
        let route = |bits: u8, table: u8, protocol: u8, interface: u32| {
            let mut body = vec![2, bits, 0, 0, table, protocol, 0, libc::RTN_UNICAST, 0, 0, 0, 0];
            body.extend([8, 0]);
            body.extend(libc::RTA_OIF.to_ne_bytes());
            body.extend(interface.to_ne_bytes());
            route_kind(&body, 7)
        };
        let (main, by_user) = (libc::RT_TABLE_MAIN, libc::RTPROT_STATIC);
        assert_eq!(route(24, main, by_user, 7), Some(SavedKind::Route));
        assert_eq!(route(0, main, by_user, 7), Some(SavedKind::DefaultRoute));
        assert_eq!(route(24, main, by_user, 8), None);
        assert_eq!(route(24, main, libc::RTPROT_KERNEL, 7), None);
        assert_eq!(route(32, libc::RT_TABLE_LOCAL, by_user, 7), None);
        assert_eq!(route_kind(&[2, 0], 7), None);
    }
}
