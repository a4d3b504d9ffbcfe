//! A file of the source: its handles, its blocks, and the check that it did not change.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use longhaul_sys::memory::DIRECT_ALIGN;
use rustix::fs::{Advice, SeekFrom, fadvise, fstat, seek};

use super::feed::{Feed, ReadError};
use super::place::SourcePlace;
use crate::copy::blocks::BlockSet;
use crate::copy::disk::{Disk, IoMode};
use crate::copy::large_files::MovingFile;
use crate::copy::pool::fits_in_pack;
use crate::copy::tree::{FileKind, Metadata};
use crate::lock;

/// The maximum number of holes that are found per file: each costs two system calls, and a span in
/// the announcement.
const HOLES_LIMIT: usize = 4096;

/// A file that is being sent.
pub(super) struct SourceFile {
    pub(super) id: u64,
    pub(super) path: PathBuf,
    pub(super) size: u64,
    origin: Origin,
    block_bytes: u64,
    /// Blocks that are not sent: holes, and blocks that the sink has.
    left_out: Mutex<BlockSet>,
    /// Blocks that no reader has finished yet.
    unread: AtomicU64,
    failed: AtomicBool,
}

enum Origin {
    Tree(TreeFile),
    Zero,
    Feed(Arc<Feed>),
}

/// The handles of a file while it is read.
#[derive(Default)]
struct Open {
    /// Reads through the page cache.
    cached: Option<Arc<File>>,
    /// Reads with direct I/O.
    direct: Option<Arc<File>>,
    /// True if the file system refuses direct I/O.
    refused: bool,
}

/// The source of the pieces of a block.
pub(super) enum PieceSource {
    /// The page cache of the file.
    File(Arc<File>),
    /// Zeros from memory.
    Zero,
}

impl PieceSource {
    /// Fills `piece` with the bytes at `offset` of the file.
    pub(super) fn read(&self, offset: u64, piece: &mut [u8]) -> Result<(), ReadError> {
        match self {
            PieceSource::File(file) => file.read_exact_at(piece, offset).map_err(shrunk),
            PieceSource::Zero => {
                piece.fill(0);
                Ok(())
            }
        }
    }
}

/// A file of the tree, with its open handles.
struct TreeFile {
    place: SourcePlace,
    metadata: Metadata,
    open: Mutex<Open>,
}

impl TreeFile {
    /// Returns the handle that reads through the cache.
    fn cached(&self, path: &Path) -> Result<Arc<File>, ReadError> {
        let mut open = lock(&self.open);
        if let Some(file) = &open.cached {
            return Ok(file.clone());
        }
        let file = Arc::new(self.place.open_file(path).map_err(ReadError::Open)?);
        unchanged(&file, &self.metadata)?;
        open.cached = Some(file.clone());
        Ok(file)
    }

    /// Returns the handle for direct I/O, if the file system supports it.
    fn direct(&self, path: &Path) -> Result<Option<Arc<File>>, ReadError> {
        let mut open = lock(&self.open);
        if open.refused || open.direct.is_some() {
            return Ok(open.direct.clone());
        }
        let Some(file) = self.place.open_direct(path).map(Arc::new) else {
            open.refused = true;
            return Ok(None);
        };
        unchanged(&file, &self.metadata)?;
        open.direct = Some(file.clone());
        Ok(Some(file))
    }
}

impl MovingFile for SourceFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn total_bytes(&self) -> u64 {
        self.size
    }

    fn moved_blocks(&self) -> (u64, u64) {
        let all = self.blocks();
        (all.saturating_sub(self.unread.load(Ordering::Relaxed)), all)
    }
}

impl SourceFile {
    /// Creates the file at `path` as the walk found it, to be read in blocks of `block_bytes`.
    pub(super) fn new(
        id: u64,
        place: SourcePlace,
        path: PathBuf,
        metadata: Metadata,
        block: u64,
    ) -> Self {
        let origin = Origin::Tree(TreeFile { place, metadata, open: Mutex::default() });
        SourceFile::with(id, path, metadata.size, origin, block)
    }

