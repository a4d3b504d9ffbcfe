//! The shape of a packet: its division into segments.

use std::ops::Range;

/// The properties of a packet that the model needs: its division into segments on a wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketShape {
    /// The bytes of IP and transport headers, which every segment repeats.
    pub header_bytes: u32,
    /// The payload bytes of all segments together.
    pub payload_bytes: u32,
    /// The payload bytes of each segment except the last, which has the rest; 0 only if the payload
    /// is empty.
    pub segment_bytes: u32,
    /// True if the sender supports congestion marks (RFC 3168: ECT(0), ECT(1) or CE).
    pub ecn_capable: bool,
}

impl PacketShape {
    /// Creates the shape of a packet of `bytes` with one segment.
    pub const fn single(bytes: u32) -> Self {
        PacketShape {
            header_bytes: 0,
            payload_bytes: bytes,
            segment_bytes: bytes,
            ecn_capable: false,
        }
    }

    /// Returns the number of segments; 1 unless the packet is a super-packet.
    pub fn segments(&self) -> u32 {
        match self.segment_bytes {
            0 => 1,
            size => self.payload_bytes.div_ceil(size).max(1),
        }
    }

    /// Returns the IP bytes of all segments, each with its headers.
    pub fn bytes(&self) -> u64 {
        self.bytes_of(0..self.segments())
    }

    /// Returns the IP bytes of some segments, each with its headers.
    pub fn bytes_of(&self, segments: Range<u32>) -> u64 {
        let count = u64::from(segments.end.saturating_sub(segments.start));
        let start = u64::from(segments.start) * u64::from(self.segment_bytes);
        let end = u64::from(segments.end) * u64::from(self.segment_bytes);
        let payload = end.min(u64::from(self.payload_bytes)).saturating_sub(start);
        count * u64::from(self.header_bytes) + payload
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_to_the_whole() {
        let shape = PacketShape {
            header_bytes: 52,
            payload_bytes: 3 * 1448 + 1,
            segment_bytes: 1448,
            ecn_capable: false,
        };
        assert_eq!((shape.segments(), shape.bytes()), (4, 4345 + 4 * 52));
        assert_eq!(shape.bytes_of(0..2), 2 * 1500);
        assert_eq!(shape.bytes_of(2..4), 1500 + 53);
        let whole: u64 = (0..4).map(|i| shape.bytes_of(i..i + 1)).sum();
        assert_eq!(whole, shape.bytes());
        let empty = PacketShape { payload_bytes: 0, segment_bytes: 0, ..shape };
        assert_eq!((empty.segments(), empty.bytes()), (1, 52));
    }
}
