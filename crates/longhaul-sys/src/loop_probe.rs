//! Probe frames that detect a connection of two Ethernet interfaces outside of this program.
//!
//! A probe is a broadcast frame with a type for local experiments (IEEE 802, clause 9.2.4), which
//! hosts ignore and bridges forward. If a probe that left one interface arrives at the other one, a
//! link between the two would be part of a loop. The sockets need `CAP_NET_RAW`.

use std::fs::File;
use std::io::{self, Read};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use crate::packet_socket::bind_type;
use crate::poll::readable_among;

/// Local Experimental EtherType 1.
const EXPERIMENT: u16 = 0x88b5;

/// The start of the data of a probe.
const MARK: &[u8] = b"longhaul loop probe\0";

/// The size of the shortest Ethernet frame, without its checksum.
const FRAME: usize = 60;

/// The maximum number of frames that one search reads per interface, so that a flood cannot prolong
/// the search.
const MOST: usize = 256;

/// The size of a token in bytes.
const TOKEN: usize = 16;

/// The two interfaces between which probes are searched.
#[derive(Debug)]
pub struct LoopProbe {
    sockets: [Socket; 2],
    /// The random tokens of the probes that leave each interface. The tokens differ: a host that
    /// receives the probes of one interface cannot forge those of the other one.
    tokens: [[u8; TOKEN]; 2],
}

impl LoopProbe {
    /// Opens sockets on the interfaces with these indices in the calling thread's network namespace.
    ///
    /// # Errors
    /// `PermissionDenied` without `CAP_NET_RAW` over the namespace; an interface does not exist; the
    /// system has no random numbers.
    pub fn open(interfaces: [u32; 2]) -> io::Result<Self> {
        let open = |interface| {
            // With protocol 0 the socket receives no frames before it is bound.
            let socket = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(0)))?;
            socket.set_nonblocking(true)?;
            bind_type(&socket, interface, EXPERIMENT)?;
            io::Result::Ok(socket)
        };
        let sockets = [open(interfaces[0])?, open(interfaces[1])?];
        let mut tokens = [[0; TOKEN]; 2];
        File::open("/dev/urandom")?.read_exact(tokens.as_flattened_mut())?;
        Ok(LoopProbe { sockets, tokens })
    }

    /// Sends a probe from each interface.
    pub fn send(&self) {
        for (socket, token) in self.sockets.iter().zip(&self.tokens) {
            // Sending fails on an interface without a carrier, which cannot be part of a loop.
            let _ = rustix::io::write(socket, &frame(token));
        }
    }

    /// Returns whether a probe has arrived at the other interface since the last call.
    pub fn has_returned(&self) -> bool {
        let mut buffer = [0; FRAME];
        self.sockets.iter().zip(self.tokens.iter().rev()).any(|(socket, token)| {
            let sought = frame(token);
            (0..MOST)
                .map_while(|_| rustix::io::read(socket, &mut buffer[..]).ok().map(|_| buffer))
                .any(|frame| frame == sought)
        })
    }

    /// Waits until a probe arrives at the other interface, for at most `limit`. Returns whether one
    /// arrived.
    pub fn returns_within(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        loop {
            if self.has_returned() {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            readable_among(&self.sockets, left);
        }
    }
}

/// Returns the probe with this token.
fn frame(token: &[u8; TOKEN]) -> [u8; FRAME] {
    // A unicast address of local administration (02).
    let head = [&[0xff; 6][..], &[2], &token[..5], &EXPERIMENT.to_be_bytes()];
    let data = [&head.concat()[..], MARK, token].concat();
    let mut frame = [0; FRAME];
    frame[..data.len()].copy_from_slice(&data);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_is_a_broadcast_with_a_token() {
        let token = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
        let probe = frame(&token);
        assert_eq!(probe[..12], [255, 255, 255, 255, 255, 255, 2, 1, 2, 3, 4, 5]);
        assert_eq!(probe[12..14], [0x88, 0xb5]);
        assert!(probe[14..].starts_with(MARK));
        assert!(probe[14 + MARK.len()..].starts_with(&token));
    }
}