    /// Limits the file to its first `size` bytes.
    pub(super) fn cut_to(mut self, size: u64) -> Self {
        self.size = size;
        self.unread = AtomicU64::new(size.div_ceil(self.block_bytes));
        self
    }

    /// Creates a file of `size` zero bytes from memory.
    pub(super) fn zero(id: u64, size: u64, block: u64) -> Self {
        SourceFile::with(id, "/dev/zero".into(), size, Origin::Zero, block)
    }

    /// Creates a file that stands for a stream.
    pub(super) fn feed(id: u64, feed: &Arc<Feed>, block: u64) -> Self {
        // The size is unknown until the stream ends.
        SourceFile::with(id, "-".into(), u64::MAX, Origin::Feed(feed.clone()), block)
    }

    /// Returns the stream that the file stands for, if it is one.
    pub(super) fn fed_by(&self) -> Option<&Arc<Feed>> {
        match &self.origin {
            Origin::Feed(feed) => Some(feed),
            Origin::Tree(_) | Origin::Zero => None,
        }
    }

    /// Returns whether a block is not sent.
    pub(super) fn leaves_out(&self, block: u64) -> bool {
        lock(&self.left_out).contains(block)
    }

    fn with(id: u64, path: PathBuf, size: u64, origin: Origin, block_bytes: u64) -> Self {
        let unread = AtomicU64::new(size.div_ceil(block_bytes));
        let left_out = Mutex::default();
        SourceFile { id, path, size, origin, block_bytes, left_out, unread, failed: false.into() }
    }

    /// Returns the number of blocks.
    pub(super) fn blocks(&self) -> u64 {
        self.size.div_ceil(self.block_bytes)
    }

    /// Excludes blocks. Called before the first block is read.
    pub(super) fn leave_out(&self, blocks: &BlockSet) {
        let mut left_out = lock(&self.left_out);
        for (first, count) in blocks.spans() {
            left_out.insert(first, first + count);
        }
        self.unread.store(self.blocks() - left_out.count(), Ordering::Relaxed);
    }

    /// Returns the blocks that are to be read.
    pub(super) fn blocks_to_read(&self) -> impl Iterator<Item = u64> + use<> {
        let left_out = lock(&self.left_out).clone();
        (0..self.blocks()).filter(move |block| !left_out.contains(*block))
    }

    /// Returns the blocks in holes, which the file omits; `None` if it is not sparse.
    pub(super) fn leave_holes_out(&self) -> Option<Vec<(u64, u64)>> {
        let Origin::Tree(TreeFile { place, metadata, .. }) = &self.origin else { return None };
        if !metadata.is_sparse() || self.is_small(self.block_bytes) {
            return None;
        }
        let file = place.open_file(&self.path).ok()?;
        unchanged(&file, metadata).ok()?;
        let holes = holes(&file, self.size, self.block_bytes)?;
        self.leave_out(&holes);
        Some(holes.spans())
    }

