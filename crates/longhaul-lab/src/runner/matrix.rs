//! Runs the cells of a matrix.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::plan::link::derive_seed;
use longhaul_core::plan::{Condition, Content, DataStore, MatrixPlan, MatrixRow, Precision};
use longhaul_core::result::RunRecord;

use super::estimate::Estimate;
use super::tally::Tally;
use super::work::{Run, Work};
use super::{MatrixEvent, MatrixProgress, PlannedRun, cells, path};
use crate::LabError;
use crate::archive::{Archive, Tool};
use crate::data::CopyData;
use crate::drivers::{Driver, MemoryTask};
use crate::network::Network;

/// The inputs of a matrix run.
#[derive(Clone, Copy)]
pub struct Setup<'a> {
    /// The checked plan.
    pub plan: &'a MatrixPlan,
    /// The drivers.
    pub drivers: &'a [Box<dyn Driver>],
    /// The tools on this host; see [`find_tools`](super::find_tools).
    pub tools: &'a [Tool],
    /// The source of each row of the plan; see [`sources`](crate::data::sources).
    pub sources: &'a [Option<CopyData>],
    /// A private directory on the disk that receives the copies, unless they go over a real path.
    pub scratch: &'a Path,
    /// A private directory in memory, for the workloads that write there.
    pub memory: Option<&'a Path>,
    /// The longhaul that measures each path before its first run; `None` for no measurements.
    pub path_program: Option<&'a Path>,
    /// True to repeat runs that failed in an earlier session.
    pub retry_failed: bool,
    /// Set to stop early: the current run is discarded, all others are kept.
    pub stop: &'a AtomicBool,
}

/// The reason for the end of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Every cell was run.
    Complete,
    /// The stop flag was set; the archive has all completed runs.
    Interrupted,
}

/// A matrix in progress.
pub struct Matrix<'a> {
    setup: Setup<'a>,
    archive: &'a mut Archive,
    network: &'a mut dyn Network,
    rows: Vec<MatrixRow>,
    conditions: Vec<Condition>,
    versions: HashMap<&'a str, &'a str>,
}

