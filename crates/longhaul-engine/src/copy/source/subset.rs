//! The remaining part of the subset of files that a diagnosis copies.

use longhaul_core::plan::{CopySubset, SubsetContent};
use longhaul_core::units::Bytes;

/// The remaining bytes and files of a subset.
#[derive(Debug)]
pub(super) struct RemainingSubset {
    subset: CopySubset,
    bytes: u64,
    files: u64,
}

impl RemainingSubset {
    pub(super) fn new(subset: CopySubset) -> Self {
        RemainingSubset { subset, bytes: subset.bytes.get(), files: subset.files }
    }

    /// Returns the size of the single file from memory that replaces all files, if the subset is
    /// from memory.
    pub(super) fn memory(&self) -> Option<Bytes> {
        (self.subset.content == SubsetContent::Memory).then_some(self.subset.bytes)
    }

    /// Takes a file of `size` bytes: the bytes of it that are copied, or `None` if the subset is
    /// complete.
    pub(super) fn take(&mut self, size: Bytes) -> Option<Bytes> {
        if self.is_full() {
            return None;
        }
        let taken = size.get().min(self.bytes);
        self.bytes -= taken;
        self.files -= 1;
        Some(Bytes::new(taken))
    }

    /// Returns whether the subset is complete.
    pub(super) fn is_full(&self) -> bool {
        self.bytes == 0 || self.files == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_file_is_cut_and_the_rest_left_out() {
        let subset = |bytes, files| {
            let (bytes, content) = (Bytes::new(bytes), SubsetContent::Files);
            RemainingSubset::new(CopySubset { bytes, files, content })
        };
        let mut by_bytes = subset(100, 9);
        let taken = [70, 70, 70].map(|size| by_bytes.take(Bytes::new(size)).map(Bytes::get));
        assert_eq!(taken, [Some(70), Some(30), None]);
        let mut by_files = subset(100, 2);
        let taken = [0, 10, 10].map(|size| by_files.take(Bytes::new(size)).map(Bytes::get));
        assert_eq!(taken, [Some(0), Some(10), None]);
        assert!(by_files.is_full() && by_files.memory().is_none());
    }
}
