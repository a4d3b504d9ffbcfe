use std::path::{Path, PathBuf};
use std::process::Command;

use longhaul_core::plan::Workload;
use longhaul_core::result::{Guarantees, ToolOutput};
use longhaul_core::units::{Bytes, Rate};

use super::{Detected, detect};
use crate::LabError;

/// One tool.
pub trait Driver {
    /// The name by which plans ask for it.
    fn name(&self) -> &'static str;

    /// The work it does: [`Workload::Memory`], or [`Workload::Disk`] for a tool that copies files,
    /// wherever they are.
    fn workload(&self) -> Workload;

    /// Whether it does this kind of work.
    fn does(&self, workload: Workload) -> bool {
        match self.workload() {
            Workload::Memory => workload == Workload::Memory,
            _ => workload.copies(),
        }
    }

    /// Whether it copies directories, too.
    fn trees(&self) -> bool {
        true
    }

    /// Whether several clients may be at its server at once.
    fn many_clients(&self) -> bool {
        false
    }

    /// The arguments that ask for so many parallel streams; `None` where it has no such option.
    fn streams(&self, _count: u32) -> Option<Vec<String>> {
        None
    }

    /// The arguments that ask for a window of this size; `None` where it has no such option.
    fn window(&self, _size: Bytes) -> Option<Vec<String>> {
        None
    }

    /// Whether it works over a real path: it copies over the user's own ssh, or its server needs
    /// nothing but its command.
    fn goes_far(&self) -> bool {
        false
    }

    /// What holds it back whatever the path, for guesses of time.
    fn pace(&self) -> Pace {
        Pace::default()
    }

    /// What its transfer promises with these options.
    fn guarantees(&self, options: &[String]) -> Guarantees;

    /// Whether the tool, and all that it needs, is on this host.
    fn detect(&self) -> Detected;

    /// The same for a real path, whose server's programs are needed at the far end alone.
    fn detect_near(&self) -> Detected {
        self.detect()
    }

    /// The file of its program; by default the one on PATH that its name begins with.
    fn program(&self) -> Option<PathBuf> {
        detect::find(self.name().split(' ').next()?)
    }

    /// The server that must listen at the far end before the client starts; `None` for a tool
    /// that needs none, as what runs over ssh to a far end that has its own sshd.
    ///
    /// # Errors
    /// What the server needs, such as a key, could not be made.
    fn server(&self, job: &Job<'_>) -> Result<Option<Server>, LabError>;

    /// The command at the near end; its wall-clock time is the time of the run.
    ///
    /// # Errors
    /// What the client needs could not be made.
    fn client(&self, job: &Job<'_>) -> Result<Command, LabError>;

    /// Reads what client and server printed, when the client ended well. A copy is timed by the
    /// runner, so that a copying tool that states no rate has nothing to read.
    ///
    /// # Errors
    /// One line: why there is no figure in the output.
    fn read(&self, _job: &Job<'_>, _said: Said<'_>) -> Result<Reading, String> {
        Ok(Reading::default())
    }

    /// Why the client failed, from what it printed.
    fn failure(&self, output: &ToolOutput) -> Option<String> {
        output.last_line().map(str::to_owned)
    }
}

/// What holds a tool back on a long path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pace {
    /// The most that it has under way, by its own protocol; `None` is no limit.
    pub window: Option<Bytes>,
    /// Round trips that each file costs.
    pub trips_per_file: u32,
}

impl Pace {
    /// OpenSSH's: a channel has at most 2 MiB under way (`CHAN_SES_WINDOW_DEFAULT` in its
    /// channels.h).
    pub const SSH: Pace = Pace { window: Some(Bytes::mib(2)), trips_per_file: 0 };
}

/// What a driver is asked to build commands for.
#[derive(Debug)]
pub struct Job<'a> {
    /// The near end's name, as the far end resolves it.
    pub near: &'a str,
    /// The far end's name, as the near end resolves it.
    pub far: &'a str,
    /// The far end by its ssh name (`user@host`) on a real path, where the user's own ssh and the
    /// sshd that is there are used; `None` where the driver has to bring an sshd.
    pub ssh: Option<&'a str>,
    /// The plan's options, with those for streams and window.
    pub options: &'a [String],
    /// The work.
    pub task: Task<'a>,
    /// A directory for keys and configuration, readable by this user only, gone after the run.
    pub private: &'a Path,
}

