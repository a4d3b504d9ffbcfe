//! Records the progress of a sink in the journal, and finds what an earlier attempt has left.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex};

use longhaul_core::plan::CopyOptions;
use longhaul_core::wire::FilePath;

use super::ledger::{Piece, SinkFile};
use super::partial::PartialFile;
use super::store::Store;
use crate::copy::journal::{
    Claim, CopyTerms, Digest, Extent, FileId, Journal, Past, PastFile, Record, remove_temporary,
};
use crate::copy::pool::fits_in_pack;
use crate::copy::temporary::release;
use crate::lock;

/// The length of an extent, unless one block is longer. One damaged byte costs the retransmission
/// of an extent.
const EXTENT_BYTES: u64 = 64 << 20;
/// Extents in one record: far below the longest record.
const RECORD_EXTENTS: usize = 4096;

/// The writer of a sink's journal. Without a journal it records nothing.
pub(super) struct JournalRecorder {
    durable: bool,
    terms: CopyTerms,
    block_bytes: u64,
    has_journal: bool,
    journal: Mutex<Option<Journal>>,
    /// The target's directory.
    base: Option<OwnedFd>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The files of an earlier attempt that are not announced yet.
    past: HashMap<Vec<u8>, PastFile>,
    /// True if this attempt can resume with them.
    usable: bool,
    /// Files that are being written, by entry.
    open: HashMap<u64, Open>,
    /// Files completed since the last checkpoint.
    placed: Vec<Placed>,
    /// True if the journal is of use to a later attempt.
    worthy: bool,
    checkpoints: u64,
    /// Bytes that the journal returns to a later attempt.
    kept: u64,
}

struct Open {
    file: Arc<SinkFile>,
    partial: Arc<PartialFile>,
    /// True if the journal has a record of the file.
    known: bool,
    /// The bytes of the file that the journal returns to a later attempt.
    kept: u64,
}

/// A complete file without a record in the journal.
struct Placed {
    path: FilePath,
    stamp: u64,
    id: FileId,
}

/// The part of a file that an earlier attempt has left.
pub(super) enum Leftover {
    /// Nothing.
    Nothing,
    /// The file has its final name.
    Placed,
    /// These bytes were written under the temporary name; the sink reads them again.
    Partial(PartialFile, Vec<Claim>),
}

impl JournalRecorder {
    /// Creates a recorder that appends to `journal`, which holds `past`, for files in `base`.
    pub(super) fn new(
        journal: Option<(Journal, Past)>,
        base: Option<OwnedFd>,
        options: &CopyOptions,
    ) -> Self {
        let (durable, block_bytes) = (options.durable, options.block_bytes.get());
        let terms = CopyTerms::of(options);
        let (journal, past) = journal.unzip();
        let mut state = State::default();
        if let Some(past) = past {
            state.usable = past.is_usable();
            state.worthy = state.usable && !past.files.is_empty();
            state.past = past.files;
        }
        let has_journal = journal.is_some();
        let (journal, state) = (Mutex::new(journal), Mutex::new(state));
        JournalRecorder { durable, terms, block_bytes, has_journal, journal, base, state }
    }

    /// Returns whether there is a journal. Without a journal no block needs a digest.
    pub(super) fn has_journal(&self) -> bool {
        self.has_journal
    }

    /// Returns whether an earlier attempt left a journal.
    pub(super) fn has_past(&self) -> bool {
        lock(&self.state).worthy
    }

