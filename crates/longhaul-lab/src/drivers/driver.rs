//! The trait that every tool driver implements, and the jobs that drivers receive.

use std::path::{Path, PathBuf};
use std::process::Command;

use longhaul_core::plan::Workload;
use longhaul_core::result::{Guarantees, ToolOutput};
use longhaul_core::units::{Bytes, Rate};

use super::{Detected, detect};
use crate::LabError;

/// The driver of one tool.
pub trait Driver {
    /// Returns the name of the tool in plans.
    fn name(&self) -> &'static str;

    /// Returns the kind of work: [`Workload::Memory`], or [`Workload::Disk`] for a tool that copies
    /// files on disk or in memory.
    fn workload(&self) -> Workload;

    /// Returns whether the tool supports this kind of work.
    fn does(&self, workload: Workload) -> bool {
        match self.workload() {
            Workload::Memory => workload == Workload::Memory,
            _ => workload.copies(),
        }
    }

    /// Returns whether the tool can copy directories.
    fn trees(&self) -> bool {
        true
    }

    /// Returns whether one server of the tool supports several clients at once.
    fn many_clients(&self) -> bool {
        false
    }

    /// Returns the arguments for `_count` parallel streams, or `None` if the tool has no such
    /// option.
    fn streams(&self, _count: u32) -> Option<Vec<String>> {
        None
    }

    /// Returns the arguments for writes of `_size`, or `None` if the tool has no such option.
    fn message(&self, _size: Bytes) -> Option<Vec<String>> {
        None
    }

    /// Returns the arguments for a window of `_size`, or `None` if the tool has no such option.
    fn window(&self, _size: Bytes) -> Option<Vec<String>> {
        None
    }

    /// Returns whether the tool works over a real path: either it copies over the user's own ssh,
    /// or its server is a single command that needs no files.
    fn goes_far(&self) -> bool {
        false
    }

    /// Returns the limits of the tool's protocol, used to estimate the duration of runs.
    fn pace(&self) -> Pace {
        Pace::default()
    }

    /// Returns the guarantees of a transfer with `options`.
    fn guarantees(&self, options: &[String]) -> Guarantees;

    /// Looks for the tool and all programs that it needs on this host.
    fn detect(&self) -> Detected;

    /// Looks on this host for the programs that a real path needs here; its server programs are
    /// needed only at the far end. See [`Driver::detect`].
    fn detect_near(&self) -> Detected {
        self.detect()
    }

    /// Returns the reason why this driver has never run with the real tool; `None` if it has.
    fn untried(&self) -> Option<&'static str> {
        None
    }

    /// Returns the path of the program; by default the program on PATH named by the first word of
    /// the tool's name.
    fn program(&self) -> Option<PathBuf> {
        detect::find(self.name().split(' ').next()?)
    }

    /// Returns the server that must listen at the far end before the client starts. `None` means
    /// that the tool needs no server, for example over ssh to a far end with an sshd.
    ///
    /// # Errors
    /// A file that the server needs, such as a key, could not be created.
    fn server(&self, job: &Job<'_>) -> Result<Option<ServerCommand>, LabError>;

    /// Returns the command at the near end. Its wall-clock time is the time of the run.
    ///
    /// # Errors
    /// A file that the client needs could not be created.
    fn client(&self, job: &Job<'_>) -> Result<Command, LabError>;

    /// Reads the figures from the output of client and server after the client succeeded. A tool
    /// that prints no rate keeps the default, because the runner times copies.
    ///
    /// # Errors
    /// One line with the reason why the output has no figure.
    fn read(&self, _job: &Job<'_>, _output: RunOutput<'_>) -> Result<ToolFigures, String> {
        Ok(ToolFigures::default())
    }

    /// Returns the reason for the client's failure, from its output.
    fn failure(&self, output: &ToolOutput) -> Option<String> {
        output.last_line().map(str::to_owned)
    }
}

/// The protocol limits of a tool on a long path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pace {
    /// The maximum number of bytes in flight that the protocol allows; `None` means no limit.
    pub window: Option<Bytes>,
    /// The number of round trips per file.
    pub trips_per_file: u32,
}

impl Pace {
    /// The limits of OpenSSH: a channel has at most 2 MiB in flight (`CHAN_SES_WINDOW_DEFAULT` in
    /// its channels.h).
    pub const SSH: Pace = Pace { window: Some(Bytes::mib(2)), trips_per_file: 0 };
}

/// The job for which a driver builds commands.
#[derive(Debug)]
pub struct Job<'a> {
    /// The near end's name, as the far end resolves it.
    pub near: &'a str,
    /// The far end's name, as the near end resolves it.
    pub far: &'a str,
    /// The far end's ssh name (`user@host`) on a real path, where the user's own ssh and the
    /// existing sshd are used; `None` if the driver has to start an sshd.
    pub ssh: Option<&'a str>,
    /// The plan's options, including those for streams and window.
    pub options: &'a [String],
    /// The work.
    pub task: ToolTask<'a>,
    /// A directory for keys and configuration. Only this user can read it, and it is removed after
    /// the run.
    pub private: &'a Path,
}

