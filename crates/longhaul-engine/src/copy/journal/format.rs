//! The records of a journal.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read, Write};

use longhaul_core::plan::{CopyOptions, OwnerMode, Verify};
use longhaul_core::wire::{BLOCK_LIMIT, FilePath};
use longhaul_sys::memory::DIRECT_ALIGN;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

/// The version of the format, in the first record of every journal.
pub(super) const VERSION: u32 = 4;
/// The longest record: far more than the blocks of one file need.
const RECORD_LIMIT: usize = 16 << 20;
const HASH_BYTES: usize = 16;

/// One record: a big-endian `u32` length, so many bytes of JSON, and their XXH3-128.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::copy) enum Record {
    /// The first record. A later record of this kind changes the terms of the following records.
    Begin {
        version: u32,
        /// The unit of [`Record::Blocks`], in version 1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        block_bytes: Option<u64>,
        /// The host's boot, if records are written without a sync: then they are valid only until
        /// the next boot.
        #[serde(default)]
        boot: Option<String>,
        /// Since version 4.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        terms: Option<CopyTerms>,
        /// The name that the only top-level entry gets instead of its own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<FilePath>,
    },
    /// A file has been begun under a temporary name.
    Partial { path: FilePath, stamp: u64, temporary: FilePath, id: FileId },
    /// More of its bytes are written. Digests are over pieces of `piece_bytes`.
    Written { path: FilePath, piece_bytes: u64, extents: Vec<Extent> },
    /// The record of version 2, without digests. Its bytes are not reused.
    Extents { path: FilePath, extents: Vec<(u64, u64)> },
    /// The record of version 1, in blocks. Its bytes are not reused.
    Blocks { path: FilePath, spans: Vec<(u64, u64)> },
    /// The file has its final name.
    Done { path: FilePath, stamp: u64, id: FileId },
}

/// The options under which a sink accepts bytes and gives files their final names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(in crate::copy) struct CopyTerms {
    /// Blocks are verified when they arrive.
    pub(in crate::copy) verified: bool,
    /// Files are read back from the disk.
    pub(in crate::copy) reread: bool,
    /// Files keep modes and times.
    pub(in crate::copy) preserve: bool,
    pub(in crate::copy) owner: OwnerMode,
    pub(in crate::copy) xattrs: bool,
}

impl CopyTerms {
    /// Returns the terms of a copy with `options`.
    pub(in crate::copy) fn of(options: &CopyOptions) -> Self {
        CopyTerms {
            verified: options.protection.verifies(),
            reread: options.verify == Verify::Reread,
            preserve: options.preserve,
            owner: options.tree.owner,
            xattrs: options.tree.xattrs,
        }
    }

    /// Returns whether a file that was placed under these terms equals the one that a copy under
    /// `now` would place.
    pub(in crate::copy) fn cover(&self, now: &CopyTerms) -> bool {
        let attributes = |terms: &CopyTerms| (terms.preserve, terms.owner, terms.xattrs);
        (self.verified || !now.verified)
            && (self.reread || !now.reread)
            && attributes(self) == attributes(now)
    }
}

/// The identity of a file, which changes when the file is written or replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::copy) struct FileId {
    pub(in crate::copy) device: u64,
    pub(in crate::copy) inode: u64,
    pub(in crate::copy) size: u64,
    pub(in crate::copy) mtime_seconds: i64,
    pub(in crate::copy) mtime_ns: u64,
    /// The change time, which no program can set. Versions 1 and 2 did not write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::copy) ctime: Option<(i64, u64)>,
}

impl FileId {
    /// Returns whether `now` is the identity of the same file, unchanged.
    pub(in crate::copy) fn names(&self, now: &FileId) -> bool {
        let ctime = self.ctime.and(now.ctime);
        FileId { ctime, ..*now } == *self
    }
}

/// Bytes of a file that were verified and written: offset, length and digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::copy) struct Extent(
    pub(in crate::copy) u64,
    pub(in crate::copy) u64,
    pub(in crate::copy) Digest,
);

/// The XXH3-128 of the XXH3-128 of each piece of an extent, one after the other, each in 16 bytes,
/// big-endian. 32 hexadecimal digits in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(in crate::copy) struct Digest(u128);

impl Digest {
    /// Returns the digest of an extent from the digests of its `pieces`.
    pub(in crate::copy) fn of(pieces: impl Iterator<Item = u128>) -> Self {
        let bytes: Vec<u8> = pieces.flat_map(u128::to_be_bytes).collect();
        Digest(XxHash3_128::oneshot(&bytes))
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> String {
        format!("{:032x}", digest.0)
    }
}

impl TryFrom<String> for Digest {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = digits.then(|| u128::from_str_radix(&text, 16).ok()).flatten();
        number.map(Digest).ok_or("a digest has 32 hexadecimal digits")
    }
}

