//! The entries of a copy: announced, open, complete or failed.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use longhaul_core::wire::copy::Entry;

use super::memory::MemoryClaim;
use super::partial::{PartialFile, UNKNOWN};
use crate::copy::blocks::BlockSet;
use crate::copy::digest::FileDigest;
use crate::copy::metadata::Attributes;

/// The maximum number of entries that are open at once: twice as many as a source announces ahead
/// of its data.
pub(super) const OPEN_ENTRIES_LIMIT: usize = 64 << 10;

/// A file that is being received.
pub(super) struct SinkFile {
    pub(super) id: u64,
    pub(super) path: PathBuf,
    /// [`UNKNOWN`] until the source has sent the length of a stream.
    size: AtomicU64,
    /// True if it was announced without a size.
    pub(super) stream: bool,
    pub(super) attributes: Attributes,
    /// Changes with the source's file.
    pub(super) stamp: u64,
    pub(super) sparse: bool,
    /// Bytes of an earlier attempt that count.
    pub(super) resumed: AtomicU64,
    /// The digest, if it is requested.
    pub(super) digest: Option<FileDigest>,
    /// The remaining claim on the space of the file system, in bytes.
    claim: AtomicU64,
    /// The memory that it takes.
    _memory: MemoryClaim,
    state: Mutex<FileState>,
}

/// The progress of a file.
pub(super) struct FileState {
    pub(super) partial: Stage,
    /// Blocks that are written, now or by an earlier attempt.
    pub(super) written: BlockSet,
    /// Written blocks without a record in the journal.
    pub(super) fresh: Vec<Piece>,
    /// Blocks that a connection is writing in pieces.
    claimed: Vec<u64>,
    blocks: u64,
}

/// A block that was verified and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) offset: u64,
    pub(super) length: u64,
    /// The XXH3-128 of its bytes.
    pub(super) digest: u128,
}

/// The file on disk.
pub(super) enum Stage {
    /// No block has arrived.
    Waiting,
    /// The file is being written; `None` if its bytes are dropped.
    Open(Option<Arc<PartialFile>>),
    /// Failed, or passed on to be finished.
    Gone,
}

impl SinkFile {
    /// Creates a file as the source announced it, without data.
    pub(super) fn new(
        entry: &Entry,
        path: PathBuf,
        size: u64,
        attributes: Attributes,
        block_bytes: u64,
    ) -> Self {
        let state = FileState {
            partial: Stage::Waiting,
            written: BlockSet::default(),
            fresh: Vec::new(),
            claimed: Vec::new(),
            blocks: if size == UNKNOWN { UNKNOWN } else { size.div_ceil(block_bytes) },
        };
        SinkFile {
            id: entry.id,
            path,
            size: AtomicU64::new(size),
            stream: size == UNKNOWN,
            attributes,
            stamp: entry.stamp,
            sparse: entry.holes.is_some(),
            resumed: AtomicU64::new(0),
            digest: None,
            claim: AtomicU64::new(0),
            _memory: MemoryClaim::default(),
            state: Mutex::new(state),
        }
    }

    /// Adds the `memory` that the file takes.
    pub(super) fn holding(self, memory: MemoryClaim) -> Self {
        SinkFile { _memory: memory, ..self }
    }

    /// Sets the claim on the space of the file system.
    pub(super) fn set_claim(&self, bytes: u64) {
        self.claim.store(bytes, Ordering::Relaxed);
    }

    /// Returns the claim and clears it.
    pub(super) fn take_claim(&self) -> u64 {
        self.claim.swap(0, Ordering::Relaxed)
    }

    /// Its size, or [`UNKNOWN`].
    pub(super) fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    /// Returns whether the file has several blocks: then the journal has records of the file before
    /// it is complete.
    pub(super) fn has_several(&self, block_bytes: u64) -> bool {
        self.size() > block_bytes
    }