    /// Returns the part of `file` that an earlier attempt has left.
    pub(super) fn left(&self, store: &Store, file: &SinkFile) -> Leftover {
        let path = file.path.as_os_str().as_bytes();
        let (past, usable) = {
            let mut state = lock(&self.state);
            (state.past.remove(path), state.usable)
        };
        let left = match &past {
            Some(PastFile::Done { stamp, id, terms: Some(terms) })
                if *stamp == file.stamp && usable && terms.cover(&self.terms) =>
            {
                let there = store.placed(&file.path).ok().flatten();
                there.is_some_and(|there| id.names(&there)).then_some(Leftover::Placed)
            }
            // A file that is sent in a pack now is sent whole: its blocks are not used.
            Some(PastFile::Partial { .. }) if fits_in_pack(file.size(), self.block_bytes) => None,
            Some(PastFile::Partial { stamp, temporary, id, extents, verified })
                if *stamp == file.stamp && usable && (*verified || !self.terms.verified) =>
            {
                let mut claims = extents.clone();
                claims.retain(|claim| claim.fits(file.size()));
                claims.sort_unstable_by_key(|claim| (claim.offset, claim.length));
                claims.dedup();
                let name = OsStr::from_bytes(temporary.as_bytes());
                let reopen = || store.reopen(file, name, id).ok().flatten();
                let partial = (!claims.is_empty()).then(reopen).flatten();
                partial.map(|partial| Leftover::Partial(partial, claims))
            }
            _ => None,
        };
        if left.is_none()
            && let Some(past) = past
        {
            self.remove(path, &past);
        }
        left.unwrap_or(Leftover::Nothing)
    }

    /// Records that `file` is being written; `known` if the journal has a record of it.
    pub(super) fn begun(&self, file: &Arc<SinkFile>, partial: &Arc<PartialFile>, known: bool) {
        if lock(&self.journal).is_some() {
            let (file, partial) = (file.clone(), partial.clone());
            let open = Open { file, partial, known, kept: 0 };
            lock(&self.state).open.insert(open.file.id, open);
        }
    }

    /// Records that `file` is complete with the identity `id`.
    pub(super) fn placed(&self, file: &SinkFile, id: FileId) {
        let Some(path) = wire_path(file) else { return };
        if lock(&self.journal).is_some() {
            let mut state = lock(&self.state);
            state.close(file.id);
            state.placed.push(Placed { path, stamp: file.stamp, id });
        }
    }

    /// Drops `file`, which has failed. Its temporary file is removed with its last user.
    pub(super) fn dropped(&self, file: &SinkFile) {
        if let Some(open) = lock(&self.state).close(file.id) {
            open.partial.temporary.keep(false);
        }
    }

    /// Appends records of the progress since the last call; returns the files that could not be
    /// made durable.
    pub(super) fn checkpoint(&self) -> Vec<(Arc<SinkFile>, io::Error)> {
        let mut journal = lock(&self.journal);
        let Some(writer) = journal.as_mut() else { return Vec::new() };
        let (mut placed, open, first) = {
            let mut state = lock(&self.state);
            let open: Vec<_> = state
                .open
                .values()
                .map(|open| (open.file.clone(), open.partial.clone(), open.known))
                .collect();
            state.checkpoints += 1;
            (std::mem::take(&mut state.placed), open, state.checkpoints == 1)
        };
        let done = |Placed { path, stamp, id }: &Placed| {
            let (path, stamp, id) = (path.clone(), *stamp, *id);
            Record::Done { path, stamp, id }
        };
        let mut records: Vec<_> = placed.iter().map(done).collect();
        let mut failed = Vec::new();
        let mut noted = Vec::new();
        for (file, partial, known) in open {
            let pieces = std::mem::take(&mut file.lock().fresh);
            if pieces.is_empty() {
                continue;
            }
            if self.durable
                && let Err(error) = partial.sync_data()
            {
                failed.push((file, error));
                continue;
            }
            records.extend(self.written(&file, &partial, known, &pieces));
            noted.push((file, partial, pieces));
        }
        if !records.is_empty() {
            match writer.append(&records) {
                Ok(()) => self.appended(&placed, noted),
                // The next checkpoint retries, because the disk may be full.
                Err(_) => {
                    lock(&self.state).placed.append(&mut placed);
                    for (file, _, mut pieces) in noted {
                        file.lock().fresh.append(&mut pieces);
                    }
                }
            }
        }
        if first {
            writer.remove_stale();
        }
        failed
    }

    /// Returns the records of the `pieces` of a file that were written since the previous call.
    fn written(
        &self,
        file: &SinkFile,
        partial: &PartialFile,
        known: bool,
        pieces: &[Piece],
    ) -> Vec<Record> {
        let mut records = Vec::new();
        let Some(path) = wire_path(file) else { return records };
        if !known {
            let name = partial.temporary.temporary.as_bytes();
            let (Some(temporary), Ok(id)) = (FilePath::new(name), partial.id()) else {
                return records;
            };
            let path = path.clone();
            records.push(Record::Partial { path, stamp: file.stamp, temporary, id });
        }
        for extents in extents(pieces, self.block_bytes).chunks(RECORD_EXTENTS) {
            let (path, extents) = (path.clone(), extents.to_vec());
            records.push(Record::Written { path, piece_bytes: self.block_bytes, extents });
        }
        records
    }

