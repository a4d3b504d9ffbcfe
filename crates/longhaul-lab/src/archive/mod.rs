//! The archive of one matrix: a directory with a SQLite database and one JSON document for each
//! run, both written the moment the run ends.
//!
//! The format is described in `docs/design/archive.md`. The database holds what tables and plots
//! are made from; the documents hold everything, raw output included.

mod read;
mod schema;
mod seal;
mod survey;
mod write;

pub use schema::FILE_NAME;
pub use survey::Survey;

use longhaul_core::plan::MatrixPlan;
use longhaul_core::result::{Certificate, RunRecord};
use longhaul_core::units::Bytes;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

use crate::host::Fact;

/// An open archive.
#[derive(Debug)]
pub struct Archive {
    dir: PathBuf,
    connection: rusqlite::Connection,
}

/// What a matrix is, once for all its runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The plan as it was run, overrides included.
    pub plan: MatrixPlan,
    /// When it was started first, RFC 3339 in UTC.
    pub started_at: String,
    /// The longhaul that ran it.
    pub program_version: String,
    /// A digest of the longhaul that ran it; `None` in archives that do not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program_digest: Option<String>,
    /// What the network says it is.
    pub network: String,
    /// What disk entries copied.
    pub data: Option<Data>,
    /// Facts of the host.
    pub facts: Vec<Fact>,
}

/// What disk entries copied.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Data {
    /// File or directory.
    pub path: String,
    /// Of all files.
    pub bytes: Bytes,
    /// How many.
    pub files: u64,
}

/// A tool of the plan, as it was found on the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    /// The driver.
    pub name: String,
    /// What it says its version is; `None` when it is not installed.
    pub version: Option<String>,
    /// The program that is missing.
    pub missing: Option<String>,
    /// The program's file; `None` when it is not installed or in archives that do not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// A digest of that file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// All that an archive holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Contents {
    /// What the matrix is.
    pub header: Header,
    /// The tools of the plan.
    pub tools: Vec<Tool>,
    /// The runs, in the order of their numbers. Their output is cut; the documents have it whole.
    pub runs: Vec<RunRecord>,
    /// What each path was like before its first run, in the order in which they were met.
    pub surveys: Vec<Survey>,
    /// What the emulator was proven to do on this machine, where someone attached it.
    pub certificate: Option<Certificate>,
}
