use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use longhaul_core::plan::{MatrixPlan, Precision, Workload};
use longhaul_core::result::RunRecord;
use longhaul_core::units::Bytes;

use super::estimate::Estimate;
use super::run::{Run, Work};
use super::tally::Tally;
use super::{Cell, Event, Progress, cells};
use crate::LabError;
use crate::archive::{Archive, Tool};
use crate::data::Source;
use crate::drivers::{Detected, Driver, MemoryTask};
use crate::network::Network;

/// What a matrix is run with.
#[derive(Clone, Copy)]
pub struct Setup<'a> {
    /// What to run; checked.
    pub plan: &'a MatrixPlan,
    /// The tools.
    pub drivers: &'a [Box<dyn Driver>],
    /// What each entry of the plan copies; see [`sources`](crate::data::sources).
    pub sources: &'a [Option<Source>],
    /// A directory of the matrix's own on the disk that receives the copies.
    pub scratch: &'a Path,
    /// Whether places whose run failed in an earlier session are tried again.
    pub retry_failed: bool,
    /// Raised to end early: the run in progress is thrown away, all others are kept.
    pub stop: &'a AtomicBool,
}

/// How a matrix ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Every cell was run.
    Complete,
    /// The stop flag was raised; what was measured is in the archive.
    Interrupted,
}

/// A matrix that is being run.
pub struct Matrix<'a> {
    setup: Setup<'a>,
    archive: &'a mut Archive,
    network: &'a mut dyn Network,
    versions: HashMap<&'static str, String>,
}

impl<'a> Matrix<'a> {
    /// Looks for the tools, and proves that a path can be opened before anything is run.
    ///
    /// # Errors
    /// No path can be opened, or the archive cannot be written.
    pub fn prepare(
        setup: Setup<'a>,
        archive: &'a mut Archive,
        network: &'a mut dyn Network,
        show: &mut dyn FnMut(Event<'_>),
    ) -> Result<Self, LabError> {
        let mut versions = HashMap::new();
        for driver in setup.drivers {
            if !setup.plan.entries.iter().any(|entry| entry.tool == driver.name()) {
                continue;
            }
            let tool = driver.name();
            let (version, missing) = match driver.detect() {
                Detected::Installed { version } => (Some(version), None),
                Detected::Missing { program } => {
                    show(Event::NotInstalled { tool, program });
                    (None, Some(program.to_owned()))
                }
            };
            versions.extend(version.clone().map(|version| (tool, version)));
            archive.keep_tool(&Tool { name: tool.to_owned(), version, missing })?;
        }
        if let Some(condition) = setup.plan.conditions().first() {
            let path = network.open(condition).map_err(|source| LabError::Network { source })?;
            path.close();
        }
        for source in setup.sources.iter().flatten() {
            if source.missing().get() > 0 {
                show(Event::MakingData);
                source.make()?;
            }
        }
        Ok(Matrix { setup, archive, network, versions })
    }

    /// Runs every cell that the archive does not have yet, and further passes as the plan's
    /// precision asks.
    ///
    /// # Errors
    /// The archive cannot be read or written. A tool's failure is an outcome, not an error.
    pub fn run(&mut self, show: &mut dyn FnMut(Event<'_>)) -> Result<Ended, LabError> {
        let Setup { plan, sources, retry_failed, .. } = self.setup;
        let begun = Instant::now();
        let time_is_up = || {
            let limit = plan.precision.as_ref().and_then(Precision::limit);
            limit.is_some_and(|limit| begun.elapsed() > limit)
        };
        let mut tally = Tally::new(plan, &self.archive.runs()?, retry_failed);
        let bytes = |source: &Option<Source>| source.as_ref().map_or(Bytes::new(0), |s| s.bytes);
        let mut estimate = Estimate::new(plan, sources.iter().map(bytes).collect());

        let mut all: Vec<(u32, Cell)> = (1..).zip(cells(plan)).collect();
        all.retain(|(_, cell)| self.versions.contains_key(plan.entries[cell.entry].tool.as_str()));
        let mut pass = 0;
        for index in 0..all.len() {
            let (sequence, cell) = all[index];
            if cell.repeat != pass {
                pass = cell.repeat;
                if pass > plan.repeats && time_is_up() {
                    break;
                }
            }
            if !tally.wants(sequence, &cell) {
                continue;
            }
            // What is left is known for the plan's own passes, and for the one that runs.
            let progress = |tally: &Tally<'_>, estimate: &Estimate| {
                let known = all.iter().take_while(|(_, c)| c.repeat <= pass.max(plan.repeats));
                let is_left = |(number, cell): &&(u32, Cell)| tally.wants(*number, cell);
                let rest: Vec<Cell> = known.clone().filter(is_left).map(|(_, c)| *c).collect();
                let total = known
                    .filter(|(n, c)| {
                        c.repeat <= plan.repeats || tally.has(*n) || tally.wants(*n, c)
                    })
                    .count();
                Progress { done: total - rest.len(), total, left: estimate.of(plan, &rest) }
            };
            let label = plan.entries[cell.entry].label();
            while let Some(attempt) = tally.next_attempt(sequence) {
                let so_far = progress(&tally, &estimate);
                show(Event::Started { cell, label: &label, progress: so_far });
                estimate.started();
                let Some(record) = self.make(sequence, attempt, cell, &estimate) else {
                    return Ok(Ended::Interrupted);
                };
                estimate.ended(&cell);
                self.archive.keep(&record)?;
                tally.add(&record);
                let so_far = progress(&tally, &estimate);
                show(Event::Finished { run: &record, progress: so_far });
            }
        }
        Ok(Ended::Complete)
    }

    /// One run; `None` when the stop flag ended it.
    fn make(
        &mut self,
        sequence: u32,
        attempt: u32,
        cell: Cell,
        estimate: &Estimate,
    ) -> Option<RunRecord> {
        let Setup { plan, drivers, sources, scratch, stop, .. } = self.setup;
        let entry = &plan.entries[cell.entry];
        // A checked plan names drivers that exist, and has a source where it has disk entries.
        let driver = drivers.iter().find(|driver| driver.name() == entry.tool)?;
        let work = match entry.workload {
            Workload::Memory => Work::Memory(MemoryTask {
                seconds: plan.memory.seconds,
                omit_seconds: plan.memory.omit_seconds,
            }),
            Workload::Disk => Work::Disk { source: sources[cell.entry].as_ref()?, scratch },
        };
        let run = Run {
            sequence,
            attempt,
            cell,
            entry,
            driver: &**driver,
            version: self.versions.get(driver.name()).map_or("unknown", String::as_str),
            work,
            limit: estimate.limit(plan, cell.entry),
            stop,
        };
        run.make(self.network).filter(|_| !stop.load(Ordering::Relaxed))
    }
}
