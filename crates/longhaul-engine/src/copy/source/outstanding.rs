use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::file::SourceFile;
use crate::copy::blocks::BlockSet;
use crate::lock::lock;
use longhaul_core::wire::copy::Held;

/// Files that may be announced and not in place yet. Bounds the memory of both ends in a tree of
/// many small files: some 500 bytes each.
const OUTSTANDING_LIMIT: usize = 32 << 10;

/// Files that the sink has not put in place yet: a block of theirs may be asked for again.
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
    /// Adds files once there is room; false when the copy is over.
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

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        lock(&self.state).files.len()
    }

    /// Ends every wait: the copy is over.
    pub(super) fn close(&self) {
        lock(&self.state).closed = true;
        self.room.notify_all();
    }
}

/// What the sink has said of the files announced.
#[derive(Default)]
pub(super) struct Wanted {
    state: Mutex<Decided>,
    said: Condvar,
}

#[derive(Default)]
struct Decided {
    /// All entries with smaller numbers are decided.
    before: u64,
    held: HashMap<u64, Option<Vec<(u64, u64)>>>,
    /// It is waited for.
    awaited: bool,
    closed: bool,
}

impl Wanted {
    /// Notes what the sink says; false if it takes something back.
    pub(super) fn say(&self, before: u64, held: Vec<Held>) -> bool {
        let mut state = lock(&self.state);
        if before < state.before {
            return false;
        }
        state.before = before;
        state.held.extend(held.into_iter().map(|held| (held.id, held.blocks)));
        self.said.notify_all();
        true
    }

    /// Whether what the sink says is waited for.
    pub(super) fn is_awaited(&self) -> bool {
        lock(&self.state).awaited
    }

    /// Waits until all of `files` are decided, and returns those of which anything is wanted;
    /// `None` when the copy is over.
    pub(super) fn decide(&self, files: Vec<Arc<SourceFile>>) -> Option<Vec<Arc<SourceFile>>> {
        let last = files.last().map_or(0, |file| file.id);
        let open = |state: &mut Decided| !state.closed && last >= state.before;
        let mut state = lock(&self.state);
        state.awaited = true;
        let mut state = self.said.wait_while(state, open).unwrap_or_else(PoisonError::into_inner);
        state.awaited = false;
        if state.closed {
            return None;
        }
        let wanted = files.into_iter().filter(|file| match state.held.remove(&file.id) {
            None => true,
            Some(None) => false,
            Some(Some(spans)) => {
                // Spans beyond its end are nothing that could be left out.
                let held = BlockSet::from_spans(&spans, file.blocks()).unwrap_or_default();
                file.leave_out(&held);
                held.count() < file.blocks() || file.size == 0
            }
        });
        Some(wanted.collect())
    }

    /// Ends every wait: the copy is over.
    pub(super) fn close(&self) {
        lock(&self.state).closed = true;
        self.said.notify_all();
    }
}
