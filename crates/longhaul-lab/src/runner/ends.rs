//! The two ends of a run: starts, times, watches and stops the server and the clients.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use longhaul_core::plan::Side;
use longhaul_core::result::{CpuSeconds, RunRecord, RunSample, ToolOutput};
use longhaul_core::units::{Bytes, Rate};

use super::load::CpuTimes;
use super::process::{Finished, Process, Waited, own_cpu_seconds};
use super::ready::{self, Readiness};
use super::script;
use super::side_flows::{self, SideFlows, ToolTime};
use super::work::{CopyTarget, Run, RunProblem, Work};
use crate::drivers::{DiskTask, Job, ServerCommand, ToolTask};
use crate::network::NetPath;

/// The interval at which the path's counters are read.
const SAMPLE: Duration = Duration::from_millis(200);

/// Starts server and clients over an open path, measures their time and reads the clients' figures.
/// Copies go to `landing`.
pub(super) fn run(
    run: &Run<'_>,
    path: &mut dyn NetPath,
    landing: Option<CopyTarget<'_>>,
    private: &Path,
    record: &mut RunRecord,
) -> Result<(), RunProblem> {
    let (near, far) = (path.host(Side::Near).to_owned(), path.host(Side::Far).to_owned());
    let ssh = path.far_host().map(|far| far.ssh_name().to_owned());
    let options = run.options();
    let destinations: Vec<PathBuf> = (0..run.row.clients)
        .map(|client| landing.map_or_else(PathBuf::new, |landing| landing.destination(client)))
        .collect();
    let job = |destination| Job {
        near: &near,
        far: &far,
        ssh: ssh.as_deref(),
        options: &options,
        task: match run.work {
            Work::Timed(task) => ToolTask::Memory(task),
            Work::Copy { source, .. } => {
                ToolTask::Disk(DiskTask { source: &source.path, tree: source.tree, destination })
            }
        },
        private,
    };
    let jobs: Vec<Job<'_>> = destinations.iter().map(|path| job(path.as_path())).collect();
    // A row has at least one client, so this branch is never taken.
    let Some(first) = jobs.first() else { return Err(RunProblem::Stopped) };
    let server = run.driver.server(first)?;
    let beside = SideFlows::start(run, path)?;
    let mut ends = Ends { run, path, landing, record };
    let done = match server {
        None => ends.clients(&jobs),
        Some(server) => ends.server(server, &jobs),
    };
    let tool = done.as_ref().ok().map(|(_, tool)| *tool);
    let flowed = beside.map_or(Ok(None), |beside| beside.finish(run, tool));
    let (outputs, tool) = done?;
    record.flows = flowed?;
    run.read(&jobs, &outputs, tool.took, record)
        .map_err(|trouble| with_server_words(trouble, record.far_output.as_ref()))?;
    record.flows.as_ref().map_or(Ok(()), side_flows::fault)
}

struct Ends<'a> {
    run: &'a Run<'a>,
    path: &'a mut dyn NetPath,
    landing: Option<CopyTarget<'a>>,
    record: &'a mut RunRecord,
}

/// The output of all clients, and the time from their start until the last client ended.
type Done = (Vec<ToolOutput>, ToolTime);

