//! MPTCP connections.

use std::os::fd::{AsFd, AsRawFd};

// linux/mptcp.h; libc has none of them.
const SOL_MPTCP: libc::c_int = 284;
const MPTCP_INFO: libc::c_int = 1;
/// The offset of the flags in `struct mptcp_info`, after six one-byte counters.
const FLAGS_AT: usize = 8;
const FLAG_FALLBACK: u8 = 1;

/// Whether the connection `fd` speaks MPTCP, rather than the plain TCP that it falls back to where
/// the peer or the path does not have it. A plain TCP socket does not.
pub fn is_multipath(fd: impl AsFd) -> bool {
    let mut info = [0u8; 256];
    let mut length = info.len() as libc::socklen_t;
    // SAFETY: `info` is valid for `length` bytes, and the kernel writes at most that many.
    let code = unsafe {
        libc::getsockopt(
            fd.as_fd().as_raw_fd(),
            SOL_MPTCP,
            MPTCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    let lowest = if cfg!(target_endian = "big") { FLAGS_AT + 3 } else { FLAGS_AT };
    code == 0 && info[lowest] & FLAG_FALLBACK == 0
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use socket2::{Domain, Protocol, Socket, Type};

    use super::*;

    #[test]
    fn plain_tcp_is_not_multipath_at_either_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let plain = TcpStream::connect(address).unwrap();
        assert!(!is_multipath(&plain));
        // Requested by one end only.
        let near = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).unwrap();
        near.connect(&address.into()).unwrap();
        assert!(!is_multipath(&near));
    }

    #[test]
    fn both_ends_together_are() {
        let door = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).unwrap();
        door.bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
        door.listen(1).unwrap();
        let near = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).unwrap();
        near.connect(&door.local_addr().unwrap()).unwrap();
        assert!(is_multipath(&near) && is_multipath(door.accept().unwrap().0));
    }
}
