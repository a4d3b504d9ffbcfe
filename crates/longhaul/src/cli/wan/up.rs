//! `longhaul wan up`: starts a topology, in the background or the foreground.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;
use clap::Args;
use longhaul_core::plan::{Attachment, TopologyPlan};
use longhaul_core::wire::{read_frame, write_frame};
use longhaul_emu::EmuError;
use serde::{Deserialize, Serialize};

use super::bridge;
use super::file_values::FileError;
use super::holder::{End, Holder};
use super::packets::PacketFile;
use super::runtime::RuntimeFiles;
use super::shipped::{SHIPPED, Shipped};
use super::topology_file::TopologyFile;
use crate::exit::{self, Coded};
use crate::output::{
    list_row, print_message, print_notes, print_result, raw_output, text_columns, topology_end,
    topology_summary,
};

/// Start a topology of several sites and links
///
/// Returns when the topology is up. A background process holds it until 'wan down'. 'wan exec' runs
/// commands at its sites, where the names of all sites resolve. Sites without a direct link reach
/// each other through other sites, over the path with the shortest round-trip time.
///
/// Exit codes: 0 the topology is up, 2 the file is invalid, 5 a file cannot be read or created, 6
/// this host lacks a permission, a device or memory, 1 other errors: a topology of this name is
/// already up or, with --foreground, a process that holds a site was killed.
#[derive(Debug, Args)]
pub(super) struct UpArgs {
    /// TOML file (see docs/guide/wan.md), or the name of a shipped topology
    #[arg(required_unless_present = "list")]
    file: Option<PathBuf>,
    /// List the shipped topologies
    #[arg(long, conflicts_with = "file")]
    list: bool,
    /// Name of the topology; several can be up at once [default: the name of the file]
    #[arg(long)]
    name: Option<String>,
    /// Run in the foreground until interrupted
    #[arg(long)]
    foreground: bool,
    /// Attach a site to an interface that carries the default route of this host
    #[arg(long)]
    yes_i_know: bool,
    /// Write the packets of all links, with the times of their arrival and departure and the reasons
    /// of drops, to this file (pcapng)
    #[arg(long, value_name = "FILE", conflicts_with = "list")]
    pcap: Option<PathBuf>,
    /// Run as the background process
    #[arg(long, hide = true, conflicts_with = "foreground")]
    background: bool,
}

/// The first frame that the background process writes to standard output.
#[derive(Debug, Serialize, Deserialize)]
enum Started {
    /// The topology is up.
    Up,
    /// The topology could not be started.
    Failed { code: u8, reason: String },
}

pub(super) fn run(args: UpArgs) -> Result<u8, Coded> {
    let Some(file) = args.file.filter(|_| !args.list) else {
        print_result(&list())?;
        return Ok(exit::OK);
    };
    let TopologyFile { plan, .. } =
        TopologyFile::load(&file, args.name.as_deref()).map_err(file_error)?;
    let files = RuntimeFiles::named(&plan.name)?;
    if !args.background {
        check_ports(&plan, args.yes_i_know)?;
    }
    let pcap = args.pcap.as_deref();
    if args.background {
        return background(&plan, &files, pcap);
    }
    if args.foreground {
        return foreground(&plan, &files, pcap);
    }
    leave_in_background((&file, pcap), &plan, &files)?;
    let line = format!("{}\n", topology_summary(&plan));
    print_result(&line)?;
    Ok(exit::OK)
}

/// Checks the interfaces behind which sites are. A missing TAP device is created later.
fn check_ports(plan: &TopologyPlan, yes: bool) -> Result<(), Coded> {
    for attachment in plan.attachments.values() {
        let Some(name) = attachment.interface() else { continue };
        let is_missing = longhaul_sys::interface::index(name).is_err();
        if is_missing && matches!(attachment, Attachment::Tap(_)) {
            continue;
        }
        bridge::check_port(name, yes).map_err(|error| Coded::new(exit::HOST, error))?;
    }
    Ok(())
}

fn list() -> String {
    let line = |shipped: &Shipped| {
        let file = TopologyFile::parse(shipped.name, Path::new("."), shipped.text, shipped.name);
        let description = file.ok().and_then(|file| file.description).unwrap_or_default();
        list_row(shipped.name, 16, &description, text_columns())
    };
    SHIPPED.iter().map(line).collect()
}

fn file_error(error: FileError) -> Coded {
    let code = match error {
        FileError::Read { .. } => exit::FILES,
        FileError::At { .. } => exit::USAGE,
    };
    Coded::new(code, error)
}

