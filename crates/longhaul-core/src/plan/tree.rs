use serde::{Deserialize, Serialize};

use super::filter::FilterRule;
use crate::wire::WirePath;

/// What is copied of a tree besides the bytes of its files, and what happens to what is there.
///
/// Every field has a default, so that a peer of an earlier build is understood.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TreeOptions {
    /// Symbolic links are copied as links (`-l`), not followed.
    pub keep_links: bool,
    /// Several names of one file stay so.
    pub hard_links: bool,
    /// Owner and group.
    pub owner: OwnerMode,
    /// Extended attributes and access control lists.
    pub xattrs: bool,
    /// FIFOs, sockets and devices are made, not skipped.
    pub specials: bool,
    /// Files that are as new at the target, or newer, stay as they are (`--update`).
    pub update: bool,
    /// Nothing is changed; what would be is told (`--dry-run`).
    pub dry_run: bool,
    /// What is in a copied directory at the target and not at the source is deleted.
    pub delete: Option<DeleteOptions>,
    /// What is left out, in rsync's manner.
    pub filters: Vec<FilterRule>,
    /// Each file's BLAKE3 digest is told.
    pub digests: bool,
    /// Blocks are sent in the order in which they lie in the file, holes as zeros: for a sink that
    /// cannot put them in place, as standard output.
    pub ordered: bool,
    /// The name of a manifest that the sink writes beside what it puts in place.
    pub manifest: Option<WirePath>,
}

/// Whether owner and group are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OwnerMode {
    /// Files belong to who copies.
    #[default]
    Ignore,
    /// By name, where the sink knows the name; else by number.
    Names,
    /// By number.
    Numbers,
}

/// How `--delete` goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DeleteOptions {
    /// If there is more to delete, nothing is (`--max-delete`).
    pub limit: Option<u64>,
}

impl TreeOptions {
    /// All that `-a` means, besides descending into directories, modes and times.
    pub fn archive() -> Self {
        TreeOptions {
            keep_links: true,
            hard_links: true,
            owner: OwnerMode::Names,
            xattrs: true,
            specials: true,
            ..TreeOptions::default()
        }
    }

    /// Whether the source waits for the sink's word on each file before it reads it.
    pub fn asks_first(&self) -> bool {
        self.update || self.dry_run
    }
}