/// The work of a job.
#[derive(Debug, Clone, Copy)]
pub enum Task<'a> {
    /// Memory to memory.
    Memory(MemoryTask),
    /// Disk to disk.
    Disk(DiskTask<'a>),
}

/// Memory to memory, for a time.
#[derive(Debug, Clone, Copy)]
pub struct MemoryTask {
    /// Seconds that count.
    pub seconds: u32,
    /// Seconds before them that do not.
    pub omit_seconds: u32,
}

/// Copy `source` so that it becomes `destination`. Both are absolute, and the destination's
/// directory exists and is empty.
#[derive(Debug, Clone, Copy)]
pub struct DiskTask<'a> {
    /// What is copied, at the near end.
    pub source: &'a Path,
    /// Whether it is a directory.
    pub tree: bool,
    /// What it becomes, at the far end.
    pub destination: &'a Path,
}

impl<'a> Job<'a> {
    /// The work of a job that must be memory to memory.
    ///
    /// # Errors
    /// It is not; a checked plan does not lead here.
    pub fn memory(&self, tool: &'static str) -> Result<MemoryTask, LabError> {
        match self.task {
            Task::Memory(task) => Ok(task),
            Task::Disk(_) => Err(LabError::Task { tool }),
        }
    }

    /// The work of a job that must be disk to disk.
    ///
    /// # Errors
    /// It is not; a checked plan does not lead here.
    pub fn disk(&self, tool: &'static str) -> Result<DiskTask<'a>, LabError> {
        match self.task {
            Task::Disk(task) => Ok(task),
            Task::Memory(_) => Err(LabError::Task { tool }),
        }
    }

    /// As [`Job::disk`], for a tool that is driven with single files.
    ///
    /// # Errors
    /// The source is a directory, too.
    pub fn single_file(&self, tool: &'static str) -> Result<DiskTask<'a>, LabError> {
        match self.disk(tool)? {
            task if task.tree => Err(LabError::SingleFile { tool }),
            task => Ok(task),
        }
    }
}

/// A far server.
#[derive(Debug)]
pub struct Server {
    /// Its command, which stays in the foreground.
    pub command: Command,
    /// The TCP port on which it listens once it is ready.
    pub port: u16,
    /// An empty directory that had to be made outside of the job's own, to be removed again.
    pub made: Option<PathBuf>,
}

impl Server {
    /// A server that made nothing.
    pub fn new(command: Command, port: u16) -> Self {
        Server { command, port, made: None }
    }
}

/// What the two ends of a run printed.
#[derive(Debug, Clone, Copy)]
pub struct Said<'a> {
    /// The client at the near end.
    pub client: &'a ToolOutput,
    /// The server at the far end, if there was one; it was ended after the client.
    pub server: Option<&'a ToolOutput>,
}

/// What a tool says it did.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Reading {
    /// The rate it states. The figure of a memory run; for a disk run only kept beside it.
    pub throughput: Option<Rate>,
    /// The bytes it states.
    pub bytes: Option<Bytes>,
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn job<'a>(task: Task<'a>) -> Job<'a> {
        let private = Path::new("/private");
        Job { near: "near", far: "far", ssh: None, options: &[], task, private }
    }

    /// Calls `then` with a memory job of two seconds after one omitted.
    pub(in crate::drivers) fn memory_job<T>(then: impl FnOnce(&Job<'_>) -> T) -> T {
        then(&job(Task::Memory(MemoryTask { seconds: 2, omit_seconds: 1 })))
    }

    /// Calls `then` with a job that copies `/data/a b` to `/scratch/copy` with `options`.
    pub(in crate::drivers) fn disk_job<T>(
        options: &[String],
        then: impl FnOnce(&Job<'_>) -> T,
    ) -> T {
        let task = Task::Disk(DiskTask {
            source: Path::new("/data/a b"),
            tree: false,
            destination: Path::new("/scratch/copy"),
        });
        then(&Job { options, ..job(task) })
    }

    /// The same over a real path to `me@dtn`.
    pub(in crate::drivers) fn real_job<T>(tree: bool, then: impl FnOnce(&Job<'_>) -> T) -> T {
        let task = Task::Disk(DiskTask {
            source: Path::new("/data/a b"),
            tree,
            destination: Path::new("/home/me/m/copy"),
        });
        then(&Job { ssh: Some("me@dtn"), ..job(task) })
    }
}
