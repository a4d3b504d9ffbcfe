//! The Unix sockets with abstract names of a network namespace, and their owners (`sock_diag(7)`).
//!
//! Layouts: `include/uapi/linux/unix_diag.h` and `sock_diag.h`.

use std::io;

use crate::netlink::{Netlink, Request, attribute};

/// A Unix socket with an abstract name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AbstractSocket {
    /// The name, without the leading zero byte.
    pub name: String,
    /// The user who created the socket, as an id of the calling thread's user namespace. `None` if
    /// the kernel does not report it: without `unix_diag`, or before Linux 5.3.
    pub owner: Option<u32>,
}

impl AbstractSocket {
    /// Returns the sockets of the calling thread's network namespace whose names begin with
    /// `prefix`. Names that are not UTF-8 are omitted.
    ///
    /// # Errors
    /// The kernel has neither `unix_diag` nor a readable `/proc`.
    pub fn all(prefix: &str) -> io::Result<Vec<AbstractSocket>> {
        let mut sockets = diagnosed().or_else(|_| {
            let list = std::fs::read("/proc/thread-self/net/unix")?;
            Ok::<_, io::Error>(listed(&String::from_utf8_lossy(&list)).collect())
        })?;
        sockets.retain(|socket| socket.name.starts_with(prefix));
        Ok(sockets)
    }

    /// Returns whether the socket may belong to root or to the user of the calling thread.
    pub fn is_trusted(&self) -> bool {
        let own = rustix::process::geteuid().as_raw();
        self.owner.is_none_or(|owner| owner == 0 || owner == own)
    }
}

/// Asks the kernel for the sockets with their owners.
fn diagnosed() -> io::Result<Vec<AbstractSocket>> {
    const SOCK_DIAG_BY_FAMILY: u16 = 20;
    const UDIAG_SHOW_NAME: u32 = 1 << 0;
    const UDIAG_SHOW_UID: u32 = 1 << 6;
    // struct unix_diag_req: family, protocol, padding, states, inode, attributes, cookie.
    let mut structure = vec![libc::AF_UNIX as u8, 0, 0, 0];
    for word in [u32::MAX, 0, UDIAG_SHOW_NAME | UDIAG_SHOW_UID, u32::MAX, u32::MAX] {
        structure.extend(word.to_ne_bytes());
    }
    let request = Request::new(SOCK_DIAG_BY_FAMILY, libc::NLM_F_DUMP, &structure);
    let mut sockets = Vec::new();
    Netlink::open(libc::NETLINK_SOCK_DIAG)?
        .visit(request, |message| sockets.extend(diagnosed_one(message)))?;
    Ok(sockets)
}

/// Parses `struct unix_diag_msg` and its attributes.
fn diagnosed_one(message: &[u8]) -> Option<AbstractSocket> {
    const MESSAGE: usize = 16;
    const UNIX_DIAG_NAME: u16 = 0;
    const UNIX_DIAG_UID: u16 = 7;
    let attributes = message.get(MESSAGE..)?;
    let name = attribute(attributes, UNIX_DIAG_NAME)?.strip_prefix(b"\0")?;
    let owner = attribute(attributes, UNIX_DIAG_UID).and_then(|bytes| bytes.first_chunk());
    Some(AbstractSocket {
        name: str::from_utf8(name).ok()?.to_owned(),
        owner: owner.map(|bytes| u32::from_ne_bytes(*bytes)),
    })
}

/// Iterates over the sockets in the text of `/proc/net/unix`, in which an abstract name begins with
/// `@`.
fn listed(list: &str) -> impl Iterator<Item = AbstractSocket> {
    list.lines().filter_map(|line| {
        let name = line.split_whitespace().last()?.strip_prefix('@')?;
        Some(AbstractSocket { name: name.to_owned(), owner: None })
    })
}

#[cfg(test)]
mod tests {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    use super::*;

    #[test]
    fn a_socket_has_its_name_and_owner() {
        let prefix = format!("longhaul/test/{}/", std::process::id());
        let name = format!("{prefix}one");
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        let own = rustix::process::geteuid().as_raw();
        let found = AbstractSocket::all(&prefix).unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].name, name);
        assert!(found[0].owner.is_none_or(|owner| owner == own) && found[0].is_trusted());
        drop(socket);
        assert_eq!(AbstractSocket::all(&prefix).unwrap(), []);
    }

    #[test]
    fn sockets_of_other_users_are_not_trusted() {
        let own = rustix::process::geteuid().as_raw();
        let trusted = |owner| AbstractSocket { name: String::new(), owner }.is_trusted();
        assert!(trusted(None) && trusted(Some(0)) && trusted(Some(own)));
        assert!(!trusted(Some(own + 1)) && !trusted(Some(65_534)));
    }

    #[test]
    fn messages_of_the_kernel_are_parsed() {
        let message = |attributes: &[u8]| [&[1; 16][..], attributes].concat();
        let name = [8, 0, 0, 0, 0, b'a', b'b', b'c'];
        let owner = [8, 0, 7, 0, 232, 3, 0, 0];
        let parsed = diagnosed_one(&message(&[name, owner].concat())).unwrap();
        assert_eq!(parsed, AbstractSocket { name: "abc".to_owned(), owner: Some(1000) });
        assert_eq!(diagnosed_one(&message(&name)).unwrap().owner, None);
        let path = [8, 0, 0, 0, b'/', b'a', b'b', b'c'];
        assert_eq!(diagnosed_one(&message(&path)), None, "a path in a file system");
        assert_eq!(diagnosed_one(&message(&owner)), None, "no name");
        assert_eq!(diagnosed_one(&[1; 7]), None);
    }

    #[test]
    fn the_list_in_proc_has_names_without_owners() {
        let list = "Num       RefCount Protocol Flags    Type St Inode Path\n\
                    000: 00000002 00000000 00000000 0002 01 11 @longhaul/connection/3-14\n\
                    000: 00000002 00000000 00000000 0002 01 13 longhaul/connection/1-2\n\
                    000: 00000002 00000000 00000000 0002 01 14\n";
        let names: Vec<_> = listed(list).map(|socket| (socket.name, socket.owner)).collect();
        assert_eq!(names, [("longhaul/connection/3-14".to_owned(), None)]);
    }
}
