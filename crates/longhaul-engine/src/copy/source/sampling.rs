//! The part of a tree that a sample takes.

use longhaul_core::plan::{CopySample, SampleContent};
use longhaul_core::units::Bytes;

/// The remaining bytes and files of a sample.
#[derive(Debug)]
pub(super) struct Sampling {
    sample: CopySample,
    bytes: u64,
    files: u64,
}

impl Sampling {
    pub(super) fn new(sample: CopySample) -> Self {
        Sampling { sample, bytes: sample.bytes.get(), files: sample.files }
    }

    /// Returns the size of the single file from memory that replaces all files, if the sample is
    /// from memory.
    pub(super) fn memory(&self) -> Option<Bytes> {
        (self.sample.content == SampleContent::Memory).then_some(self.sample.bytes)
    }

    /// Takes a file of `size` bytes: the bytes of it that are copied, or `None` if the sample is
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

    /// Returns whether the sample is complete.
    pub(super) fn is_full(&self) -> bool {
        self.bytes == 0 || self.files == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_file_is_cut_and_the_rest_left_out() {
        let sample = |bytes, files| {
            let (bytes, content) = (Bytes::new(bytes), SampleContent::Files);
            Sampling::new(CopySample { bytes, files, content })
        };
        let mut by_bytes = sample(100, 9);
        let taken = [70, 70, 70].map(|size| by_bytes.take(Bytes::new(size)).map(Bytes::get));
        assert_eq!(taken, [Some(70), Some(30), None]);
        let mut by_files = sample(100, 2);
        let taken = [0, 10, 10].map(|size| by_files.take(Bytes::new(size)).map(Bytes::get));
        assert_eq!(taken, [Some(0), Some(10), None]);
        assert!(by_files.is_full() && by_files.memory().is_none());
    }
}
