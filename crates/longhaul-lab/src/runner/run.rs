use std::error::Error;
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use longhaul_core::plan::{Entry, Side, Workload};
use longhaul_core::result::{Outcome, RunRecord, RunSchema, ToolOutput};
use longhaul_core::units::Rate;
use serde_json::Value;

use super::compare::compare;
use super::load::CpuTimes;
use super::process::{Process, Waited};
use super::ready::{self, Readiness};
use super::{Cell, disk, shell};
use crate::LabError;
use crate::data::Source;
use crate::drivers::{DiskTask, Driver, Job, MemoryTask, Said, Server, Task};
use crate::network::{NetPath, Network};

/// One run that is about to be made.
pub(super) struct Run<'a> {
    pub(super) sequence: u32,
    pub(super) attempt: u32,
    pub(super) cell: Cell,
    pub(super) entry: &'a Entry,
    pub(super) driver: &'a dyn Driver,
    pub(super) version: &'a str,
    pub(super) work: Work<'a>,
    pub(super) limit: Duration,
    pub(super) stop: &'a AtomicBool,
}

/// What the run works on.
#[derive(Clone, Copy)]
pub(super) enum Work<'a> {
    Memory(MemoryTask),
    Disk {
        source: &'a Source,
        /// Made empty before the run and removed after it.
        scratch: &'a Path,
    },
}

/// Why a run has no figure.
enum Trouble {
    /// The stop flag was raised; the run does not count at all.
    Stopped,
    /// One line.
    Failed(String),
}

impl Trouble {
    fn of(error: &dyn Error) -> Self {
        Trouble::Failed(chain(error))
    }
}

impl From<LabError> for Trouble {
    fn from(error: LabError) -> Self {
        Trouble::of(&error)
    }
}

