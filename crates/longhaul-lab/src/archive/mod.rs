//! The archive of one matrix: a directory with a SQLite database and one JSON document per run.
//! Both are written when the run ends.
//!
//! `docs/design/archive.md` describes the format. The database holds the data for tables and plots;
//! the documents hold everything, including raw output.

mod read;
mod schema;
mod write;

use std::path::PathBuf;

use longhaul_core::plan::MatrixPlan;
use longhaul_core::result::{Certificate, PathResult, ProbeFigures, RunRecord};
use longhaul_core::units::Bytes;
use serde::{Deserialize, Serialize};

use crate::host::Fact;

pub use schema::FILE_NAME;

/// An open archive.
#[derive(Debug)]
pub struct Archive {
    dir: PathBuf,
    connection: rusqlite::Connection,
}

/// The facts that are the same for all runs of a matrix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MatrixHeader {
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
    pub header: MatrixHeader,
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

/// The measurement of a path before its first run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathRecord {
    /// The name of the path in table headings.
    pub path: String,
    /// The time of measurement, RFC 3339 in UTC.
    pub measured_at: String,
    /// The result of `longhaul path`; `None` if it failed.
    pub found: Option<Box<PathResult>>,
    /// The reason for the failure, if the measurement failed.
    pub failure: Option<String>,
}

impl PathRecord {
    /// Returns the lowest round-trip times in ms of small and of full-size packets.
    pub fn rtt_ms(&self) -> [Option<f64>; 2] {
        let rtt = self.found.as_ref().and_then(|found| found.rtt.as_ref());
        let least = |trips: &Option<longhaul_core::result::RoundTrips>| {
            trips.as_ref().map(|trips| trips.times.min_ms)
        };
        [rtt.and_then(|rtt| least(&rtt.small)), rtt.and_then(|rtt| least(&rtt.full))]
    }

    /// Returns the path MTU in bytes from near to far and from far to near.
    pub fn mtu_bytes(&self) -> [Option<u32>; 2] {
        let found = self.found.as_ref();
        [
            found.and_then(|found| found.forward.mtu_bytes()),
            found.and_then(|found| found.reverse.mtu_bytes()),
        ]
    }

    /// Returns the number of probes that left a host and the number that were lost on the way,
    /// summed over both directions; `None` if loss was not measured.
    pub fn loss(&self) -> Option<(u64, u64)> {
        let found = self.found.as_ref()?;
        let ways = [found.forward.probes?, found.reverse.probes?];
        let sum = |of: fn(&ProbeFigures) -> u64| ways.iter().map(of).fold(0, u64::saturating_add);
        Some((sum(|way| way.lost.of), sum(|way| way.lost.count)))
    }
}
