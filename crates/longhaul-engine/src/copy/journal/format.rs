use std::collections::HashMap;
use std::io::{self, Read, Write};

use longhaul_core::wire::WirePath;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

/// The version of the format, in the first record of every journal.
pub(super) const VERSION: u32 = 2;
/// The longest record: far more than the blocks of one file need.
const RECORD_LIMIT: usize = 16 << 20;
const HASH_BYTES: usize = 16;

/// One record: a big-endian `u32` length, so many bytes of JSON, and their XXH3-128.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::copy) enum Record {
    /// The first one: what the rest depends on.
    Begin {
        version: u32,
        /// The unit of [`Record::Blocks`], in version 1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        block_bytes: Option<u64>,
        /// The host's boot, if records are written without a sync: they hold no longer than that.
        #[serde(default)]
        boot: Option<String>,
    },
    /// A file has been begun under a temporary name.
    Partial { path: WirePath, stamp: u64, temporary: WirePath, id: FileId },
    /// These bytes of it are written, by offset and length; replaces what was said of it before.
    Extents { path: WirePath, extents: Vec<(u64, u64)> },
    /// The same in blocks, of which the last may be short. Version 1 wrote it.
    Blocks { path: WirePath, spans: Vec<(u64, u64)> },
    /// It is in place.
    Done { path: WirePath, stamp: u64, id: FileId },
}

/// What tells that a file is still the one that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::copy) struct FileId {
    pub(in crate::copy) device: u64,
    pub(in crate::copy) inode: u64,
    pub(in crate::copy) size: u64,
    pub(in crate::copy) mtime_seconds: i64,
    pub(in crate::copy) mtime_ns: u64,
}

/// What is known of a file from an earlier attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::copy) enum PastFile {
    /// Begun: these bytes, by offset and length, are under the temporary name; what lies beyond the
    /// end counts for nothing. Only device and inode of `id` tell.
    Partial { stamp: u64, temporary: WirePath, id: FileId, extents: Vec<(u64, u64)> },
    /// In place.
    Done { stamp: u64, id: FileId },
}

/// All that a journal says.
#[derive(Debug, Default)]
pub(in crate::copy) struct Past {
    /// Its first record.
    pub(super) begin: Option<Record>,
    /// By path relative to the target.
    pub(in crate::copy) files: HashMap<Vec<u8>, PastFile>,
    /// The bytes that are whole records; what follows was being written when it broke off.
    pub(super) valid_bytes: u64,
}

impl Record {
    /// Appends the record as bytes.
    pub(super) fn encode(&self, bytes: &mut Vec<u8>) -> io::Result<()> {
        let body = serde_json::to_vec(self)?;
        bytes.write_all(&(body.len() as u32).to_be_bytes())?;
        bytes.write_all(&body)?;
        bytes.write_all(&XxHash3_128::oneshot(&body).to_be_bytes())
    }

    /// The next record and its length; `None` at the end, or where whole records end.
    fn decode(reader: &mut impl Read) -> Option<(Self, u64)> {
        let mut length = [0; 4];
        reader.read_exact(&mut length).ok()?;
        let length = u32::from_be_bytes(length) as usize;
        if length > RECORD_LIMIT {
            return None;
        }
        // Not taken at once: a damaged length must not cost memory.
        let mut body = Vec::new();
        reader.take(length as u64).read_to_end(&mut body).ok()?;
        let mut hash = [0; HASH_BYTES];
        reader.read_exact(&mut hash).ok()?;
        if body.len() != length || XxHash3_128::oneshot(&body).to_be_bytes() != hash {
            return None;
        }
        let record = serde_json::from_slice(&body).ok()?;
        Some((record, (4 + length + HASH_BYTES) as u64))
    }
}

impl Past {
    /// Whether it can be gone on with.
    pub(in crate::copy) fn is_usable(&self) -> bool {
        self.begin.is_some()
    }

    /// Whether what it says holds where `boot` is what a journal of this run names, and may be
    /// added to.
    pub(super) fn holds(&self, boot: Option<&str>) -> bool {
        match &self.begin {
            Some(Record::Begin { version, block_bytes, boot: then }) => {
                let known = *version == VERSION || *version == 1 && block_bytes.is_some();
                known && then.as_deref() == boot
            }
            _ => false,
        }
    }

    /// The unit of version 1.
    fn block_bytes(&self) -> Option<u64> {
        match &self.begin {
            Some(Record::Begin { block_bytes, .. }) => *block_bytes,
            _ => None,
        }
    }

    /// Reads as far as records are whole.
    pub(super) fn read(reader: &mut impl Read) -> Self {
        let mut past = Past::default();
        while let Some((record, length)) = Record::decode(reader) {
            past.valid_bytes += length;
            past.take(record);
        }
        past
    }