impl Run<'_> {
    /// Makes the run; `None` when the stop flag ended it.
    pub(super) fn make(&self, network: &mut dyn Network) -> Option<RunRecord> {
        let mut record = self.blank();
        let measured = self.measure(network, &mut record);
        if let Work::Disk { scratch, .. } = self.work
            && let Err(error) = disk::remove(scratch)
        {
            record.notes.push(chain(&error));
        }
        match measured {
            Ok(()) => {}
            Err(Trouble::Stopped) => return None,
            Err(Trouble::Failed(reason)) => {
                record.outcome = Outcome::Failed { reason };
                record.throughput_bps = None;
            }
        }
        Some(record)
    }

    fn measure(&self, network: &mut dyn Network, record: &mut RunRecord) -> Result<(), Trouble> {
        if let Work::Disk { source, scratch } = self.work {
            disk::empty(scratch)?;
            record.caches = Some(disk::cool(&source.path));
        }
        let private = tempfile::Builder::new()
            .prefix("longhaul-run-")
            .tempdir()
            .map_err(|error| Trouble::Failed(format!("no private directory: {error}")))?;
        let mut path = network
            .open(&self.cell.condition)
            .map_err(|error| Trouble::Failed(format!("no path: {}", chain(&*error))))?;
        let measured = self.over(&mut *path, private.path(), record);
        let report = path.close();
        record.notes.extend(report.notes);
        record.path = report.counters;
        measured?;
        self.verify()?;
        if !report.faults.is_empty() {
            record.outcome = Outcome::Invalid { reason: report.faults.join("; ") };
        }
        Ok(())
    }

    /// Starts server and client over an open path, times the client, reads its figure.
    fn over(
        &self,
        path: &mut dyn NetPath,
        private: &Path,
        record: &mut RunRecord,
    ) -> Result<(), Trouble> {
        let (near, far) = (path.host(Side::Near).to_owned(), path.host(Side::Far).to_owned());
        let destination = match self.work {
            Work::Disk { scratch, .. } => scratch.join("copy"),
            Work::Memory(_) => Path::new("").to_owned(),
        };
        let task = match self.work {
            Work::Memory(task) => Task::Memory(task),
            Work::Disk { source, .. } => Task::Disk(DiskTask {
                source: &source.path,
                tree: source.tree,
                destination: &destination,
            }),
        };
        let options = &self.entry.options;
        let job = Job { near: &near, far: &far, options, task, private };
        let took = match self.driver.server(&job)? {
            None => self.with_client(path, &job, record),
            Some(server) => self.with_server(path, server, &job, record),
        }?;
        self.read(&job, took, record)
            .map_err(|trouble| with_server_words(trouble, record.far_output.as_ref()))
    }

    fn with_server(
        &self,
        path: &mut dyn NetPath,
        server: Server,
        job: &Job<'_>,
        record: &mut RunRecord,
    ) -> Result<Duration, Trouble> {
        let Server { command, port, made } = server;
        record.far_command = Some(shell::words(&command));
        let done = start(path, Side::Far, command).and_then(|server| {
            let done = match ready::wait(&server, port, self.stop) {
                Readiness::Listening => self.with_client(path, job, record),
                Readiness::Stopped => Err(Trouble::Stopped),
                Readiness::Ended => Err(Trouble::Failed("its server ended at once".into())),
                Readiness::Late => {
                    Err(Trouble::Failed(format!("its server does not listen on port {port}")))
                }
            };
            record.far_output = Some(server.finish());
            done.map_err(|trouble| with_server_words(trouble, record.far_output.as_ref()))
        });
        if let Some(made) = made {
            // Not ours any more if someone put something into it.
            let _ = fs::remove_dir(made);
        }
        done
    }

    /// Runs the client to its end; the time that took.
    fn with_client(
        &self,
        path: &mut dyn NetPath,
        job: &Job<'_>,
        record: &mut RunRecord,
    ) -> Result<Duration, Trouble> {
        let command = self.driver.client(job)?;
        record.near_command = shell::words(&command);
        let before = CpuTimes::now();
        let client = start(path, Side::Near, command)?;
        let waited = client.wait(self.limit, self.stop);
        record.host = before.and_then(CpuTimes::until_now);
        let settled = match self.work {
            Work::Disk { scratch, .. } => disk::settle(scratch).ok(),
            Work::Memory(_) => None,
        };
        record.near_output = client.finish();
        match waited.map_err(|error| Trouble::of(&error))? {
            Waited::Stopped => Err(Trouble::Stopped),
            Waited::TimedOut => {
                let limit = self.limit.as_secs();
                Err(Trouble::Failed(format!("given up after {limit} s without an end")))
            }
            Waited::Ended(took) => {
                record.seconds = Some(took.as_secs_f64());
                record.durable_seconds = settled.map(|more| (took + more).as_secs_f64());
                Ok(took)
            }
        }
    }

    fn read(&self, job: &Job<'_>, took: Duration, record: &mut RunRecord) -> Result<(), Trouble> {
        let output = &record.near_output;
        match output.exit_code {
            Some(0) => {}
            code => {
                let how = code.map_or("by a signal".into(), |code| format!("with code {code}"));
                let said = self.driver.failure(output).unwrap_or("it said nothing".into());
                return Err(Trouble::Failed(format!("ended {how}: {said}")));
            }
        }
        let said = Said { client: output, server: record.far_output.as_ref() };
        let reading = self.driver.read(job, said).map_err(Trouble::Failed)?;
        record.tool_throughput_bps = reading.throughput;
        (record.bytes, record.throughput_bps) = match self.work {
            Work::Memory(_) => (reading.bytes, reading.throughput),
            // One clock for all tools: what the user waits for, from start to exit.
            Work::Disk { source, .. } => (Some(source.bytes), Some(Rate::mean(source.bytes, took))),
        };
        Ok(())
    }

    /// Compares a copy with its source; not part of the time.
    fn verify(&self) -> Result<(), Trouble> {
        let Work::Disk { source, scratch } = self.work else { return Ok(()) };
        match compare(&source.path, &scratch.join("copy")) {
            Ok(None) => Ok(()),
            Ok(Some(reason)) => Err(Trouble::Failed(reason)),
            Err(error) => Err(Trouble::Failed(format!("cannot compare the copy: {error}"))),
        }
    }

    fn blank(&self) -> RunRecord {
        let now = jiff::Timestamp::now();
        RunRecord {
            schema: RunSchema::V1,
            sequence: self.sequence,
            attempt: self.attempt,
            repeat: self.cell.repeat,
            tool: self.entry.tool.clone(),
            label: self.entry.label(),
            options: self.entry.options.clone(),
            workload: match self.work {
                Work::Memory(_) => Workload::Memory,
                Work::Disk { .. } => Workload::Disk,
            },
            condition: self.cell.condition,
            outcome: Outcome::Ok,
            throughput_bps: None,
            tool_throughput_bps: None,
            bytes: None,
            seconds: None,
            durable_seconds: None,
            guarantees: self.driver.guarantees(&self.entry.options),
            caches: None,
            started_at: now.round(jiff::Unit::Second).unwrap_or(now).to_string(),
            tool_version: self.version.to_owned(),
            near_command: String::new(),
            far_command: None,
            near_output: ToolOutput::default(),
            far_output: None,
            notes: Vec::new(),
            path: Value::Null,
            host: None,
        }
    }
}

fn start(
    path: &mut dyn NetPath,
    side: Side,
    command: std::process::Command,
) -> Result<Process, Trouble> {
    Process::spawn(path, side, command).map_err(|error| Trouble::of(&*error))
}

/// A client often only knows that the server is gone; the server's last words say why.
fn with_server_words(trouble: Trouble, server: Option<&ToolOutput>) -> Trouble {
    match (trouble, server.and_then(|output| output.stderr.lines().rfind(|l| !l.trim().is_empty())))
    {
        (Trouble::Failed(reason), Some(words)) => {
            Trouble::Failed(format!("{reason} (its server: {})", words.trim()))
        }
        (trouble, _) => trouble,
    }
}

/// An error and its causes in one line.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text.replace('\n', "; ")
}
