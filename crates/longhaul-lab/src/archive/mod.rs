//! The archive of one matrix: a directory with a SQLite database and one JSON document per run.
//! Both are written when the run ends.
//!
//! `docs/design/archive.md` describes the format. The database holds the data for tables and plots;
//! the documents hold everything, including raw output.

mod path_record;
mod read;
mod schema;
mod seal;
mod write;

pub use path_record::PathRecord;
pub use schema::FILE_NAME;

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

/// The facts that are the same for all runs of a matrix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// The plan as it was run, with command-line overrides.
    pub plan: MatrixPlan,
    /// The time of the first start, RFC 3339 in UTC.
    pub started_at: String,
    /// The version of the longhaul program that ran the matrix.
    pub program_version: String,
    /// A digest of the longhaul program that ran the matrix; `None` if the archive does not record
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program_digest: Option<String>,
    /// The description of the network.
    pub network: String,
    /// The data that disk entries copied.
    pub data: Option<Data>,
    /// Facts about the host: name and value.
    pub facts: Vec<Fact>,
}

/// The data that disk entries copied.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Data {
    /// The path of a file or directory.
    pub path: String,
    /// The size of all files together.
    pub bytes: Bytes,
    /// The number of files.
    pub files: u64,
}

/// A tool of the plan and its installation on the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    /// The name of the driver.
    pub name: String,
    /// The version that the tool reports; `None` if it is not installed.
    pub version: Option<String>,
    /// The program that is missing.
    pub missing: Option<String>,
    /// The path of the program; `None` if it is not installed or the archive does not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// A digest of the program file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// The contents of an archive.
#[derive(Debug, Clone, PartialEq)]
pub struct Contents {
    /// The facts about the matrix.
    pub header: Header,
    /// The tools of the plan.
    pub tools: Vec<Tool>,
    /// The runs in order of their numbers. Long output is cut here and complete in the JSON
    /// documents.
    pub runs: Vec<RunRecord>,
    /// The measurements of each path before its first run, in the order of measurement.
    pub path_records: Vec<PathRecord>,
    /// The certificate of the emulator on this machine, if the archive has one.
    pub certificate: Option<Certificate>,
}