/// Returns an error of the start with its exit code.
fn build_error(error: anyhow::Error) -> Coded {
    let code = match error.downcast_ref() {
        Some(EmuError::Plan(_) | EmuError::Loop { .. }) => exit::USAGE,
        Some(_) => exit::HOST,
        None => exit::FAILED,
    };
    Coded { code, error }
}

/// Builds the topology, after the file of its packets if there is one.
fn build(plan: &TopologyPlan, files: &RuntimeFiles, pcap: Option<&Path>) -> Result<Holder, Coded> {
    let created = pcap.map(PacketFile::create).transpose();
    let capture_to = created.map_err(|error| Coded::new(exit::FILES, error))?;
    Holder::start(plan, files, capture_to).map_err(build_error)
}

fn foreground(plan: &TopologyPlan, files: &RuntimeFiles, pcap: Option<&Path>) -> Result<u8, Coded> {
    if files.try_hold()?.is_none() {
        // Returns the error, without truncating the packets of the running topology.
        files.hold()?;
    }
    let holder = build(plan, files, pcap)?;
    print_message(topology_summary(plan));
    hold(holder, true)
}

/// Serves requests until the topology ends, and prints the counters after a signal.
///
/// If a site ends, the socket stays unless `clear` is set. The next command on the topology then
/// reports the end and the log.
fn hold(holder: Holder, clear: bool) -> Result<u8, Coded> {
    match holder.serve()? {
        End::Signal(report) => print_notes(&format!("longhaul: {}", topology_end(&report))),
        // The command prints the counters. The stream stays open until this process has ended.
        End::Command(stream) => std::mem::forget(stream),
        End::Site(error, held) => {
            if clear {
                held.clear(false)?;
            }
            return Err(Coded::new(exit::FAILED, error));
        }
    }
    Ok(exit::OK)
}

/// Runs the background process: reports the result to its parent, and serves requests.
fn background(plan: &TopologyPlan, files: &RuntimeFiles, pcap: Option<&Path>) -> Result<u8, Coded> {
    // A new session, so that signals of the terminal do not reach this process.
    let _ = rustix::process::setsid();
    let holder = build(plan, files, pcap);
    // The files of the topology are loaded, and the process must not keep a file system busy.
    let _ = std::env::set_current_dir("/");
    let started = match &holder {
        Ok(_) => Started::Up,
        Err(Coded { code, error }) => Started::Failed { code: *code, reason: format!("{error:#}") },
    };
    let reported = report_start(&started);
    let Ok(holder) = holder else { return Ok(exit::OK) };
    // If the parent is gone, the user has cancelled the start.
    reported?;
    let nowhere = File::options().write(true).open("/dev/null").context("cannot open /dev/null")?;
    rustix::stdio::dup2_stdout(nowhere).context("cannot close standard output")?;
    hold(holder, false)
}

/// Reports the result of the start to the parent process.
fn report_start(started: &Started) -> anyhow::Result<()> {
    const FAILED: &str = "cannot report the start";
    let mut out = raw_output().context(FAILED)?;
    write_frame(&mut out, started).context(FAILED)?;
    out.flush().context(FAILED)
}

fn leave_in_background(
    (file, pcap): (&Path, Option<&Path>),
    plan: &TopologyPlan,
    files: &RuntimeFiles,
) -> Result<(), Coded> {
    if files.try_hold()?.is_none() {
        // Returns the error, without truncating the log of the running topology.
        files.hold()?;
    }
    let log = files.log();
    let log_file =
        File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    let mut command = Command::new(program);
    command.args(["wan", "up", "--background", "--name", &plan.name]);
    if let Some(pcap) = pcap {
        command.arg("--pcap").arg(pcap);
    }
    let mut child = command
        .arg("--")
        .arg(file)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log_file)
        .spawn()
        .context("cannot start a background process")?;
    let mut answer = child.stdout.take().context("the background process has no output")?;
    match read_frame(&mut answer) {
        Ok(Started::Up) => Ok(()),
        Ok(Started::Failed { code, reason }) => {
            // The process ends now. Its log has nothing beyond this reason.
            let _ = child.wait();
            Err(Coded { code, error: anyhow::anyhow!(reason) })
        }
        Err(_) => {
            let _ = child.kill();
            let status = child.wait().context("cannot wait for the background process")?;
            let error = anyhow::anyhow!(
                "the background process failed to start the topology ({status}); see {}",
                log.display()
            );
            Err(Coded { code: exit::FAILED, error })
        }
    }
}
