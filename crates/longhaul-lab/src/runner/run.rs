//! One run of a tool: opens a path, measures, compares copies, and builds the record.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use longhaul_core::result::{Outcome, RunRecord, RunSchema, ToolOutput, WorkDone};
use longhaul_core::units::Rate;
use serde_json::Value;

use super::compare::compare;
use super::far::FarDir;
use super::load;
use super::work::{CopyTarget, Run, RunProblem, Work, chain, copy_name};
use super::{disk, ends};
use crate::data::CopyData;
use crate::drivers::{Job, RunOutput, ToolFigures};
use crate::network::{FarHost, NetPath, Network};

impl Run<'_> {
    /// Makes the run. Returns `None` if the stop flag ended it.
    pub(super) fn make(&self, network: &mut dyn Network) -> Option<RunRecord> {
        let mut record = self.blank();
        let measured = self.measure(network, &mut record);
        if let Work::Copy { scratch: Some(scratch), .. } = self.work
            && let Err(error) = disk::remove(scratch)
        {
            record.notes.push(chain(&error));
        }
        match measured {
            Ok(()) => {}
            Err(RunProblem::Stopped) => return None,
            Err(RunProblem::Failed(reason)) => {
                record.outcome = Outcome::Failed { reason };
                record.throughput_bps = None;
            }
            Err(RunProblem::Disturbed(reason)) => {
                record.outcome = Outcome::Invalid { reason };
                record.throughput_bps = None;
            }
        }
        Some(record)
    }

    fn measure(&self, network: &mut dyn Network, record: &mut RunRecord) -> Result<(), RunProblem> {
        if let Work::Copy { source, scratch } = self.work {
            scratch.map_or(Ok(()), disk::empty)?;
            record.caches = Some(disk::empty_page_cache(&source.path, source.tree));
            record.far_caches_kept = scratch.is_none();
        }
        let private = tempfile::Builder::new()
            .prefix("longhaul-run-")
            .tempdir()
            .map_err(|error| RunProblem::Failed(format!("no private directory: {error}")))?;
        let mut path = network
            .open(self.condition, self.seed)
            .map_err(|error| RunProblem::Failed(format!("no path: {}", chain(&*error))))?;
        let measured = self.over(&mut *path, private.path(), record);
        let broken = path.check().err();
        let report = path.close();
        record.notes.extend(report.notes);
        record.path = report.counters;
        match (measured, broken) {
            (Err(RunProblem::Stopped), _) => return Err(RunProblem::Stopped),
            // A broken path explains every other failure.
            (_, Some(error)) => return Err(RunProblem::Disturbed(chain(&*error))),
            (measured, None) => measured?,
        }
        if let Work::Copy { source, scratch: Some(scratch) } = self.work {
            self.verify(source, scratch)?;
        }
        let mut faults = report.faults;
        faults.extend(
            record.host.zip(record.seconds).and_then(|(host, took)| load::fault(host, took)),
        );
        if faults.is_empty() {
            record.notes.extend(record.host.and_then(load::note));
        } else {
            record.outcome = Outcome::Invalid { reason: faults.join("; ") };
        }
        Ok(())
    }

    /// Measures over an open path. On a real path the copies are compared before it closes, and are
    /// removed from the far end even after a failure.
    fn over(
        &self,
        path: &mut dyn NetPath,
        private: &Path,
        record: &mut RunRecord,
    ) -> Result<(), RunProblem> {
        let source = match self.work {
            Work::Timed(_) => return ends::run(self, path, None, private, record),
            Work::Copy { scratch: Some(scratch), .. } => {
                return ends::run(self, path, Some(CopyTarget::Here(scratch)), private, record);
            }
            Work::Copy { source, scratch: None } => source,
        };
        let far = far_host(path)?;
        let dir = FarDir::make(far, self.row.work.to).map_err(|error| RunProblem::of(&*error))?;
        let measured = ends::run(self, path, Some(CopyTarget::There(&dir)), private, record)
            .and_then(|()| self.verify_there(source, &dir, far_host(path)?));
        match dir.remove(far_host(path)?, self.stop) {
            Ok(left) if left.is_empty() => {}
            Ok(left) => record.notes.push(format!(
                "{} left {} processes running at the far end; they were killed: {}",
                self.entry.tool,
                left.len(),
                left.join(", ")
            )),
            Err(error) => record.notes.push(chain(&*error)),
        }
        measured
    }

    /// Reads the figures from the clients' output, and combines them with the time until the last
    /// client ended.
    pub(super) fn read(
        &self,
        jobs: &[Job<'_>],
        clients: &[ToolOutput],
        took: Duration,
        record: &mut RunRecord,
    ) -> Result<(), RunProblem> {
        let mut readings = Vec::new();
        for (job, output) in jobs.iter().zip(clients) {
            let said = RunOutput { client: output, server: record.far_output.as_ref() };
            readings.push(self.read_one(job, said)?);
        }
        // All clients share one measured time, so their bytes and rates can be added.
        let sum = |of: fn(&ToolFigures) -> Option<u64>| {
            readings.iter().map(of).collect::<Option<Vec<u64>>>().map(|all| all.iter().sum::<u64>())
        };
        let stated = sum(|reading| reading.throughput.map(Rate::bps)).map(Rate::from_bps);
        let bytes = sum(|reading| reading.bytes.map(|bytes| bytes.get()));
        record.tool_throughput_bps = stated;
        (record.bytes, record.throughput_bps) = match self.work {
            Work::Timed(_) => (bytes.map(longhaul_core::units::Bytes::new), stated),
            // All tools share one definition of time: the wait of the user, from start to exit.
            Work::Copy { source, .. } => {
                let all = source.bytes.get() * u64::from(self.row.clients);
                let all = longhaul_core::units::Bytes::new(all);
                (Some(all), Some(Rate::mean(all, took)))
            }
        };
        Ok(())
    }

    fn read_one(&self, job: &Job<'_>, output: RunOutput<'_>) -> Result<ToolFigures, RunProblem> {
        match output.client.exit_code {
            Some(0) => {}
            code => {
                let how = code.map_or("by a signal".into(), |code| format!("with code {code}"));
                let said = self.driver.failure(output.client).unwrap_or("no output".into());
                return Err(RunProblem::Failed(format!("ended {how}: {said}")));
            }
        }
        let reading = self.driver.read(job, output).map_err(|reason| {
            let tail = tail(output.client);
            RunProblem::Failed(format!("{reason}{tail}"))
        })?;
        if matches!(self.work, Work::Timed(_)) && reading.throughput.is_none() {
            let tail = tail(output.client);
            return Err(RunProblem::Failed(format!("the output has no rate{tail}")));
        }
        Ok(reading)
    }

    /// Compares each copy with its source, outside the measured time.
    fn verify(&self, source: &CopyData, scratch: &Path) -> Result<(), RunProblem> {
        for client in 0..self.row.clients {
            match compare(&source.path, &CopyTarget::Here(scratch).destination(client)) {
                Ok(None) => {}
                Ok(Some(reason)) => return Err(RunProblem::Failed(reason)),
                Err(error) => {
                    return Err(RunProblem::Failed(format!("cannot compare the copy: {error}")));
                }
            }
        }
        Ok(())
    }

    /// Compares the copies at the far end of a real path.
    fn verify_there(
        &self,
        source: &CopyData,
        dir: &FarDir,
        far: &dyn FarHost,
    ) -> Result<(), RunProblem> {
        let copies: Vec<String> = (0..self.row.clients).map(copy_name).collect();
        match dir.compare(far, &source.path, &copies, self.stop) {
            Ok(None) => Ok(()),
            Ok(Some(reason)) => Err(RunProblem::Failed(reason)),
            Err(_) if self.stop.load(Ordering::Relaxed) => Err(RunProblem::Stopped),
            Err(error) => {
                let reason = chain(&*error);
                Err(RunProblem::Failed(format!("cannot compare the copy: {reason}")))
            }
        }
    }

    /// Returns the plan's options and the options of the row's setting.
    pub(super) fn options(&self) -> Vec<String> {
        let streams = self.row.streams.and_then(|count| self.driver.streams(count));
        let window = self.row.window.and_then(|size| self.driver.window(size));
        let message = self.row.message.and_then(|size| self.driver.message(size));
        let settings = streams.into_iter().chain(window).chain(message).flatten();
        self.entry.options.iter().cloned().chain(settings).collect()
    }

    fn blank(&self) -> RunRecord {
        let now = jiff::Timestamp::now();
        let source = match self.work {
            Work::Copy { source, .. } => Some(source),
            Work::Timed(_) => None,
        };
        let options = self.options();
        RunRecord {
            schema: RunSchema::V1,
            sequence: self.sequence,
            attempt: self.attempt,
            repeat: self.repeat,
            tool: self.entry.tool.clone(),
            label: self.row.label.clone(),
            workload: self.row.work.workload(),
            condition: self.condition.clone(),
            outcome: Outcome::Ok,
            throughput_bps: None,
            tool_throughput_bps: None,
            bytes: None,
            seconds: None,
            durable_seconds: None,
            guarantees: self.driver.guarantees(&options),
            options,
            caches: None,
            far_caches_kept: false,
            started_at: now.round(jiff::Unit::Second).unwrap_or(now).to_string(),
            tool_version: self.version.to_owned(),
            near_command: String::new(),
            far_command: None,
            near_output: ToolOutput::default(),
            far_output: None,
            notes: Vec::new(),
            path: Value::Null,
            host: None,
            work: Some(WorkDone {
                name: self.row.work.name.clone(),
                files: source.map(|source| source.files),
                file_bytes: source.and_then(|source| source.file_bytes),
            }),
            streams: self.row.streams,
            window_bytes: self.row.window,
            clients: Some(self.row.clients),
            seed: Some(self.seed),
            cpu: None,
            samples: Vec::new(),
            flows: None,
        }
    }
}

/// Returns the far end of a real path.
fn far_host(path: &dyn NetPath) -> Result<&dyn FarHost, RunProblem> {
    path.far_host()
        .ok_or_else(|| RunProblem::Failed("the far end of this path cannot receive copies".into()))
}

/// Returns the last line of a tool's output, as a suffix for an error text.
fn tail(output: &ToolOutput) -> String {
    const LONGEST: usize = 200;
    let cut = |line: &str| line.chars().take(LONGEST).collect::<String>();
    output.last_line().map_or_else(String::new, |line| format!("; last output: {}", cut(line)))
}
