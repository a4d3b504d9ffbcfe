//! The blocks of the TCP streams of another program's protocol.

use std::fmt;

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