impl Ends<'_> {
    fn server(&mut self, server: ServerCommand, jobs: &[Job<'_>]) -> Result<Done, RunProblem> {
        let awaited = ready::ReadySigns::of(&server);
        let ServerCommand { command, port, made, .. } = server;
        self.record.far_command = Some(script::words(&command));
        let done = self.start(Side::Far, command).and_then(|server| {
            let done = match ready::wait(&server, &awaited, self.path, self.run.stop) {
                Readiness::Listening => self.clients(jobs),
                Readiness::Stopped => Err(RunProblem::Stopped),
                Readiness::Ended => Err(RunProblem::Failed("the server ended at once".into())),
                Readiness::Late => {
                    Err(RunProblem::Failed(format!("the server does not listen on port {port}")))
                }
            };
            let Finished { output, cpu_seconds, left } = server.finish();
            self.note_left("the server", &left);
            // On a real path this process is the local ssh client, not the server.
            if let Some(cpu) = &mut self.record.cpu
                && self.path.far_host().is_none()
            {
                cpu.far_seconds = cpu_seconds;
            }
            self.record.far_output = Some(output);
            done.map_err(|trouble| with_server_words(trouble, self.record.far_output.as_ref()))
        });
        if let Some(made) = made {
            // remove_dir fails, and keeps the directory, if another process has created something
            // in it.
            let _ = fs::remove_dir(made);
        }
        done
    }

    /// Runs the clients until they end.
    fn clients(&mut self, jobs: &[Job<'_>]) -> Result<Done, RunProblem> {
        let mut commands = Vec::new();
        for job in jobs {
            commands.push(self.run.driver.client(job)?);
        }
        self.record.near_command = commands.first().map(script::words).unwrap_or_default();
        let before = CpuTimes::now();
        let own = own_cpu_seconds().filter(|_| self.path.is_emulated_here());
        let begun = Instant::now();
        let mut clients = Vec::new();
        for command in commands {
            clients.push(self.start(Side::Near, command)?);
        }
        let mut waited = Ok(Waited::Ended(Duration::ZERO));
        let mut watch = Watch::new(self.path, begun);
        for client in &clients {
            // The loop waits for one client after the other, so the last wait ends when the last
            // client ends.
            waited = client.wait(self.run.limit, self.run.stop, &mut || watch.sample());
            if !matches!(waited, Ok(Waited::Ended(_))) {
                break;
            }
        }
        let took = begun.elapsed();
        self.record.samples = watch.samples;
        self.record.host = before.and_then(CpuTimes::until_now);
        let emulator = own.zip(own_cpu_seconds()).map(|(before, after)| after - before);
        let settled = match (&waited, self.landing) {
            (Ok(Waited::Ended(_)), Some(landing)) => landing.settle(self.path, self.run.stop),
            _ => None,
        };
        let outputs = self.finish(clients, emulator);
        match waited.map_err(|error| RunProblem::of(&error))? {
            Waited::Stopped => Err(RunProblem::Stopped),
            Waited::GivenUp => Err(RunProblem::Failed("the path broke".into())),
            Waited::TimedOut => {
                let limit = self.run.limit.as_secs();
                let said = self.record.near_output.last_line();
                let said = said.map_or_else(String::new, |line| format!("; last output: {line}"));
                Err(RunProblem::Failed(format!("timed out after {limit} s{said}")))
            }
            Waited::Ended(_) => {
                self.record.seconds = Some(took.as_secs_f64());
                self.record.durable_seconds = settled.map(|more| (took + more).as_secs_f64());
                Ok((outputs, ToolTime { begun, took }))
            }
        }
    }

    /// Stops the clients and returns their output. The record keeps the output of the first client
    /// that failed, or else of the first client.
    fn finish(&mut self, clients: Vec<Process>, emulator_seconds: Option<f64>) -> Vec<ToolOutput> {
        let finished: Vec<Finished> = clients.into_iter().map(Process::finish).collect();
        for one in &finished {
            self.note_left(&self.run.entry.tool, &one.left);
        }
        let cpu: Option<Vec<f64>> = finished.iter().map(|one| one.cpu_seconds).collect();
        self.record.cpu = cpu.map(|all| CpuSeconds {
            near_seconds: all.iter().sum(),
            far_seconds: None,
            emulator_seconds,
        });
        let outputs: Vec<ToolOutput> = finished.into_iter().map(|one| one.output).collect();
        let failed = outputs.iter().find(|output| output.exit_code != Some(0));
        self.record.near_output = failed.or(outputs.first()).cloned().unwrap_or_default();
        outputs
    }

    fn start(&mut self, side: Side, command: Command) -> Result<Process, RunProblem> {
        Process::spawn(self.path, side, command).map_err(|error| RunProblem::of(&*error))
    }

    fn note_left(&mut self, who: &str, left: &[String]) {
        if !left.is_empty() {
            let count = left.len();
            let names = left.join(", ");
            let note = format!("{who} left {count} processes running; they were killed: {names}");
            self.record.notes.push(note);
        }
    }
}

/// Samples the bytes that the path carries, and checks that the path still exists.
struct Watch<'a> {
    path: &'a dyn NetPath,
    begun: Instant,
    last: Instant,
    carried: Option<u64>,
    samples: Vec<RunSample>,
}

impl<'a> Watch<'a> {
    fn new(path: &'a dyn NetPath, begun: Instant) -> Self {
        Watch { path, begun, last: begun, carried: path.carried_bytes(), samples: Vec::new() }
    }

    /// Takes a sample if one is due. Returns false if the path no longer exists.
    fn sample(&mut self) -> bool {
        let now = Instant::now();
        if now - self.last < SAMPLE {
            return true;
        }
        if self.path.check().is_err() {
            return false;
        }
        let carried = self.path.carried_bytes();
        if let (Some(before), Some(after)) = (self.carried, carried) {
            let bytes = Bytes::new(after.saturating_sub(before));
            let throughput_bps = Rate::mean(bytes, now - self.last);
            let seconds = (now - self.begun).as_secs_f64();
            self.samples.push(RunSample { seconds, throughput_bps });
        }
        (self.last, self.carried) = (now, carried);
        true
    }
}

/// Adds the server's last line to a failure, because a client often reports only that its
/// connection ended.
fn with_server_words(trouble: RunProblem, server: Option<&ToolOutput>) -> RunProblem {
    let words = server.and_then(|output| output.stderr.lines().rfind(|l| !l.trim().is_empty()));
    match (trouble, words) {
        (RunProblem::Failed(reason), Some(words)) => {
            RunProblem::Failed(format!("{reason} (server: {})", words.trim()))
        }
        (trouble, _) => trouble,
    }
}
