//! The base packets of STAMP (RFC 8762, section 4; RFC 8972, section 3) and TWAMP Light (RFC 5357,
//! section 4.2.1).

use super::time::{ErrorEstimate, Timestamp};

/// The bytes of a reply of TWAMP Light up to its last field.
pub const MIN_REPLY_BYTES: usize = 41;
/// The bytes of a request of TWAMP Light without padding.
pub(super) const LEAST_REQUEST_BYTES: usize = 14;

/// The authentication mode of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Packets of 44 bytes.
    Open,
    /// Packets of 112 bytes with an HMAC over the first 96.
    Authenticated,
}

/// The positions of the fields in the packets of one mode.
struct Layout {
    bytes: usize,
    time: usize,
    error: usize,
    ssid: usize,
    received: usize,
    sender_sequence: usize,
    sender_time: usize,
    sender_error: usize,
    sender_hop_limit: usize,
}

const OPEN: Layout = Layout {
    bytes: 44,
    time: 4,
    error: 12,
    ssid: 14,
    received: 16,
    sender_sequence: 24,
    sender_time: 28,
    sender_error: 36,
    sender_hop_limit: 40,
};

const AUTHENTICATED: Layout = Layout {
    bytes: 112,
    time: 16,
    error: 24,
    ssid: 26,
    received: 32,
    sender_sequence: 48,
    sender_time: 64,
    sender_error: 72,
    sender_hop_limit: 80,
};

impl Mode {
    /// Returns the bytes of a base packet.
    #[must_use]
    pub fn base_bytes(self) -> usize {
        self.layout().bytes
    }

    /// Returns the range of the HMAC, which covers all bytes before it.
    #[must_use]
    pub fn hmac(self) -> Option<std::ops::Range<usize>> {
        (self == Mode::Authenticated).then_some(96..112)
    }

    fn layout(self) -> &'static Layout {
        match self {
            Mode::Open => &OPEN,
            Mode::Authenticated => &AUTHENTICATED,
        }
    }
}

/// The fields of a packet of the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Request {
    /// The sequence number.
    pub sequence: u32,
    /// The time of sending.
    pub time: Timestamp,
    /// The error estimate of the sender's clock.
    pub error: ErrorEstimate,
    /// The identifier of the session; 0 if it has none.
    pub ssid: u16,
}

impl Request {
    /// Reads a request; `None` if it is too short. Padding and an HMAC are not read.
    #[must_use]
    pub fn decode(packet: &[u8], mode: Mode) -> Option<Self> {
        let layout = mode.layout();
        // A request of TWAMP Light may end after the error estimate.
        let least = if mode == Mode::Open { LEAST_REQUEST_BYTES } else { layout.bytes };
        if packet.len() < least {
            return None;
        }
        Some(Request {
            sequence: u32_at(packet, 0),
            time: Timestamp(u64_at(packet, layout.time)),
            error: ErrorEstimate(u16_at(packet, layout.error)),
            ssid: if packet.len() < layout.ssid + 2 { 0 } else { u16_at(packet, layout.ssid) },
        })
    }

    /// Returns whether `packet` has a receive timestamp, as a reply has. A sender of STAMP zeros these
    /// bytes; padding of TWAMP Light may have any.
    #[must_use]
    pub fn looks_like_reply(packet: &[u8], mode: Mode) -> bool {
        let start = mode.layout().received;
        packet.get(start..start + 8).is_some_and(|time| time != [0; 8])
    }

    /// Writes the request to the base packet at the start of `packet` and zeros its other bytes.
    ///
    /// # Panics
    /// `packet` is shorter than a base packet.
    pub fn encode(&self, packet: &mut [u8], mode: Mode) {
        let layout = mode.layout();
        packet[..layout.bytes].fill(0);
        put(packet, 0, &self.sequence.to_be_bytes());
        put(packet, layout.time, &self.time.0.to_be_bytes());
        put(packet, layout.error, &self.error.0.to_be_bytes());
        put(packet, layout.ssid, &self.ssid.to_be_bytes());
    }
}

/// The fields of a packet of the reflector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reply {
    /// The sequence number of the reflector.
    pub sequence: u32,
    /// The time at which the reflector sent the reply.
    pub time: Timestamp,
    /// The error estimate of the reflector's clock.
    pub error: ErrorEstimate,
    /// The identifier of the session; 0 from a reflector without RFC 8972.
    pub ssid: u16,
    /// The time at which the request arrived.
    pub received: Timestamp,
    /// The sequence number of the request.
    pub sender_sequence: u32,
    /// The time in the request.
    pub sender_time: Timestamp,
    /// The error estimate in the request.
    pub sender_error: ErrorEstimate,
    /// The hop limit with which the request arrived.
    pub sender_hop_limit: u8,
}

impl Reply {
    /// Reads a reply; `None` if it is shorter than 41 bytes, or than 112 in authenticated mode.
    #[must_use]
    pub fn decode(packet: &[u8], mode: Mode) -> Option<Self> {
        let layout = mode.layout();
        let least = if mode == Mode::Open { MIN_REPLY_BYTES } else { layout.bytes };
        (packet.len() >= least).then(|| Reply {
            sequence: u32_at(packet, 0),
            time: Timestamp(u64_at(packet, layout.time)),
            error: ErrorEstimate(u16_at(packet, layout.error)),
            ssid: u16_at(packet, layout.ssid),
            received: Timestamp(u64_at(packet, layout.received)),
            sender_sequence: u32_at(packet, layout.sender_sequence),
            sender_time: Timestamp(u64_at(packet, layout.sender_time)),
            sender_error: ErrorEstimate(u16_at(packet, layout.sender_error)),
            sender_hop_limit: packet[layout.sender_hop_limit],
        })
    }

