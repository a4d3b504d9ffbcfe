//! Cross traffic that reacts to congestion: TCP flows of `longhaul test` beside the measured tool.

use std::process::Command;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::plan::Side;

use super::process::{Finished, Process};
use super::ready::{self, Readiness, ReadySigns};
use super::work::{Run, RunProblem};
use crate::network::NetPath;

/// The port of the flows' server; no driver uses it.
const PORT: u16 = 5299;
/// The time that the flows get to fill the path before the tool starts.
const SETTLE: Duration = Duration::from_secs(3);
/// The time in seconds that the flows run beyond the limit of the run.
const SPARE: u64 = 60;

/// The TCP flows that run beside the tool, with their server.
pub(super) struct SideFlows {
    server: Process,
    flows: Process,
}

impl SideFlows {
    /// Starts the flows that the entry of a run requires, and waits until they fill the path;
    /// `None` for an entry without flows.
    pub(super) fn start(run: &Run<'_>, path: &mut dyn NetPath) -> Result<Option<Self>, RunProblem> {
        if run.entry.beside == 0 {
            return Ok(None);
        }
        let Some(program) = run.program else {
            return Err(RunProblem::Failed(
                "longhaul, which starts the flows beside the tool, is missing".into(),
            ));
        };
        let port = PORT.to_string();
        let mut serve = Command::new(program);
        serve.args(["serve", "--port", &port]);
        let server = Process::spawn(path, Side::Far, serve).map_err(|e| RunProblem::of(&*e))?;
        match ready::wait(&server, &ReadySigns::port(PORT), path, run.stop) {
            Readiness::Listening => {}
            Readiness::Stopped => {
                server.finish();
                return Err(RunProblem::Stopped);
            }
            Readiness::Ended | Readiness::Late => {
                let what = "the server of the flows beside the tool does not listen";
                return Err(broken(what, server));
            }
        }
        let seconds = run.limit.as_secs() + SPARE;
        let mut test = Command::new(program);
        test.args(["test", path.host(Side::Far), "--port", &port]);
        test.args(["-P", &run.entry.beside.to_string(), "-t", &seconds.to_string()]);
        let flows = match Process::spawn(path, Side::Near, test) {
            Ok(flows) => flows,
            Err(error) => {
                server.finish();
                return Err(RunProblem::of(&*error));
            }
        };
        let beside = SideFlows { server, flows };
        let begun = Instant::now();
        while begun.elapsed() < SETTLE && !beside.flows.has_ended() {
            if run.stop.load(Ordering::Relaxed) {
                return beside.finish().and(Err(RunProblem::Stopped));
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(Some(beside))
    }

    /// Stops the flows. A run whose flows ended before the tool did not meet its conditions.
    pub(super) fn finish(self) -> Result<(), RunProblem> {
        let is_early = self.flows.has_ended();
        let Finished { output, .. } = self.flows.finish();
        self.server.finish();
        if !is_early {
            return Ok(());
        }
        let said = output.last_line().unwrap_or("no output").to_owned();
        Err(RunProblem::Disturbed(format!("a flow beside the tool ended before the tool: {said}")))
    }
}

/// Returns the failure of a process that is then stopped, with its last line.
fn broken(what: &str, process: Process) -> RunProblem {
    let Finished { output, .. } = process.finish();
    RunProblem::Failed(format!("{what}: {}", output.last_line().unwrap_or("no output")))
}
