use std::fmt;
use std::io;
use std::path::PathBuf;

use longhaul_core::plan::MatrixFault;
use longhaul_core::units::Bytes;

use crate::network::NetworkError;

/// Why the laboratory could not do its work.
///
/// A tool that fails is not an error here: it is a run with that outcome.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A plan is not TOML, or not a plan's TOML.
    #[error("{place}: {message}")]
    PlanSyntax {
        /// Where.
        place: Place,
        /// The parser's one line.
        message: String,
    },
    /// A plan makes no sense.
    #[error("{place}: {fault}")]
    PlanFault {
        /// Where.
        place: Place,
        /// What.
        fault: MatrixFault,
    },
    /// A plan names a tool that no driver knows.
    #[error("{place}: there is no driver for the tool '{tool}'; there are: {known}")]
    UnknownTool {
        /// Where.
        place: Place,
        /// What was asked for.
        tool: String,
        /// The drivers' names.
        known: String,
    },
    /// A plan gives a tool work that it does not do.
    #[error("{place}: {tool} does not do the workload '{workload}'")]
    WrongWorkload {
        /// Where.
        place: Place,
        /// The driver.
        tool: String,
        /// The work.
        workload: &'static str,
    },
    /// A plan gives several files to a tool that is driven with one.
    #[error("{place}: {tool} is only driven with single files, and '{workload}' has several")]
    NoTrees {
        /// Where.
        place: Place,
        /// The driver.
        tool: String,
        /// The workload.
        workload: String,
    },
    /// A plan asks a tool for something that it has no option for.
    #[error("{place}: {tool} has no option for {setting}")]
    NoSetting {
        /// Where.
        place: Place,
        /// The driver.
        tool: String,
        /// What was asked for.
        setting: &'static str,
    },
    /// A plan sends a tool over a real path whose server cannot be started by ssh alone.
    #[error("{place}: {tool} cannot be driven over a real path; its server needs files of its own")]
    NotReal {
        /// Where.
        place: Place,
        /// The driver.
        tool: String,
    },
    /// A matrix cannot be continued with other programs than it was begun with.
    #[error(
        "{} was measured with another {program} than the one that is here now; to mix them \
         nevertheless, add --mix",
        path.display()
    )]
    OtherProgram {
        /// The directory.
        path: PathBuf,
        /// Which.
        program: String,
    },
    /// A selection leaves no entry.
    #[error("the plan has no entry called '{wanted}'; it has: {known}")]
    UnknownEntry {
        /// What was asked for.
        wanted: String,
        /// The entries' names.
        known: String,
    },
    /// A file or directory.
    #[error("cannot {operation} {}", path.display())]
    File {
        /// The verb.
        operation: &'static str,
        /// The object.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Something that is neither file nor directory was given as data.
    #[error("{} is neither a file nor a directory; only those can be copied", path.display())]
    NotCopyable {
        /// What was given.
        path: PathBuf,
    },
    /// There is nothing in the data.
    #[error("{} holds no bytes; there is nothing to measure", path.display())]
    EmptyData {
        /// What was given.
        path: PathBuf,
    },
    /// The disk is too small for the experiment.
    #[error(
        "the disk of {} has {free} free and this needs {needed}; make room, choose a smaller --size, \
         or another disk with --scratch",
        path.display()
    )]
    NoRoom {
        /// A directory on the disk.
        path: PathBuf,
        /// Bytes that an ordinary user may still write.
        free: Bytes,
        /// Bytes that the experiment writes.
        needed: Bytes,
    },
    /// The disk at the far end of a real path is too small for the experiment.
    #[error(
        "the disk of {directory} at {host} has {free} free and this needs {needed}; make room \
         there, choose a smaller --size, or another directory in the plan's [real]"
    )]
    NoFarRoom {
        /// Its ssh name.
        host: String,
        /// Below which copies go.
        directory: String,
        /// Bytes that an ordinary user may still write.
        free: Bytes,
        /// Bytes that the experiment writes.
        needed: Bytes,
    },
    /// No path could be opened, so nothing can be run.
    #[error("cannot open a network path")]
    Network {
        /// The network's reason.
        source: NetworkError,
    },
    /// The archive's database.
    #[error("cannot {operation} the archive {}", path.display())]
    Archive {
        /// The verb.
        operation: &'static str,
        /// The database file.
        path: PathBuf,
        /// SQLite's reason.
        source: rusqlite::Error,
    },
    /// A document inside the archive.
    #[error("the archive {} holds a {what} that this version cannot read", path.display())]
    ArchiveDocument {
        /// The database file.
        path: PathBuf,
        /// Which document.
        what: &'static str,
        /// The reader's reason.
        source: serde_json::Error,
    },
    /// The archive's file is not what was written.
    #[error(
        "the archive {} is damaged ({reason}) and was left as it is; restore it from a copy, or \
         measure into another directory with --out (the documents in runs/ beside it are whole files \
         of their own)",
        path.display()
    )]
    ArchiveDamaged {
        /// The database file.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
    /// There is a file of an archive's name that is none.
    #[error("{} is not an archive of longhaul matrix, and was left as it is", path.display())]
    NotAnArchive {
        /// The file.
        path: PathBuf,
    },
    /// The archive was written by a later version.
    #[error(
        "the archive {} has schema {found} and this longhaul reads up to {known}; use a newer one",
        path.display()
    )]
    ArchiveVersion {
        /// The database file.
        path: PathBuf,
        /// Its `user_version`.
        found: i64,
        /// The latest that is known.
        known: i64,
    },
    /// There is no archive where one was expected.
    #[error("{} holds no archive ({})", path.display(), crate::archive::FILE_NAME)]
    NoArchive {
        /// The directory.
        path: PathBuf,
    },
    /// The directory for results is in use.
    #[error(
        "{} is not empty; continue it with --resume or name another with --out",
        path.display()
    )]
    NotEmpty {
        /// The directory.
        path: PathBuf,
    },
    /// An interrupted matrix cannot be continued with another plan.
    #[error(
        "{} was measured with the plan {archived} and this is the plan {given}; give the same plan \
         and options (or none, to take the archive's), or name another directory with --out",
        path.display()
    )]
    OtherPlan {
        /// The directory.
        path: PathBuf,
        /// The archived plan's fingerprint.
        archived: String,
        /// The given plan's fingerprint.
        given: String,
    },
    /// A driver was given work that it does not do.
    #[error("{tool} was given work that it does not do")]
    Task {
        /// The driver.
        tool: &'static str,
    },
    /// A tool that is driven with single files was given a directory.
    #[error("{tool} is only driven with single files; leave it out, or name a file as the data")]
    SingleFile {
        /// The driver.
        tool: &'static str,
    },
    /// A helper program that a driver needs failed.
    #[error("{program} failed: {reason}")]
    Helper {
        /// The program.
        program: &'static str,
        /// Its last line.
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

/// Where in a plan's text something is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file, or what stands for it.
    pub file: String,
    /// Line and column, from 1; `None` when the value came from elsewhere.
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
