//! Runs a matrix: complete passes over all cells in random order, one run at a time. Each run has a
//! new path and is stored when it ends.
//!
//! A new path per run costs some tenths of a second and makes runs independent: no cached TCP
//! metrics, no leftover server or child, no emulator memory touched by another tool. A tool that
//! fails, hangs or delivers wrong bytes gives a run with that outcome, and the matrix continues.
//! Each path is measured before its first run. A run over a path that violates its conditions is
//! repeated at most twice.

mod compare;
mod disk;
mod ends;
mod estimate;
mod far;
mod listing;
mod load;
mod matrix;
mod order;
mod path;
mod process;
mod ready;
mod run;
mod script;
mod side_flows;
mod strays;
mod tally;
mod tools;
mod work;

use std::time::Duration;

use longhaul_core::plan::{Condition, MatrixRow};
use longhaul_core::result::RunRecord;

pub use estimate::Cost;
pub use far::check_far_room;
pub use matrix::{Ended, Matrix, Setup};
pub use order::{PlannedRun, cells};
pub use ready::has_listener;
pub use script::run_script;
pub use tools::{changed_tool, detect, digest, find_tools};

/// An event of a running matrix, for display.
#[derive(Debug)]
pub enum MatrixEvent<'a> {
    /// The data for copies are being created.
    MakingData,
    /// A tool of the plan is not installed; its rows stay empty.
    NotInstalled {
        /// The name of the driver.
        tool: &'a str,
        /// The missing program.
        program: &'a str,
    },
    /// A path is measured before its first run.
    MeasuringPath {
        /// The path.
        condition: &'a Condition,
    },
    /// A run starts.
    Started {
        /// The cell.
        cell: PlannedRun,
        /// The row.
        row: &'a MatrixRow,
        /// The path.
        condition: &'a Condition,
        /// The progress of the matrix.
        progress: MatrixProgress,
    },
    /// A run ended, successfully or not, and was stored.
    Finished {
        /// The run.
        run: &'a RunRecord,
        /// The progress of the matrix.
        progress: MatrixProgress,
    },
}

/// The progress of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatrixProgress {
    /// The number of completed runs, including those of earlier sessions.
    pub done: usize,
    /// The number of all runs.
    pub total: usize,
    /// The estimated time until the last run ends.
    pub left: Duration,
}
