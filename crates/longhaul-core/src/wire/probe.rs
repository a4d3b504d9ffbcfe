//! The datagrams of a path measurement.

/// The length of the header of every probe datagram; zeros follow.
pub const PROBE_BYTES: usize = 40;

/// The kind of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeKind {
    /// A request that is answered.
    Request,
    /// The answer to a request.
    Answer,
    /// A datagram of a stream, which is counted.
    Stream,
    /// A packet of a train, whose arrival time is recorded.
    Train,
}

/// The header of a probe, big-endian:
///
/// ```text
///  0  8  tag of the flow; derived from the session's secret
///  8  1  kind: 0 request, 1 answer, 2 of a stream, 3 of a train
///  9  1  train, from 0; in an answer the lowest byte of the number of requests that arrived; zero
///        in the other kinds
/// 10  2  payload bytes of the answer, at most those of the request
/// 12  4  number; in a stream its lower 32 bits
/// 16  8  sending time in ns, by the sender's `CLOCK_REALTIME`
/// 24  8  in an answer: the arrival time of the request
/// 32  8  in an answer: its sending time; in a stream the whole number
/// ```
///
/// An answer repeats the number and the sending time of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbeHeader {
    /// The tag of the flow, which only the two ends know.
    pub tag: u64,
    /// The kind of the probe.
    pub kind: ProbeKind,
    /// The number of the train; in an answer the lowest byte of the number of requests that arrived.
    pub train: u8,
    /// The payload bytes that the answer must have.
    pub answer_bytes: u16,
    /// The number of the request, or of the packet in a train.
    pub number: u32,
    /// The sending time of the probe, or in an answer that of the request.
    pub sent_ns: u64,
    /// The arrival time of the request.
    pub arrived_ns: u64,
    /// The sending time of the answer, or the number in a stream.
    pub last: u64,
}

impl ProbeHeader {
    /// Returns the bytes on the wire.
    pub fn encode(&self) -> [u8; PROBE_BYTES] {
        let mut bytes = [0; PROBE_BYTES];
        bytes[..8].copy_from_slice(&self.tag.to_be_bytes());
        bytes[8] = match self.kind {
            ProbeKind::Request => 0,
            ProbeKind::Answer => 1,
            ProbeKind::Stream => 2,
            ProbeKind::Train => 3,
        };
        bytes[9] = self.train;
        bytes[10..12].copy_from_slice(&self.answer_bytes.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.number.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.sent_ns.to_be_bytes());
        bytes[24..32].copy_from_slice(&self.arrived_ns.to_be_bytes());
        bytes[32..].copy_from_slice(&self.last.to_be_bytes());
        bytes
    }

    /// Parses the header of `datagram`; `None` if it is invalid. The caller compares the tag.
    pub fn decode(datagram: &[u8]) -> Option<Self> {
        let bytes: &[u8; PROBE_BYTES] = datagram.first_chunk()?;
        let field = |at: usize| {
            bytes[at..at + 8].iter().fold(0, |value: u64, byte| value << 8 | u64::from(*byte))
        };
        let kind = match bytes[8] {
            0 => ProbeKind::Request,
            1 => ProbeKind::Answer,
            2 => ProbeKind::Stream,
            3 => ProbeKind::Train,
            _ => return None,
        };
        Some(ProbeHeader {
            tag: field(0),
            kind,
            train: bytes[9],
            answer_bytes: u16::from_be_bytes([bytes[10], bytes[11]]),
            number: u32::from_be_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]),
            sent_ns: field(16),
            arrived_ns: field(24),
            last: field(32),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_decoded_as_encoded_and_others_refused() {
        use ProbeKind::{Answer, Request, Stream, Train};
        for kind in [Request, Answer, Stream, Train] {
            let probe = ProbeHeader {
                tag: u64::MAX - 7,
                kind,
                train: 31,
                answer_bytes: 65_000,
                number: u32::MAX - 1,
                sent_ns: 1 << 60,
                arrived_ns: 2 << 60,
                last: 3 << 60,
            };
            let mut datagram = probe.encode().to_vec();
            datagram.extend([0; 100]);
            assert_eq!(ProbeHeader::decode(&datagram), Some(probe));
            assert_eq!(ProbeHeader::decode(&datagram[..PROBE_BYTES - 1]), None);
            datagram[8] = 4;
            assert_eq!(ProbeHeader::decode(&datagram), None);
        }
    }
}
