//! The execution of one run.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use longhaul_fleet::protocol::{Lease, Role, RunOutcome, RunReason, RunReport, TestKind};

use super::child::{ChildOutcome, run_child};
use super::command::{Paths, command};
use super::run_dir::{RunDir, public_key, source_file, target_dir};
use crate::clock::HubClock;

/// The exit code of a command that did not reach its server.
const UNREACHABLE: i32 = 3;
/// The exit code of a command that its server refused: at the start, the server of an earlier run may
/// still answer.
const REFUSED: i32 = 4;
/// The exit code of a command that cannot use its port or a file of this host.
const HOST: i32 = 6;
/// The pause before a command that failed at once is repeated.
const PAUSE: Duration = Duration::from_millis(300);
/// The time within which a failure counts as a failed start: the peer or the port was not ready.
const START: Duration = Duration::from_secs(8);
/// The time before the end of the window at which the source stops the run: the clocks of the next run's
/// agents may differ by so much, and the runs must not overlap.
const GUARD: Duration = Duration::from_millis(250);
/// The longest wait for an answer to a connection.
const CONNECT: Duration = Duration::from_secs(2);
/// The size of a copy without a size.
const DEFAULT_COPY_BYTES: u64 = 1_000_000_000;

/// Runs leases as child processes.
#[derive(Debug)]
pub(crate) struct Executor {
    /// The program.
    pub(crate) program: PathBuf,
    /// The directory of the agent.
    pub(crate) state: PathBuf,
}

impl Executor {
    /// Removes what an earlier process of the agent has left.
    pub(crate) fn clean(&self) {
        let _ = fs::remove_dir_all(self.state.join("runs"));
    }

    /// Runs `lease` until it ends, its window ends, or `cancelled` returns true.
    pub(crate) fn run(
        &self,
        lease: &Lease,
        clock: &HubClock,
        cancelled: &dyn Fn() -> bool,
    ) -> RunReport {
        let started_ms = clock.now_ms();
        let mut report = RunReport { started_ms: Some(started_ms), ..report_of(lease) };
        let left = u64::try_from(lease.end_ms - started_ms).unwrap_or(0);
        let guard = if lease.role == Role::Source { GUARD } else { Duration::ZERO };
        let deadline = Instant::now() + Duration::from_millis(left).saturating_sub(guard);
        match self.attempt_until(lease, deadline, cancelled) {
            Ok(outcome) => note(&mut report, lease, outcome),
            Err(error) => {
                let full = error.kind() == io::ErrorKind::StorageFull;
                report.reason = Some(if full { RunReason::DiskFull } else { RunReason::Failed });
                report.message = Some(error.to_string());
            }
        }
        report.ended_ms = clock.now_ms();
        report
    }

