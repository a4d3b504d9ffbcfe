//! A file's BLAKE3 digest from blocks that arrive in any order, on any thread.
//!
//! BLAKE3 is a tree of hashes. A block whose length is a power of two and divides its offset is a
//! subtree, so its hash is independent of other blocks. Blocks of other lengths are cut into such
//! pieces. The digest equals that of `b3sum` for the whole file.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::sync::Mutex;

use blake3::hazmat::{
    ChainingValue, HasherExt, Mode, left_subtree_len, merge_subtrees_non_root, merge_subtrees_root,
};
use blake3::{Hash, Hasher};

use crate::lock;

/// The maximum number of pieces of a file: 64 TiB in blocks of 1 MiB, at about 50 bytes per piece.
const PIECES_LIMIT: u64 = 1 << 26;

/// The digest of one file while its blocks arrive.
pub(super) struct FileDigest {
    /// The length of a subtree: the largest power of two that divides the block's.
    step: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By number, the hash of each subtree that has arrived: the memory depends on the received
    /// data, not on the announced size.
    values: BTreeMap<u64, ChainingValue>,
    /// The digest of a file that is one subtree.
    single: Option<Hash>,
}

impl FileDigest {
    /// Creates the digest of a file that arrives in blocks of `block_bytes`, a multiple of 4096.
    pub(super) fn new(block_bytes: u64) -> Self {
        FileDigest { step: 1 << block_bytes.trailing_zeros(), state: Mutex::default() }
    }

    /// Takes the block at `offset`. `size` is the file's, if it is known.
    pub(super) fn add(&self, offset: u64, bytes: &[u8], size: Option<u64>) {
        let first = offset / self.step;
        let single = (offset == 0 && size.is_none_or(|size| size <= self.step))
            .then(|| blake3::hash(&bytes[..bytes.len().min(self.step as usize)]));
        let values: Vec<_> = match size {
            Some(size) if size <= self.step => Vec::new(),
            _ => (bytes.chunks(self.step as usize).zip(first..))
                .map(|(piece, number)| {
                    let mut hasher = Hasher::new();
                    hasher.set_input_offset(number * self.step).update(piece);
                    hasher.finalize_non_root()
                })
                .collect(),
        };
        let mut state = lock(&self.state);
        state.single = single.or(state.single);
        state.values.extend((first..).zip(values));
    }

    /// Begins a run of bytes at `offset`; `size` is the file's, if it is known.
    pub(super) fn run(&self, offset: u64, size: Option<u64>) -> DigestRun {
        let (piece, single, values) = (None, None, Vec::new());
        DigestRun { step: self.step, size, at: offset, piece, single, values }
    }

    /// Adds the pieces that `run` contains completely.
    pub(super) fn take(&self, mut run: DigestRun) {
        // A file of unknown size can end within its last piece.
        if run.size.is_none() {
            run.end_piece();
        }
        let mut state = lock(&self.state);
        state.single = run.single.or(state.single);
        state.values.extend(run.values);
    }

    /// Returns whether a file of `size` bytes has more pieces than the digest can hold.
    pub(super) fn is_too_long(&self, size: u64) -> bool {
        size.div_ceil(self.step) > PIECES_LIMIT
    }

    /// Returns the offsets of the missing pieces of a file of `size` bytes, and the length of a
    /// piece.
    pub(super) fn missing(&self, size: u64) -> (Vec<u64>, u64) {
        let state = lock(&self.state);
        let come = |number: &u64| {
            if size <= self.step {
                state.single.is_some()
            } else {
                state.values.contains_key(number)
            }
        };
        let pieces = (0..size.div_ceil(self.step)).filter(|number| !come(number));
        (pieces.map(|number| number * self.step).collect(), self.step)
    }

    /// Returns the digest of the file, whose size is `size`; `None` if a piece is missing.
    pub(super) fn finish(&self, size: u64) -> Option<Hash> {
        let state = lock(&self.state);
        if size == 0 {
            return Some(blake3::hash(b""));
        }
        if size <= self.step {
            return state.single;
        }
        let pieces = size.div_ceil(self.step);
        if (state.values.len() as u64) < pieces {
            return None;
        }
        let values: Vec<_> = state.values.range(..pieces).map(|(_, value)| *value).collect();
        if values.len() as u64 != pieces {
            return None;
        }
        let (left, right) = split(&values, size, self.step);
        let merged = |(values, size)| merge(values, size, self.step);
        Some(merge_subtrees_root(&merged(left), &merged(right), Mode::Hash))
    }
}

/// Consecutive bytes of a file, whose complete pieces become part of its digest.
pub(super) struct DigestRun {
    step: u64,
    size: Option<u64>,
    at: u64,
    /// The piece at `at`, unless the run began within it.
    piece: Option<Hasher>,
    single: Option<Hash>,
    values: Vec<(u64, ChainingValue)>,
}

impl DigestRun {
    /// Adds the next bytes.
    pub(super) fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.at.is_multiple_of(self.step) {
                let mut piece = Hasher::new();
                piece.set_input_offset(self.at);
                self.piece = Some(piece);
            }
            let end = (self.at / self.step + 1).saturating_mul(self.step);
            let end = self.size.map_or(end, |size| end.min(size)).max(self.at + 1);
            let (now, rest) = bytes.split_at(bytes.len().min((end - self.at) as usize));
            if let Some(piece) = &mut self.piece {
                piece.update(now);
            }
            self.at += now.len() as u64;
            bytes = rest;
            if self.at == end {
                self.end_piece();
            }
        }
    }

    fn end_piece(&mut self) {
        let Some(piece) = self.piece.take() else { return };
        let number = (self.at - 1) / self.step;
        if number == 0 {
            self.single = Some(piece.finalize());
        }
        if self.size.is_none_or(|size| size > self.step) {
            self.values.push((number, piece.finalize_non_root()));
        }
    }
}