    fn take(&mut self, record: Record) {
        match record {
            Record::Begin { .. } => {
                self.begin.get_or_insert(record);
            }
            Record::Partial { path, stamp, temporary, id } => {
                let partial = PastFile::Partial { stamp, temporary, id, extents: Vec::new() };
                self.files.insert(path.as_bytes().to_vec(), partial);
            }
            Record::Extents { path, extents } => self.say(&path, extents),
            Record::Blocks { path, spans } => {
                let unit = self.block_bytes().unwrap_or_default();
                let bytes = |(first, count): (u64, u64)| {
                    Some((first.checked_mul(unit)?, count.checked_mul(unit)?))
                };
                self.say(&path, spans.into_iter().filter_map(bytes).collect());
            }
            Record::Done { path, stamp, id } => {
                self.files.insert(path.as_bytes().to_vec(), PastFile::Done { stamp, id });
            }
        }
    }

    fn say(&mut self, path: &WirePath, written: Vec<(u64, u64)>) {
        if let Some(PastFile::Partial { extents, .. }) = self.files.get_mut(path.as_bytes()) {
            *extents = written;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> WirePath {
        WirePath::new(text).unwrap()
    }

    const ID: FileId =
        FileId { device: 1, inode: 12, size: 3 << 20, mtime_seconds: 5, mtime_ns: 9 };

    fn records() -> Vec<Record> {
        vec![
            Record::Begin { version: VERSION, block_bytes: None, boot: None },
            Record::Partial {
                path: path("a"),
                stamp: 7,
                temporary: path(".a.longhaul-00000000-0.part"),
                id: ID,
            },
            Record::Extents { path: path("a"), extents: vec![(0, 1 << 20)] },
            Record::Extents { path: path("a"), extents: vec![(0, 2 << 20)] },
            Record::Done { path: path("b/c%"), stamp: 8, id: ID },
        ]
    }

    fn bytes(records: &[Record]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for record in records {
            record.encode(&mut bytes).unwrap();
        }
        bytes
    }

    #[test]
    fn what_is_written_is_read() {
        let bytes = bytes(&records());
        let past = Past::read(&mut &bytes[..]);
        assert_eq!(past.begin.as_ref(), Some(&records()[0]));
        assert_eq!(past.valid_bytes, bytes.len() as u64);
        let PastFile::Partial { extents, stamp: 7, .. } = &past.files[&b"a"[..]] else { panic!() };
        assert_eq!(extents, &[(0, 2 << 20)]);
        assert_eq!(past.files[&b"b/c%"[..]], PastFile::Done { stamp: 8, id: ID });
    }

    #[test]
    fn a_journal_counts_as_far_as_it_is_whole() {
        let whole = bytes(&records());
        let first = bytes(&records()[..3]).len();
        for end in first..bytes(&records()[..4]).len() {
            let past = Past::read(&mut &whole[..end]);
            assert_eq!(past.valid_bytes, first as u64, "{end}");
            let PastFile::Partial { extents, .. } = &past.files[&b"a"[..]] else { panic!() };
            assert_eq!(extents, &[(0, 1 << 20)], "{end}");
        }
        let mut damaged = whole;
        damaged[first + 10] ^= 1;
        assert_eq!(Past::read(&mut &damaged[..]).valid_bytes, first as u64);
    }

    #[test]
    fn nonsense_is_no_journal() {
        let mut state = 1_u64;
        for length in 0..2000 {
            let noise: Vec<u8> = (0..length)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (state >> 60) as u8
                })
                .collect();
            assert!(Past::read(&mut &noise[..]).files.is_empty());
        }
    }

    #[test]
    fn every_version_is_read() {
        for fixture in [
            &include_bytes!("../../../tests/fixtures/journal-1.bin")[..],
            &include_bytes!("../../../tests/fixtures/journal-2.bin")[..],
        ] {
            let past = Past::read(&mut &fixture[..]);
            assert!(past.holds(None) && !past.holds(Some("another boot")));
            assert_eq!(past.valid_bytes, fixture.len() as u64);
            assert_eq!(past.files.len(), 2);
            let PastFile::Partial { extents, .. } = &past.files[&b"a"[..]] else { panic!() };
            assert_eq!(extents, &[(0, 2 << 20)], "blocks of 1 MiB, or their bytes");
            assert_eq!(past.files[&b"b/c%"[..]], PastFile::Done { stamp: 8, id: ID });
        }
    }

    #[test]
    fn a_journal_of_the_first_version_is_added_to() {
        let mut bytes = include_bytes!("../../../tests/fixtures/journal-1.bin").to_vec();
        let more = Record::Extents { path: path("a"), extents: vec![(0, 3 << 20)] };
        more.encode(&mut bytes).unwrap();
        let past = Past::read(&mut &bytes[..]);
        assert!(past.holds(None));
        let PastFile::Partial { extents, .. } = &past.files[&b"a"[..]] else { panic!() };
        assert_eq!(extents, &[(0, 3 << 20)]);
    }

    #[test]
    fn what_a_later_version_wrote_is_not_trusted() {
        let later = Record::Begin { version: VERSION + 1, block_bytes: None, boot: None };
        assert!(!Past::read(&mut &bytes(&[later])[..]).holds(None));
        let unitless = Record::Begin { version: 1, block_bytes: None, boot: None };
        assert!(!Past::read(&mut &bytes(&[unitless])[..]).holds(None));
    }
}
