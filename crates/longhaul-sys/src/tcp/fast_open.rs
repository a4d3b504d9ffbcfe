//! TCP Fast Open (RFC 7413): the first data of a connection go out with the SYN.

use std::io;
use std::os::fd::AsFd;

use crate::socket::set;

/// Lets the next `connect(2)` of `socket` send its first data with the SYN, if an earlier connection
/// has brought a cookie of the server. The connect then returns at once, and the first write
/// reports its errors. The peer can receive these data twice.
///
/// # Errors
/// The host does not allow it (`net.ipv4.tcp_fastopen` without 1).
pub fn connect_with_data(socket: impl AsFd) -> io::Result<()> {
    set(socket, libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, 1)
}

/// Gives cookies to clients, and accepts up to `pending` connections at once whose data came with
/// the SYN. It has no effect unless the host allows it (`net.ipv4.tcp_fastopen` with 2).
///
/// # Errors
/// The kernel rejects the option.
pub fn accept_with_data(listener: impl AsFd, pending: u16) -> io::Result<()> {
    set(listener, libc::IPPROTO_TCP, libc::TCP_FASTOPEN, pending.into())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream};

    use socket2::{Domain, Socket, Type};

    use super::*;

    #[test]
    fn bytes_pass_with_and_without_a_cookie() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        accept_with_data(&listener, 16).unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        for _ in 0..2 {
            let near = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            // A host can forbid it.
            let _ = connect_with_data(&near);
            near.connect(&address.into()).unwrap();
            let mut near = TcpStream::from(near);
            near.write_all(b"hello").unwrap();
            let mut read = [0; 5];
            listener.accept().unwrap().0.read_exact(&mut read).unwrap();
            assert_eq!(&read, b"hello");
        }
    }
}