/// The work of a job.
#[derive(Debug, Clone, Copy)]
pub enum ToolTask<'a> {
    /// Memory to memory.
    Memory(MemoryTask),
    /// Disk to disk.
    Disk(DiskTask<'a>),
}

/// A memory-to-memory test of a given duration.
#[derive(Debug, Clone, Copy)]
pub struct MemoryTask {
    /// The measured duration in seconds.
    pub seconds: u32,
    /// The seconds before the measurement, which are omitted.
    pub omit_seconds: u32,
}

/// A copy of `source` to `destination`. Both paths are absolute, and the destination's directory
/// exists and is empty.
#[derive(Debug, Clone, Copy)]
pub struct DiskTask<'a> {
    /// The source at the near end.
    pub source: &'a Path,
    /// True if the source is a directory.
    pub tree: bool,
    /// The path of the copy at the far end.
    pub destination: &'a Path,
}

impl<'a> Job<'a> {
    /// Returns the task of a memory-to-memory job.
    ///
    /// # Errors
    /// The job has another task; a checked plan never causes this error.
    pub fn memory(&self, tool: &'static str) -> Result<MemoryTask, LabError> {
        match self.task {
            ToolTask::Memory(task) => Ok(task),
            ToolTask::Disk(_) => Err(LabError::Task { tool }),
        }
    }

    /// Returns the task of a disk-to-disk job.
    ///
    /// # Errors
    /// The job has another task; a checked plan never causes this error.
    pub fn disk(&self, tool: &'static str) -> Result<DiskTask<'a>, LabError> {
        match self.task {
            ToolTask::Disk(task) => Ok(task),
            ToolTask::Memory(_) => Err(LabError::Task { tool }),
        }
    }

    /// Returns the task of a disk-to-disk job for a tool that copies only single files.
    ///
    /// # Errors
    /// As for [`Job::disk`]; also if the source is a directory.
    pub fn single_file(&self, tool: &'static str) -> Result<DiskTask<'a>, LabError> {
        match self.disk(tool)? {
            task if task.tree => Err(LabError::SingleFile { tool }),
            task => Ok(task),
        }
    }
}

/// A server at the far end.
#[derive(Debug)]
pub struct ServerCommand {
    /// The command, which stays in the foreground.
    pub command: Command,
    /// The port on which the ready server listens: of TCP, or of UDP if `udp` is set.
    pub port: u16,
    /// True for a server of UDP.
    pub udp: bool,
    /// A file in the job's private directory that the command creates when the server is ready, for
    /// example after a cache was filled; `None` if a listening server is ready.
    pub ready: Option<PathBuf>,
    /// An empty directory that was created for the server outside the job's private directory and
    /// must be removed.
    pub made: Option<PathBuf>,
}

impl ServerCommand {
    /// Creates a server without an additional directory.
    pub fn new(command: Command, port: u16) -> Self {
        ServerCommand { command, port, udp: false, ready: None, made: None }
    }
}

/// The output of the two ends of a run.
#[derive(Debug, Clone, Copy)]
pub struct RunOutput<'a> {
    /// The output of the client at the near end.
    pub client: &'a ToolOutput,
    /// The output of the server at the far end, if the tool has one. The server was stopped after
    /// the client.
    pub server: Option<&'a ToolOutput>,
}

/// The figures that a tool prints.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ToolFigures {
    /// The rate that the tool prints. It is the figure of a memory run; the figure of a disk run
    /// comes from the wall clock.
    pub throughput: Option<Rate>,
    /// The number of bytes that the tool prints.
    pub bytes: Option<Bytes>,
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn job<'a>(task: ToolTask<'a>) -> Job<'a> {
        let private = Path::new("/private");
        Job { near: "near", far: "far", ssh: None, options: &[], task, private }
    }

    /// Calls `then` with a memory job of two seconds after one omitted second.
    pub(in crate::drivers) fn memory_job<T>(then: impl FnOnce(&Job<'_>) -> T) -> T {
        then(&job(ToolTask::Memory(MemoryTask { seconds: 2, omit_seconds: 1 })))
    }

    /// Calls `then` with a job that copies `/data/a b` to `/scratch/copy` with `options`.
    pub(in crate::drivers) fn disk_job<T>(
        options: &[String],
        then: impl FnOnce(&Job<'_>) -> T,
    ) -> T {
        let task = ToolTask::Disk(DiskTask {
            source: Path::new("/data/a b"),
            tree: false,
            destination: Path::new("/scratch/copy"),
        });
        then(&Job { options, ..job(task) })
    }

    /// Calls `then` with the same job over a real path to `me@dtn`.
    pub(in crate::drivers) fn real_job<T>(tree: bool, then: impl FnOnce(&Job<'_>) -> T) -> T {
        let task = ToolTask::Disk(DiskTask {
            source: Path::new("/data/a b"),
            tree,
            destination: Path::new("/home/me/m/copy"),
        });
        then(&Job { ssh: Some("me@dtn"), ..job(task) })
    }
}