    /// Marks the file as failed; true for the first to do so.
    pub(super) fn fail(&self) -> bool {
        !self.failed.swap(true, Ordering::Relaxed)
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Reads the block at `offset` into the front of `buffer`, and returns its length. The buffer
    /// is aligned and has room up to the next multiple of [`DIRECT_ALIGN`]. After the last block
    /// the file is checked again, so that a file that changed meanwhile fails.
    pub(super) fn read(
        &self,
        offset: u64,
        buffer: &mut [u8],
        disk: &Disk,
    ) -> Result<usize, ReadError> {
        let length = self.block_length(offset);
        let file = match &self.origin {
            Origin::Tree(file) => file,
            Origin::Feed(feed) => return feed.copy(offset / self.block_bytes, buffer),
            Origin::Zero => {
                buffer[..length].fill(0);
                return Ok(length);
            }
        };
        let past = if disk.may_pass_by(self.size) { file.direct(&self.path)? } else { None };
        let read = past.map_or(Ok(false), |past| {
            self.read_by_trial((&past, file), (offset, length), buffer, disk)
        })?;
        if !read {
            read_cached(&*file.cached(&self.path)?, offset, &mut buffer[..length])?;
            disk.add(IoMode::Cached, length as u64);
        }
        self.finish_block()?;
        Ok(length)
    }

    /// Notes that a block was read. After the last one the file is checked again, so that a file that
    /// changed meanwhile fails.
    pub(super) fn finish_block(&self) -> Result<(), ReadError> {
        let Origin::Tree(file) = &self.origin else { return Ok(()) };
        if self.unread.fetch_sub(1, Ordering::Relaxed) == 1 {
            let mut open = lock(&file.open);
            if let Some(handle) = open.direct.as_ref().or(open.cached.as_ref()) {
                unchanged(handle, &file.metadata)?;
            }
            // Closes the handles, because descriptors are limited.
            *open = Open { refused: open.refused, ..Open::default() };
        }
        Ok(())
    }

    /// Returns the length of the block at `offset`.
    pub(super) fn block_length(&self, offset: u64) -> usize {
        self.block_bytes.min(self.size - offset) as usize
    }

    /// Returns the source of the pieces of the block at `offset`, if the block is not read with
    /// direct I/O. The kernel begins to read the block.
    pub(super) fn pieces(
        &self,
        offset: u64,
        disk: &Disk,
    ) -> Result<Option<PieceSource>, ReadError> {
        let file = match &self.origin {
            Origin::Tree(file) => file,
            Origin::Zero => return Ok(Some(PieceSource::Zero)),
            Origin::Feed(_) => return Ok(None),
        };
        let (device, length) = (file.metadata.identity.0, self.block_length(offset));
        if disk.may_pass_by(self.size)
            && let Some(past) = file.direct(&self.path)?
            && !disk.buffers(device, self.size, &past)
            && !(disk.prefers_cached() && is_cached(&past, offset, length))
        {
            return Ok(None);
        }
        let cached = file.cached(&self.path)?;
        if !disk.is_in_memory(device, &cached) {
            // One request for all of it: connections that take turns look random to the kernel's
            // read-ahead.
            let _ = fadvise(&cached, offset, NonZeroU64::new(length as u64), Advice::WillNeed);
        }
        Ok(Some(PieceSource::File(cached)))
    }

    /// Reads a block with direct I/O or through the cache, as the trial decides. False if the file
    /// system refuses direct I/O after all.
    fn read_by_trial(
        &self,
        (past, file): (&File, &TreeFile),
        (offset, length): (u64, usize),
        buffer: &mut [u8],
        disk: &Disk,
    ) -> Result<bool, ReadError> {
        if disk.prefers_cached() && is_cached(past, offset, length) {
            return Ok(false);
        }
        let device = file.metadata.identity.0;
        let io = disk.next(device, self.size);
        let cached = match io.mode {
            IoMode::Cached => Some(file.cached(&self.path)?),
            IoMode::Direct => None,
        };
        let read = disk.count(device, io, length, || match &cached {
            Some(cached) => read_cached(cached, offset, &mut buffer[..length]),
            None => read_direct(past, offset, length, buffer),
        });
        match read {
            // Some file systems accept O_DIRECT at open(2) and refuse it here.
            Err(ReadError::Read(error)) if error.raw_os_error() == Some(libc_einval()) => {
                let mut open = lock(&file.open);
                (open.direct, open.refused) = (None, true);
                Ok(false)
            }
            read => read.map(|()| true),
        }
    }

    /// Returns whether the file is sent in a pack with others, in one block of `block_bytes`.
    pub(super) fn is_small(&self, block_bytes: u64) -> bool {
        let whole = self.size == 0 || !matches!(self.origin, Origin::Feed(_));
        whole && fits_in_pack(self.size, block_bytes)
    }

    /// Opens a small file and lets the disk begin to read it; `None` if there is nothing to read,
    /// or zeros.
    pub(super) fn open_small(&self) -> Result<Option<File>, ReadError> {
        let Origin::Tree(TreeFile { place, .. }) = &self.origin else { return Ok(None) };
        if self.size == 0 {
            return Ok(None);
        }
        // The file is compared with the metadata of the walk once, after it was read.
        let file = place.open_file(&self.path).map_err(ReadError::Open)?;
        // Only a hint: a file system that ignores it reads later.
        let _ = fadvise(&file, 0, NonZeroU64::new(self.size), Advice::WillNeed);
        Ok(Some(file))
    }

    /// Reads a small file, open as `file`, whole into the front of `buffer`.
    pub(super) fn read_small(&self, file: &File, buffer: &mut [u8]) -> Result<(), ReadError> {
        file.read_exact_at(&mut buffer[..self.size as usize], 0).map_err(shrunk)?;
        match &self.origin {
            Origin::Tree(tree) => unchanged(file, &tree.metadata),
            Origin::Zero | Origin::Feed(_) => Ok(()),
        }
    }

    /// Drops the file from the page cache. A file system may ignore it.
    pub(super) fn forget(&self) {
        if let Origin::Tree(TreeFile { place, .. }) = &self.origin
            && let Ok(file) = place.open_file(&self.path)
        {
            let _ = fadvise(&file, 0, None, Advice::DontNeed);
        }
    }

    /// Permits another read of a block.
    pub(super) fn reread(&self) {
        self.unread.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns the blocks of a file of `size` bytes that lie in holes; `None` if there are none, or if
/// the file system does not report them. Holes beyond [`HOLES_LIMIT`] count as data.
fn holes(file: &File, size: u64, block_bytes: u64) -> Option<BlockSet> {
    let mut holes = BlockSet::default();
    let mut at = 0;
    let mut any = false;
    for _ in 0..HOLES_LIMIT {
        let hole = seek(file, SeekFrom::Hole(at)).ok()?;
        if hole >= size {
            break;
        }
        any = true;
        // After the last data the kernel returns ENXIO: the rest of the file is a hole.
        let data = seek(file, SeekFrom::Data(hole)).unwrap_or(size).min(size);
        let end = if data == size { size.div_ceil(block_bytes) } else { data / block_bytes };
        let first = hole.div_ceil(block_bytes);
        if first < end {
            holes.insert(first, end);
        }
        at = data;
        if at >= size {
            break;
        }
    }
    any.then_some(holes)
}

/// Returns whether at least 7/8 of a block are in the page cache. False if the kernel does not
/// report it.
fn is_cached(file: &File, offset: u64, length: usize) -> bool {
    longhaul_sys::file::cached_bytes(file, offset, length as u64)
        .is_ok_and(|cached| cached >= length as u64 / 8 * 7)
}

fn read_cached(file: &File, offset: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
    // One request for all of it: readers that take turns look random to the kernel's read-ahead.
    let _ = fadvise(file, offset, NonZeroU64::new(buffer.len() as u64), Advice::WillNeed);
    file.read_exact_at(buffer, offset).map_err(shrunk)
}

fn shrunk(error: io::Error) -> ReadError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => ReadError::Shrunk,
        _ => ReadError::Read(error),
    }
}

/// Reads `length` bytes, and the bytes up to the next multiple of [`DIRECT_ALIGN`].
fn read_direct(
    file: &File,
    offset: u64,
    length: usize,
    buffer: &mut [u8],
) -> Result<(), ReadError> {
    let aligned = length.next_multiple_of(DIRECT_ALIGN).min(buffer.len());
    let mut have = 0;
    while have < length {
        match file.read_at(&mut buffer[have..aligned], offset + have as u64) {
            Ok(0) => return Err(ReadError::Shrunk),
            Ok(got) => have += got,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(ReadError::Read(error)),
        }
    }
    Ok(())
}

fn libc_einval() -> i32 {
    rustix::io::Errno::INVAL.raw_os_error()
}

fn unchanged(file: &File, announced: &Metadata) -> Result<(), ReadError> {
    let now = Metadata::of(&fstat(file).map_err(|error| ReadError::Read(error.into()))?);
    let same = now.kind == FileKind::File
        && now.size == announced.size
        && now.identity == announced.identity
        && (now.mtime_seconds, now.mtime_ns) == (announced.mtime_seconds, announced.mtime_ns);
    if same { Ok(()) } else { Err(ReadError::Changed) }
}

#[cfg(test)]
mod tests {
    use longhaul_core::plan::DirectIo;
    use longhaul_sys::memory::AlignedBuffer;

