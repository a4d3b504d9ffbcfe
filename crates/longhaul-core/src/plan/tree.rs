//! Options for copying trees.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::filter::FilterRule;
use crate::wire::FilePath;

/// The attributes that a copy of a tree preserves in addition to file contents, and its treatment
/// of existing files.
///
/// Every field has a default, so that requests of earlier versions are valid.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TreeOptions {
    /// True to copy symbolic links as links (`-l`) instead of following them.
    pub keep_links: bool,
    /// True to keep hard links between files.
    pub hard_links: bool,
    /// The treatment of owner and group.
    pub owner: OwnerMode,
    /// True to copy extended attributes and access control lists.
    pub xattrs: bool,
    /// True to create FIFOs, sockets and devices instead of skipping them.
    pub specials: bool,
    /// True to skip files that are as new or newer at the target (`--update`).
    pub update: bool,
    /// The comparison that decides whether an existing file is copied; `None` copies all files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync_level: Option<SyncLevel>,
    /// True to report every file and directory that is created or replaced (`-v`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub list: bool,
    /// True to change nothing and only report the changes (`--dry-run`).
    pub dry_run: bool,
    /// Delete entries of a copied directory at the target that the source lacks.
    pub delete: Option<DeleteOptions>,
    /// The include and exclude rules, in rsync's syntax.
    pub filters: Vec<FilterRule>,
    /// True to report the BLAKE3 digest of each file.
    pub digests: bool,
    /// True to send blocks in file order with holes as zeros, for a sink that cannot write at
    /// offsets, such as standard output.
    pub ordered: bool,
    /// The name of a manifest that the sink writes beside the copied files.
    pub manifest: Option<FilePath>,
}

/// A comparison of a file with the existing one. A file that is equal by it is not copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SyncLevel {
    /// The target has a file of this name.
    Exists,
    /// The file at the target has the same size.
    Size,
    /// The file at the target has the same size, and is not older.
    Mtime,
    /// The file at the target has the same size and the same BLAKE3 digest.
    Checksum,
}

impl FromStr for SyncLevel {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "exists" => SyncLevel::Exists,
            "size" => SyncLevel::Size,
            "mtime" => SyncLevel::Mtime,
            "checksum" => SyncLevel::Checksum,
            _ => return Err("expected exists, size, mtime or checksum"),
        })
    }
}

/// The treatment of owner and group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OwnerMode {
    /// Files belong to the user who copies.
    #[default]
    Ignore,
    /// Owner and group are set by name if the sink knows the name, otherwise by number.
    Names,
    /// Owner and group are set by number.
    Numbers,
}

/// The options of `--delete`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DeleteOptions {
    /// The largest number of entries to delete; if there are more, none is deleted
    /// (`--max-delete`).
    pub limit: Option<u64>,
}

impl TreeOptions {
    /// Returns the options of `-a`, except recursion, modes and times.
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

    /// Returns whether the source waits for the sink's decision on each file before it reads the
    /// file.
    pub fn asks_first(&self) -> bool {
        self.update || self.dry_run || self.sync_level.is_some()
    }
}
