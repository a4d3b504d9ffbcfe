//! The record of a service's work, which the server reads when the session has ended.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use longhaul_core::result::CopyLimit;
use longhaul_core::units::Bytes;

use crate::lock;

/// The maximum number of paths of a request that are recorded; further ones are counted.
const PATHS_KEPT: usize = 16;

/// The operation that a client requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// A memory-to-memory test with this server.
    Test,
    /// A memory-to-memory test between this server and another.
    TestOther,
    /// The server sends files to the client.
    Get,
    /// The server receives files.
    Put,
    /// The server sends files to another server.
    Forward,
    /// The server compares files with a manifest.
    Check,
    /// A path measurement.
    Path,
    /// A diagnosis: this end reads, writes or examines its host.
    Diagnose,
}

/// The work of one session so far.
#[derive(Debug, Clone, Default)]
pub struct SessionWork {
    /// The operation; `None` before the request was read.
    pub operation: Option<Operation>,
    /// The first paths of the request, as the client wrote them.
    pub paths: Vec<PathBuf>,
    /// The number of further paths.
    pub more_paths: usize,
    /// The other server, as the client wrote it, or its addresses.
    pub other: Option<String>,
    /// The payload: of a test in both directions, of a copy as written at the sink.
    pub bytes: Bytes,
    /// The bytes of these that an earlier session had left at the sink.
    pub resumed: Bytes,
    /// The files with their final names at the sink; `None` at other ends.
    pub files: Option<u64>,
    /// Files that failed.
    pub failures: u64,
    /// The time from the start of the work to its end; `None` if it did not start.
    pub duration: Option<Duration>,
    /// The limiting factor of a copy.
    pub limit: Option<CopyLimit>,
    /// The reason why this end cut a test.
    pub cut: Option<String>,
}

/// The record of one session, shared by its threads.
#[derive(Debug, Clone, Default)]
pub struct WorkRecord(Arc<Mutex<SessionWork>>);

impl WorkRecord {
    /// Records the request.
    pub(crate) fn note_request<'a>(
        &self,
        operation: Operation,
        paths: impl IntoIterator<Item = &'a Path>,
    ) {
        let mut paths = paths.into_iter();
        let mut work = lock(&self.0);
        work.operation = Some(operation);
        work.paths = paths.by_ref().take(PATHS_KEPT).map(Path::to_owned).collect();
        work.more_paths = paths.count();
    }

    /// Records the other server.
    pub(crate) fn with_other(&self, other: String) {
        lock(&self.0).other = Some(other);
    }

    /// Changes the record.
    pub(crate) fn note(&self, change: impl FnOnce(&mut SessionWork)) {
        change(&mut lock(&self.0));
    }

    /// Runs `work` and records its duration.
    pub(crate) fn time<T>(&self, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let done = work();
        lock(&self.0).duration = Some(start.elapsed());
        done
    }

    /// Returns the record so far.
    pub fn read(&self) -> SessionWork {
        lock(&self.0).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_request_keeps_its_first_paths_and_counts_the_others() {
        let record = WorkRecord::default();
        let names: Vec<_> = (0..100).map(|number| PathBuf::from(number.to_string())).collect();
        record.note_request(Operation::Get, names.iter().map(PathBuf::as_path));
        let work = record.read();
        assert_eq!(work.operation, Some(Operation::Get));
        assert_eq!(work.paths, names[..PATHS_KEPT]);
        assert_eq!(work.more_paths, 100 - PATHS_KEPT);
    }
}