/// The values of a subtree's blocks, and the number of bytes that the subtree covers.
type Subtree<'a> = (&'a [ChainingValue], u64);

/// Splits a tree into its two branches. The left one is the largest complete tree that leaves at
/// least one piece for the right one.
fn split(values: &[ChainingValue], size: u64, step: u64) -> (Subtree<'_>, Subtree<'_>) {
    let left = left_subtree_len(size);
    let (first, second) = values.split_at((left / step) as usize);
    ((first, left), (second, size - left))
}

fn merge(values: &[ChainingValue], size: u64, step: u64) -> ChainingValue {
    if let [value] = values {
        return *value;
    }
    let (left, right) = split(values, size, step);
    let merged = |(values, size)| merge(values, size, step);
    merge_subtrees_non_root(&merged(left), &merged(right), Mode::Hash)
}

/// The bytes of one read.
pub(super) const READ_BYTES: usize = 1 << 20;

/// Returns the digest of `file` and its size. `read` gets the number of bytes of each read, and
/// returns false to stop.
///
/// # Errors
/// The file cannot be read, or `read` returned false (`Interrupted`).
pub(super) fn whole_digest(
    file: &mut File,
    mut read: impl FnMut(u64) -> bool,
) -> io::Result<([u8; 32], u64)> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok((*hasher.finalize().as_bytes(), hasher.count())),
            got if !read(got as u64) => return Err(io::ErrorKind::Interrupted.into()),
            got => hasher.update(&buffer[..got]),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn blocks_in_any_order_give_the_digest_of_the_whole() {
        for (block, size) in [
            (4096, 0),
            (4096, 1),
            (4096, 4096),
            (4096, 4097),
            (8192, 100_000),
            (12_288, 100_000),
            (12_288, 12_288),
            (1 << 16, 5 << 16),
            (1 << 20, 3_000_001),
        ] {
            let bytes: Vec<u8> = (0..size).map(|i| (i * 7 % 251) as u8).collect();
            for known in [Some(size as u64), None] {
                let digest = FileDigest::new(block);
                let blocks: Vec<_> = bytes.chunks(block as usize).zip(0..).collect();
                if let Some((block_bytes, _)) = blocks.first() {
                    assert!(digest.finish(size as u64).is_none(), "{}", block_bytes.len());
                }
                for (bytes, number) in blocks.into_iter().rev() {
                    digest.add(number * block, bytes, known);
                }
                assert_eq!(digest.missing(size as u64).0, [0; 0]);
                assert_eq!(
                    digest.finish(size as u64),
                    Some(blake3::hash(&bytes)),
                    "{block} {size}"
                );
            }
        }
    }

    #[test]
    fn runs_give_the_digest_of_the_pieces_in_them() {
        let bytes: Vec<u8> = (0..100_000).map(|i| (i * 7 % 251) as u8).collect();
        let size = bytes.len() as u64;
        for known in [Some(size), None] {
            let digest = FileDigest::new(8192);
            for (first, end) in [(0, 30_000), (24_576, 98_304), (98_304, bytes.len())] {
                let mut run = digest.run(first as u64, known);
                bytes[first..end].chunks(5000).for_each(|part| run.update(part));
                if known.is_some() || end == bytes.len() {
                    digest.take(run);
                } else {
                    let whole = end / 8192 * 8192;
                    let mut run = digest.run(first as u64, known);
                    run.update(&bytes[first..whole]);
                    digest.take(run);
                }
            }
            assert_eq!(digest.finish(size), Some(blake3::hash(&bytes)));
        }
        let small = FileDigest::new(8192);
        let mut run = small.run(0, Some(100));
        run.update(&bytes[..100]);
        small.take(run);
        assert_eq!(small.finish(100), Some(blake3::hash(&bytes[..100])));
    }

    #[test]
    fn a_missing_block_is_named() {
        let digest = FileDigest::new(4096);
        digest.add(0, &[1; 4096], Some(10_000));
        digest.add(8192, &[1; 1808], Some(10_000));
        assert_eq!(digest.missing(10_000), (vec![4096], 4096));
        assert_eq!(digest.finish(10_000), None);
    }

    #[test]
    fn a_digest_covers_all_bytes_and_can_be_stopped() {
        let mut file = tempfile::tempfile().unwrap();
        let bytes = vec![7; READ_BYTES + 9];
        file.write_all(&bytes).unwrap();
        let rewound = || {
            let mut file = file.try_clone().unwrap();
            io::Seek::rewind(&mut file).unwrap();
            file
        };
        let mut count = 0;
        let found = whole_digest(&mut rewound(), |got| {
            count += got;
            true
        });
        let expected = (*blake3::hash(&bytes).as_bytes(), bytes.len() as u64);
        assert_eq!((found.unwrap(), count), (expected, bytes.len() as u64));
        let stopped = whole_digest(&mut rewound(), |_| false).unwrap_err();
        assert_eq!(stopped.kind(), io::ErrorKind::Interrupted);
    }
}
