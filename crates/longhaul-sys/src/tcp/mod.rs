//! TCP sockets beyond the standard library: options before and after connecting ([`SocketOptions`],
//! [`granted`]), and the kernel's state of a connection ([`TcpInfo`]).
//!
//! The functions accept any file descriptor of a TCP socket: before `connect(2)`, a `TcpStream`, or
//! an accepted connection.

mod fast_open;
mod options;

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

pub use super::socket::{SocketMemory, socket_memory};
pub use fast_open::{accept_with_data, connect_with_data};
pub use options::{
    Granted, OptionError, SocketOptions, granted, grow_receive_buffer, is_multipath,
    set_max_pacing_rate, set_receive_low_water,
};

/// An upper bound of the size of `struct tcp_info` in all kernels (Linux 6.18: 280 bytes).
const INFO_BYTES: usize = 512;

/// The state of a connection as the kernel reports it in `struct tcp_info` (linux/tcp.h).
///
/// The kernel only appends fields to the structure. A field that an older kernel lacks reads as
/// zero here, as in iproute2. The newest fields that this type requires, the three `*_limited`
/// clocks, exist since Linux 4.10.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TcpInfo {
    /// The smoothed round-trip time.
    pub rtt: Duration,
    /// The mean deviation of the round-trip time.
    pub rtt_variation: Duration,
    /// The lowest round-trip time in the kernel's window (five minutes by default); `None` before
    /// the first sample.
    pub min_rtt: Option<Duration>,
    /// The sender's maximum segment size, in bytes of payload.
    pub send_mss: u32,
    /// The congestion window, in segments of [`send_mss`](Self::send_mss).
    pub congestion_window_segments: u32,
    /// The slow-start threshold in segments; 2^31 - 1 if it has not been set.
    pub slow_start_threshold_segments: u32,
    /// The most recently advertised window of the peer, in bytes (Linux 5.4).
    pub peer_window_bytes: u64,
    /// Segments sent and not yet acknowledged.
    pub unacked_segments: u32,
    /// The unacknowledged segments that the peer has acknowledged selectively.
    pub sacked_segments: u32,
    /// The unacknowledged segments that are considered lost.
    pub lost_segments: u32,
    /// Segments retransmitted and not yet acknowledged.
    pub retransmitting_segments: u32,
    /// Segments with payload sent since the connection was established, including retransmissions.
    pub data_segments_sent: u64,
    /// Segments that the peer acknowledged with a congestion mark (ECN) since the connection was
    /// established (Linux 4.18).
    pub marked_segments: u64,
    /// Segments retransmitted since the connection was established.
    pub retransmits: u64,
    /// Payload bytes retransmitted since the connection was established (Linux 4.19).
    pub retransmitted_bytes: u64,
    /// Payload bytes in the send queue that have not been sent yet.
    pub notsent_bytes: u64,
    /// Payload bytes acknowledged by the peer.
    pub acked_bytes: u64,
    /// Payload bytes received in order.
    pub received_bytes: u64,
    /// The rate at which the peer most recently acknowledged data, in bytes per second.
    pub delivery_bytes_per_second: u64,
    /// True if the application, and not the path, limited the delivery rate.
    pub delivery_app_limited: bool,
    /// The pacing rate of the congestion control, in bytes per second; `u64::MAX` if it does not
    /// pace.
    pub pacing_bytes_per_second: u64,
    /// The time with data in flight or to send.
    pub busy: Duration,
    /// The part of [`busy`](Self::busy) in which the peer's window limited the sender.
    pub receive_window_limited: Duration,
    /// The part of [`busy`](Self::busy) in which the send buffer limited the sender.
    pub send_buffer_limited: Duration,
    /// The path MTU in bytes, including IP and TCP headers.
    pub path_mtu: u32,
    /// Reordering events seen by the sender (Linux 4.19).
    pub reordering_seen: u32,
}

impl TcpInfo {
    /// Returns the sender's estimate of segments in the network (`tcp_packets_in_flight`,
    /// net/tcp.h).
    pub fn in_flight_segments(&self) -> u32 {
        let left = self.sacked_segments.saturating_add(self.lost_segments);
        self.unacked_segments.saturating_sub(left).saturating_add(self.retransmitting_segments)
    }

    /// Returns the lost segments that the sender has not retransmitted yet.
    pub fn lost_segments_to_resend(&self) -> u32 {
        self.lost_segments.saturating_sub(self.retransmitting_segments)
    }
}