    use super::*;
    use crate::copy::tree::Tree;

    fn announced(path: &std::path::Path) -> SourceFile {
        let tree = Tree::anywhere();
        let metadata = tree.metadata(path).unwrap();
        SourceFile::new(0, SourcePlace::of(&tree), path.into(), metadata, 1 << 20)
    }

    #[test]
    fn reads_blocks_and_the_ragged_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let bytes: Vec<u8> = (0..(2_u32 << 20) + 777).map(|i| (i / 1000) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let file = announced(&path);
        let mut buffer = AlignedBuffer::new(1 << 20);
        let disk = Disk::new(DirectIo::Always);
        for (offset, length) in [(0, 1 << 20), (1 << 20, 1 << 20), (2 << 20, 777)] {
            assert_eq!(file.read(offset as u64, &mut buffer, &disk).unwrap(), length);
            assert!(buffer[..length] == bytes[offset..offset + length], "at {offset}");
        }
    }

    #[test]
    fn a_file_that_shrinks_between_two_pieces_fails() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, vec![7; 2 << 20]).unwrap();
        let file = announced(&path);
        let (mut piece, disk) = (vec![0; 128 << 10], Disk::new(DirectIo::Never));
        let from = file.pieces(1 << 20, &disk).unwrap().expect("the user decides");
        from.read(1 << 20, &mut piece).unwrap();
        assert!(piece.iter().all(|byte| *byte == 7));
        let writable = File::options().write(true).open(&path).unwrap();
        writable.set_len((1 << 20) + (200 << 10)).unwrap();
        assert!(matches!(from.read((1 << 20) + (128 << 10), &mut piece), Err(ReadError::Shrunk)));
        file.finish_block().unwrap();
        assert!(matches!(file.finish_block(), Err(ReadError::Changed)), "the last block");
    }

    #[test]
    fn blocks_with_direct_io_are_not_read_in_pieces() {
        let world = std::env::var_os("TMPDIR").unwrap_or_else(|| "/var/tmp".into());
        let dir = tempfile::tempdir_in(world).unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, vec![7; 2 << 20]).unwrap();
        let pieces = |direct| announced(&path).pieces(0, &Disk::new(direct)).unwrap().is_some();
        assert!(pieces(DirectIo::Never) && !pieces(DirectIo::Always));
        let zeros = SourceFile::zero(0, 5 << 20, 1 << 20);
        assert!(zeros.pieces(0, &Disk::new(DirectIo::Always)).unwrap().is_some());
    }

    #[test]
    fn notices_a_file_that_vanished_changed_or_shrank() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let mut buffer = AlignedBuffer::new(1 << 20);
        let disk = Disk::new(DirectIo::Always);

        std::fs::write(&path, "first").unwrap();
        let file = announced(&path);
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(file.read(0, &mut buffer, &disk), Err(ReadError::Open(_))));

        std::fs::write(&path, "first").unwrap();
        let file = announced(&path);
        std::fs::write(&path, "second").unwrap();
        assert!(matches!(file.read(0, &mut buffer, &disk), Err(ReadError::Changed)));

        std::fs::write(&path, vec![1; 3 << 20]).unwrap();
        let file = announced(&path);
        file.read(0, &mut buffer, &disk).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_len(1 << 20).unwrap();
        assert!(matches!(file.read(1 << 20, &mut buffer, &disk), Err(ReadError::Shrunk)));
    }
}
