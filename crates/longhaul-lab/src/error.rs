//! The errors of the laboratory.

use std::fmt;
use std::io;
use std::path::PathBuf;

use longhaul_core::plan::MatrixFault;
use longhaul_core::units::Bytes;

use crate::network::NetworkError;

/// An error of the laboratory.
///
/// The failure of a tool is not an error but a run with that outcome.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A plan is not valid TOML, or has fields that are unknown or of the wrong type.
    #[error("{place}: {message}")]
    PlanSyntax {
        /// The place of the error.
        place: Place,
        /// The parser's message, in one line.
        message: String,
    },
    /// A plan is invalid.
    #[error("{place}: {fault}")]
    PlanFault {
        /// The place of the error.
        place: Place,
        /// The fault of the plan.
        fault: MatrixFault,
    },
    /// A plan names an unknown tool.
    #[error("{place}: unknown tool '{tool}'; known tools: {known}")]
    UnknownTool {
        /// The place of the name.
        place: Place,
        /// The requested tool.
        tool: String,
        /// The names of the drivers.
        known: String,
    },
    /// A plan assigns a workload to a tool that does not support it.
    #[error("{place}: {tool} does not support the workload '{workload}'")]
    WrongWorkload {
        /// The place of the workload.
        place: Place,
        /// The name of the driver.
        tool: String,
        /// The kind of work.
        workload: &'static str,
    },
    /// A plan gives several files to a tool that copies only one.
    #[error("{place}: {tool} copies only single files, and '{workload}' has several")]
    NoTrees {
        /// The place of the workload.
        place: Place,
        /// The name of the driver.
        tool: String,
        /// The name of the workload.
        workload: String,
    },
    /// A plan has a setting that the tool does not support.
    #[error("{place}: {tool} has no option for {setting}")]
    NoSetting {
        /// The place of the setting.
        place: Place,
        /// The name of the driver.
        tool: String,
        /// The requested setting.
        setting: &'static str,
    },
    /// A plan uses a tool over a real path, but the tool's server needs files besides its command.
    #[error(
        "{place}: {tool} cannot run over a real path because its server needs configuration files"
    )]
    NotReal {
        /// The place of the tool.
        place: Place,
        /// The name of the driver.
        tool: String,
    },
    /// A matrix cannot be resumed with other versions of the programs that started it.
    #[error(
        "{} was measured with a different version of {program}; to mix versions \
         anyway, add --mix",
        path.display()
    )]
    OtherProgram {
        /// The directory of the archive.
        path: PathBuf,
        /// The name of the program.
        program: String,
    },
    /// A selection matches no entry.
    #[error("the plan has no entry '{wanted}'; its entries: {known}")]
    UnknownEntry {
        /// The requested entry.
        wanted: String,
        /// The names of the entries.
        known: String,
    },
    /// An operation on a file or directory failed.
    #[error("cannot {operation} {}", path.display())]
    File {
        /// The operation, as a verb.
        operation: &'static str,
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The data to copy are neither a file nor a directory.
    #[error("{} is neither a file nor a directory; only those can be copied", path.display())]
    NotCopyable {
        /// The given path.
        path: PathBuf,
    },
    /// The data to copy are empty.
    #[error("{} is empty; nothing to copy", path.display())]
    EmptyData {
        /// The given path.
        path: PathBuf,
    },
    /// The disk is too small for the experiment.
    #[error(
        "the disk of {} has {free} free, but {needed} are needed; free some space, choose a smaller --size, \
         or another disk with --scratch",
        path.display()
    )]
    NoRoom {
        /// A directory on the disk.
        path: PathBuf,
        /// The bytes that an unprivileged user may still write.
        free: Bytes,
        /// The bytes that the experiment writes.
        needed: Bytes,
    },
    /// The disk at the far end of a real path is too small for the experiment.
    #[error(
        "the disk of {directory} at {host} has {free} free, but {needed} are needed; free space \
         there, choose a smaller --size, or another directory in the plan's [real]"
    )]
    NoFarRoom {
        /// The ssh name of the host.
        host: String,
        /// The directory that receives the copies.
        directory: String,
        /// The bytes that an unprivileged user may still write.
        free: Bytes,
        /// The bytes that the experiment writes.
        needed: Bytes,
    },
    /// No path could be opened.
    #[error("cannot open a network path")]
    Network {
        /// The network's error.
        source: NetworkError,
    },
    /// An operation on the archive's database failed.
    #[error("cannot {operation} the archive {}", path.display())]
    Archive {
        /// The operation, as a verb.
        operation: &'static str,
        /// The database file.
        path: PathBuf,
        /// SQLite's error.
        source: rusqlite::Error,
    },
    /// A document inside the archive could not be parsed.
    #[error("the archive {} holds a {what} that this version cannot read", path.display())]
    ArchiveDocument {
        /// The database file.
        path: PathBuf,
        /// The kind of document.
        what: &'static str,
        /// The parser's error.
        source: serde_json::Error,
    },
    /// The contents of the archive differ from the written ones.
    #[error(
        "the archive {} is damaged ({reason}) and was not changed; restore it from a copy, or \
         choose another directory with --out (the documents in runs/ beside it are separate \
         files)",
        path.display()
    )]
    ArchiveDamaged {
        /// The database file.
        path: PathBuf,
        /// The kind of damage.
        reason: String,
    },
    /// A file with the archive's name is not an archive.
    #[error("{} is not an archive of longhaul matrix and was not changed", path.display())]
    NotAnArchive {
        /// The file.
        path: PathBuf,
    },
    /// A later version wrote the archive.
    #[error(
        "the archive {} has schema {found}, but this longhaul reads schemas up to {known}; use a newer longhaul",
        path.display()
    )]
    ArchiveVersion {
        /// The database file.
        path: PathBuf,
        /// Its `user_version`.
        found: i64,
        /// The latest schema that this version reads.
        known: i64,
    },
    /// A directory has no archive.
    #[error("{} contains no archive ({})", path.display(), crate::archive::FILE_NAME)]
    NoArchive {
        /// The directory.
        path: PathBuf,
    },
    /// The directory for results is not empty.
    #[error("{} is not empty", path.display())]
    NotEmpty {
        /// The directory.
        path: PathBuf,
    },
    /// An interrupted matrix cannot be resumed with another plan.
    #[error(
        "{} was measured with plan {archived}, not with this plan {given}",
        path.display()
    )]
    OtherPlan {
        /// The directory.
        path: PathBuf,
        /// The fingerprint of the archived plan.
        archived: String,
        /// The fingerprint of the given plan.
        given: String,
    },
    /// A driver got work that it does not support.
    #[error("{tool} does not support this workload")]
    Task {
        /// The name of the driver.
        tool: &'static str,
    },
    /// A tool that copies only single files got a directory.
    #[error("{tool} copies only single files; omit it, or use a file as the data")]
    SingleFile {
        /// The name of the driver.
        tool: &'static str,
    },
    /// A helper program that a driver needs failed.
    #[error("{program} failed: {reason}")]
    Helper {
        /// The name of the program.
        program: &'static str,
        /// The last line of its output.
        reason: String,
    },
}

impl LabError {
    pub(crate) fn damaged(path: impl Into<PathBuf>, reason: impl Into<String>) -> Self {
        LabError::ArchiveDamaged { path: path.into(), reason: reason.into() }
    }

    pub(crate) fn file(
        operation: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> LabError {
        let path = path.into();
        move |source| LabError::File { operation, path, source }
    }
}

/// A position in a plan's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file, or a name for another origin of the plan.
    pub file: String,
    /// Line and column, from 1; `None` if the value is not from a text.
    pub line_column: Option<(usize, usize)>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line_column {
            Some((line, column)) => write!(f, "{}:{line}:{column}", self.file),
            None => f.write_str(&self.file),
        }
    }
}
