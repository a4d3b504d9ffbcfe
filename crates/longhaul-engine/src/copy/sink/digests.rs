//! The digests of complete files, gathered while they are received.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use longhaul_core::plan::CopyOptions;
use longhaul_core::wire::FilePath;

use crate::lock;

/// Gathers digests, if any are requested.
pub(super) struct Digests {
    pub(super) reported: bool,
    pub(super) manifest: Option<FilePath>,
    pub(super) done: Mutex<Vec<Done>>,
    /// Existing files, which are read at the end.
    pub(super) unchanged: Mutex<Vec<PathBuf>>,
}

/// The digest of a file.
pub(super) struct Done {
    pub(super) path: PathBuf,
    pub(super) size: u64,
    pub(super) digest: [u8; 32],
}

impl Digests {
    pub(super) fn new(options: &CopyOptions) -> Self {
        Digests {
            reported: options.tree.digests,
            manifest: options.tree.manifest.clone(),
            done: Mutex::default(),
            unchanged: Mutex::default(),
        }
    }

    /// Returns whether digests are requested.
    pub(super) fn wanted(&self) -> bool {
        self.reported || self.manifest.is_some()
    }

    /// Adds a file that stays as it is.
    pub(super) fn unchanged(&self, path: &Path) {
        if self.wanted() {
            lock(&self.unchanged).push(path.to_owned());
        }
    }
}
