//! `longhaul wan run`: runs a command at each end of an emulated link.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;

use anyhow::Context;
use clap::Args;
use longhaul_core::plan::TopologyPlan;
use longhaul_core::result::LinkReport;
use longhaul_core::wire::write_frame;
use longhaul_emu::{EmuError, Wan, acquire_privileges};

use super::control::{Reply, Request};
use super::ends::{self, Ends, Events};
use super::packets::PacketFile;
use super::requests;
use super::runtime::{RuntimeFiles, RuntimeLock};
use crate::cli::link::LinkArgs;
use crate::exit::{self, Coded};
use crate::output::print_message;

/// Run a command over an emulated link
///
/// CMD runs at the near end, and the command of --far at the far end. The names 'near' and 'far'
/// resolve at both ends; LONGHAUL_NEAR and LONGHAUL_FAR have the addresses. CMD starts when the far
/// command listens, or after a second. When CMD ends, longhaul ends everything else.
///
/// The exit code is that of CMD, or 128 plus the number of the signal that ended it; 125 if
/// longhaul failed or a process that holds an end was killed, 126 if CMD could not be executed, 127
/// if CMD was not found.
#[derive(Debug, Args)]
pub(super) struct RunArgs {
    #[command(flatten)]
    link: LinkArgs,
    /// Command for the far end, for sh -c; its output goes to standard error
    #[arg(long, value_name = "CMD")]
    far: Option<String>,
    /// Name of the link, for 'wan exec NAME/far', 'wan set NAME/link' and 'wan status' from another
    /// terminal
    #[arg(long)]
    name: Option<String>,
    /// Write the counters of the link to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json_report: Option<PathBuf>,
    /// Write the packets of the link, with the times of their arrival and departure and the reasons
    /// of drops, to this file (pcapng)
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Print a line with the counters of the link
    #[arg(short, long)]
    verbose: bool,
    /// Command for the near end; it begins with the first word that is not an option, or after '--'
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Runs the command and returns the exit code.
pub(super) fn run(args: RunArgs) -> Result<u8, Coded> {
    let mut plan = TopologyPlan::pair(args.link.plan().map_err(usage)?);
    let Some(name) = &args.name else { return emulate(&args, &plan, None) };
    plan.name.clone_from(name);
    plan.validate().map_err(usage)?;
    let held = RuntimeFiles::named(name).and_then(|files| files.hold()).map_err(own)?;
    let code = emulate(&args, &plan, Some(&held));
    held.clear(true).map_err(own)?;
    code
}

/// Emulates the link while the command runs. With `held` it answers requests.
fn emulate(args: &RunArgs, plan: &TopologyPlan, held: Option<&RuntimeLock>) -> Result<u8, Coded> {
    // The file is created first, so that an error is reported before the command runs.
    let mut report_to = args.json_report.as_deref().map(create).transpose().map_err(own)?;
    let capture_to = args.pcap.as_deref().map(PacketFile::create).transpose().map_err(own)?;
    acquire_privileges().map_err(own)?;
    let (sender, receiver) = channel();
    ends::watch_signals(sender.clone()).map_err(own)?;
    let mut wan = Wan::start_pair(plan).map_err(own)?;
    let capture = capture_to.map(|to| to.start(plan)).transpose().map_err(own)?;
    if let Some(capture) = &capture {
        wan.capture(capture.capture());
    }
    ends::watch_sites(&wan, sender.clone()).map_err(own)?;
    if let Some(held) = held {
        held.listen().and_then(|calls| ends::watch_requests(calls, sender)).map_err(own)?;
    }
    let started = Ends::start(&wan, &args.command, args.far.as_deref());
    let rtt = plan.links[0].plan.rtt();
    let mut answer = |stream| answer(&mut wan, stream);
    let ended =
        started.and_then(|ends| ends.run(rtt, &mut Events { receiver, answer: &mut answer }));
    // The end of a site is the cause of any other failure.
    wan.check_sites().map_err(own)?;
    let code = ended.map_err(spawned)?;
    let report = wan.finish().map_err(own)?;
    if let Some(capture) = capture {
        capture.end();
    }
    print_summary(&report, args.verbose);
    if let Some((file, path)) = &mut report_to {
        write(&report, file)
            .with_context(|| format!("cannot write the report of the link to {}", path.display()))
            .map_err(own)?;
    }
    Ok(code)
}

/// Answers a request of another command.
fn answer(wan: &mut Wan, mut stream: UnixStream) {
    match requests::read(&mut stream) {
        Some(Request::Down) => {
            let reason =
                "this link ends with the command of 'wan run'; end that command".to_owned();
            // If the caller has ended, it needs no answer.
            let _ = write_frame(&mut stream, &Reply::Refused { reason });
        }
        Some(request) => requests::answer(wan.topology_mut(), &mut stream, request),
        None => {}
    }
}

fn create(path: &Path) -> anyhow::Result<(File, PathBuf)> {
    let file = File::create(path)
        .with_context(|| format!("cannot create the report of the link {}", path.display()))?;
    Ok((file, path.to_owned()))
}

fn write(report: &LinkReport, file: &mut File) -> anyhow::Result<()> {
    serde_json::to_writer_pretty(&mut *file, report)?;
    Ok(file.write_all(b"\n")?)
}

fn print_summary(report: &LinkReport, verbose: bool) {
    if verbose {
        print_message(report.summary());
    }
    for warning in &report.warnings {
        print_message(format_args!("warning: {warning}"));
    }
}

fn usage(error: impl Into<anyhow::Error>) -> Coded {
    Coded::new(exit::USAGE, error)
}

/// Returns an error of longhaul with its exit code.
fn own(error: impl Into<anyhow::Error>) -> Coded {
    Coded::new(exit::WAN, error)
}

/// Returns an error of a command with its exit code, as in env(1).
fn spawned(error: anyhow::Error) -> Coded {
    let code = match error.downcast_ref() {
        Some(EmuError::Spawn { source, .. }) => match source.kind() {
            std::io::ErrorKind::NotFound => exit::NOT_FOUND,
            _ => exit::NOT_EXECUTABLE,
        },
        _ => exit::WAN,
    };
    Coded { code, error }
}
