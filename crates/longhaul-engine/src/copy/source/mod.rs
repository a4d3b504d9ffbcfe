//! The sending end of a copy: walk, read, send.
//!
//! The walk announces entries on the control channel and queues their blocks; readers fill
//! buffers from files; each data connection has a sender that takes the next filled buffer of any
//! file. Small files share a buffer. Nothing waits for a round trip per file.

mod announce;
mod carry;
mod feed;
mod file;
mod follow;
mod listed;
mod outstanding;
mod place;
mod read_step;
mod run;
mod shared;
mod steer;
mod subset;
mod walk;

use std::path::PathBuf;
use std::sync::Arc;

use longhaul_core::units::Bytes;
use longhaul_core::wire::copy::Top;

use crate::copy::tree::Tree;

pub use feed::{Feed, StreamReader};
pub(super) use listed::plain_name;
pub use listed::read_names;
pub(crate) use read_step::{forget, read, subset_of_source};
pub(super) use run::{SourceTerms, run};

/// The files to send.
#[derive(Debug, Clone)]
pub struct SourcePlan {
    /// The files that may be reached.
    pub tree: Tree,
    /// The roots, which all go to one target.
    pub roots: Vec<SourceRoot>,
}

/// One source of the command line.
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
        /// Paths relative to the directory.
        names: Arc<Vec<PathBuf>>,
    },
}

impl SourcePlan {
    /// Returns the kind of the top level.
    pub fn top(&self) -> Top {
        match self.roots.as_slice() {
            [SourceRoot::Listed { .. }] => Top::Contents,
            [SourceRoot::Path(path)] if SourceRoot::is_contents(path) => Top::Contents,
            [_] => Top::One,
            _ => Top::Several,
        }
    }
}
