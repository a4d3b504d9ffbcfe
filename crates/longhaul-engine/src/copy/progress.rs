use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use longhaul_core::units::Bytes;

/// How far a copy is, for whoever draws the bar; updated by the engine, read at any time.
#[derive(Debug, Default)]
pub struct Progress {
    pub(super) total_bytes: AtomicU64,
    pub(super) moved_bytes: AtomicU64,
    pub(super) total_files: AtomicU64,
    pub(super) files: AtomicU64,
    pub(super) listed: AtomicBool,
}

impl Progress {
    /// Bytes known to be copied, more as the source's tree is walked.
    pub fn total(&self) -> Bytes {
        Bytes::new(self.total_bytes.load(Ordering::Relaxed))
    }

    /// Bytes written to files at the sink.
    pub fn moved(&self) -> Bytes {
        Bytes::new(self.moved_bytes.load(Ordering::Relaxed))
    }

    /// Files known to be copied.
    pub fn total_files(&self) -> u64 {
        self.total_files.load(Ordering::Relaxed)
    }

    /// Files in place at the sink.
    pub fn files(&self) -> u64 {
        self.files.load(Ordering::Relaxed)
    }

    /// Whether the totals are final.
    pub fn listed(&self) -> bool {
        self.listed.load(Ordering::Relaxed)
    }
}
