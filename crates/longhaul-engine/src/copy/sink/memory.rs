//! A bound on the memory of entries that a source announces ahead of their data.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use longhaul_core::wire::copy::Entry;

/// The maximum number of bytes of all entries at once. A correct source has at most 32 Ki files
/// outstanding, which is 16 KiB per file.
const LIMIT_BYTES: u64 = 512 << 20;
/// The memory of an entry besides its path and attributes: its place in lists, and its file.
const ENTRY_BYTES: usize = 128;
/// The memory of a span in a set of blocks.
const SPAN_BYTES: usize = 48;

/// The memory of the entries of one copy.
#[derive(Default)]
pub(super) struct EntryMemory(Arc<AtomicU64>);

/// The memory of one entry, until it is dropped.
#[derive(Default)]
pub(super) struct MemoryClaim {
    of: Arc<AtomicU64>,
    bytes: u64,
}

impl EntryMemory {
    /// Claims the memory of `entry`; `None` if that is more than a source may take.
    pub(super) fn claim(&self, entry: &Entry) -> Option<MemoryClaim> {
        let xattrs =
            entry.xattrs.iter().map(|xattr| xattr.name.as_bytes().len() + xattr.value.len());
        let holes = entry.holes.as_ref().map_or(0, Vec::len) * SPAN_BYTES;
        let path = entry.path.as_bytes().len();
        let bytes = (ENTRY_BYTES + path + xattrs.sum::<usize>() + holes) as u64;
        let claim = MemoryClaim { of: self.0.clone(), bytes };
        let used = self.0.fetch_add(bytes, Ordering::Relaxed);
        (used + bytes <= LIMIT_BYTES).then_some(claim)
    }
}

impl Drop for MemoryClaim {
    fn drop(&mut self) {
        self.of.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::wire::FilePath;
    use longhaul_core::wire::copy::{EntryKind, Xattr};

    use super::*;

    #[test]
    fn entries_take_memory_until_they_are_dropped() {
        let name = FilePath::new("user.a").unwrap();
        let mut entry = Entry::new(FilePath::new("f").unwrap(), EntryKind::Directory, 0);
        entry.xattrs = vec![Xattr { name, value: vec![0; 255 << 10] }];
        let memory = EntryMemory::default();
        let claims: Vec<_> = std::iter::from_fn(|| memory.claim(&entry)).take(10_000).collect();
        assert_eq!(claims.len() as u64, LIMIT_BYTES / ((255 << 10) + 7 + ENTRY_BYTES as u64));
        drop(claims);
        assert!(memory.claim(&entry).is_some());
    }
}