    /// Repeats the command while it fails because its peer or its port is not ready.
    fn attempt_until(
        &self,
        lease: &Lease,
        deadline: Instant,
        cancelled: &dyn Fn() -> bool,
    ) -> io::Result<ChildOutcome> {
        if lease.peer_key.as_deref().is_some_and(|key| public_key(key).is_none()) {
            return Err(io::Error::other("the peer's key in the lease is invalid"));
        }
        let dir = RunDir::create(&self.state, &self.state.join("identity"), lease)?;
        let stop = || cancelled() || Instant::now() >= deadline;
        let data = self.data(lease, dir.path(), &stop)?;
        // The time that the rest of the run needs.
        let needed = match lease.role {
            Role::Source if lease.spec.kind.is_timed() => {
                Duration::from_secs(lease.spec.seconds.into())
            }
            _ => PAUSE,
        };
        let fits = || Instant::now() + PAUSE + needed < deadline && !cancelled();
        if lease.role == Role::Source
            && lease.spec.kind.needs_target_agent()
            && !wait_for_server(lease, &fits)
            && !cancelled()
        {
            return Ok(no_server(lease));
        }
        loop {
            let begun = Instant::now();
            let paths = Paths { program: &self.program, config: dir.path(), data: data.as_deref() };
            let outcome = run_child(command(lease, paths), deadline, cancelled)?;
            let retried = match (lease.role, &outcome) {
                (Role::Source, ChildOutcome::Ended { code, .. }) => {
                    matches!(code, Some(UNREACHABLE | REFUSED))
                }
                (Role::Target, ChildOutcome::Ended { code, .. }) => *code == Some(HOST),
                _ => false,
            };
            if !retried || !fits() || begun.elapsed() > START {
                return Ok(outcome);
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn data(
        &self,
        lease: &Lease,
        run_dir: &Path,
        stop: &dyn Fn() -> bool,
    ) -> io::Result<Option<PathBuf>> {
        if !matches!(lease.spec.kind, TestKind::Copy | TestKind::Diagnose) {
            return Ok(None);
        }
        let bytes = lease.spec.bytes.map_or(DEFAULT_COPY_BYTES, |bytes| bytes.get());
        let made = match lease.role {
            Role::Source => source_file(run_dir, bytes, stop),
            Role::Target => target_dir(run_dir, bytes),
        };
        made.map(Some)
    }
}

/// Waits until the server of the run accepts connections, while `fits` returns true. Returns false without
/// a server. A connection costs less than an attempt of the command, and `longhaul path` does not fail
/// if no server answers: it measures without one.
fn wait_for_server(lease: &Lease, fits: &dyn Fn() -> bool) -> bool {
    let server = SocketAddr::new(lease.peer, lease.port);
    while fits() {
        if TcpStream::connect_timeout(&server, CONNECT).is_ok() {
            return true;
        }
        std::thread::sleep(PAUSE);
    }
    false
}

/// Returns the outcome of a run whose server did not accept a connection.
fn no_server(lease: &Lease) -> ChildOutcome {
    let server = SocketAddr::new(lease.peer, lease.port);
    ChildOutcome::Ended {
        code: Some(UNREACHABLE),
        output: Vec::new(),
        message: Some(format!(
            "{server} accepted no connection while the window had time for a run"
        )),
    }
}

/// Returns the report of a run that has not started, as a failure without a reason.
pub(super) fn report_of(lease: &Lease) -> RunReport {
    RunReport {
        id: 0,
        run: lease.run.clone(),
        fencing: lease.fencing,
        role: lease.role,
        outcome: RunOutcome::Failed,
        reason: None,
        started_ms: None,
        ended_ms: 0,
        exit_code: None,
        message: None,
        document: None,
    }
}

/// Adds the outcome of the process to the report.
fn note(report: &mut RunReport, lease: &Lease, outcome: ChildOutcome) {
    let failed = |report: &mut RunReport, reason| {
        report.outcome = RunOutcome::Failed;
        report.reason = Some(reason);
    };
    match outcome {
        // The server of a run serves until the end of its window.
        ChildOutcome::OutOfTime if lease.role == Role::Target => {
            report.outcome = RunOutcome::Finished;
        }
        ChildOutcome::OutOfTime => failed(report, RunReason::WindowEnded),
        ChildOutcome::TooLarge => failed(report, RunReason::Failed),
        ChildOutcome::Cancelled => {
            report.outcome = RunOutcome::Cancelled;
            report.reason = Some(RunReason::Cancelled);
        }
        ChildOutcome::Ended { code, output, message } => {
            report.exit_code = code;
            report.message = message;
            // A diagnosis without some of its parts has a document, too.
            let document = serde_json::from_slice(&output).ok();
            let complete = code == Some(0) || code == Some(7);
            match (lease.role, document) {
                (Role::Source, Some(document)) if complete => {
                    report.outcome = RunOutcome::Finished;
                    report.message = None;
                    report.document = Some(document);
                }
                (Role::Source, _) if code == Some(UNREACHABLE) => {
                    failed(report, RunReason::PeerAway);
                }
                _ => failed(report, RunReason::Failed),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use longhaul_fleet::protocol::TestSpec;

    use super::*;

    fn noted(role: Role, outcome: ChildOutcome) -> (RunOutcome, Option<RunReason>) {
        let spec = TestSpec {
            kind: TestKind::Path,
            seconds: 1,
            streams: None,
            rate_bps: None,
            udp: false,
            congestion: None,
            bytes: None,
        };
        let lease = Lease {
            run: "r".into(),
            fencing: 1,
            resources: vec![],
            test: "t".into(),
            role,
            spec,
            source: "a".into(),
            destination: "b".into(),
            local: None,
            peer: [127, 0, 0, 1].into(),
            port: 1,
            peer_key: None,
            start_ms: 0,
            end_ms: 1,
        };
        let mut report = report_of(&lease);
        note(&mut report, &lease, outcome);
        (report.outcome, report.reason)
    }

    #[test]
    fn every_end_of_a_command_has_an_outcome() {
        use RunOutcome::{Cancelled, Failed, Finished};
        let ended = |code, output: &[u8]| ChildOutcome::Ended {
            code: Some(code),
            output: output.to_vec(),
            message: None,
        };
        let (source, target) = (Role::Source, Role::Target);
        let failed = |reason| (Failed, Some(reason));
        assert_eq!(noted(source, ended(0, b"{}")), (Finished, None));
        assert_eq!(noted(source, ended(7, b"{}")), (Finished, None));
        assert_eq!(noted(source, ended(0, b"no document")), failed(RunReason::Failed));
        assert_eq!(noted(source, ended(1, b"{}")), failed(RunReason::Failed));
        assert_eq!(noted(source, ended(3, b"{}")), failed(RunReason::PeerAway));
        assert_eq!(noted(source, ChildOutcome::OutOfTime), failed(RunReason::WindowEnded));
        assert_eq!(noted(source, ChildOutcome::TooLarge), failed(RunReason::Failed));
        assert_eq!(noted(target, ChildOutcome::OutOfTime), (Finished, None));
        assert_eq!(noted(target, ended(6, b"")), failed(RunReason::Failed));
        let cancelled = noted(target, ChildOutcome::Cancelled);
        assert_eq!(cancelled, (Cancelled, Some(RunReason::Cancelled)));
    }
}
