//! The header of the datagrams of another program's protocol.

use std::fmt;
use std::time::Duration;

/// The header of the datagrams of another program's protocol, for both ends of a flow.
pub trait DatagramFormat: fmt::Debug + Send + Sync {
    /// Returns the length of the shortest datagram that holds the header, in bytes.
    fn header_bytes(&self) -> usize;

    /// Writes the header at the start of `datagram`, which has at least
    /// [`header_bytes`](Self::header_bytes).
    fn write(&self, datagram: &mut [u8], header: &SentDatagram);

    /// Reads the header of `datagram`, which may have any length. `expected` is the number after
    /// the highest one seen, from which a format with short numbers derives the full number.
    fn read(&self, datagram: &[u8], expected: u64) -> ReceivedDatagram;
}

/// A datagram that is about to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentDatagram {
    /// The number of the datagram in its flow, from 0.
    pub number: u64,
    /// The time since the start of the flow.
    pub time: Duration,
    /// The bytes of the flow, up to the end of this datagram.
    pub bytes: u64,
}

/// The meaning of a received datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceivedDatagram {
    /// Data.
    Data {
        /// The number of the datagram, from 0; `None` if the protocol has no numbers.
        number: Option<u64>,
        /// The sender's time in ns on any clock; `None` if the protocol has none.
        sent_ns: Option<u64>,
    },
    /// The mark after the last datagram.
    End,
    /// Anything else, which does not count.
    Other,
}
