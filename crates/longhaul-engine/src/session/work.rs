//! The account that a service keeps of its work, read by the server when the session has ended.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use longhaul_core::result::CopyLimit;
use longhaul_core::units::Bytes;

use crate::lock::lock;

/// Most paths of a request that are kept; the others are counted.
const PATHS_KEPT: usize = 16;

/// The operation that a client asked for.
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
    /// A measurement of the path.
    Path,
    /// A diagnosis: this end reads, writes or examines its host.
    Diagnose,
}

/// The work of one session, as far as it got.
#[derive(Debug, Clone, Default)]
pub struct Work {
    /// The operation; `None` before the request was read.
    pub operation: Option<Operation>,
    /// The first paths of the request, as the client wrote them.
    pub paths: Vec<PathBuf>,
    /// How many paths followed those.
    pub more_paths: usize,
    /// The other server, as the client wrote it, or its addresses.
    pub other: Option<String>,
    /// Payload moved: by a test in both directions, by a copy as written at the sink.
    pub bytes: Bytes,
    /// Those of the bytes that an earlier session had left at the sink.
    pub resumed: Bytes,
    /// Files in place at the sink; `None` where there are none.
    pub files: Option<u64>,
    /// Files that failed.
    pub failures: u64,
    /// From the start of the work to its end; `None` if it did not start.
    pub duration: Option<Duration>,
    /// The limiting factor of a copy.
    pub limit: Option<CopyLimit>,
    /// Why this end broke off a test.
    pub cut: Option<String>,
}

/// The account of one session, shared by the threads that add to it.
#[derive(Debug, Clone, Default)]
pub struct WorkRecord(Arc<Mutex<Work>>);

impl WorkRecord {
    /// Notes the request.
    pub(crate) fn asked<'a>(
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

    /// Notes the other server.
    pub(crate) fn with_other(&self, other: String) {
        lock(&self.0).other = Some(other);
    }

    /// Changes the account.
    pub(crate) fn note(&self, change: impl FnOnce(&mut Work)) {
        change(&mut lock(&self.0));
    }

    /// Runs `work` and notes its duration.
    pub(crate) fn time<T>(&self, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let done = work();
        lock(&self.0).duration = Some(start.elapsed());
        done
    }

    /// The account so far.
    pub fn read(&self) -> Work {
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
        record.asked(Operation::Get, names.iter().map(PathBuf::as_path));
        let work = record.read();
        assert_eq!(work.operation, Some(Operation::Get));
        assert_eq!(work.paths, names[..PATHS_KEPT]);
        assert_eq!(work.more_paths, 100 - PATHS_KEPT);
    }
}
