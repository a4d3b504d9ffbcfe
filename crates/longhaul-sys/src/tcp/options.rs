//! Options of TCP sockets.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};

use socket2::{Domain, SockRef};

use crate::socket::set;

/// Options of a TCP socket. Options that are `None` or `false` keep the host's values.
///
/// `mss` must be set before `connect(2)`, and so must `window_bytes` for its full effect, because
/// both affect the handshake. The others can be set at any time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SocketOptions {
    /// `SO_SNDBUF` and `SO_RCVBUF` in bytes. Setting them disables autotuning, and the host's
    /// `net.core.wmem_max` and `rmem_max` limit them; [`granted`] returns the effective values.
    pub window_bytes: Option<usize>,
    /// `TCP_CONGESTION`.
    pub congestion: Option<String>,
    /// `TCP_MAXSEG`.
    pub mss: Option<u32>,
    /// `SO_MAX_PACING_RATE` in bytes per second.
    pub max_pacing_bytes_per_second: Option<u64>,
    /// `TCP_NOTSENT_LOWAT` in bytes: the socket accepts no more data while this many bytes are
    /// unsent.
    pub notsent_lowat_bytes: Option<u32>,
    /// `TCP_NODELAY`: send small writes at once.
    pub nodelay: bool,
    /// `IP_TOS` or `IPV6_TCLASS`: the six bits of the differentiated services code point.
    pub dscp: Option<u8>,
}

/// The reason why a socket option could not be set.
#[derive(Debug, thiserror::Error)]
pub enum OptionError {
    /// The kernel lacks this congestion control, or this user may not use it.
    #[error(
        "cannot use congestion control '{name}': see net.ipv4.tcp_available_congestion_control \
         (load it with 'modprobe tcp_{name}')"
    )]
    Congestion {
        /// The requested congestion control.
        name: String,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
    /// The kernel rejected another option.
    #[error("cannot set {option} to {value}")]
    Refused {
        /// The name of the option in socket(7) or tcp(7).
        option: &'static str,
        /// The requested value.
        value: u64,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}

impl SocketOptions {
    /// Sets the options on `socket`.
    ///
    /// # Errors
    /// The first option that the kernel rejects. Buffer sizes are clipped, never rejected.
    pub fn apply(&self, socket: impl AsFd) -> Result<(), OptionError> {
        let refused =
            |option, value: u64| move |source| OptionError::Refused { option, value, source };
        let socket = SockRef::from(&socket);
        if let Some(bytes) = self.window_bytes {
            socket.set_send_buffer_size(bytes).map_err(refused("SO_SNDBUF", bytes as u64))?;
            socket.set_recv_buffer_size(bytes).map_err(refused("SO_RCVBUF", bytes as u64))?;
        }
        if let Some(name) = &self.congestion {
            socket
                .set_tcp_congestion(name.as_bytes())
                .map_err(|source| OptionError::Congestion { name: name.clone(), source })?;
        }
        if let Some(mss) = self.mss {
            socket.set_tcp_mss(mss).map_err(refused("TCP_MAXSEG", mss.into()))?;
        }
        if let Some(rate) = self.max_pacing_bytes_per_second {
            set_max_pacing_rate(&*socket, rate).map_err(refused("SO_MAX_PACING_RATE", rate))?;
        }
        if let Some(bytes) = self.notsent_lowat_bytes {
            socket
                .set_tcp_notsent_lowat(bytes)
                .map_err(refused("TCP_NOTSENT_LOWAT", bytes.into()))?;
        }
        if let Some(dscp) = self.dscp {
            let class = u32::from(dscp) << 2;
            let set = match socket.domain().map_err(refused("SO_DOMAIN", 0))? {
                Domain::IPV6 => socket.set_tclass_v6(class),
                _ => socket.set_tos_v4(class),
            };
            set.map_err(refused("IP_TOS", class.into()))?;
        }
        if self.nodelay {
            socket.set_tcp_nodelay(true).map_err(refused("TCP_NODELAY", 1))?;
        }
        Ok(())
    }
}

/// Limits the pacing rate of `socket` to `bytes_per_second`.
///
/// The value has 64 bits, which 64-bit Linux supports since 4.20; a 32-bit value would be limited
/// to 34 Gb/s. TCP paces without the fq queueing discipline since Linux 4.13.
///
/// # Errors
/// The kernel rejects the option.
pub fn set_max_pacing_rate(socket: impl AsFd, bytes_per_second: u64) -> io::Result<()> {
    // SAFETY: `bytes_per_second` lives across the call, and its size is passed with it.
    let code = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw const bytes_per_second).cast(),
            size_of::<u64>() as libc::socklen_t,
        )
    };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes the kernel wake a reader of `socket` only if at least `bytes` wait (`SO_RCVLOWAT`) or the
