use serde::{Deserialize, Serialize};

use super::CopyFailure;
use crate::units::Bytes;
use crate::wire::WirePath;

/// The schema of [`CheckResult`] in JSON.
pub const CHECK_SCHEMA: &str = "longhaul.check/1";

/// How files compare with a manifest; `docs/design/results.md` has every field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct CheckResult {
    /// [`CHECK_SCHEMA`].
    pub schema: String,
    /// Files that are as recorded.
    pub unchanged_files: u64,
    /// Bytes in them.
    pub unchanged_bytes: Bytes,
    /// Recorded files with other bytes.
    pub changed: Vec<WirePath>,
    /// Recorded files that are not there.
    pub missing: Vec<WirePath>,
    /// Files in the directories that the manifest covers, which it does not list.
    pub extra: Vec<WirePath>,
    /// What could not be looked at.
    pub failures: Vec<CopyFailure>,
}

impl CheckResult {
    /// Whether every recorded file is as recorded.
    pub fn holds(&self) -> bool {
        self.changed.is_empty() && self.missing.is_empty() && self.failures.is_empty()
    }
}
