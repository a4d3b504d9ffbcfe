//! The headers of blocks and packs on a data connection.

use crate::units::Bytes;

/// The length of a [`BlockHeader`] on the wire, without its tag.
pub const BLOCK_HEADER_BYTES: usize = 24;
/// The largest block that a peer may request or send.
pub const BLOCK_LIMIT: Bytes = Bytes::mib(16);
/// The maximum number of files in one pack, which keep its table below 13 KiB.
pub const PACK_FILES_LIMIT: usize = 1024;
/// The length of a [`PackEntry`] on the wire.
pub const PACK_ENTRY_BYTES: usize = 12;

const KIND_BLOCK: u32 = 0;
const KIND_END: u32 = 1;
const KIND_PACK: u32 = 2;

/// The header of each block on a data connection, big-endian:
///
/// ```text
///  0  8  file: the entry's id (zero for a pack)
///  8  8  offset in the file; the number of files of a pack
/// 16  4  length of the payload
/// 20  4  kind: 0 a block follows, 1 the end of this connection's blocks (other fields zero),
///        2 a pack: a table of files follows, then the bytes of the files in order
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockHeader {
    /// A block follows.
    Block {
        /// The id of the entry.
        file: u64,
        /// The offset in the file in bytes.
        offset: u64,
        /// The length in bytes; never zero.
        length: u32,
    },
    /// A pack of whole files: a table of them, then their contents.
    Pack {
        /// The number of files; 1 to [`PACK_FILES_LIMIT`].
        files: u32,
        /// The length of all files together in bytes; zero if all are empty.
        length: u32,
    },
    /// The end of the blocks on this connection.
    End,
}

/// One file of a pack, 12 bytes: its entry's id (8) and its length (4), big-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackEntry {
    /// The id of the entry.
    pub file: u64,
    /// The length of the file in bytes.
    pub length: u32,
}

impl BlockHeader {
    /// Returns the bytes on the wire.
    pub fn encode(&self) -> [u8; BLOCK_HEADER_BYTES] {
        let (file, offset, length, kind) = match *self {
            BlockHeader::Block { file, offset, length } => (file, offset, length, KIND_BLOCK),
            BlockHeader::Pack { files, length } => (0, files.into(), length, KIND_PACK),
            BlockHeader::End => (0, 0, 0, KIND_END),
        };
        let mut bytes = [0; BLOCK_HEADER_BYTES];
        bytes[..8].copy_from_slice(&file.to_be_bytes());
        bytes[8..16].copy_from_slice(&offset.to_be_bytes());
        bytes[16..20].copy_from_slice(&length.to_be_bytes());
        bytes[20..].copy_from_slice(&kind.to_be_bytes());
        bytes
    }

    /// Parses a header; `None` if it is invalid.
    pub fn decode(bytes: &[u8; BLOCK_HEADER_BYTES]) -> Option<Self> {
        let (file, offset) = (number(&bytes[..8]), number(&bytes[8..16]));
        let (length, kind) = (number(&bytes[16..20]) as u32, number(&bytes[20..]) as u32);
        if u64::from(length) > BLOCK_LIMIT.get() {
            return None;
        }
        match (kind, file, offset, length) {
            (KIND_BLOCK, _, _, 1..) => Some(BlockHeader::Block { file, offset, length }),
            (KIND_PACK, 0, 1.., _) if offset <= PACK_FILES_LIMIT as u64 => {
                Some(BlockHeader::Pack { files: offset as u32, length })
            }
            (KIND_END, 0, 0, 0) => Some(BlockHeader::End),
            _ => None,
        }
    }
}

impl PackEntry {
    /// Returns the bytes on the wire.
    pub fn encode(&self) -> [u8; PACK_ENTRY_BYTES] {
        let mut bytes = [0; PACK_ENTRY_BYTES];
        bytes[..8].copy_from_slice(&self.file.to_be_bytes());
        bytes[8..].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }

    /// Parses a table; `None` if its lengths do not add up to `total`.
    pub fn decode_table(bytes: &[u8], total: u32) -> Option<Vec<Self>> {
        let entries: Vec<_> = bytes
            .chunks_exact(PACK_ENTRY_BYTES)
            .map(|entry| PackEntry {
                file: number(&entry[..8]),
                length: number(&entry[8..]) as u32,
            })
            .collect();
        let sum: u64 = entries.iter().map(|entry| u64::from(entry.length)).sum();
        (sum == u64::from(total)).then_some(entries)
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_decoded_as_encoded() {
        for header in [
            BlockHeader::End,
            BlockHeader::Block { file: 7, offset: 1 << 40, length: 1 << 20 },
            BlockHeader::Pack { files: 1, length: 0 },
            BlockHeader::Pack { files: PACK_FILES_LIMIT as u32, length: 1 << 20 },
        ] {
            assert_eq!(BlockHeader::decode(&header.encode()), Some(header));
        }
    }

    #[test]
    fn lengths_are_bounded() {
        let block = |length| BlockHeader::Block { file: 0, offset: 0, length }.encode();
        assert_eq!(BlockHeader::decode(&block(0)), None);
        assert_eq!(BlockHeader::decode(&block(u32::MAX)), None);
        let pack = |files, length| BlockHeader::Pack { files, length }.encode();
        assert_eq!(BlockHeader::decode(&pack(0, 1)), None);
        assert_eq!(BlockHeader::decode(&pack(PACK_FILES_LIMIT as u32 + 1, 1)), None);
        assert_eq!(BlockHeader::decode(&pack(1, u32::MAX)), None);
        assert_eq!(BlockHeader::decode(&[0xff; BLOCK_HEADER_BYTES]), None);
    }

    #[test]
    fn a_table_adds_up_to_its_payload() {
        let entries = [PackEntry { file: 3, length: 10 }, PackEntry { file: 9, length: u32::MAX }];
        let table: Vec<u8> = entries.iter().flat_map(PackEntry::encode).collect();
        assert_eq!(PackEntry::decode_table(&table[..12], 10), Some(entries[..1].to_vec()));
        assert_eq!(PackEntry::decode_table(&table[..12], 11), None);
        assert_eq!(PackEntry::decode_table(&table, 9), None, "no sum wraps around");
    }
}
