//! The events of a running matrix.

use std::time::Duration;

use longhaul_core::plan::{Condition, Row};
use longhaul_core::result::RunRecord;

use super::Cell;

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
        cell: Cell,
        /// The row.
        row: &'a Row,
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
