//! Reads a frame's virtio-net header and as much of its IP packet as the model needs.
//!
//! Layout: `struct virtio_net_hdr` in include/uapi/linux/virtio_net.h, in native byte order. The
//! header's `hdr_len` is not trusted: the kernel fills in the length of its linear buffer.

use longhaul_sys::tun::VNET_HEADER;

use crate::link::PacketShape;

const GSO_NONE: u8 = 0;
const GSO_UDP_L4: u8 = 5;
/// Set on TCP super-packets that carry CWR; not a type of its own.
const GSO_ECN: u8 = 0x80;

const UDP_HEADER: usize = 8;

/// The shape of the packet in `frame`.
///
/// A frame too short or too odd to be a super-packet counts as one segment of its bytes.
pub(crate) fn shape(frame: &[u8]) -> PacketShape {
    let packet = frame.get(VNET_HEADER..).unwrap_or_default();
    let whole = PacketShape::single(packet.len() as u32);
    let Some(headers) = segment_headers(frame, packet) else { return whole };
    let segment = usize::from(u16_at(frame, 4));
    let payload = packet.len().saturating_sub(headers);
    if segment == 0 || payload <= segment {
        return whole;
    }
    PacketShape {
        header_bytes: headers as u32,
        payload_bytes: payload as u32,
        segment_bytes: segment as u32,
        ecn_capable: false,
    }
}

/// The bytes of headers that every segment of a super-packet repeats.
fn segment_headers(frame: &[u8], packet: &[u8]) -> Option<usize> {
    let gso = frame.get(1)? & !GSO_ECN;
    let transport = usize::from(u16_at(frame, 6));
    match gso {
        GSO_NONE => None,
        GSO_UDP_L4 => Some(transport + UDP_HEADER),
        // The upper half of byte 12 of a TCP header is its length in words.
        _ => Some(transport + usize::from(packet.get(transport + 12)? >> 4) * 4),
    }
}

fn u16_at(frame: &[u8], at: usize) -> u16 {
    frame.get(at..at + 2).map_or(0, |b| u16::from_ne_bytes([b[0], b[1]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(gso: u8, segment: u16, transport: u16, packet: Vec<u8>) -> Vec<u8> {
        let mut frame = vec![1, gso, 0, 0];
        frame.extend(segment.to_ne_bytes());
        frame.extend(transport.to_ne_bytes());
        frame.extend([16, 0]);
        frame.extend(packet);
        frame
    }

    fn tcp(payload: usize) -> Vec<u8> {
        let mut packet = vec![0; 20 + 32 + payload];
        packet[20 + 12] = 8 << 4;
        packet
    }

    #[test]
    fn counts_segments_and_their_headers() {
        for (what, frame, bytes, segments) in [
            ("plain", frame(0, 0, 20, tcp(100)), 152, 1),
            ("three full and a rest", frame(1, 1448, 20, tcp(3 * 1448 + 1)), 4345 + 4 * 52, 4),
            ("ECN", frame(0x81, 1448, 20, tcp(2 * 1448)), 2 * 1500, 2),
            ("UDP", frame(5, 1000, 20, vec![0; 28 + 2500]), 2500 + 3 * 28, 3),
            ("no more than one segment", frame(1, 1448, 20, tcp(1448)), 1500, 1),
        ] {
            let shape = shape(&frame);
            assert_eq!((shape.bytes(), shape.segments()), (bytes, segments), "{what}");
        }
    }

    #[test]
    fn malformed_frames_are_one_segment() {
        let plain = PacketShape::single;
        assert_eq!(shape(&[]), plain(0));
        assert_eq!(shape(&[0; 9]), plain(0));
        // A transport header said to start beyond the packet.
        assert_eq!(shape(&frame(1, 1448, 60_000, tcp(5000))), plain(5052));
        // A super-packet of segments of no size.
        assert_eq!(shape(&frame(1, 0, 20, tcp(5000))), plain(5052));
    }
}
