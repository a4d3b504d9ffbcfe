use std::time::Duration;

use longhaul_core::plan::{Condition, Row};
use longhaul_core::result::RunRecord;

use super::Cell;

/// What happens while a matrix runs, for whoever shows it.
#[derive(Debug)]
pub enum Event<'a> {
    /// The data file is being made.
    MakingData,
    /// A tool of the plan is not on this host; its rows stay empty.
    NotInstalled {
        /// The driver.
        tool: &'a str,
        /// The program that is missing.
        program: &'a str,
    },
    /// A path is looked at before its first run.
    Surveying {
        /// The path.
        condition: &'a Condition,
    },
    /// A run begins.
    Started {
        /// Which.
        cell: Cell,
        /// The row.
        row: &'a Row,
        /// The path.
        condition: &'a Condition,
        /// How far the matrix is.
        progress: Progress,
    },
    /// A run ended, well or not, and is kept.
    Finished {
        /// It.
        run: &'a RunRecord,
        /// How far the matrix is.
        progress: Progress,
    },
}

/// How far a matrix is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Runs that ended, those of earlier sessions among them.
    pub done: usize,
    /// All runs.
    pub total: usize,
    /// A guess at the time until the last run ends.
    pub left: Duration,
}
