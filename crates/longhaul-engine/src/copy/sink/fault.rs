//! Faults of the storage for tests: an error of one operation, changed bytes, slow reads and syncs. The
//! program is compiled without them.

use std::io;
use std::path::Path;

/// Counts down the operations on the storage of one target to the one that fails.
#[derive(Clone, Default)]
pub(in crate::copy) struct Countdown {
    #[cfg(any(test, feature = "fuzzing"))]
    left: Option<std::sync::Arc<std::sync::atomic::AtomicI64>>,
    /// True if the disk changes written bytes.
    #[cfg(any(test, feature = "fuzzing"))]
    spoils: bool,
    /// The duration of a sync, and of a read for a comparison.
    #[cfg(any(test, feature = "fuzzing"))]
    wait: std::time::Duration,
}

#[cfg(not(any(test, feature = "fuzzing")))]
impl Countdown {
    /// Returns the countdown of the storage in directory `at`.
    pub(super) fn of(_: &Path) -> Self {
        Countdown::default()
    }

    /// Counts one operation.
    ///
    /// # Errors
    /// This operation is the one that fails.
    #[inline]
    pub(super) fn tick(&self) -> io::Result<()> {
        Ok(())
    }

    /// Waits for the duration of the slow operation.
    #[inline]
    pub(super) fn wait(&self) {}

    /// Changes the file `name` in `dir`, if the countdown has ended.
    #[inline]
    pub(super) fn damage(&self, _: &std::os::fd::OwnedFd, _: &std::ffi::OsStr) {}
}

#[cfg(any(test, feature = "fuzzing"))]
pub(in crate::copy) mod set {
    use std::collections::HashMap;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicI64, Ordering};
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use super::{Countdown, Path, io};
    use crate::lock;

    static SET: Mutex<Option<HashMap<PathBuf, Arc<AtomicI64>>>> = Mutex::new(None);

    /// Makes operation number `count` (from 1) on the storage in directory `at` fail, and returns
    /// the remaining count.
    pub(in crate::copy) fn fail_at(at: &Path, count: i64) -> Arc<AtomicI64> {
        let left = Arc::new(AtomicI64::new(count));
        lock(&SET).get_or_insert_default().insert(at.to_owned(), left.clone());
        left
    }

    static SPOILT: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

    /// Makes the disk change the first byte of every file in directory `at`.
    #[cfg(test)]
    pub(in crate::copy) fn spoil_at(at: &Path) {
        lock(&SPOILT).push(at.to_owned());
    }

    static SLOW: Mutex<Vec<(PathBuf, Duration)>> = Mutex::new(Vec::new());

    /// Makes each sync of a file in directory `at`, and each read for a comparison, take this time.
    #[cfg(test)]
    pub(in crate::copy) fn slow_at(at: &Path, wait: Duration) {
        lock(&SLOW).push((at.to_owned(), wait));
    }

    impl Countdown {
        pub(in crate::copy::sink) fn wait(&self) {
            std::thread::sleep(self.wait);
        }

        pub(in crate::copy::sink) fn of(at: &Path) -> Self {
            let left = lock(&SET).get_or_insert_default().get(at).cloned();
            let spoils = lock(&SPOILT).iter().any(|spoilt| spoilt == at);
            let slow = lock(&SLOW).iter().find(|(slow, _)| slow == at).map(|(_, wait)| *wait);
            Countdown { left, spoils, wait: slow.unwrap_or_default() }
        }

        pub(in crate::copy::sink) fn damage(
            &self,
            dir: &std::os::fd::OwnedFd,
            name: &std::ffi::OsStr,
        ) {
            use rustix::fs::{Mode, OFlags, openat};
            use std::os::unix::fs::FileExt;
            if self.spoils {
                let file = openat(dir, name, OFlags::RDWR, Mode::empty()).unwrap();
                let (file, mut byte) = (std::fs::File::from(file), [0]);
                file.read_exact_at(&mut byte, 0).unwrap();
                file.write_all_at(&[!byte[0]], 0).unwrap();
                file.sync_all().unwrap();
            }
        }

        pub(in crate::copy::sink) fn tick(&self) -> io::Result<()> {
            match &self.left {
                Some(left) if left.fetch_sub(1, Ordering::Relaxed) == 1 => {
                    Err(rustix::io::Errno::IO.into())
                }
                _ => Ok(()),
            }
        }
    }
}
