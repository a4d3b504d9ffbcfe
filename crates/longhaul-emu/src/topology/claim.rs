//! Claims of interfaces and of connections between them.
//!
//! An interface belongs to one bridge or topology at a time: two bridges over one interface would
//! deliver each frame twice. A bridge or topology connects interfaces only if nothing else connects
//! them, because frames would circulate in the loop forever.
//!
//! A claim is a socket with an abstract name, which the kernel removes with its process. The name
//! ends with a random token, so that no other user can occupy it, and a process ignores the sockets
//! of other users except root.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use longhaul_sys::abstract_sockets::AbstractSocket;
use longhaul_sys::link_facts::all_link_facts;

use super::loops::ConnectionMap;
use crate::EmuError;
use crate::link::random_seed;

/// The starts of the abstract names.
const INTERFACE: &str = "longhaul/interface/";
const CONNECTION: &str = "longhaul/connection/";

/// A socket with an abstract name, which is unique in its network namespace.
#[derive(Debug)]
struct Announcement {
    name: String,
    _socket: UnixDatagram,
}

impl Announcement {
    /// Creates a socket whose name begins with `start`.
    fn make(start: &str) -> io::Result<Self> {
        /// The number of attempts, in case a token is in use.
        const ATTEMPTS: usize = 8;
        let mut failed = io::Error::from(io::ErrorKind::AddrInUse);
        for _ in 0..ATTEMPTS {
            let name = format!("{start}/{:08x}", random_seed());
            match UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name)?) {
                Ok(_socket) => return Ok(Announcement { name, _socket }),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// Returns the parts after `prefix` and before the token of the names of all other trusted
    /// sockets of the calling thread's network namespace.
    fn others(&self, prefix: &str) -> io::Result<Vec<String>> {
        Ok(trusted(prefix)?
            .filter(|name| *name != self.name)
            .map(|name| middle(&name, prefix).to_owned())
            .collect())
    }
}

/// Iterates over the names that begin with `prefix`.
fn trusted(prefix: &str) -> io::Result<impl Iterator<Item = String>> {
    let sockets = AbstractSocket::all(prefix)?.into_iter();
    Ok(sockets.filter(AbstractSocket::is_trusted).map(|socket| socket.name))
}

/// Returns the part of a name between `prefix` and the token.
fn middle<'n>(name: &'n str, prefix: &str) -> &'n str {
    let rest = name.strip_prefix(prefix).unwrap_or_default();
    rest.split_once('/').map_or(rest, |(middle, _)| middle)
}

/// An interface of a network namespace that no other bridge or topology can claim while the value
/// exists. The kernel ends the claim with the process.
#[derive(Debug)]
pub(super) struct Claim {
    _announcement: Announcement,
}

impl Claim {
    /// Claims interface `name` with this index in the network namespace of the calling thread.
    ///
    /// If two processes claim an interface at the same time, at least one of them sees the other.
    ///
    /// # Errors
    /// Another bridge or topology has the interface.
    pub(super) fn take(name: &str, index: u32) -> Result<Claim, EmuError> {
        let unusable = |source| EmuError::Interface { interface: name.to_owned(), source };
        let index = index.to_string();
        let announcement = Announcement::make(&format!("{INTERFACE}{index}")).map_err(unusable)?;
        if announcement.others(INTERFACE).map_err(unusable)?.contains(&index) {
            return Err(EmuError::InUse { interface: name.to_owned() });
        }
        Ok(Claim { _announcement: announcement })
    }
}

/// Returns whether a running bridge or topology has the interface with this index in the network
/// namespace of the calling thread. Returns `true` if the kernel does not list the claims.
pub fn is_claimed(index: u32) -> bool {
    let index = index.to_string();
    trusted(INTERFACE).map_or(true, |mut names| names.any(|name| middle(&name, INTERFACE) == index))
}

/// A connection between two interfaces of a network namespace. Other processes in the namespace
/// recognize the connection by the name of its socket.
#[derive(Debug)]
pub(super) struct Connection {
    _announcement: Announcement,
}

impl Connection {
    /// Announces a connection between two claimed interfaces, by name and index, in the network
    /// namespace of the calling thread.
    ///
    /// If two processes close a loop at the same time, at least one of them sees the other.
    ///
    /// # Errors
    /// VLANs, veth pairs, bridges of the kernel, or running bridges and topologies already connect
    /// the interfaces.
    pub(super) fn announce(interfaces: [(&str, u32); 2]) -> Result<Connection, EmuError> {
        let [(near, near_index), (far, far_index)] = interfaces;
        let unusable = |source| EmuError::Interface { interface: near.to_owned(), source };
        let announcement = Announcement::make(&format!("{CONNECTION}{near_index}-{far_index}"))
            .map_err(unusable)?;
        let facts = all_link_facts().map_err(unusable)?;
        let others = announcement.others(CONNECTION).map_err(unusable)?;
        let others = others.iter().filter_map(|name| {
            let (near, far) = name.split_once('-')?;
            Some([near.parse().ok()?, far.parse().ok()?])
        });
        if ConnectionMap::new(&facts, others).connects([near_index, far_index]) {
            return Err(EmuError::Loop { interfaces: [near.to_owned(), far.to_owned()] });
        }
        Ok(Connection { _announcement: announcement })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

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
    #[ignore = "needs root"]
    fn sockets_of_another_user_neither_claim_nor_connect() {
        let index = u32::MAX / 4 - 2 * std::process::id();
        let make = move || {
            let claim = format!("{INTERFACE}{index}");
            let connection = format!("{CONNECTION}{index}-{}", index + 1);
            [claim, connection].map(|start| Announcement::make(&start).unwrap())
        };
        let foreign = std::thread::spawn(move || {
            // Affects only this thread.
            rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(65_534)).unwrap();
            make()
        });
        let foreign = foreign.join().unwrap();
        let sockets = AbstractSocket::all(&foreign[0].name).unwrap();
        if sockets[0].owner.is_none() {
            // Unlike eprintln, the test harness does not capture this handle.
            #[expect(clippy::disallowed_methods, reason = "a test prints no text of others")]
            let mut stderr = io::stderr();
            let missing = "the kernel has no unix_diag: sockets of other users are not tested";
            writeln!(stderr, "{missing}").unwrap();
            return;
        }
        assert!(!is_claimed(index));
        Claim::take("eth1", index).unwrap();
        Connection::announce([("a", index), ("b", index + 1)]).unwrap();
        // Sockets of this user with the same names make the claims fail.
        let _own = make();
        assert!(is_claimed(index));
        assert!(matches!(Claim::take("eth1", index), Err(EmuError::InUse { .. })));
        let refused = Connection::announce([("a", index), ("b", index + 1)]);
        assert!(matches!(refused, Err(EmuError::Loop { .. })));
    }
}
