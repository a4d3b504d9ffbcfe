//! Measures a path with `longhaul path` before the first run over it.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use longhaul_core::plan::{Condition, Side};
use longhaul_core::result::PathResult;

use super::process::{Process, Waited};
use super::ready::{self, Readiness, ReadySigns};
use super::work::{RunProblem, chain};
use crate::archive::PathRecord;
use crate::network::{NetPath, Network};

/// The default port of `longhaul serve`.
const PORT: u16 = 5210;
/// One second of loss probes and a few round trips show whether the path has the planned
/// properties. Hops and capacity are not measured, because the plan defines the link.
const ARGUMENTS: [&str; 9] =
    ["-t", "1", "-c", "20", "--skip", "hops,capacity", "--json", "--quiet", "--port"];
/// The time limit; the longest measurements take about 15 s.
const LIMIT: Duration = Duration::from_secs(90);

/// Opens a path with `condition` and measures it with `program`, which is longhaul. Returns `None`
/// if the stop flag ended the measurement.
pub(super) fn measure(
    program: &Path,
    network: &mut dyn Network,
    condition: &Condition,
    seed: u64,
    stop: &AtomicBool,
) -> Option<PathRecord> {
    let now = jiff::Timestamp::now();
    let found = match network.open(condition, seed) {
        Ok(mut path) => {
            let found = with_server(program, &mut *path, stop);
            path.close();
            found
        }
        Err(error) => Err(RunProblem::Failed(format!("no path: {}", chain(&*error)))),
    };
    let (found, failure) = match found {
        Ok(found) => (Some(Box::new(found)), None),
        Err(RunProblem::Failed(reason) | RunProblem::Disturbed(reason)) => (None, Some(reason)),
        Err(RunProblem::Stopped) => return None,
    };
    let measured_at = now.round(jiff::Unit::Second).unwrap_or(now).to_string();
    Some(PathRecord { path: condition.label(), measured_at, found, failure })
}

fn with_server(
    program: &Path,
    path: &mut dyn NetPath,
    stop: &AtomicBool,
) -> Result<PathResult, RunProblem> {
    let mut serve = Command::new(program);
    serve.args(["serve", "--port", &PORT.to_string()]);
    let server = start(path, Side::Far, serve)?;
    let found = match ready::wait(&server, &ReadySigns::port(PORT), path, stop) {
        Readiness::Listening => client(program, path, stop),
        Readiness::Stopped => Err(RunProblem::Stopped),
        Readiness::Ended => Err(RunProblem::Failed("the server ended at once".into())),
        Readiness::Late => Err(RunProblem::Failed(format!("no server listens on port {PORT}"))),
    };
    server.finish();
    found
}

fn client(
    program: &Path,
    path: &mut dyn NetPath,
    stop: &AtomicBool,
) -> Result<PathResult, RunProblem> {
    let mut command = Command::new(program);
    command.arg("path").arg(path.host(Side::Far)).args(ARGUMENTS).arg(PORT.to_string());
    let client = start(path, Side::Near, command)?;
    let waited = client.wait(LIMIT, stop, &mut || path.check().is_ok());
    let output = client.finish().output;
    match waited.map_err(|error| RunProblem::of(&error))? {
        Waited::Stopped => return Err(RunProblem::Stopped),
        Waited::GivenUp => path.check().map_err(|error| RunProblem::of(&*error))?,
        Waited::TimedOut => {
            return Err(RunProblem::Failed(format!("timed out after {} s", LIMIT.as_secs())));
        }
        Waited::Ended(_) => {}
    }
    serde_json::from_str(&output.stdout).map_err(|_| {
        let said = output.last_line().unwrap_or("nothing").to_owned();
        RunProblem::Failed(format!("longhaul path printed no document; last output: {said}"))
    })
}

fn start(path: &mut dyn NetPath, side: Side, command: Command) -> Result<Process, RunProblem> {
    Process::spawn(path, side, command).map_err(|error| RunProblem::of(&*error))
}
