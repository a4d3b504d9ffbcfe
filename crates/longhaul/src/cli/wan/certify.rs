//! `longhaul wan certify`: measures the link that replays a recording, and compares both.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use clap::Args;
use longhaul_core::path::certify;
use longhaul_core::plan::link::{LinkOptions, PathRecording, Trace};
use longhaul_core::plan::{LinkPlan, LinkPlanError, Side};
use longhaul_core::result::RecordingCertificate;
use longhaul_core::units::format_span;
use longhaul_emu::{Wan, acquire_privileges};

use crate::cli::link::open_trace;
use crate::exit::{self, Coded};
use crate::monotonic;
use crate::output::{after_printing, certify_text, print_document, print_message, print_result};

/// The time for the server at the far end to listen.
const LISTEN_LIMIT: Duration = Duration::from_secs(10);
/// The time that a measurement may take in addition to that of the recording: connecting, the
/// capacity, and a busy host.
const SPARE: Duration = Duration::from_secs(120);

/// Check that a link replays a recorded path
///
/// Replays the path that 'longhaul path --record FILE' recorded, measures the link for the duration
/// of the recording with the same probes, and compares both: the distributions of delay and of its
/// variation, the shares of lost probes and of seconds with an outage, runs of losses, reordering,
/// and capacity. A check fails if both differ by more than chance and the accuracy of timing
/// explain.
///
/// The exit code is 0 if no check failed, 8 if a check failed, 6 if no link could be created.
#[derive(Debug, Args)]
pub(super) struct CertifyArgs {
    /// The recording
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Another recording to replay, instead of FILE
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
    /// Print the certificate as one JSON document, longhaul.recording_certificate/1
    #[arg(long)]
    json: bool,
}

/// Measures the replayed link and returns the exit code.
pub(super) fn run(args: &CertifyArgs) -> Result<u8, Coded> {
    let unusable = |error: anyhow::Error| Coded::new(exit::USAGE, error);
    let replay = args.replay.as_deref().unwrap_or(&args.file);
    let given = args.replay.is_some().then(|| read(&args.file)).transpose().map_err(unusable)?;
    let plan = replaying(replay).map_err(unusable)?;
    let replayed = plan.up.replay.as_ref().and_then(|file| file.content());
    let recorded = given.map(Arc::new).or(replayed.cloned());
    let recorded = recorded.context("the link replays no recording").map_err(unusable)?;
    let directory = tempfile::Builder::new()
        .prefix("longhaul-certify-")
        .tempdir()
        .context("cannot create a temporary directory")
        .map_err(|error| Coded::new(exit::FILES, error))?;
    let host = |error: anyhow::Error| Coded::new(exit::HOST, error);
    acquire_privileges().map_err(|error| host(error.into()))?;
    let wan = Wan::start(&plan).map_err(|error| host(error.into()))?;
    if !args.json {
        let time = format_span(recorded.time());
        print_message(format_args!("measuring the replayed link for {time}"));
    }
    let measured = directory.path().join("rebuilt.jsonl");
    let mut far = start_server(&wan, directory.path()).map_err(host)?;
    let result = measure(&wan, &recorded, directory.path(), &measured);
    // The site's end kills the server; this ends it before its directory is removed.
    let _ = far.kill();
    let _ = far.wait();
    result.map_err(host)?;
    let rebuilt = read(&measured).map_err(host)?;
    let report = wan.finish().map_err(|error| host(error.into()))?;
    let mut certificate = certify(&recorded, &rebuilt);
    certificate.warnings = report.warnings.iter().map(ToString::to_string).collect();
    print(&certificate, args.json)
}

/// Returns the plan of a link that replays a file.
fn replaying(file: &Path) -> anyhow::Result<LinkPlan> {
    let mut options = LinkOptions::default();
    options.set("replay", file.to_str().context("the name of a recording must be UTF-8")?)?;
    options.plan(&open_trace).map_err(|error| match error {
        LinkPlanError::Trace { file, cause, .. } => {
            anyhow::Error::new(cause).context(format!("{file} is not a recording"))
        }
        other => other.into(),
    })
}

fn print(certificate: &RecordingCertificate, json: bool) -> Result<u8, Coded> {
    let code = if certificate.passed { exit::OK } else { exit::UNPROVEN };
    let printed =
        if json { print_document(certificate) } else { print_result(&certify_text(certificate)) };
    after_printing(code, printed)
}

fn read(file: &Path) -> anyhow::Result<PathRecording> {
    let name = file.display();
    let mut source = File::open(file)
        .map(BufReader::new)
        .with_context(|| format!("cannot read the recording {name}"))?;
    PathRecording::read(&mut source).map_err(|error| anyhow!("{name} is not a recording: {error}"))
}

/// Returns this program with a separate configuration, so that the keys of the user do not matter.
fn program(directory: &Path) -> anyhow::Result<Command> {
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    let mut command = Command::new(program);
    command.env("XDG_CONFIG_HOME", directory).env("HOME", directory).stdin(Stdio::null());
    Ok(command)
}

fn start_server(wan: &Wan, directory: &Path) -> anyhow::Result<Child> {
    let mut server = program(directory)?;
    server.arg("serve").stdout(Stdio::null()).stderr(Stdio::null());
    let server = wan.spawn(Side::Far, server)?;
    if !wan.wait_for_listener(Side::Far, LISTEN_LIMIT)? {
        return Err(anyhow!("the server at the far end did not start"));
    }
    Ok(server)
}

/// Records the replayed link in the same way.
fn measure(
    wan: &Wan,
    recorded: &PathRecording,
    directory: &Path,
    output: &Path,
) -> anyhow::Result<()> {
    let mut near = program(directory)?;
    near.args(["path", "far", "--quiet", "--record"]).arg(output);
    near.arg("--time").arg(format!("{}s", recorded.time().as_secs_f64()));
    near.arg("--interval").arg(format!("{}s", recorded.head().interval_seconds));
    near.arg("--rate-every").arg(format!("{}s", recorded.head().rate_every_seconds));
    // A probe of the recording is then nearest to one probe of this measurement.
    if let Some(origin) = wan.link_started() {
        near.arg("--slots-from").arg(monotonic::nanos_of(origin).to_string());
    }
    near.arg("--length").arg(recorded.head().packet_bytes.to_string());
    let measures = Side::BOTH.iter().any(|side| recorded.direction(*side).capacity().is_some());
    if !measures {
        near.args(["--skip", "capacity"]);
    }
    near.stdout(Stdio::null());
    let mut near = wan.spawn(Side::Near, near)?;
    let deadline = Instant::now() + recorded.time() + SPARE;
    let status = wait(&mut near, deadline).context("cannot wait for the measurement")?;
    match status {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(anyhow!("the measurement of the replayed link failed ({status})")),
        None => {
            let _ = near.kill();
            let _ = near.wait();
            Err(anyhow!("the measurement of the replayed link did not end"))
        }
    }
}

fn wait(child: &mut Child, deadline: Instant) -> std::io::Result<Option<ExitStatus>> {
    loop {
        let status = child.try_wait()?;
        if status.is_some() || Instant::now() >= deadline {
            return Ok(status);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
