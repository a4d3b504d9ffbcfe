use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::file::SourceFile;
use crate::lock::lock;

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

    /// Ends every wait: the copy is over.
    pub(super) fn close(&self) {
        lock(&self.state).closed = true;
        self.room.notify_all();
    }
}