/// peer has closed its half.
///
/// # Errors
/// The kernel rejects the option.
pub fn set_receive_low_water(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    set(socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, bytes)
}

/// Lets the receive buffer of `socket` hold at least `bytes` of payload at once, up to half of the
/// third number of `net.ipv4.tcp_rmem`, and leaves autotuning on.
///
/// A receive buffer starts at the second number of `tcp_rmem`, which limits a sender to 64 KiB in
/// the first round trip and to less than the double of each round trip in the next ones. `SO_RCVBUF`
/// would disable autotuning, and `net.core.rmem_max` limits it. The kernel enlarges a buffer for
/// `SO_RCVLOWAT` instead (since Linux 4.18), and the buffer keeps its size when the low water mark
/// is 1 again.
///
/// # Errors
/// The kernel rejects the option.
pub fn grow_receive_buffer(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    set_receive_low_water(&socket, bytes)?;
    set_receive_low_water(&socket, 1)
}

/// The effective options of a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Granted {
    /// The payload bytes that the send buffer holds: half of `SO_SNDBUF`, because the kernel
    /// doubles the requested size for its bookkeeping (socket(7)).
    pub send_buffer_bytes: u64,
    /// The payload bytes that the receive buffer holds: half of `SO_RCVBUF`.
    pub receive_buffer_bytes: u64,
    /// The congestion control in use.
    pub congestion: String,
    /// The maximum segment size in use, in bytes of payload.
    pub mss: u32,
}

/// Reads the effective options of `socket`.
///
/// # Errors
/// The descriptor is not a TCP socket.
pub fn granted(socket: impl AsFd) -> io::Result<Granted> {
    let socket = SockRef::from(&socket);
    let name = socket.tcp_congestion()?;
    // The kernel pads the name with zeroes to its fixed length.
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    Ok(Granted {
        send_buffer_bytes: socket.send_buffer_size()? as u64 / 2,
        receive_buffer_bytes: socket.recv_buffer_size()? as u64 / 2,
        congestion: String::from_utf8_lossy(&name[..end]).into_owned(),
        mss: socket.tcp_mss()?,
    })
}

// linux/mptcp.h; libc has none of them.
const SOL_MPTCP: libc::c_int = 284;
const MPTCP_INFO: libc::c_int = 1;
/// The offset of the flags in `struct mptcp_info`, after six one-byte counters.
const FLAGS_AT: usize = 8;
const FLAG_FALLBACK: u8 = 1;

