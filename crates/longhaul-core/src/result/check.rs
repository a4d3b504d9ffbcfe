//! The result of checking files against a manifest.

use serde::{Deserialize, Serialize};

use super::CopyFailure;
use crate::units::Bytes;
use crate::wire::FilePath;

/// The schema of [`CheckResult`] in JSON.
pub const CHECK_SCHEMA: &str = "longhaul.check/1";

/// The comparison of files with a manifest; `docs/design/results.md` describes every field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct CheckResult {
    /// [`CHECK_SCHEMA`].
    pub schema: String,
    /// The number of files that match the manifest.
    pub unchanged_files: u64,
    /// The bytes in these files.
    pub unchanged_bytes: Bytes,
    /// The recorded files with different contents.
    pub changed: Vec<FilePath>,
    /// The recorded files that are missing.
    pub missing: Vec<FilePath>,
    /// The files in the manifest's directories that it does not list.
    pub extra: Vec<FilePath>,
    /// The files that could not be read.
    pub failures: Vec<CopyFailure>,
}

impl CheckResult {
    /// Returns whether every recorded file matches.
    pub fn holds(&self) -> bool {
        self.changed.is_empty() && self.missing.is_empty() && self.failures.is_empty()
    }
}