    /// Marks these files as recorded in the journal.
    fn appended(
        &self,
        placed: &[Placed],
        noted: Vec<(Arc<SinkFile>, Arc<PartialFile>, Vec<Piece>)>,
    ) {
        let mut state = lock(&self.state);
        state.worthy = true;
        state.kept += placed.iter().map(|placed| placed.id.size).sum::<u64>();
        for (file, partial, pieces) in noted {
            state.keep(file.id, pieces.iter().map(|piece| piece.length).sum());
            // It can be finished or have failed meanwhile.
            if let Some(open) = state.open.get_mut(&file.id) {
                partial.temporary.keep(true);
                open.known = true;
            }
        }
    }

    /// Keeps the journal even if it has no records, because it has the name of a created directory.
    pub(super) fn keep_name(&self) {
        lock(&self.state).worthy = true;
    }

    /// Notes that `bytes` of a file are reused, which the journal has records of.
    pub(super) fn reused(&self, file: &SinkFile, bytes: u64) {
        let mut state = lock(&self.state);
        if state.open.contains_key(&file.id) {
            state.keep(file.id, bytes);
        } else {
            state.kept += bytes;
        }
    }

    /// Returns the bytes that the journal returns to a later attempt.
    pub(super) fn kept_bytes(&self) -> u64 {
        lock(&self.state).kept
    }

    /// Ends the journal. It is removed if the copy is `complete` or the journal is of no use.
    pub(super) fn end(&self, complete: bool) {
        let Some(journal) = lock(&self.journal).take() else { return };
        let mut state = lock(&self.state);
        // Before the lock on the journal, upon which the next attempt begins.
        state.open.values().for_each(|open| release(&open.partial.file));
        if complete || !state.worthy {
            for (path, past) in std::mem::take(&mut state.past) {
                self.remove(&path, &past);
            }
        }
        if complete || !state.worthy {
            journal.remove();
        }
    }

    /// Removes the temporary file of a file that has changed or is no longer copied.
    fn remove(&self, path: &[u8], past: &PastFile) {
        if let (PastFile::Partial { temporary, id, .. }, Some(base)) = (past, &self.base) {
            remove_temporary(base, path, temporary.as_bytes(), id);
        }
    }
}

impl State {
    /// Counts bytes of an open file that the journal has records of.
    fn keep(&mut self, id: u64, bytes: u64) {
        if let Some(open) = self.open.get_mut(&id) {
            open.kept += bytes;
            self.kept += bytes;
        }
    }

    /// Removes a file that is complete or has failed: its temporary file is gone.
    fn close(&mut self, id: u64) -> Option<Open> {
        let open = self.open.remove(&id)?;
        self.kept -= open.kept;
        Some(open)
    }
}

impl Drop for JournalRecorder {
    /// Removes the journal of a copy that ended before it began.
    fn drop(&mut self) {
        self.end(false);
    }
}

/// Returns the extents that `pieces` in blocks of `block_bytes` form: consecutive blocks of at most
/// [`EXTENT_BYTES`].
fn extents(pieces: &[Piece], block_bytes: u64) -> Vec<Extent> {
    let mut pieces = pieces.to_vec();
    pieces.sort_unstable_by_key(|piece| piece.offset);
    let follows = |one: &Piece, next: &Piece| {
        // An extent ends at a multiple of its greatest length, so that none is longer.
        let ends = next.offset / EXTENT_BYTES != one.offset / EXTENT_BYTES;
        one.length == block_bytes && one.offset + one.length == next.offset && !ends
    };
    let extent = |run: &[Piece]| {
        let length = run.iter().map(|piece| piece.length).sum();
        let digest = Digest::of(run.iter().map(|piece| piece.digest));
        Extent(run[0].offset, length, digest)
    };
    pieces.chunk_by(follows).map(extent).collect()
}

fn wire_path(file: &SinkFile) -> Option<FilePath> {
    FilePath::new(file.path.as_os_str().as_bytes())
}
