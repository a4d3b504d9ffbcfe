//! Claims of interfaces and of connections between them.
//!
//! An interface belongs to one bridge or topology at a time: two bridges over one interface would
//! deliver each frame twice. A bridge or topology connects interfaces only if nothing else connects
//! them, because frames would circulate in the loop forever.

use std::collections::BTreeSet;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use longhaul_sys::link_facts::{LinkFacts, all_link_facts};

use crate::EmuError;

/// The start of the abstract names of connections.
const CONNECTION: &str = "longhaul/connection/";

/// An interface of a network namespace that no other bridge or topology can claim while the value
/// exists. The kernel ends the claim with the process.
#[derive(Debug)]
pub(super) struct Claim {
    /// A socket with an abstract name, which is unique in its network namespace.
    _socket: UnixDatagram,
}

impl Claim {
    /// Claims interface `name` with this index in the network namespace of the calling thread.
    ///
    /// # Errors
    /// Another bridge or topology has the interface.
    pub(super) fn take(name: &str, index: u32) -> Result<Claim, EmuError> {
        claim(&interface_name(index), name)
    }
}

/// Returns whether a running bridge or topology has the interface with this index in the network
/// namespace of the calling thread.
pub fn is_claimed(index: u32) -> bool {
    let connect = || {
        let address = SocketAddr::from_abstract_name(interface_name(index))?;
        UnixDatagram::unbound()?.connect_addr(&address)
    };
    connect().is_ok()
}

/// Returns the abstract name of the socket that claims the interface with this index.
fn interface_name(index: u32) -> String {
    format!("longhaul/interface/{index}")
}

fn claim(socket: &str, interface: &str) -> Result<Claim, EmuError> {
    let interface = interface.to_owned();
    let address = SocketAddr::from_abstract_name(socket);
    match address.and_then(|address| UnixDatagram::bind_addr(&address)) {
        Ok(socket) => Ok(Claim { _socket: socket }),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            Err(EmuError::InUse { interface })
        }
        Err(source) => Err(EmuError::Interface { interface, source }),
    }
}

/// A connection between two interfaces of a network namespace. Other processes in the namespace
/// recognize the connection by the name of its socket.
#[derive(Debug)]
pub(super) struct Connection {
    _claim: Claim,
}

impl Connection {
    /// Announces a connection between two claimed interfaces, by name and index, in the network
    /// namespace of the calling thread.
    ///
    /// If two processes close a loop at the same time, at least one of them sees the other.
    ///
    /// # Errors
    /// Veth pairs, bridges of the kernel, or running bridges and topologies already connect the
    /// interfaces.
    pub(super) fn announce(interfaces: [(&str, u32); 2]) -> Result<Connection, EmuError> {
        let [(near, near_index), (far, far_index)] = interfaces;
        let own = (near_index, far_index);
        let claim = claim(&format!("{CONNECTION}{near_index}-{far_index}"), near)?;
        let facts = all_link_facts()
            .map_err(|source| EmuError::Interface { interface: near.to_owned(), source })?;
        // The kernel's list of the sockets of this namespace. Without it only the connections of the
        // kernel are known.
        let sockets = std::fs::read("/proc/thread-self/net/unix").unwrap_or_default();
        let sockets = String::from_utf8_lossy(&sockets);
        let others = announced(&sockets).filter(|other| *other != own);
        let connections: Vec<_> = kernel_connections(&facts).into_iter().chain(others).collect();
        if is_connected(own, &connections) {
            return Err(EmuError::Loop { interfaces: [near.to_owned(), far.to_owned()] });
        }
        Ok(Connection { _claim: claim })
    }
}

/// Iterates over the connections in the text of `/proc/net/unix`, in which an abstract name begins
/// with `@`.
fn announced(sockets: &str) -> impl Iterator<Item = (u32, u32)> {
    sockets.lines().filter_map(|line| {
        let name = line.split_whitespace().last()?.strip_prefix('@')?;
        let (near, far) = name.strip_prefix(CONNECTION)?.split_once('-')?;
        Some((near.parse().ok()?, far.parse().ok()?))
    })
}