    /// Writes the reply to the base packet at the start of `packet` and zeros its other bytes. An
    /// unauthenticated packet may have only 41 bytes.
    ///
    /// # Panics
    /// `packet` is shorter.
    pub fn encode(&self, packet: &mut [u8], mode: Mode) {
        let layout = mode.layout();
        let end = layout.bytes.min(packet.len());
        packet[..end].fill(0);
        put(packet, 0, &self.sequence.to_be_bytes());
        put(packet, layout.time, &self.time.0.to_be_bytes());
        put(packet, layout.error, &self.error.0.to_be_bytes());
        put(packet, layout.ssid, &self.ssid.to_be_bytes());
        put(packet, layout.received, &self.received.0.to_be_bytes());
        put(packet, layout.sender_sequence, &self.sender_sequence.to_be_bytes());
        put(packet, layout.sender_time, &self.sender_time.0.to_be_bytes());
        put(packet, layout.sender_error, &self.sender_error.0.to_be_bytes());
        packet[layout.sender_hop_limit] = self.sender_hop_limit;
    }
}

fn put(packet: &mut [u8], at: usize, bytes: &[u8]) {
    packet[at..at + bytes.len()].copy_from_slice(bytes);
}

fn u16_at(packet: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([packet[at], packet[at + 1]])
}

fn u32_at(packet: &[u8], at: usize) -> u32 {
    packet[at..at + 4].iter().fold(0, |value, byte| value << 8 | u32::from(*byte))
}

fn u64_at(packet: &[u8], at: usize) -> u64 {
    packet[at..at + 8].iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: Request = Request {
        sequence: 0x0102_0304,
        time: Timestamp(0x1112_1314_1516_1718),
        error: ErrorEstimate(0x2122),
        ssid: 0x3132,
    };

    const REPLY: Reply = Reply {
        sequence: 0x0102_0304,
        time: Timestamp(0x1112_1314_1516_1718),
        error: ErrorEstimate(0x2122),
        ssid: 0x3132,
        received: Timestamp(0x4142_4344_4546_4748),
        sender_sequence: 0x5152_5354,
        sender_time: Timestamp(0x6162_6364_6566_6768),
        sender_error: ErrorEstimate(0x7172),
        sender_hop_limit: 0x81,
    };

    /// Returns the bytes of a figure in an RFC: hexadecimal fields, and `N*` for N zero bytes.
    fn figure(fields: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        for field in fields.split_whitespace() {
            match field.strip_suffix('*') {
                Some(count) => bytes.extend(vec![0; count.parse::<usize>().unwrap()]),
                None => bytes.extend(
                    (0..field.len())
                        .step_by(2)
                        .map(|at| u8::from_str_radix(&field[at..at + 2], 16).unwrap()),
                ),
            }
        }
        bytes
    }

    #[test]
    fn requests_have_the_bytes_of_the_figures() {
        // RFC 8762, figures 2 and 4, with the SSID of RFC 8972, figures 1 and 3.
        let open = figure("01020304 1112131415161718 2122 3132 28*");
        let closed = figure("01020304 12* 1112131415161718 2122 3132 4* 64* 16*");
        for (mode, bytes) in [(Mode::Open, open), (Mode::Authenticated, closed)] {
            assert_eq!(bytes.len(), mode.base_bytes());
            let mut packet = vec![0xff; mode.base_bytes()];
            REQUEST.encode(&mut packet, mode);
            assert_eq!(packet, bytes);
            assert_eq!(Request::decode(&bytes, mode), Some(REQUEST));
        }
    }

    #[test]
    fn replies_have_the_bytes_of_the_figures() {
        // RFC 8762, figures 5 and 6, with the SSID of RFC 8972, figures 2 and 4.
        let open = figure(
            "01020304 1112131415161718 2122 3132 4142434445464748 51525354 6162636465666768 7172 2* \
             81 3*",
        );
        let closed = figure(
            "01020304 12* 1112131415161718 2122 3132 4* 4142434445464748 8* 51525354 12* \
             6162636465666768 7172 6* 81 15* 16*",
        );
        for (mode, bytes) in [(Mode::Open, open), (Mode::Authenticated, closed)] {
            assert_eq!(bytes.len(), mode.base_bytes());
            let mut packet = vec![0xff; mode.base_bytes()];
            REPLY.encode(&mut packet, mode);
            assert_eq!(packet, bytes);
            assert_eq!(Reply::decode(&bytes, mode), Some(REPLY));
        }
    }

    #[test]
    fn short_packets_of_twamp_light_are_read_and_shorter_ones_are_not() {
        let mut bytes = vec![0; 44];
        REQUEST.encode(&mut bytes, Mode::Open);
        let short = Request { ssid: 0, ..REQUEST };
        assert_eq!(Request::decode(&bytes[..14], Mode::Open), Some(short));
        assert_eq!(Request::decode(&bytes[..13], Mode::Open), None);
        assert_eq!(Request::decode(&bytes, Mode::Authenticated), None);
        let mut bytes = vec![0xff; 41];
        REPLY.encode(&mut bytes, Mode::Open);
        assert_eq!(Reply::decode(&bytes, Mode::Open), Some(REPLY));
        assert_eq!(Reply::decode(&bytes[..40], Mode::Open), None);
        assert_eq!(Reply::decode(&[0; 111], Mode::Authenticated), None);
    }
}
