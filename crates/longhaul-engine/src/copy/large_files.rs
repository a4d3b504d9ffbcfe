//! The progress of the large files of a copy, for its display.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

use longhaul_core::units::Bytes;

use crate::lock;

/// The smallest file with separate progress: the display of a smaller one would change too fast.
const LEAST_BYTES: u64 = 16 << 20;
/// The maximum number of files with separate progress at a time.
const MOST_FILES: usize = 64;

/// The progress of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileProgress {
    /// The path of the file at this end.
    pub path: PathBuf,
    /// The size of the file.
    pub size: Bytes,
    /// The bytes that a source has read, or a sink has written.
    pub moved: Bytes,
}

/// A file that blocks move from or to.
pub(super) trait MovingFile: Send + Sync {
    /// The path of the file at this end.
    fn path(&self) -> &Path;
    /// The size in bytes; `u64::MAX` if it is unknown.
    fn total_bytes(&self) -> u64;
    /// The number of moved blocks and of all blocks.
    fn moved_blocks(&self) -> (u64, u64);
}

/// The large files of a copy that are not complete.
#[derive(Default)]
pub(super) struct LargeFiles(Mutex<Vec<Weak<dyn MovingFile>>>);

impl fmt::Debug for LargeFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LargeFiles").field(&lock(&self.0).len()).finish()
    }
}

impl LargeFiles {
    /// Adds a file if it is large and there is room.
    pub(super) fn add<F: MovingFile + 'static>(&self, file: &Arc<F>) {
        if file.total_bytes() < LEAST_BYTES || file.total_bytes() == u64::MAX {
            return;
        }
        let mut files = lock(&self.0);
        if files.len() >= MOST_FILES {
            files.retain(|file| file.strong_count() > 0);
        }
        if files.len() < MOST_FILES {
            let file: Weak<F> = Arc::downgrade(file);
            files.push(file);
        }
    }

    /// Removes all files.
    pub(super) fn clear(&self) {
        lock(&self.0).clear();
    }

    /// Returns the files that have begun and are not complete, in the order of their announcement.
    pub(super) fn moving(&self) -> Vec<FileProgress> {
        let files: Vec<_> = lock(&self.0).iter().filter_map(Weak::upgrade).collect();
        let begun = files.iter().filter_map(|file| {
            let (moved, all) = file.moved_blocks();
            let share = moved as f64 / all.max(1) as f64;
            (moved > 0 && moved < all).then(|| FileProgress {
                path: file.path().to_owned(),
                size: Bytes::new(file.total_bytes()),
                moved: Bytes::new((file.total_bytes() as f64 * share) as u64),
            })
        });
        begun.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct File(PathBuf, u64, u64);

    impl MovingFile for File {
        fn path(&self) -> &Path {
            &self.0
        }

        fn total_bytes(&self) -> u64 {
            self.1
        }

        fn moved_blocks(&self) -> (u64, u64) {
            (self.2, 10)
        }
    }

    #[test]
    fn only_large_files_that_move_have_progress() {
        let files = LargeFiles::default();
        let kept: Vec<_> = [("new", 1 << 30, 0), ("half", 1 << 30, 5), ("done", 1 << 30, 10)]
            .into_iter()
            .chain([("small", 1000, 5), ("stream", u64::MAX, 5)])
            .map(|(name, size, moved)| Arc::new(File(name.into(), size, moved)))
            .collect();
        kept.iter().for_each(|file| files.add(file));
        files.add(&Arc::new(File("dropped".into(), 1 << 30, 5)));
        let moving = files.moving();
        let expected =
            FileProgress { path: "half".into(), size: Bytes::gib(1), moved: Bytes::mib(512) };
        assert_eq!(moving, [expected]);
        files.clear();
        assert_eq!(files.moving(), []);
    }

    #[test]
    fn the_number_of_files_is_bounded() {
        let files = LargeFiles::default();
        let file = |number: usize| Arc::new(File(number.to_string().into(), 1 << 30, 5));
        (0..MOST_FILES).for_each(|number| files.add(&file(number)));
        let kept: Vec<_> = (0..2 * MOST_FILES).map(file).collect();
        kept.iter().for_each(|file| files.add(file));
        assert_eq!(files.moving().len(), MOST_FILES, "dropped files leave their room");
    }
}