/// Returns the connections by veth pairs and by bridges of the kernel.
fn kernel_connections(facts: &[LinkFacts]) -> Vec<(u32, u32)> {
    let find = |index: u32| facts.iter().find(|facts| facts.index == index);
    let mut connections = Vec::new();
    for facts in facts {
        // The ends of a veth pair name each other. A VLAN and the interface beneath do not.
        let is_pair = |peer: &u32| find(*peer).is_some_and(|peer| peer.peer == Some(facts.index));
        let is_bridge = |master: &u32| find(*master).is_some_and(|master| master.is_bridge);
        let others = [facts.peer.filter(is_pair), facts.master.filter(is_bridge)];
        connections.extend(others.into_iter().flatten().map(|other| (facts.index, other)));
    }
    connections
}

fn is_connected((from, to): (u32, u32), connections: &[(u32, u32)]) -> bool {
    let mut reached = BTreeSet::from([from]);
    let mut open = vec![from];
    while let Some(at) = open.pop() {
        for (one, other) in connections {
            let next = if at == *one {
                *other
            } else if at == *other {
                *one
            } else {
                continue;
            };
            if reached.insert(next) {
                open.push(next);
            }
        }
    }
    reached.contains(&to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_claimed_once_at_a_time() {
        // An index that no interface has.
        let index = u32::MAX - std::process::id();
        let claim = Claim::take("eth1", index).unwrap();
        assert!(is_claimed(index) && !is_claimed(index - 1));
        let error = Claim::take("eth1", index).unwrap_err().to_string();
        assert!(error.contains("interface eth1 is in use"), "{error}");
        Claim::take("eth2", index - 1).unwrap();
        drop(claim);
        assert!(!is_claimed(index));
        Claim::take("eth1", index).unwrap();
    }

    #[test]
    fn connections_that_close_a_loop_are_refused() {
        // Indices that no interface and no other test has.
        let [a, b, c] = [0, 1, 2].map(|number| u32::MAX / 2 - 3 * std::process::id() - number);
        let first = Connection::announce([("a", a), ("b", b)]).unwrap();
        let second = Connection::announce([("b", b), ("c", c)]).unwrap();
        let error = Connection::announce([("c", c), ("a", a)]).unwrap_err().to_string();
        assert!(error.starts_with("c and a are already connected"), "{error}");
        drop(first);
        Connection::announce([("c", c), ("a", a)]).unwrap();
        drop(second);
    }

    #[test]
    fn veth_pairs_and_bridges_of_the_kernel_connect() {
        let facts = |index, peer, master, is_bridge| LinkFacts {
            index,
            mtu: 1500,
            is_up: true,
            is_ethernet: true,
            address: None,
            is_bridge,
            master,
            peer,
        };
        let all = [
            facts(1, Some(2), None, false),
            facts(2, Some(1), Some(9), false),
            facts(3, Some(4), None, false),
            facts(4, Some(3), Some(9), false),
            facts(9, None, None, true),
            // Two VLANs of an interface, and two members of a device that is no bridge.
            facts(5, None, Some(10), false),
            facts(6, Some(5), None, false),
            facts(7, Some(5), None, false),
            facts(8, None, Some(10), false),
            facts(10, None, None, false),
        ];
        let connections = kernel_connections(&all);
        assert!(is_connected((1, 3), &connections) && is_connected((1, 9), &connections));
        for (one, other) in [(1, 5), (6, 7), (5, 8), (5, 6)] {
            assert!(!is_connected((one, other), &connections), "{one} {other}");
        }
    }

    #[test]
    fn connections_are_read_from_the_list_of_sockets() {
        let list = "Num       RefCount Protocol Flags    Type St Inode Path\n\
                    000: 00000002 00000000 00000000 0002 01 11 @longhaul/connection/3-14\n\
                    000: 00000002 00000000 00000000 0002 01 12 @longhaul/interface/3\n\
                    000: 00000002 00000000 00000000 0002 01 13 longhaul/connection/1-2\n\
                    000: 00000002 00000000 00000000 0002 01 14\n";
        assert_eq!(announced(list).collect::<Vec<_>>(), [(3, 14)]);
    }
}