/// Bytes that an earlier attempt has written, to be read again before they count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::copy) struct Claim {
    pub(in crate::copy) offset: u64,
    pub(in crate::copy) length: u64,
    pub(in crate::copy) piece_bytes: u64,
    pub(in crate::copy) digest: Digest,
}

impl Claim {
    /// Returns whether the extent can be of a file of `size` bytes that was written in blocks.
    pub(in crate::copy) fn fits(&self, size: u64) -> bool {
        let align = DIRECT_ALIGN as u64;
        let aligned = |bytes: u64| bytes.is_multiple_of(align);
        (align..=BLOCK_LIMIT.get()).contains(&self.piece_bytes)
            && aligned(self.piece_bytes)
            && aligned(self.offset)
            && self.length > 0
            && self.offset.checked_add(self.length).is_some_and(|end| end <= size)
    }
}

/// A file of an earlier attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::copy) enum PastFile {
    /// Begun: these bytes were written under the temporary name. Only the device and inode of `id`
    /// identify the file.
    Partial {
        stamp: u64,
        temporary: FilePath,
        id: FileId,
        extents: Vec<Claim>,
        /// Every extent was verified when it arrived.
        verified: bool,
    },
    /// In place; `terms` are unknown before version 4.
    Done { stamp: u64, id: FileId, terms: Option<CopyTerms> },
}

/// The contents of a journal.
#[derive(Debug, Default)]
pub(in crate::copy) struct Past {
    /// Its first record.
    pub(super) begin: Option<Record>,
    /// The terms of records that are appended.
    pub(super) terms: Option<CopyTerms>,
    /// The name that the only top-level entry gets instead of its own.
    pub(super) name: Option<FilePath>,
    /// By path relative to the target.
    pub(in crate::copy) files: HashMap<Vec<u8>, PastFile>,
    /// The length of the complete records; the rest was being written at the interruption.
    pub(in crate::copy) valid_bytes: u64,
}

impl Record {
    /// Appends the record as bytes.
    pub(super) fn encode(&self, bytes: &mut Vec<u8>) -> io::Result<()> {
        let body = serde_json::to_vec(self)?;
        bytes.write_all(&(body.len() as u32).to_be_bytes())?;
        bytes.write_all(&body)?;
        bytes.write_all(&XxHash3_128::oneshot(&body).to_be_bytes())
    }

    /// Reads the next record. Returns it with its length; `None` at the end, or if the rest is not
    /// a complete record.
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
    /// Returns whether a copy can resume with it.
    pub(in crate::copy) fn is_usable(&self) -> bool {
        self.begin.is_some()
    }

    /// Returns the device and inode of each temporary file in the journal.
    pub(in crate::copy) fn temporaries(&self) -> HashSet<(u64, u64)> {
        let partial = |file: &PastFile| match file {
            PastFile::Partial { id, .. } => Some((id.device, id.inode)),
            PastFile::Done { .. } => None,
        };
        self.files.values().filter_map(partial).collect()
    }

    fn is_verified(&self) -> bool {
        self.terms.is_some_and(|terms| terms.verified)
    }

    /// Returns whether the records are valid for a copy whose journal names `boot`, and may be
    /// followed by more records.
    pub(super) fn holds(&self, boot: Option<&str>) -> bool {
        match &self.begin {
            Some(Record::Begin { version, block_bytes, boot: then, .. }) => {
                let known = match version {
                    1 => block_bytes.is_some(),
                    2..=VERSION => true,
                    _ => false,
                };
                known && then.as_deref() == boot
            }
            _ => false,
        }
    }

    /// Reads as far as records are whole.
    pub(in crate::copy) fn read(reader: &mut impl Read) -> Self {
        let mut past = Past::default();
        while let Some((record, length)) = Record::decode(reader) {
            past.valid_bytes += length;
            past.take(record);
        }
        past
    }