/// Returns whether the connection `fd` uses MPTCP. The result is false for a plain TCP socket, and
/// after a fallback to TCP because the peer or the path does not support MPTCP.
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
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use socket2::{Protocol, Socket, Type};

    use crate::tcp::tcp_info;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn options_that_are_set_are_read_back() {
        let (near, _far) = pair();
        let options = SocketOptions {
            window_bytes: Some(100_000),
            congestion: Some("reno".to_owned()),
            notsent_lowat_bytes: Some(1 << 20),
            nodelay: true,
            ..SocketOptions::default()
        };
        options.apply(&near).unwrap();
        let granted = granted(&near).unwrap();
        assert_eq!(granted.send_buffer_bytes, 100_000);
        assert_eq!(granted.receive_buffer_bytes, 100_000);
        assert_eq!(granted.congestion, "reno");
        assert!(near.nodelay().unwrap());
        assert_eq!(SockRef::from(&near).tcp_notsent_lowat().unwrap(), 1 << 20);
    }

    #[test]
    fn a_window_over_the_hosts_limit_is_clipped_and_shows() {
        let (near, _far) = pair();
        let requested_bytes = 1 << 30;
        SocketOptions { window_bytes: Some(requested_bytes), ..SocketOptions::default() }
            .apply(&near)
            .unwrap();
        let limit: u64 =
            std::fs::read_to_string("/proc/sys/net/core/wmem_max").unwrap().trim().parse().unwrap();
        assert_eq!(granted(&near).unwrap().send_buffer_bytes, limit.min(requested_bytes as u64));
    }

    #[test]
    fn a_segment_size_set_before_connecting_is_used() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        SocketOptions { mss: Some(1000), ..SocketOptions::default() }.apply(&near).unwrap();
        near.connect(&listener.local_addr().unwrap().into()).unwrap();
        // 12 of the 1000 bytes hold the time-stamp option if the host uses it.
        assert!(matches!(granted(&near).unwrap().mss, 988 | 1000));
    }

    #[test]
    fn a_pacing_rate_over_32_bits_is_kept() {
        let (near, _far) = pair();
        let rate = 12_500_000_000; // 100 Gb/s
        set_max_pacing_rate(&near, rate).unwrap();
        assert!(tcp_info(&near).unwrap().pacing_bytes_per_second <= rate);
        let mut value: u64 = 0;
        let mut length = 8;
        // SAFETY: `value` and `length` live over the call; the kernel writes at most 8 bytes.
        let code = unsafe {
            libc::getsockopt(
                near.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_MAX_PACING_RATE,
                (&raw mut value).cast(),
                &raw mut length,
            )
        };
        assert_eq!((code, value), (0, rate));
    }

    #[test]
    fn a_receive_buffer_grows_and_a_reader_still_gets_single_bytes() {
        let (near, mut far) = pair();
        let before = granted(&far).unwrap().receive_buffer_bytes;
        let most: u64 = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_rmem")
            .unwrap()
            .split_whitespace()
            .nth(2)
            .unwrap()
            .parse()
            .unwrap();
        let wanted = 1 << 20;
        assert!(before < wanted && 2 * wanted <= most, "the host's buffers are unusual");
        grow_receive_buffer(&far, wanted as u32).unwrap();
        assert!(granted(&far).unwrap().receive_buffer_bytes >= wanted / 2);
        grow_receive_buffer(&far, 4096).unwrap();
        assert!(granted(&far).unwrap().receive_buffer_bytes >= wanted / 2, "it never shrinks");
        // With the low water mark in place the read would wait for more.
        (&near).write_all(&[7]).unwrap();
        let mut buffer = [0; 100];
        assert_eq!(far.read(&mut buffer).unwrap(), 1);
    }

    #[test]
    fn an_unknown_congestion_control_is_named() {
        let (near, _far) = pair();
        let options =
            SocketOptions { congestion: Some("nonesuch".to_owned()), ..SocketOptions::default() };
        let error = options.apply(&near).unwrap_err().to_string();
        assert!(error.contains("'nonesuch'"), "{error}");
    }

    #[test]
    fn plain_tcp_is_not_multipath_at_either_end() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let plain = TcpStream::connect(address).unwrap();
        assert!(!is_multipath(&plain));
        // Only one end requests MPTCP.
        let near = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).unwrap();
        near.connect(&address.into()).unwrap();
        assert!(!is_multipath(&near));
    }

    #[test]
    fn mptcp_at_both_ends_is_multipath() {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).unwrap();
        listener.bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
        listener.listen(1).unwrap();
        let near = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP)).unwrap();
        near.connect(&listener.local_addr().unwrap()).unwrap();
        assert!(is_multipath(&near) && is_multipath(listener.accept().unwrap().0));
    }
}
