//! A run: its parameters, its work, the destination of its copies, and the reason for its failure.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use longhaul_core::plan::{Condition, FlowTimes, MatrixRow, PlanEntry};

use super::disk;
use super::far::FarDir;
use crate::LabError;
use crate::data::CopyData;
use crate::drivers::{Driver, MemoryTask};
use crate::network::NetPath;

/// A run that is about to start.
pub(super) struct Run<'a> {
    pub(super) sequence: u32,
    pub(super) attempt: u32,
    pub(super) repeat: u32,
    pub(super) row: &'a MatrixRow,
    pub(super) condition: &'a Condition,
    pub(super) seed: u64,
    pub(super) entry: &'a PlanEntry,
    pub(super) driver: &'a dyn Driver,
    pub(super) version: &'a str,
    pub(super) work: Work<'a>,
    pub(super) limit: Duration,
    /// The longhaul program that starts the flows beside the tool.
    pub(super) program: Option<&'a Path>,
    /// The times of the flows beside the tool, if their share is measured.
    pub(super) recovery: Option<FlowTimes>,
    pub(super) stop: &'a AtomicBool,
}

/// The work of a run.
#[derive(Clone, Copy)]
pub(super) enum Work<'a> {
    Timed(MemoryTask),
    Copy {
        source: &'a CopyData,
        /// A directory that is emptied before the run and removed after it; `None` on a real path,
        /// whose far end has its own directory.
        scratch: Option<&'a Path>,
    },
}

/// The reason for a run without a figure.
pub(super) enum RunProblem {
    /// The stop flag was set; the run does not count.
    Stopped,
    /// The run failed, with the reason in one line.
    Failed(String),
    /// The path broke during the run, with the reason in one line; the tool did not cause this.
    Disturbed(String),
}

impl RunProblem {
    pub(super) fn of(error: &dyn Error) -> Self {
        RunProblem::Failed(chain(error))
    }
}

impl From<LabError> for RunProblem {
    fn from(error: LabError) -> Self {
        RunProblem::of(&error)
    }
}

/// The destination of a run's copies.
#[derive(Clone, Copy)]
pub(super) enum CopyTarget<'a> {
    /// A directory of this host, which both ends can access.
    Here(&'a Path),
    /// A directory of the far end.
    There(&'a FarDir),
}

impl CopyTarget<'_> {
    /// Returns the path of the copy of a client (from 0).
    pub(super) fn destination(self, client: u32) -> PathBuf {
        let dir = match self {
            CopyTarget::Here(dir) => dir,
            CopyTarget::There(dir) => dir.path(),
        };
        dir.join(copy_name(client))
    }

    /// Returns the time until the copies were on stable storage; `None` if it is unknown.
    pub(super) fn settle(self, path: &dyn NetPath, stop: &AtomicBool) -> Option<Duration> {
        match self {
            CopyTarget::Here(dir) => disk::settle(dir).ok(),
            CopyTarget::There(dir) => dir.settle(path.far_host()?, stop).ok(),
        }
    }
}

/// Returns the file name of the copy of a client (from 0).
pub(super) fn copy_name(client: u32) -> String {
    match client {
        0 => "copy".to_owned(),
        other => format!("copy-{}", other + 1),
    }
}

/// Joins an error and its causes in one line, even if a tool's output has line breaks.
pub(super) fn chain(error: &dyn Error) -> String {
    longhaul_core::text::chain(error).replace('\n', "; ")
}