    fn take(&mut self, record: Record) {
        match record {
            Record::Begin { ref terms, ref name, .. } => {
                (self.terms, self.name) = (*terms, name.clone());
                self.begin.get_or_insert(record);
            }
            Record::Partial { path, stamp, temporary, id } => {
                let (extents, verified) = (Vec::new(), self.is_verified());
                let partial = PastFile::Partial { stamp, temporary, id, extents, verified };
                self.files.insert(path.as_bytes().to_vec(), partial);
            }
            Record::Written { path, piece_bytes, extents: written } => {
                let now_verified = self.is_verified();
                if let Some(PastFile::Partial { extents, verified, .. }) =
                    self.files.get_mut(path.as_bytes())
                {
                    *verified &= now_verified;
                    extents.extend(written.into_iter().map(|Extent(offset, length, digest)| {
                        Claim { offset, length, piece_bytes, digest }
                    }));
                }
            }
            // Bytes without digests cannot be checked.
            Record::Extents { .. } | Record::Blocks { .. } => {}
            Record::Done { path, stamp, id } => {
                let done = PastFile::Done { stamp, id, terms: self.terms };
                self.files.insert(path.as_bytes().to_vec(), done);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> FilePath {
        FilePath::new(text).unwrap()
    }

    const ID: FileId =
        FileId { device: 1, inode: 12, size: 3 << 20, mtime_seconds: 5, mtime_ns: 9, ctime: None };
    const CHANGED: FileId = FileId { ctime: Some((6, 10)), ..ID };

    /// Returns the claim of one written extent of blocks of 1 MiB.
    fn claim(offset: u64, length: u64) -> Claim {
        let Extent(offset, length, digest) = written(offset, length);
        Claim { offset, length, piece_bytes: 1 << 20, digest }
    }

    fn written(offset: u64, length: u64) -> Extent {
        Extent(offset, length, Digest::of([u128::from(offset), 5].into_iter()))
    }

    fn records() -> Vec<Record> {
        vec![
            begin(),
            Record::Partial {
                path: path("a"),
                stamp: 7,
                temporary: path(".a.longhaul-00000000-0.part"),
                id: ID,
            },
            Record::Written {
                path: path("a"),
                piece_bytes: 1 << 20,
                extents: vec![written(0, 1 << 20)],
            },
            Record::Written {
                path: path("a"),
                piece_bytes: 1 << 20,
                extents: vec![written(1 << 20, 1 << 20), written(5 << 20, 77)],
            },
            Record::Done { path: path("b/c%"), stamp: 8, id: CHANGED },
        ]
    }

    const TERMS: CopyTerms = CopyTerms {
        verified: true,
        reread: false,
        preserve: true,
        owner: OwnerMode::Names,
        xattrs: true,
    };

    fn begin() -> Record {
        let name = FilePath::new("new");
        Record::Begin { version: VERSION, block_bytes: None, boot: None, terms: Some(TERMS), name }
    }

    fn bytes(records: &[Record]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for record in records {
            record.encode(&mut bytes).unwrap();
        }
        bytes
    }

    #[test]
    fn written_records_are_read() {
        let bytes = bytes(&records());
        let past = Past::read(&mut &bytes[..]);
        assert_eq!(past.begin.as_ref(), Some(&records()[0]));
        assert_eq!(past.valid_bytes, bytes.len() as u64);
        let PastFile::Partial { extents, stamp: 7, .. } = &past.files[&b"a"[..]] else { panic!() };
        let claims = [claim(0, 1 << 20), claim(1 << 20, 1 << 20), claim(5 << 20, 77)];
        assert_eq!(extents, &claims);
        let done = PastFile::Done { stamp: 8, id: CHANGED, terms: Some(TERMS) };
        assert_eq!(past.files[&b"b/c%"[..]], done);
        assert_eq!(past.temporaries(), HashSet::from([(1, 12)]));
    }

    #[test]
    fn a_claim_that_no_file_can_have_is_none() {
        let good = claim(1 << 20, 77);
        assert!(good.fits((1 << 20) + 77) && good.fits(u64::MAX) && !good.fits(1 << 20));
        for bad in [
            Claim { offset: 5, ..good },
            Claim { length: 0, ..good },
            Claim { length: u64::MAX, ..good },
            Claim { piece_bytes: 0, ..good },
            Claim { piece_bytes: 5000, ..good },
            Claim { piece_bytes: 1 << 40, ..good },
        ] {
            assert!(!bad.fits(u64::MAX), "{bad:?}");
        }
    }

    #[test]
    fn a_file_is_the_same_if_all_that_was_written_of_it_is() {
        assert!(CHANGED.names(&CHANGED) && ID.names(&ID) && ID.names(&CHANGED));
        assert!(!CHANGED.names(&ID));
        assert!(!CHANGED.names(&FileId { ctime: Some((6, 11)), ..CHANGED }));
        assert!(!ID.names(&FileId { mtime_ns: 8, ..ID }));
    }

    #[test]
    fn a_journal_counts_as_far_as_it_is_whole() {
        let whole = bytes(&records());
        let first = bytes(&records()[..3]).len();
        for end in first..bytes(&records()[..4]).len() {
            let past = Past::read(&mut &whole[..end]);
            assert_eq!(past.valid_bytes, first as u64, "{end}");
            let PastFile::Partial { extents, .. } = &past.files[&b"a"[..]] else { panic!() };
            assert_eq!(extents, &[claim(0, 1 << 20)], "{end}");
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
        for (fixture, claims, id, terms) in [
            (&include_bytes!("../../../tests/fixtures/journal-1.bin")[..], vec![], ID, None),
            (&include_bytes!("../../../tests/fixtures/journal-2.bin")[..], vec![], ID, None),
            (
                &include_bytes!("../../../tests/fixtures/journal-3.bin")[..],
                vec![claim(0, 1 << 20), claim(1 << 20, 1 << 20), claim(5 << 20, 77)],
                CHANGED,
                None,
            ),
            (
                &include_bytes!("../../../tests/fixtures/journal-4.bin")[..],
                vec![claim(0, 1 << 20), claim(1 << 20, 1 << 20), claim(5 << 20, 77)],
                CHANGED,
                Some(TERMS),
            ),
        ] {
            let past = Past::read(&mut &fixture[..]);
            assert!(past.holds(None) && !past.holds(Some("another boot")));
            assert_eq!(past.valid_bytes, fixture.len() as u64);
            assert_eq!(past.files.len(), 2);
            let PastFile::Partial { extents, verified, .. } = &past.files[&b"a"[..]] else {
                panic!()
            };
            assert_eq!(extents, &claims, "only bytes with a digest count");
            assert_eq!(*verified, terms.is_some(), "earlier versions do not record this");
            assert_eq!(past.files[&b"b/c%"[..]], PastFile::Done { stamp: 8, id, terms });
        }
    }

    #[test]
    fn the_bytes_of_this_version_are_fixed() {
        let fixture = include_bytes!("../../../tests/fixtures/journal-4.bin");
        assert!(bytes(&records()) == fixture);
    }

    #[test]
    fn a_journal_of_an_earlier_version_is_added_to() {
        let mut bytes = include_bytes!("../../../tests/fixtures/journal-1.bin").to_vec();
        let extents = vec![written(0, 3 << 20)];
        let more = Record::Written { path: path("a"), piece_bytes: 1 << 20, extents };
        more.encode(&mut bytes).unwrap();
        let past = Past::read(&mut &bytes[..]);
        assert!(past.holds(None));
        let PastFile::Partial { extents, .. } = &past.files[&b"a"[..]] else { panic!() };
        assert_eq!(extents, &[claim(0, 3 << 20)]);
    }

    #[test]
    fn records_of_a_later_version_are_not_used() {
        for version in [VERSION + 1, 1] {
            let (block_bytes, boot, terms, name) = (None, None, None, None);
            let other = Record::Begin { version, block_bytes, boot, terms, name };
            assert!(!Past::read(&mut &bytes(&[other])[..]).holds(None), "{version}");
        }
    }

    #[test]
    fn bytes_under_weaker_terms_are_known_as_such() {
        let unverified = Record::Begin {
            version: VERSION,
            block_bytes: None,
            boot: None,
            terms: Some(CopyTerms { verified: false, ..TERMS }),
            name: None,
        };
        let verified = |records: &[Record]| {
            let past = Past::read(&mut &bytes(records)[..]);
            let PastFile::Partial { verified, .. } = past.files[&b"a"[..]] else { panic!() };
            verified
        };
        let [first, partial, one, more, _] = records().try_into().unwrap();
        let (one, more) = (&one, &more);
        assert!(verified(&[first.clone(), partial.clone(), one.clone(), more.clone()]));
        let weak = [first.clone(), partial.clone(), one.clone(), unverified.clone(), more.clone()];
        assert!(!verified(&weak), "one of its extents was not verified");
        assert!(!verified(&[unverified, partial, first, one.clone()]));
    }

    #[test]
    fn terms_cover_weaker_ones_of_the_same_attributes() {
        let none = CopyTerms::default();
        assert!(TERMS.cover(&TERMS) && TERMS.cover(&CopyTerms { verified: false, ..TERMS }));
        let all = CopyTerms { reread: true, ..TERMS };
        assert!(all.cover(&TERMS) && !TERMS.cover(&all));
        assert!(!none.cover(&CopyTerms { verified: true, ..none }));
        assert!(!TERMS.cover(&CopyTerms { preserve: false, ..TERMS }));
        assert!(!TERMS.cover(&CopyTerms { owner: OwnerMode::Numbers, ..TERMS }));
        assert!(!TERMS.cover(&CopyTerms { xattrs: false, ..TERMS }));
    }
}
