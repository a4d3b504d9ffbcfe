//! Tools that few hosts have, driven if they are on PATH.
//!
//! Their commands are similar, so each tool is a row of a table: its programs, its guarantees and
//! its two commands. The commands follow each tool's documentation; the tests use stand-ins that
//! accept the same arguments. A row that has never run with the real tool has the reason in
//! `untried`.

mod client_server;
mod file_access;
mod over_ssh;
mod rdma;
#[cfg(test)]
mod tests;

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use longhaul_core::plan::Workload;
use longhaul_core::result::{Guarantees, ToolOutput};
use longhaul_core::units::Bytes;

use super::{Detected, Driver, Job, Pace, RunOutput, ServerCommand, ToolFigures, detect};
use crate::LabError;

/// Reads a figure from a client's output, or returns the reason for a missing figure.
type ReadFigure = fn(&ToolOutput) -> Result<ToolFigures, String>;

/// A tool of the table.
#[derive(Clone)]
pub(super) struct Tool {
    name: &'static str,
    /// The programs that it needs; the first is its client, and prints its version.
    programs: &'static [&'static str],
    /// The source of the version of the client.
    version: VersionSource,
    workload: Workload,
    trees: bool,
    many_clients: bool,
    guarantees: fn(&[String]) -> Guarantees,
    /// The argument for the number of streams, which follows as a separate word.
    streams: Option<&'static str>,
    /// The argument for a window in bytes, which follows as a separate word.
    window: Option<&'static str>,
    server: fn(&Job<'_>, &Programs) -> Result<Option<ServerCommand>, LabError>,
    client: fn(&Job<'_>, &Programs) -> Result<Command, LabError>,
    /// Reads the figure that the tool prints; `None` if only the wall-clock time counts.
    read: Option<ReadFigure>,
    /// True if the tool works over a real path.
    goes_far: bool,
    /// The reason why the row has never run with the real tool; `None` if it has.
    untried: Option<&'static str>,
    /// The directories to search for programs.
    found_in: Programs,
}

/// The source of the version of a tool.
#[derive(Debug, Clone, Copy)]
enum VersionSource {
    /// The first line that the client prints with this argument.
    Line(&'static str),
    /// The output of the client with an argument, from a text on.
    From(&'static str, &'static str),
    /// The file of the client, from a text on.
    File(&'static str),
}

impl VersionSource {
    fn read(self, program: &Path) -> String {
        match self {
            VersionSource::Line(argument) => detect::version(program, argument),
            VersionSource::From(argument, mark) => detect::version_from(program, argument, mark),
            VersionSource::File(mark) => detect::stored_version(program, mark),
        }
    }
}

/// The directories to search for programs.
#[derive(Debug, Clone, Default)]
pub(super) struct Programs {
    /// The only directory to search, instead of PATH and the system's directories.
    only: Option<PathBuf>,
}

impl Programs {
    fn find(&self, name: &str) -> Option<PathBuf> {
        match &self.only {
            Some(dir) => Some(dir.join(name)).filter(|path| path.is_file()),
            None => match name.strip_prefix(KERNEL) {
                Some(file_system) => in_kernel(file_system),
                None => detect::find(name),
            },
        }
    }

    /// Returns the full path of a program, or its bare name: an attempt to start that name reports
    /// that the program is missing.
    fn get(&self, name: &str) -> PathBuf {
        self.find(name).unwrap_or_else(|| PathBuf::from(name))
    }
}

/// The prefix that marks a kernel file system in a list of programs.
const KERNEL: &str = "the kernel's ";

/// Returns the kernel's list of file systems if the kernel supports this one or can load its
/// module.
fn in_kernel(file_system: &str) -> Option<PathBuf> {
    const KNOWN: &str = "/proc/filesystems";
    let known = std::fs::read_to_string(KNOWN).unwrap_or_default();
    let loadable = || {
        let modprobe = Command::new(detect::find("modprobe")?).args(["-nq", file_system]).status();
        modprobe.ok().filter(|status| status.success())
    };
    let there = known.split_whitespace().any(|word| word == file_system) || loadable().is_some();
    there.then(|| PathBuf::from(KNOWN))
}

/// Returns all rows of the table.
fn tools() -> impl Iterator<Item = &'static Tool> {
    let all = over_ssh::TOOLS.iter().chain(client_server::TOOLS).chain(rdma::TOOLS);
    all.chain(file_access::TOOLS)
}

/// Returns the drivers of all tools of the table.
pub(super) fn all() -> Vec<Box<dyn Driver>> {
    tools().map(|tool| Box::new(tool.clone()) as Box<dyn Driver>).collect()
}

impl Driver for Tool {
    fn name(&self) -> &'static str {
        self.name
    }

    fn workload(&self) -> Workload {
        self.workload
    }

    fn trees(&self) -> bool {
        self.trees
    }

    fn many_clients(&self) -> bool {
        self.many_clients
    }

    fn streams(&self, count: u32) -> Option<Vec<String>> {
        self.streams.map(|option| vec![option.to_owned(), count.to_string()])
    }

    fn window(&self, size: Bytes) -> Option<Vec<String>> {
        self.window.map(|option| vec![option.to_owned(), size.get().to_string()])
    }

    fn pace(&self) -> Pace {
        Pace::default()
    }

    fn guarantees(&self, options: &[String]) -> Guarantees {
        (self.guarantees)(options)
    }

    fn goes_far(&self) -> bool {
        self.goes_far
    }

    fn untried(&self) -> Option<&'static str> {
        self.untried
    }

    fn detect(&self) -> Detected {
        if let Some(program) = self.programs.iter().find(|name| self.found_in.find(name).is_none())
        {
            return Detected::Missing { program };
        }
        let version = self.program().map(|program| self.version.read(&program));
        let version = version.unwrap_or_default();
        // The version of FDT follows the time and the name of a method.
        let version = version.split_once(" printVersion ").map_or(&*version, |(_, last)| last);
        Detected::Installed { version: version.to_owned() }
    }

    fn program(&self) -> Option<PathBuf> {
        self.found_in.find(self.programs.first()?)
    }

    fn server(&self, job: &Job<'_>) -> Result<Option<ServerCommand>, LabError> {
        (self.server)(job, &self.found_in)
    }

    fn client(&self, job: &Job<'_>) -> Result<Command, LabError> {
        (self.client)(job, &self.found_in)
    }

    fn read(&self, _job: &Job<'_>, output: RunOutput<'_>) -> Result<ToolFigures, String> {
        self.read.map_or(Ok(ToolFigures::default()), |read| read(output.client))
    }
}