/// Reads the state of the TCP connection `fd`.
///
/// # Errors
/// `fd` is not a TCP socket.
pub fn tcp_info(fd: impl AsFd) -> io::Result<TcpInfo> {
    let mut buffer = [0u8; INFO_BYTES];
    let mut length = INFO_BYTES as libc::socklen_t;
    // SAFETY: `buffer` is valid for `length` bytes, and the kernel writes at most that many and
    // stores their number in `length`.
    let code = unsafe {
        libc::getsockopt(
            fd.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            buffer.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if code != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(parse_info(&buffer[..(length as usize).min(INFO_BYTES)]))
}

/// Parses the structure. Offsets are those of linux/tcp.h, which are ABI.
pub(crate) fn parse_info(bytes: &[u8]) -> TcpInfo {
    let word = |at: usize| -> u32 {
        let end = at + size_of::<u32>();
        bytes.get(at..end).map_or(0, |b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]]))
    };
    let long = |at: usize| -> u64 {
        let mut value = [0; size_of::<u64>()];
        match bytes.get(at..at + value.len()) {
            Some(found) => value.copy_from_slice(found),
            None => return 0,
        }
        u64::from_ne_bytes(value)
    };
    let micros = |value: u64| Duration::from_micros(value);
    // The flag is the lowest bit of the eighth byte by C's rules for bit fields.
    let app_limited_bit = if cfg!(target_endian = "big") { 0x80 } else { 0x01 };
    TcpInfo {
        rtt: micros(word(68).into()),
        rtt_variation: micros(word(72).into()),
        // The value is ~0 before the first sample (minmax_reset in net/ipv4/tcp.c), and 0 if the
        // field is missing.
        min_rtt: Some(word(148))
            .filter(|us| !matches!(*us, 0 | u32::MAX))
            .map(|us| micros(us.into())),
        send_mss: word(16),
        congestion_window_segments: word(80),
        slow_start_threshold_segments: word(76),
        peer_window_bytes: word(228).into(),
        unacked_segments: word(24),
        sacked_segments: word(28),
        lost_segments: word(32),
        retransmitting_segments: word(36),
        data_segments_sent: word(156).into(),
        marked_segments: word(196).into(),
        retransmits: word(100).into(),
        retransmitted_bytes: long(208),
        notsent_bytes: word(144).into(),
        acked_bytes: long(120),
        received_bytes: long(128),
        delivery_bytes_per_second: long(160),
        delivery_app_limited: bytes.get(7).is_some_and(|flags| flags & app_limited_bit != 0),
        pacing_bytes_per_second: long(104),
        busy: micros(long(168)),
        receive_window_limited: micros(long(176)),
        send_buffer_limited: micros(long(184)),
        path_mtu: word(60),
        reordering_seen: word(220),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_connection_reports_the_bytes_it_moved() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(&[7; 5000]).unwrap();
        far.read_exact(&mut [0; 5000]).unwrap();
        far.write_all(&[7; 3000]).unwrap();
        near.read_exact(&mut [0; 3000]).unwrap();

        // The 3000 bytes carried the acknowledgement of the 5000 bytes.
        let info = tcp_info(&near).unwrap();
        assert_eq!((info.acked_bytes, info.received_bytes), (5001, 3000), "SYN counts as one");
        assert!(info.rtt > Duration::ZERO && info.rtt < Duration::from_secs(1));
        assert!(info.min_rtt.unwrap() <= Duration::from_secs(1));
        assert!(info.congestion_window_segments > 0 && info.send_mss > 0);
        assert!(info.peer_window_bytes > 0 && info.path_mtu > 0);
        assert!(info.busy < Duration::from_secs(10));
        assert_eq!((info.in_flight_segments(), info.marked_segments), (0, 0));
        assert!(info.data_segments_sent > 0);
    }

    #[test]
    fn an_older_kernel_only_lacks_fields() {
        let mut whole = vec![0; 280];
        whole[68..72].copy_from_slice(&90_000u32.to_ne_bytes());
        whole[168..176].copy_from_slice(&5u64.to_ne_bytes());
        whole[228..232].copy_from_slice(&65535u32.to_ne_bytes());
        let now = parse_info(&whole);
        assert_eq!(now.rtt, Duration::from_millis(90));
        assert_eq!(now.busy, Duration::from_micros(5));
        assert_eq!(now.peer_window_bytes, 65535);
        // The structure of Linux 4.9 ends after the delivery rate.
        let then = parse_info(&whole[..168]);
        assert_eq!(then, TcpInfo { busy: Duration::ZERO, peer_window_bytes: 0, ..now });
    }

    #[test]
    fn a_socket_that_is_not_tcp_is_an_error() {
        assert!(tcp_info(std::net::UdpSocket::bind("127.0.0.1:0").unwrap()).is_err());
    }
}
