//! The files that a source sends.

use std::path::PathBuf;
use std::sync::Arc;

use longhaul_core::units::Bytes;
use longhaul_core::wire::copy::Top;

use super::feed::Feed;
use crate::copy::tree::Tree;

/// The files to send.
#[derive(Debug, Clone)]
pub struct SourcePlan {
    /// The files that may be reached.
    pub tree: Tree,
    /// The roots, which all go to one target.
    pub roots: Vec<SourceRoot>,
}

/// One thing named on the command line.
#[derive(Debug, Clone)]
pub enum SourceRoot {
    /// A file or directory; `dir/.` means the directory's contents.
    Path(PathBuf),
    /// A number of zero bytes from memory.
    Zero(Bytes),
    /// A stream; the only root.
    Feed(Arc<Feed>),
    /// Selected paths beneath a directory, each with the directories above it; the only root.
    Listed {
        /// The directory.
        base: PathBuf,
        /// Paths relative to it.
        names: Arc<Vec<PathBuf>>,
    },
}

impl SourcePlan {
    /// The kind of the top level.
    pub fn top(&self) -> Top {
        match self.roots.as_slice() {
            [SourceRoot::Listed { .. }] => Top::Contents,
            [SourceRoot::Path(path)] if SourceRoot::is_contents(path) => Top::Contents,
            [_] => Top::One,
            _ => Top::Several,
        }
    }
}
