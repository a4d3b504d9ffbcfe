//! The blocks of the TCP streams and the datagrams of another program's protocol.

use std::fmt;
use std::time::Duration;

/// The blocks of the TCP streams of another program's protocol, for both ends.
///
/// A sender sends whole blocks, and the same number on every stream, because the receiver reads a
/// block of each stream in turn. Each block has the length of the plan's writes.
pub trait BlockFormat: fmt::Debug + Send + Sync {
    /// Returns true if [`write`](Self::write) needs the state of the connection.
    fn needs_state(&self) -> bool;

    /// Writes fields into a block that is about to be sent. Without
    /// [`needs_state`](Self::needs_state) all of `state` is 0.
    fn write(&self, block: &mut [u8], state: BlockState);

    /// Reads fields of received bytes; `offset` is the number of bytes of the stream before them.
    fn read(&self, bytes: &[u8], offset: u64);
}

/// The state of a connection before a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockState {
    /// The number of the block, from 0.
    pub number: u64,
    /// The segments that this end retransmitted.
    pub retransmits: u64,
    /// The congestion window in bytes.
    pub cwnd_bytes: u64,
}

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