    /// Its size, if it is known.
    pub(super) fn known_size(&self) -> Option<u64> {
        Some(self.size()).filter(|size| *size != UNKNOWN)
    }

    /// Sets the length of a stream; false if it was known, or if blocks beyond it have arrived.
    pub(super) fn end_at(&self, size: u64, block_bytes: u64) -> bool {
        let mut state = self.lock();
        let blocks = size.div_ceil(block_bytes);
        if self.known_size().is_some() || state.written.end() > blocks {
            return false;
        }
        self.size.store(size, Ordering::Relaxed);
        state.blocks = blocks;
        true
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, FileState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FileState {
    /// The number of blocks, or [`UNKNOWN`].
    pub(super) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Claims `block` for a connection that writes it in pieces; false if it is written or claimed.
    /// The number of claims is bounded by that of the connections.
    pub(super) fn claim(&mut self, block: u64) -> bool {
        let free = !self.is_claimed(block) && !self.written.contains(block);
        if free {
            self.claimed.push(block);
        }
        free
    }

    /// Returns whether a connection is writing `block` in pieces.
    pub(super) fn is_claimed(&self, block: u64) -> bool {
        self.claimed.contains(&block)
    }

    /// Ends the claim on `block`.
    pub(super) fn release(&mut self, block: u64) {
        self.claimed.retain(|claimed| *claimed != block);
    }

    /// Records that `block` is written. Returns true if it was the last one.
    pub(super) fn note_written(&mut self, block: u64) -> bool {
        self.written.insert(block, block + 1) > 0 && self.is_complete()
    }

    /// Takes the file on disk for the next stage, once every block is written.
    pub(super) fn take_complete(&mut self) -> Option<Option<Arc<PartialFile>>> {
        if !self.is_complete() || !matches!(self.partial, Stage::Open(_)) {
            return None;
        }
        match std::mem::replace(&mut self.partial, Stage::Gone) {
            Stage::Open(partial) => Some(partial),
            Stage::Waiting | Stage::Gone => None,
        }
    }

    /// Returns whether the file has failed or was passed on.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self.partial, Stage::Gone)
    }

    /// Returns whether every block is written.
    pub(super) fn is_complete(&self) -> bool {
        self.written.count() == self.blocks
    }
}

/// The entries of a copy that are announced, complete or failed.
#[derive(Default)]
pub(super) struct Ledger {
    state: Mutex<State>,
    announced: Condvar,
    settled: Condvar,
    written_bytes: AtomicU64,
    resumed_bytes: AtomicU64,
}

#[derive(Default)]
struct State {
    open: HashMap<u64, Arc<SinkFile>>,
    /// The number of announced entries, which is also the next id.
    next: u64,
    /// The number of all entries, once the source has sent it.
    total: Option<u64>,
    /// Complete or failed entries.
    settled: u64,
    files: u64,
    bytes: u64,
    resumed: u64,
    done: Vec<u64>,
    /// The stream, whose length is unknown until it ends.
    stream: Option<Arc<SinkFile>>,
    failed: HashSet<u64>,
    closed: bool,
}

/// The reason why there is no entry with an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoEntry {
    /// The copy is over.
    Over,
    /// The source has announced all entries, and none with this id.
    Never,
}

/// The progress of a copy.
pub(super) struct LedgerProgress {
    /// Entries completed since the last call.
    pub(super) done: Vec<u64>,
    /// Complete files.
    pub(super) files: u64,
    /// Their bytes.
    pub(super) bytes: u64,
    /// The bytes that an earlier attempt left.
    pub(super) resumed: u64,
}

impl State {
    fn standing(&mut self, batch: usize) -> LedgerProgress {
        let count = self.done.len().min(batch);
        LedgerProgress {
            done: self.done.drain(..count).collect(),
            files: self.files,
            bytes: self.bytes,
            resumed: self.resumed,
        }
    }
}