impl<'a> Matrix<'a> {
    /// Creates the data, and checks that a path can be opened before the first run.
    ///
    /// # Errors
    /// No path can be opened, data cannot be created, or the archive cannot be written.
    pub fn prepare(
        setup: Setup<'a>,
        archive: &'a mut Archive,
        network: &'a mut dyn Network,
        show: &mut dyn FnMut(MatrixEvent<'_>),
    ) -> Result<Self, LabError> {
        let mut versions = HashMap::new();
        for tool in setup.tools {
            versions.extend(tool.version.as_deref().map(|version| (tool.name.as_str(), version)));
            if let Some(program) = &tool.missing {
                show(MatrixEvent::NotInstalled { tool: &tool.name, program });
            }
            archive.keep_tool(tool)?;
        }
        let conditions = setup.plan.conditions();
        if let Some(condition) = conditions.first() {
            let path = network.open(condition, 0).map_err(|source| LabError::Network { source })?;
            path.close();
        }
        for source in setup.sources.iter().flatten() {
            if source.missing().get() > 0 {
                show(MatrixEvent::MakingData);
                source.make()?;
            }
        }
        let rows = setup.plan.rows();
        Ok(Matrix { setup, archive, network, rows, conditions, versions })
    }

    /// Runs every cell that the archive lacks, and the further passes that the plan's precision
    /// requires.
    ///
    /// # Errors
    /// The archive cannot be read or written. The failure of a tool is an outcome, not an error.
    pub fn run(&mut self, show: &mut dyn FnMut(MatrixEvent<'_>)) -> Result<Ended, LabError> {
        let Setup { plan, drivers, sources, retry_failed, .. } = self.setup;
        let begun = Instant::now();
        let mut measured: HashSet<String> =
            self.archive.path_records()?.into_iter().map(|record| record.path).collect();
        let mut tally = Tally::new(plan, &self.archive.runs()?, retry_failed);
        let mut estimate = Estimate::new(plan, drivers, sources);

        let mut all: Vec<(u32, PlannedRun)> = (1..).zip(cells(plan)).collect();
        all.retain(|(_, cell)| self.versions.contains_key(self.tool(cell)));
        let mut pass = 0;
        for index in 0..all.len() {
            let (sequence, cell) = all[index];
            if cell.repeat != pass {
                pass = cell.repeat;
                if pass > plan.repeats && is_time_up(plan, begun) {
                    break;
                }
            }
            if !tally.wants(sequence, &cell) {
                continue;
            }
            if measured.insert(self.conditions[cell.condition].label())
                && !self.measure_path(cell.condition, show)?
            {
                return Ok(Ended::Interrupted);
            }
            // Further passes depend on the results, so the remaining time includes only the plan's
            // own passes and the current pass.
            let progress = |tally: &Tally<'_>, estimate: &Estimate| {
                let known = all.iter().take_while(|(_, c)| c.repeat <= pass.max(plan.repeats));
                let is_left = |(number, cell): &&(u32, PlannedRun)| tally.wants(*number, cell);
                let rest: Vec<PlannedRun> =
                    known.clone().filter(is_left).map(|(_, c)| *c).collect();
                let total = known
                    .filter(|(n, c)| {
                        c.repeat <= plan.repeats || tally.has(*n) || tally.wants(*n, c)
                    })
                    .count();
                MatrixProgress { done: total - rest.len(), total, left: estimate.of(&rest) }
            };
            while let Some(attempt) = tally.next_attempt(sequence) {
                let (row, condition) = (&self.rows[cell.row], &self.conditions[cell.condition]);
                let so_far = progress(&tally, &estimate);
                show(MatrixEvent::Started { cell, row, condition, progress: so_far });
                estimate.started();
                let limit = estimate.limit(cell.row);
                let Some(record) = self.make(sequence, attempt, cell, limit) else {
                    return Ok(Ended::Interrupted);
                };
                estimate.ended(&cell);
                self.archive.keep(&record)?;
                tally.add(&record);
                let so_far = progress(&tally, &estimate);
                show(MatrixEvent::Finished { run: &record, progress: so_far });
            }
        }
        Ok(Ended::Complete)
    }

    fn tool(&self, cell: &PlannedRun) -> &str {
        &self.setup.plan.entries[self.rows[cell.row].entry].tool
    }

    /// Measures a path. Returns false if the stop flag ended the measurement.
    fn measure_path(
        &mut self,
        condition: usize,
        show: &mut dyn FnMut(MatrixEvent<'_>),
    ) -> Result<bool, LabError> {
        let Setup { plan, path_program, stop, .. } = self.setup;
        let Some(program) = path_program else { return Ok(true) };
        let condition = &self.conditions[condition];
        show(MatrixEvent::MeasuringPath { condition });
        let seed = derive_seed(plan.seed, &[&plan.name, &condition.label(), "survey"]);
        match path::measure(program, self.network, condition, seed, stop) {
            Some(record) => self.archive.keep_path_record(&record).map(|()| true),
            None => Ok(false),
        }
    }

    /// Makes one run. Returns `None` if the stop flag ended it.
    fn make(
        &mut self,
        sequence: u32,
        attempt: u32,
        cell: PlannedRun,
        limit: Duration,
    ) -> Option<RunRecord> {
        let Setup { plan, drivers, sources, scratch, memory, path_program, stop, .. } = self.setup;
        rest(plan.cool_down(), stop);
        let row = &self.rows[cell.row];
        let condition = &self.conditions[cell.condition];
        let entry = &plan.entries[row.entry];
        // A checked plan names only existing drivers and has a source for every copy.
        let driver = drivers.iter().find(|driver| driver.name() == entry.tool)?;
        let work = match (&row.work.content, row.work.to) {
            (Content::Timed { seconds, omit_seconds }, _) => {
                Work::Timed(MemoryTask { seconds: *seconds, omit_seconds: *omit_seconds })
            }
            (_, to) => {
                let scratch = match (&plan.real, to) {
                    (Some(_), _) => None,
                    (None, DataStore::Disk) => Some(scratch),
                    (None, DataStore::Memory) => Some(memory?),
                };
                Work::Copy { source: sources[cell.row].as_ref()?, scratch }
            }
        };
        let run = Run {
            sequence,
            attempt,
            repeat: cell.repeat,
            row,
            condition,
            // The seed does not depend on the tool: all tools get the same random decisions.
            seed: derive_seed(
                plan.seed,
                &[&plan.name, &condition.label(), &cell.repeat.to_string()],
            ),
            entry,
            driver: &**driver,
            version: self.versions.get(driver.name()).copied().unwrap_or("unknown"),
            work,
            limit,
            program: path_program,
            recovery: plan.recovery,
            stop,
        };
        run.make(self.network).filter(|_| !stop.load(Ordering::Relaxed))
    }
}

/// Returns whether the plan lets no further pass start.
fn is_time_up(plan: &MatrixPlan, begun: Instant) -> bool {
    let limit = plan.precision.as_ref().and_then(Precision::limit);
    limit.is_some_and(|limit| begun.elapsed() > limit)
}

/// Waits for `time` or until the stop flag is set.
fn rest(time: Duration, stop: &AtomicBool) {
    let end = Instant::now() + time;
    while !stop.load(Ordering::Relaxed) {
        match end.checked_duration_since(Instant::now()) {
            Some(left) if !left.is_zero() => thread::sleep(left.min(Duration::from_millis(100))),
            _ => return,
        }
    }
}
