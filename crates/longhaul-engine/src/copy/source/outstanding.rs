//! The announced files without their final names, and the decisions of the sink on them.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::file::SourceFile;
use crate::copy::blocks::BlockSet;
use crate::lock;
use longhaul_core::wire::copy::KeptFile;

/// The maximum number of files that are announced and do not have their final names. It limits the
/// memory of both ends in a tree of many small files: about 500 bytes per file.
const OUTSTANDING_LIMIT: usize = 32 << 10;

/// The maximum number of spans of blocks in the sink's decisions that are not used yet: 64 MiB.
/// Tests use a lower limit, which they reach sooner.
const SPANS_LIMIT: usize = if cfg!(test) { 1 << 15 } else { 1 << 22 };

/// The files that do not have their final names yet; the sink can request their blocks again.
#[derive(Default)]
pub(super) struct Outstanding {
    state: Mutex<State>,
    room: Condvar,
}

#[derive(Default)]
struct State {
    files: HashMap<u64, Arc<SourceFile>>,
    closed: bool,
}

impl Outstanding {
    /// Adds files once there is space; false when the copy is over.
    pub(super) fn add(&self, files: &[Arc<SourceFile>]) -> bool {
        let full = |state: &mut State| !state.closed && state.files.len() >= OUTSTANDING_LIMIT;
        let mut state =
            self.room.wait_while(lock(&self.state), full).unwrap_or_else(PoisonError::into_inner);
        state.files.extend(files.iter().map(|file| (file.id, file.clone())));
        !state.closed
    }

    pub(super) fn get(&self, id: u64) -> Option<Arc<SourceFile>> {
        lock(&self.state).files.get(&id).cloned()
    }

    pub(super) fn remove(&self, id: u64) -> Option<Arc<SourceFile>> {
        let file = lock(&self.state).files.remove(&id);
        self.room.notify_one();
        file
    }

    /// Returns the number of files.
    pub(super) fn count(&self) -> usize {
        lock(&self.state).files.len()
    }

    /// Ends every wait, because the copy is over.
    pub(super) fn close(&self) {
        lock(&self.state).closed = true;
        self.room.notify_all();
    }
}

/// The decisions of the sink on the announced files.
#[derive(Default)]
pub(super) struct SinkDecisions {
    state: Mutex<DecisionState>,
    decided: Condvar,
}

#[derive(Default)]
struct DecisionState {
    /// All entries with smaller numbers are announced.
    announced: u64,
    /// All entries with smaller numbers are decided.
    before: u64,
    held: BTreeMap<u64, Option<Vec<(u64, u64)>>>,
    /// Spans in `held`.
    spans: usize,
    /// True while a thread waits for decisions.
    awaited: bool,
    closed: bool,
}

impl SinkDecisions {
    /// Records that the entries with numbers below `end` are announced.
    pub(super) fn announced(&self, end: u64) {
        let mut state = lock(&self.state);
        state.announced = state.announced.max(end);
    }

    /// Returns whether the entry `id` was announced.
    pub(super) fn is_announced(&self, id: u64) -> bool {
        id < lock(&self.state).announced
    }

    /// Records the sink's decisions on the entries below `before`; false if one of them is on an
    /// entry that is not announced or was decided before, or if they are too many.
    pub(super) fn note_decisions(&self, before: u64, held: Vec<KeptFile>) -> bool {
        let mut state = lock(&self.state);
        let decided = state.before..before;
        let spans = |held: &KeptFile| held.blocks.as_ref().map_or(0, Vec::len);
        state.spans += held.iter().map(spans).sum::<usize>();
        let valid = (state.before..=state.announced).contains(&before)
            && held.iter().all(|held| decided.contains(&held.id));
        if !valid || state.spans > SPANS_LIMIT {
            return false;
        }
        state.before = before;
        state.held.extend(held.into_iter().map(|held| (held.id, held.blocks)));
        self.decided.notify_all();
        true
    }

    /// Returns whether a thread waits for decisions.
    pub(super) fn is_awaited(&self) -> bool {
        lock(&self.state).awaited
    }

    /// Waits until all of `files` are decided, and returns those of which the sink wants any block;
    /// `None` when the copy is over.
    pub(super) fn await_decisions(
        &self,
        files: Vec<Arc<SourceFile>>,
    ) -> Option<Vec<Arc<SourceFile>>> {
        let last = files.last().map_or(0, |file| file.id);
        let open = |state: &mut DecisionState| !state.closed && last >= state.before;
        let mut state = lock(&self.state);
        state.awaited = true;
        let mut state =
            self.decided.wait_while(state, open).unwrap_or_else(PoisonError::into_inner);
        state.awaited = false;
        if state.closed {
            return None;
        }
        // Decisions on entries without data are not used.
        let later = state.held.split_off(&(last + 1));
        let mut held = std::mem::replace(&mut state.held, later);
        state.spans -= held.values().flatten().map(Vec::len).sum::<usize>();
        drop(state);
        let wanted = files.into_iter().filter(|file| match held.remove(&file.id) {
            None => true,
            Some(None) => false,
            Some(Some(spans)) => {
                // Invalid spans leave out nothing.
                let held = BlockSet::from_spans(&spans, file.blocks()).unwrap_or_default();
                file.leave_out(&held);
                held.count() < file.blocks() || file.size == 0
            }
        });
        Some(wanted.collect())
    }

    /// Ends every wait, because the copy is over.
    pub(super) fn close(&self) {
        lock(&self.state).closed = true;
        self.decided.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(id: u64, spans: usize) -> KeptFile {
        KeptFile { id, blocks: Some(vec![(0, 1); spans]) }
    }

    #[test]
    fn decisions_are_on_announced_entries_once_and_bounded() {
        let wanted = SinkDecisions::default();
        wanted.announced(5);
        assert!(wanted.is_announced(4) && !wanted.is_announced(5));
        assert!(wanted.note_decisions(2, vec![held(0, 1), held(1, 1)]));
        assert!(!wanted.note_decisions(1, vec![]), "taken back");
        assert!(!wanted.note_decisions(4, vec![held(1, 1)]), "decided before");
        assert!(!wanted.note_decisions(4, vec![held(4, 1)]), "not decided by this message");
        assert!(!wanted.note_decisions(6, vec![]), "not announced");
        assert!(!wanted.note_decisions(5, vec![held(3, SPANS_LIMIT)]), "too many");
    }

    #[test]
    fn decisions_that_are_used_make_room() {
        let wanted = SinkDecisions::default();
        wanted.announced(16);
        // The spans of entries without data exceed the limit, and so do those of entries with data.
        for id in 0..8 {
            assert!(
                wanted.note_decisions(2 * id + 2, vec![held(2 * id, 5000), held(2 * id + 1, 5000)])
            );
            let file = Arc::new(SourceFile::zero(2 * id + 1, 100 << 20, 1 << 20));
            assert_eq!(wanted.await_decisions(vec![file]).map(|files| files.len()), Some(1));
        }
    }
}
