//! The segment size that TCP uses on a path.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use longhaul_core::result::TcpSegments;
use longhaul_sys::tcp::tcp_info;

/// The bytes that are sent and returned: several segments of any size except the largest of
/// loopback, of which two are enough.
const BYTES: usize = 256 << 10;
/// The time limit of the exchange.
const LIMIT: Duration = Duration::from_secs(10);

/// Sends bytes on `stream`, whose peer returns them, and reports the segment size of TCP in this
/// direction.
///
/// # Errors
/// The bytes do not return in time, because segments of this size do not pass or the connection
/// broke.
pub(super) fn exchange(mut stream: &TcpStream) -> io::Result<TcpSegments> {
    let until = Instant::now() + LIMIT;
    let bytes = vec![0; 16 << 10];
    let mut buffer = vec![0; 16 << 10];
    let (mut sent, mut reply) = (0, 0);
    while reply < BYTES {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        // At most as much is in flight as the peer can buffer while nobody reads here.
        if sent < BYTES && sent - reply < 64 << 10 {
            stream.set_write_timeout(Some(left))?;
            sent += stream.write(&bytes[..bytes.len().min(BYTES - sent)])?;
            continue;
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            count => reply += count,
        }
    }
    segments(stream)
}

/// Returns all bytes until the peer closes, and reports the segment size of TCP in this direction.
///
/// # Errors
/// The connection broke, or took too long.
pub(super) fn echo_bytes(mut stream: &TcpStream) -> io::Result<TcpSegments> {
    let until = Instant::now() + LIMIT;
    let mut buffer = vec![0; 16 << 10];
    let mut whole = 0;
    while whole <= BYTES {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        stream.set_write_timeout(Some(left))?;
        match stream.read(&mut buffer)? {
            0 => break,
            count => {
                whole += count;
                stream.write_all(&buffer[..count])?;
            }
        }
    }
    segments(stream)
}

/// Reads the segment sizes of a connection.
pub(super) fn segments(stream: &TcpStream) -> io::Result<TcpSegments> {
    let info = tcp_info(stream)?;
    Ok(TcpSegments {
        segment_bytes: info.send_mss,
        path_mtu_bytes: info.path_mtu,
        acked_bytes: info.acked_bytes,
        retransmits: info.retransmits,
    })
}