impl Ledger {
    /// Takes the next entry; false if its number is wrong or too many are open.
    pub(super) fn announce(&self, id: u64, file: Option<Arc<SinkFile>>) -> bool {
        let mut state = self.lock();
        if id != state.next || state.open.len() >= OPEN_ENTRIES_LIMIT {
            return false;
        }
        state.next += 1;
        match file {
            Some(file) => {
                if file.known_size().is_none() {
                    state.stream = Some(file.clone());
                }
                state.open.insert(id, file);
            }
            None => state.settled += 1,
        }
        self.announced.notify_all();
        self.settled(&state);
        true
    }

    /// Records the total number of entries.
    pub(super) fn end(&self, total: u64) {
        self.lock().total = Some(total);
        self.settled.notify_all();
        self.announced.notify_all();
    }

    /// Waits until `id` is announced. `Ok(None)` when it is already settled: its blocks are
    /// dropped.
    pub(super) fn file(&self, id: u64) -> Result<Option<Arc<SinkFile>>, NoEntry> {
        let mut state = self.lock();
        let awaited = |state: &State| id >= state.next && state.total.is_none_or(|all| id < all);
        while awaited(&state) && !state.closed {
            state = self.announced.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if id < state.next {
            Ok(state.open.get(&id).cloned())
        } else if state.closed {
            Err(NoEntry::Over)
        } else {
            Err(NoEntry::Never)
        }
    }

    /// Settles a complete file.
    pub(super) fn done(&self, file: &SinkFile) {
        let mut state = self.lock();
        if state.open.remove(&file.id).is_some() {
            state.settled += 1;
            state.files += 1;
            state.bytes += file.size();
            state.resumed += file.resumed.load(Ordering::Relaxed);
            state.done.push(file.id);
            self.settled(&state);
        }
    }

    /// Takes out a file that has failed; `None` if it was settled before.
    /// [`failure_reported`](Self::failure_reported) settles it after the report to the source: the copy
    /// must not be complete before.
    pub(super) fn failed(&self, id: u64) -> Option<Arc<SinkFile>> {
        let file = {
            let mut state = self.lock();
            if id < state.next {
                state.failed.insert(id);
            }
            state.open.remove(&id)?
        };
        file.lock().partial = Stage::Gone;
        Some(file)
    }

    /// Records the failure of an entry that is not a file.
    pub(super) fn note_failed(&self, id: u64) {
        self.lock().failed.insert(id);
    }

    /// Returns whether an entry has failed.
    pub(super) fn has_failed(&self, id: u64) -> bool {
        self.lock().failed.contains(&id)
    }

    /// Settles a file that has failed.
    pub(super) fn failure_reported(&self) {
        let mut state = self.lock();
        state.settled += 1;
        self.settled(&state);
    }

    /// Wakes the waiting threads if this is the end.
    fn settled(&self, state: &State) {
        if state.total == Some(state.settled) {
            self.settled.notify_all();
        }
    }

    pub(super) fn add_written(&self, bytes: u64) {
        self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds bytes that an earlier attempt has written.
    pub(super) fn add_resumed(&self, bytes: u64) {
        self.resumed_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.add_written(bytes);
    }

    /// Subtracts bytes of an earlier attempt that turned out to be unusable.
    pub(super) fn take_back(&self, bytes: u64) {
        self.resumed_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.written_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(super) fn resumed_bytes(&self) -> u64 {
        self.resumed_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of written blocks of the stream, from the first one to the first gap.
    pub(super) fn stream_blocks(&self) -> u64 {
        let stream = self.lock().stream.clone();
        stream.map_or(0, |stream| stream.lock().written.leading())
    }

    /// Returns the progress of the copy, with up to `batch` entries that were completed since the
    /// previous call.
    pub(super) fn standing(&self, batch: usize) -> LedgerProgress {
        self.lock().standing(batch)
    }

    /// Waits until every entry is settled and all are announced; `None` if the copy ends before.
    pub(super) fn wait_complete(&self) -> Option<LedgerProgress> {
        let incomplete = |state: &mut State| !state.closed && state.total != Some(state.settled);
        let mut state = self
            .settled
            .wait_while(self.lock(), incomplete)
            .unwrap_or_else(PoisonError::into_inner);
        (!state.closed).then(|| state.standing(0))
    }

    /// Returns the number of files that are announced and not settled.
    pub(super) fn open_files(&self) -> usize {
        self.lock().open.len()
    }

    /// Returns whether all entries are announced and settled.
    pub(super) fn is_complete(&self) -> bool {
        let state = self.lock();
        state.total == Some(state.settled)
    }

    /// Ends every wait, because the copy is over.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.announced.notify_all();
        self.settled.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::units::Bytes;
    use longhaul_core::wire::FilePath;
    use longhaul_core::wire::copy::EntryKind;

    use super::*;

    fn file(id: u64, size: u64) -> Arc<SinkFile> {
        let kind = EntryKind::File { size_bytes: Bytes::new(size) };
        let mut entry = Entry::new(FilePath::new("f").unwrap(), kind, 0);
        entry.id = id;
        Arc::new(SinkFile::new(&entry, "f".into(), size, Attributes::default(), 10))
    }

    #[test]
    fn a_file_is_whole_when_each_block_came_once() {
        let file = file(0, 25);
        let mut state = file.lock();
        assert!(!state.note_written(2));
        assert!(!state.note_written(2));
        assert!(!state.note_written(0));
        assert!(state.note_written(1));
    }

    #[test]
    fn a_block_is_written_by_one_connection_and_once() {
        let file = file(0, 25);
        let mut state = file.lock();
        assert!(state.claim(1) && !state.claim(1) && state.claim(0));
        state.release(1);
        assert!(state.claim(1) && state.is_claimed(0));
        state.release(1);
        assert!(!state.note_written(1));
        assert!(!state.claim(1), "it is written");
    }

    #[test]
    fn a_stream_is_whole_once_its_end_is_known() {
        let file = file(0, UNKNOWN);
        assert!(!file.lock().note_written(0) && !file.lock().note_written(1));
        assert!(file.end_at(15, 10) && file.lock().is_complete());
        assert!(!file.end_at(25, 10), "a stream ends once");
        let short = super::tests::file(0, UNKNOWN);
        assert!(!short.lock().note_written(3));
        assert!(!short.end_at(15, 10), "a block beyond the end has come");
        assert_eq!(file.known_size(), Some(15));
    }

    #[test]
    fn complete_means_announced_and_settled() {
        let ledger = Ledger::default();
        assert!(ledger.announce(0, Some(file(0, 5))));
        assert!(!ledger.announce(5, None), "numbers count up");
        assert!(ledger.announce(1, None));
        assert!(ledger.announce(2, Some(file(2, 5))));
        ledger.end(3);
        assert!(!ledger.is_complete());
        ledger.done(&file(0, 5));
        ledger.done(&file(0, 5));
        assert!(ledger.failed(2).is_some() && ledger.failed(2).is_none());
        assert!(!ledger.is_complete(), "the source does not know yet");
        ledger.failure_reported();
        assert!(ledger.wait_complete().is_some());
        let standing = ledger.standing(10);
        assert_eq!((standing.files, standing.bytes, standing.done), (1, 5, vec![0]));
        assert!(matches!(ledger.file(2), Ok(None)));
    }

    #[test]
    fn closing_wakes_a_receiver_of_an_unknown_file() {
        let ledger = Ledger::default();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| ledger.file(7).is_err());
            ledger.close();
            assert!(waiting.join().unwrap());
        });
    }

    #[test]
    fn an_entry_that_is_never_announced_is_not_waited_for() {
        let ledger = Ledger::default();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| ledger.file(1).err());
            assert!(ledger.announce(0, None));
            ledger.end(1);
            assert_eq!(waiting.join().unwrap(), Some(NoEntry::Never));
        });
    }
}
