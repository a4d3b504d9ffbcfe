//! The memory that the sessions of one kind of client share: with or without an authorised key.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_core::units::Bytes;

use crate::share::{Portion, Share};

/// The default memory for the buffers of all anonymous sessions: two tests of the largest kind at
/// half size, and 16 MiB for each of 16.
const DEFAULT_MEMORY: Bytes = Bytes::mib(512);
/// The default number of sessions that share it.
const DEFAULT_SESSIONS: usize = 16;

/// The memory of all sessions of one kind, and whether others wait; clones are the same pool.
#[derive(Debug, Clone)]
pub struct SessionPool {
    total: Bytes,
    memory: Share,
    waiting: Arc<AtomicBool>,
}

impl SessionPool {
    /// Creates a pool of `memory` for the buffers of `sessions` at once.
    pub fn new(memory: Bytes, sessions: usize) -> Self {
        let share = Share::new(memory.get(), sessions);
        SessionPool { total: memory, memory: share, waiting: Arc::default() }
    }

    /// Takes up to `wanted` bytes for the buffers of one session.
    pub(crate) fn memory(&self, wanted: u64) -> Portion {
        self.memory.take(wanted)
    }

    /// Returns whether an anonymous client waits for a place.
    pub(crate) fn is_contended(&self) -> bool {
        self.waiting.load(Ordering::Relaxed)
    }

    pub(crate) fn set_waiting(&self, waiting: bool) {
        self.waiting.store(waiting, Ordering::Relaxed);
    }
}

impl Default for SessionPool {
    fn default() -> Self {
        SessionPool::new(DEFAULT_MEMORY, DEFAULT_SESSIONS)
    }
}

impl PartialEq for SessionPool {
    /// Returns whether both have the same size.
    fn eq(&self, other: &Self) -> bool {
        self.total == other.total
    }
}

impl Eq for SessionPool {}
