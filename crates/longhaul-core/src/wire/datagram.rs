//! The datagrams of a UDP test.

use super::{HELLO_BYTES, MAC_BYTES, SessionId};

/// The length of the header of every datagram of a UDP test; random bytes follow.
pub const DATAGRAM_HEADER_BYTES: usize = 24;

const MARK: u64 = 1 << 63;

/// The header of a datagram, big-endian:
///
/// ```text
///  0  8  tag of the stream; derived from the session's secret
///  8  8  number, from 0; the top bit marks the end of data
/// 16  8  sending time, in ns since the start of the stream
/// ```
///
/// The number of an end mark is the count of all datagrams before it. A receiver's report has the
/// same form: `number` is the count of received datagrams, and the top bit means that the receiver
/// got an end mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatagramHeader {
    /// The tag of the stream, which only the two ends know.
    pub tag: u64,
    /// The number of the datagram; below 2^63.
    pub number: u64,
    /// True for the end of data; in a report, true if an end mark arrived.
    pub end: bool,
    /// The sending time in ns on the sender's clock; zero in a report.
    pub time_ns: u64,
}

impl DatagramHeader {
    /// Returns the bytes on the wire.
    #[inline]
    pub fn encode(&self) -> [u8; DATAGRAM_HEADER_BYTES] {
        let mut bytes = [0; DATAGRAM_HEADER_BYTES];
        let number = self.number & !MARK | if self.end { MARK } else { 0 };
        bytes[..8].copy_from_slice(&self.tag.to_be_bytes());
        bytes[8..16].copy_from_slice(&number.to_be_bytes());
        bytes[16..].copy_from_slice(&self.time_ns.to_be_bytes());
        bytes
    }

    /// Parses the header of `datagram`; `None` if it is too short.
    #[inline]
    pub fn decode(datagram: &[u8]) -> Option<Self> {
        let field = |at: usize| {
            let bytes: [u8; 8] = datagram.get(at..at + 8)?.try_into().ok()?;
            Some(u64::from_be_bytes(bytes))
        };
        let (tag, number, time_ns) = (field(0)?, field(8)?, field(16)?);
        Some(DatagramHeader { tag, number: number & !MARK, end: number & MARK != 0, time_ns })
    }
}

/// The messages that open a UDP flow. All have the same length, so that no answer is larger than
/// its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GreetingKind {
    /// A request from the end that opens a UDP flow.
    Hello,
    /// The answer of the accepting end: return this cookie from the same address.
    Challenge,
    /// The cookie, from the opening end.
    Confirm,
    /// The confirmation of the accepting end: data may be sent.
    Accept,
}

const MAGIC: [u8; 4] = *b"LHU1";
const SIGNED_BYTES: usize = HELLO_BYTES - MAC_BYTES;

/// A message that opens a UDP flow or authenticates an accepting end, big-endian:
///
/// ```text
///  0   4  magic "LHU1"
///  4  16  session id
/// 20   4  stream number
/// 24   1  kind: 0 hello, 1 challenge, 2 confirm, 3 accept
/// 25   7  cookie; zero in a hello
/// 32  32  HMAC-SHA-256 of bytes 0 to 31 under the session's key
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Greeting {
    /// The kind of message.
    pub kind: GreetingKind,
    /// The session.
    pub session: SessionId,
    /// The number of the stream.
    pub stream: u32,
    /// The cookie, which proves that the opening end receives at its address.
    pub cookie: [u8; 7],
}

impl Greeting {
    /// Returns the bytes that the authenticator covers.
    pub fn signed_bytes(&self) -> [u8; SIGNED_BYTES] {
        let mut bytes = [0; SIGNED_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..20].copy_from_slice(&self.session.0);
        bytes[20..24].copy_from_slice(&self.stream.to_be_bytes());
        bytes[24] = self.kind as u8;
        bytes[25..].copy_from_slice(&self.cookie);
        bytes
    }

    /// Returns the whole message.
    pub fn encode(&self, mac: &[u8; MAC_BYTES]) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..SIGNED_BYTES].copy_from_slice(&self.signed_bytes());
        bytes[SIGNED_BYTES..].copy_from_slice(mac);
        bytes
    }

    /// Parses a message; `None` if it is invalid. The caller verifies the authenticator.
    pub fn decode(bytes: &[u8]) -> Option<(Self, [u8; MAC_BYTES])> {
        let bytes: &[u8; HELLO_BYTES] = bytes.try_into().ok()?;
        if bytes[..4] != MAGIC {
            return None;
        }
        let kind = match bytes[24] {
            0 => GreetingKind::Hello,
            1 => GreetingKind::Challenge,
            2 => GreetingKind::Confirm,
            3 => GreetingKind::Accept,
            _ => return None,
        };
        let session = SessionId(bytes[4..20].try_into().ok()?);
        let stream = u32::from_be_bytes(bytes[20..24].try_into().ok()?);
        let cookie = bytes[25..SIGNED_BYTES].try_into().ok()?;
        let mac = bytes[SIGNED_BYTES..].try_into().ok()?;
        Some((Greeting { kind, session, stream, cookie }, mac))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_decoded_as_encoded_in_64_bits() {
        for end in [false, true] {
            let header = DatagramHeader { tag: 7, number: u64::MAX >> 1, end, time_ns: 1 << 40 };
            let mut datagram = header.encode().to_vec();
            datagram.extend([9; 100]);
            assert_eq!(DatagramHeader::decode(&datagram), Some(header));
        }
        assert_eq!(DatagramHeader::decode(&[0; 23]), None);
    }

    #[test]
    fn greetings_are_decoded_as_encoded_and_others_refused() {
        use GreetingKind::{Accept, Challenge, Confirm, Hello};
        for kind in [Hello, Challenge, Confirm, Accept] {
            let session = SessionId([7; 16]);
            let greeting = Greeting { kind, session, stream: 3, cookie: [5; 7] };
            let bytes = greeting.encode(&[9; MAC_BYTES]);
            assert_eq!(Greeting::decode(&bytes), Some((greeting, [9; MAC_BYTES])));
            assert_eq!(Greeting::decode(&bytes[..63]), None);
            assert_eq!(Greeting::decode(&[&bytes[..], &[0]].concat()), None);
            let mut other = bytes;
            other[24] = 4;
            assert_eq!(Greeting::decode(&other), None);
        }
        assert_eq!(Greeting::decode(&[0; HELLO_BYTES]), None);
    }
}
