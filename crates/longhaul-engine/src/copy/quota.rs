//! The quota of a key during an upload: claims bytes, and counts the files where they do not fit.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{EngineError, Result};
use crate::session::{CountError, KeyQuota, OverQuota};

/// A name takes a multiple of this many bytes, the block size of most file systems.
pub(super) const UNIT: u64 = 4096;

/// Counts the bytes below the root of a key.
type Count = Box<dyn Fn() -> std::result::Result<u64, CountError> + Send + Sync>;

/// An upload that counts against a quota, until it is dropped.
pub(crate) struct QuotaUse {
    quota: KeyQuota,
    count: Count,
    claimed: AtomicU64,
}

impl QuotaUse {
    /// Begins an upload below the root of a key, whose bytes `count` returns.
    ///
    /// # Errors
    /// The files could not be counted.
    pub(super) fn begin(
        quota: KeyQuota,
        count: Count,
    ) -> std::result::Result<Arc<Self>, CountError> {
        quota.begin(&count)?;
        Ok(Arc::new(QuotaUse { quota, count, claimed: AtomicU64::new(0) }))
    }

    /// Claims `bytes` of a file.
    pub(super) fn claim(&self, bytes: u64) -> Result<()> {
        let bytes = occupied(bytes);
        self.quota.claim(bytes, &self.count).map_err(refused)?;
        self.claimed.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Fails if files that [occupy](occupied) `bytes` do not fit.
    pub(super) fn check(&self, bytes: u64) -> Result<()> {
        self.quota.check(bytes, &self.count).map_err(refused)
    }
}

impl fmt::Debug for QuotaUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuotaUse").field("claimed", &self.claimed).finish_non_exhaustive()
    }
}

impl Drop for QuotaUse {
    fn drop(&mut self) {
        self.quota.end(self.claimed.load(Ordering::Relaxed));
    }
}

/// Returns the bytes of a quota that a file of `bytes` takes; an empty file takes an inode and a
/// name.
pub(super) fn occupied(bytes: u64) -> u64 {
    bytes.max(1).checked_next_multiple_of(UNIT).unwrap_or(u64::MAX)
}

fn refused(over: OverQuota) -> EngineError {
    let OverQuota { needs, left, limit } = over;
    EngineError::OverQuota { needs, left, limit }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_takes_whole_blocks() {
        assert_eq!([0, 1, 4096, 4097].map(occupied), [4096, 4096, 4096, 8192]);
        assert_eq!(occupied(u64::MAX), u64::MAX);
    }
}
