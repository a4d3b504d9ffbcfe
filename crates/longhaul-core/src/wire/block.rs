use crate::units::Bytes;

/// The length of a [`BlockHeader`] on the wire, without its tag.
pub const BLOCK_HEADER_BYTES: usize = 24;
/// The longest block that a peer may ask for or send.
pub const BLOCK_LIMIT: Bytes = Bytes::mib(16);

const KIND_BLOCK: u32 = 0;
const KIND_END: u32 = 1;

/// What stands before each block on a data connection, big-endian:
///
/// ```text
///  0  8  file: the entry's id
///  8  8  offset in the file
/// 16  4  length of the payload
/// 20  4  kind: 0 a block follows, 1 the end of this connection's blocks (all else zero)
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockHeader {
    /// A block follows.
    Block {
        /// The entry it belongs to.
        file: u64,
        /// Where it begins.
        offset: u64,
        /// How long it is; never zero.
        length: u32,
    },
    /// No more blocks come on this connection.
    End,
}

impl BlockHeader {
    /// The bytes on the wire.
    pub fn encode(&self) -> [u8; BLOCK_HEADER_BYTES] {
        let mut bytes = [0; BLOCK_HEADER_BYTES];
        match self {
            BlockHeader::Block { file, offset, length } => {
                bytes[..8].copy_from_slice(&file.to_be_bytes());
                bytes[8..16].copy_from_slice(&offset.to_be_bytes());
                bytes[16..20].copy_from_slice(&length.to_be_bytes());
                bytes[20..].copy_from_slice(&KIND_BLOCK.to_be_bytes());
            }
            BlockHeader::End => bytes[20..].copy_from_slice(&KIND_END.to_be_bytes()),
        }
        bytes
    }

    /// Takes the bytes apart; `None` if they are no header.
    pub fn decode(bytes: &[u8; BLOCK_HEADER_BYTES]) -> Option<Self> {
        let field = |range: std::ops::Range<usize>| {
            bytes[range].iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
        };
        match (field(20..24) as u32, field(16..20) as u32) {
            (KIND_BLOCK, length @ 1..) if u64::from(length) <= BLOCK_LIMIT.get() => {
                Some(BlockHeader::Block { file: field(0..8), offset: field(8..16), length })
            }
            (KIND_END, 0) if bytes[..16] == [0; 16] => Some(BlockHeader::End),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back() {
        for header in
            [BlockHeader::End, BlockHeader::Block { file: 7, offset: 1 << 40, length: 1 << 20 }]
        {
            assert_eq!(BlockHeader::decode(&header.encode()), Some(header));
        }
    }

    #[test]
    fn lengths_are_bounded() {
        let bad = |length| BlockHeader::Block { file: 0, offset: 0, length }.encode();
        assert_eq!(BlockHeader::decode(&bad(0)), None);
        assert_eq!(BlockHeader::decode(&bad(u32::MAX)), None);
        assert_eq!(BlockHeader::decode(&[0xff; BLOCK_HEADER_BYTES]), None);
    }
}
