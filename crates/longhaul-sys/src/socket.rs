//! Options of all sockets: integers, and the memory of the queues.

use std::io;
use std::mem::{size_of, size_of_val};
use std::os::fd::{AsFd, AsRawFd};

/// Sets option `name` of `level`, which takes an int.
///
/// # Errors
/// The kernel's error.
pub(crate) fn set(
    socket: impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the kernel reads one int, whose size is passed, during the call.
    let code = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns option `name` of `level`, which is an int.
///
/// # Errors
/// The kernel's error.
pub(crate) fn get(
    socket: impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `size` bytes to `value` during the call.
    let code = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            (&raw mut value).cast(),
            &raw mut size,
        )
    };
    if code == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

/// `SO_MEMINFO` (asm-generic/socket.h), which libc lacks on some architectures.
const SO_MEMINFO: libc::c_int = 55;

/// The memory of a socket's queues in the kernel's count, which includes overhead (`SK_MEMINFO_*`
/// in linux/sock_diag.h).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SocketMemory {
    /// The bytes received and not yet read.
    pub received_bytes: u64,
    /// The size of the receive buffer (`SO_RCVBUF`), as currently autotuned.
    pub receive_buffer_bytes: u64,
    /// The size of the send buffer (`SO_SNDBUF`), as currently autotuned.
    pub send_buffer_bytes: u64,
    /// The bytes to be sent, or sent and not acknowledged.
    pub queued_bytes: u64,
    /// The number of packets that the socket dropped.
    pub drops: u64,
}

/// Reads the memory of the queues of `socket`.
///
/// # Errors
/// The descriptor is not a socket.
pub fn socket_memory(socket: impl AsFd) -> io::Result<SocketMemory> {
    let mut words = [0u32; 16];
    let mut length = size_of_val(&words) as libc::socklen_t;
    // SAFETY: `words` is valid for `length` bytes, and the kernel writes at most that many.
    let code = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_MEMINFO,
            words.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if code != 0 {
        return Err(io::Error::last_os_error());
    }
    let word = |at: usize| u64::from(words[at]);
    Ok(SocketMemory {
        received_bytes: word(0),
        receive_buffer_bytes: word(1),
        send_buffer_bytes: word(3),
        queued_bytes: word(5),
        drops: word(8),
    })
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn a_full_queue_drops() {
        let far = UdpSocket::bind("127.0.0.1:0").unwrap();
        let near = UdpSocket::bind("127.0.0.1:0").unwrap();
        let before = socket_memory(&far).unwrap();
        assert!(before.receive_buffer_bytes > 0 && before.send_buffer_bytes > 0);
        assert_eq!((before.received_bytes, before.drops), (0, 0));
        let sent = before.receive_buffer_bytes / 1000;
        for _ in 0..sent {
            near.send_to(&[0; 1000], far.local_addr().unwrap()).unwrap();
        }
        let full = socket_memory(&far).unwrap();
        assert!(full.received_bytes > 0 && full.drops > 0 && full.drops < sent, "{full:?}");
    }
}