/// Returns no guarantees.
fn plain(_options: &[String]) -> Guarantees {
    Guarantees::default()
}

/// Returns the guarantees of a tool that authenticates and encrypts packets, but does not compare
/// files.
fn encrypted(_options: &[String]) -> Guarantees {
    Guarantees { encrypted: true, ..Guarantees::default() }
}

/// Returns the directory that contains the path.
fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

fn has(options: &[String], wanted: &str) -> bool {
    options.iter().any(|option| option == wanted)
}

/// Creates a symbolic link in the private directory that points to the source and has the name of
/// the copy. It serves tools that copy a file under its own name into a directory.
fn link_to_source(job: &Job<'_>, tool: &'static str) -> Result<PathBuf, LabError> {
    let task = job.disk(tool)?;
    let dir = job.private.join("source");
    std::fs::create_dir_all(&dir).map_err(LabError::file("create", &dir))?;
    let link = dir.join(task.destination.file_name().unwrap_or_default());
    match std::os::unix::fs::symlink(task.source, &link) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            Err(LabError::file("make the link", &link)(error))
        }
        _ => Ok(link),
    }
}

/// Returns PATH with `first` prepended.
fn path_with(first: &Path) -> std::ffi::OsString {
    let rest = env::var_os("PATH").unwrap_or_default();
    env::join_paths(std::iter::once(first.to_owned()).chain(env::split_paths(&rest)))
        .unwrap_or(rest)
}
