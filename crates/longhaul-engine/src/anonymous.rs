//! What all clients without an authorised key have together.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_core::units::Bytes;

use crate::share::{Portion, Share};

/// Memory for the buffers of all anonymous sessions, unless the server says otherwise: two tests
/// of the largest kind at half size, and 16 MiB for each of 16.
const DEFAULT_MEMORY: Bytes = Bytes::mib(512);
/// As many sessions share it, unless the server says otherwise.
const DEFAULT_SESSIONS: usize = 16;

/// The memory of all anonymous sessions of a server, and whether others wait for their places;
/// clones are the same pool.
#[derive(Debug, Clone)]
pub struct AnonymousPool {
    total: Bytes,
    memory: Share,
    waiting: Arc<AtomicBool>,
}

impl AnonymousPool {
    /// `memory` for the buffers of `sessions` at once.
    pub fn new(memory: Bytes, sessions: usize) -> Self {
        let share = Share::new(memory.get(), sessions);
        AnonymousPool { total: memory, memory: share, waiting: Arc::default() }
    }

    /// Up to `wanted` bytes for the buffers of one session.
    pub(crate) fn memory(&self, wanted: u64) -> Portion {
        self.memory.take(wanted)
    }

    /// Whether an anonymous client waits for a place.
    pub(crate) fn others_wait(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    pub(crate) fn set_waiting(&self, waiting: bool) {
        self.waiting.store(waiting, Ordering::Relaxed);
    }
}

impl Default for AnonymousPool {
    fn default() -> Self {
        AnonymousPool::new(DEFAULT_MEMORY, DEFAULT_SESSIONS)
    }
}

impl PartialEq for AnonymousPool {
    /// Of the same size.
    fn eq(&self, other: &Self) -> bool {
        self.total == other.total
    }
}

impl Eq for AnonymousPool {}
