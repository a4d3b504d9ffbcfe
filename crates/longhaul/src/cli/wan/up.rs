use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;
use clap::Args;
use longhaul_core::plan::TopologyPlan;
use longhaul_core::wire::{read_frame, write_frame};
use longhaul_emu::EmuError;
use serde::{Deserialize, Serialize};

use super::holder::{End, Holder};
use super::place::Place;
use super::shipped::{SHIPPED, Shipped};
use super::topology_file::{FileError, TopologyFile};
use crate::exit::{self, Coded};
use crate::output::{answer, raw_output, remark_text, say, topology_end, topology_summary};

/// Build a topology of many sites and links, and keep it up
///
/// Returns when all is up; a process in the background holds it until 'wan down'. Commands run in
/// its sites by 'wan exec', where every other site can be found by its name. A site that has no
/// link to another reaches it through the sites between, by the shortest round trip.
///
/// Exit codes: 0 it is up, 2 the file makes no sense, 6 this host lacks a permission, a device or
/// the memory, 1 anything else, such as that a topology of this name is up already or, with
/// --foreground, that a process that holds a site was killed.
#[derive(Debug, Args)]
pub(super) struct UpArgs {
    /// Topology file (TOML; see docs/guide/wan.md), or the name of one that --list shows
    #[arg(required_unless_present = "list")]
    file: Option<PathBuf>,
    /// Show the topologies that need no file
    #[arg(long, conflicts_with = "file")]
    list: bool,
    /// Call it so, to have several up at once [default: the file's name]
    #[arg(long)]
    name: Option<String>,
    /// Stay until interrupted, instead of leaving a process in the background
    #[arg(long)]
    foreground: bool,
    /// Be the process in the background
    #[arg(long, hide = true, conflicts_with = "foreground")]
    background: bool,
}

/// What the process in the background says on its standard output, in a frame.
#[derive(Debug, Serialize, Deserialize)]
enum Started {
    /// All is up.
    Up,
    /// Nothing is, and why.
    Failed { code: u8, reason: String },
}

pub(super) fn run(args: UpArgs) -> Result<u8, Coded> {
    let Some(file) = args.file.filter(|_| !args.list) else {
        answer(&list())?;
        return Ok(exit::OK);
    };
    let TopologyFile { plan, .. } =
        TopologyFile::load(&file, args.name.as_deref()).map_err(file_error)?;
    let place = Place::named(&plan.name)?;
    if args.background {
        return background(&plan, &place);
    }
    if args.foreground {
        return foreground(&plan, &place);
    }
    leave_in_background(&file, &plan, &place)?;
    let line = format!("{}\n", topology_summary(&plan));
    answer(&line)?;
    Ok(exit::OK)
}

fn list() -> String {
    let line = |shipped: &Shipped| {
        let file = TopologyFile::parse(shipped.name, Path::new("."), shipped.text, shipped.name);
        let description = file.ok().and_then(|file| file.description).unwrap_or_default();
        format!("{:<16} {description}\n", shipped.name)
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

/// A failure to build, with the code that tells a host that cannot from anything else.
fn build_error(error: anyhow::Error) -> Coded {
    let code = match error.downcast_ref() {
        Some(EmuError::Plan(_)) => exit::USAGE,
        Some(_) => exit::HOST,
        None => exit::FAILED,
    };
    Coded { code, error }
}

fn foreground(plan: &TopologyPlan, place: &Place) -> Result<u8, Coded> {
    let holder = Holder::start(plan, place).map_err(build_error)?;
    say(topology_summary(plan));
    hold(holder, true)
}

/// Answers until the end, and reports what passed.
///
/// If a site ends, the socket stays unless `clear` is set. The next command on the topology then
/// reports that it ended, and names the log.
fn hold(holder: Holder, clear: bool) -> Result<u8, Coded> {
    match holder.serve()? {
        End::Signal(report) => remark_text(&format!("longhaul: {}", topology_end(&report))),
        // The command says it. It waits until this process has ended, and with it the stream.
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

/// The process in the background: tells the one that started it how it went, and stays.
fn background(plan: &TopologyPlan, place: &Place) -> Result<u8, Coded> {
    // Away from the terminal, so that neither its keys nor its closing reach this process.
    let _ = rustix::process::setsid();
    let holder = Holder::start(plan, place).map_err(build_error);
    // Files that the topology names have been read; no directory is to be kept busy.
    let _ = std::env::set_current_dir("/");
    let started = match &holder {
        Ok(_) => Started::Up,
        Err(Coded { code, error }) => Started::Failed { code: *code, reason: format!("{error:#}") },
    };
    let told = tell(&started);
    let Ok(holder) = holder else { return Ok(exit::OK) };
    // Whoever started it and is gone did not want it any more.
    told?;
    let nowhere = File::options().write(true).open("/dev/null").context("cannot open /dev/null")?;
    rustix::stdio::dup2_stdout(nowhere).context("cannot leave the standard output")?;
    hold(holder, false)
}

/// Tells the process that started this one how it went.
fn tell(started: &Started) -> anyhow::Result<()> {
    let mut out = raw_output().context("cannot tell that it is up")?;
    write_frame(&mut out, started).context("cannot tell that it is up")?;
    out.flush().context("cannot tell that it is up")
}

fn leave_in_background(file: &Path, plan: &TopologyPlan, place: &Place) -> Result<(), Coded> {
    if place.try_hold()?.is_none() {
        // Says that it is up already, without touching its log.
        place.hold()?;
    }
    let log = place.log();
    let log_file = File::create(&log).with_context(|| format!("cannot make {}", log.display()))?;
    let program = std::env::current_exe().context("cannot find this program's file")?;
    let mut child = Command::new(program)
        .args(["wan", "up", "--background", "--name", &plan.name, "--"])
        .arg(file)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log_file)
        .spawn()
        .context("cannot start a process in the background")?;
    let mut answer = child.stdout.take().context("the process in the background has no output")?;
    match read_frame(&mut answer) {
        Ok(Started::Up) => Ok(()),
        Ok(Started::Failed { code, reason }) => {
            // It is about to end; its log says nothing that is not said here.
            let _ = child.wait();
            Err(Coded { code, error: anyhow::anyhow!(reason) })
        }
        Err(_) => {
            let _ = child.kill();
            let status = child.wait().context("cannot wait for the process in the background")?;
            let error = anyhow::anyhow!(
                "the process that was to hold the topology ended ({status}); see {}",
                log.display()
            );
            Err(Coded { code: exit::FAILED, error })
        }
    }
}
