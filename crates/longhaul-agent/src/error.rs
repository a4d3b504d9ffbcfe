//! The errors of an agent, and the notices for its log.

use std::io;
use std::path::PathBuf;

use longhaul_fleet::protocol::RefusalCode;

/// An error of an agent.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// A file operation failed.
    #[error("cannot {operation} {}", .path.display())]
    File {
        /// The operation, such as `read`.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file that other users can change or read.
    #[error("{} is not private: it has mode {mode:o} and owner {owner}", .path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// The permissions.
        mode: u32,
        /// The user id of the owner.
        owner: u32,
    },
    /// Another agent uses the directory.
    #[error("another agent uses {}", .0.display())]
    InUse(PathBuf),
    /// The agent has not enrolled, and has no token.
    #[error("{} has no enrollment, and there is no token", .0.display())]
    NotEnrolled(PathBuf),
    /// The directory belongs to an agent of another hub.
    #[error("{} belongs to an agent of the hub {hub}", .path.display())]
    OtherHub {
        /// The directory.
        path: PathBuf,
        /// The hub of the enrollment.
        hub: String,
    },
    /// A file of the directory is not in its format.
    #[error("{} is damaged: {message}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The reason.
        message: String,
    },
    /// The key of the agent cannot be used.
    #[error("the key of the agent cannot be used")]
    Key(#[source] longhaul_engine::EngineError),
    /// The journal failed.
    #[error("the journal failed")]
    Journal(#[source] rusqlite::Error),
    /// The journal has the schema of a newer version.
    #[error("the journal has schema {found}, and this version knows {known}")]
    NewerJournal {
        /// The schema of the journal.
        found: i64,
        /// The schema of this version.
        known: i64,
    },
    /// The hub cannot be reached.
    #[error("no answer from the hub {hub}")]
    Unreachable {
        /// The hub.
        hub: String,
        /// The cause.
        source: ureq::Error,
    },
    /// The certificate of the hub is not the pinned one, or is not verified.
    #[error("the certificate of the hub {hub} is not accepted")]
    Certificate {
        /// The hub.
        hub: String,
        /// True if a pin was expected, and not a chain of certificates.
        by_pin: bool,
        /// The cause.
        source: rustls::Error,
    },
    /// The hub refused a request.
    #[error("the hub {hub} refused the request: {message}")]
    Refused {
        /// The hub.
        hub: String,
        /// The reason.
        code: RefusalCode,
        /// The hub's sentence, escaped.
        message: String,
        /// The highest counter that the hub accepted.
        counter: Option<u64>,
    },
    /// The hub's answer is not a message of the protocol.
    #[error("the answer of the hub {hub} is invalid: {message}")]
    Answer {
        /// The hub.
        hub: String,
        /// The reason.
        message: String,
    },
}

/// The result of an operation of the agent.
pub(crate) type Result<T> = std::result::Result<T, AgentError>;

impl AgentError {
    /// Returns a function that adds the operation and the path to an I/O error.
    pub(crate) fn file(
        operation: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| AgentError::File { operation, path, source }
    }

    /// Returns whether the hub will never accept this agent again.
    pub fn is_final(&self) -> bool {
        let AgentError::Refused { code, .. } = self else { return false };
        matches!(code, RefusalCode::Revoked | RefusalCode::UnknownAgent)
    }

    /// Returns whether the file of the journal is damaged.
    pub fn is_damaged_journal(&self) -> bool {
        use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
        let AgentError::Journal(error) = self else { return false };
        matches!(error.sqlite_error_code(), Some(DatabaseCorrupt | NotADatabase))
    }

    /// Returns whether the cause is a full disk.
    pub(crate) fn is_full_disk(&self) -> bool {
        match self {
            AgentError::Journal(rusqlite::Error::SqliteFailure(error, _)) => {
                error.code == rusqlite::ErrorCode::DiskFull
            }
            AgentError::File { source, .. } => source.kind() == io::ErrorKind::StorageFull,
            _ => false,
        }
    }
}

impl From<rusqlite::Error> for AgentError {
    fn from(error: rusqlite::Error) -> Self {
        AgentError::Journal(error)
    }
}

/// A notice. The program words it.
#[derive(Debug)]
pub enum Notice<'a> {
    /// The agent has enrolled.
    Enrolled {
        /// The name of the host in the mesh.
        host: &'a str,
        /// The agent's id.
        agent: &'a str,
    },
    /// The agent runs.
    Started {
        /// The name of the host in the mesh.
        host: &'a str,
        /// The hub.
        hub: &'a str,
    },
    /// The hub answers, after a time without an answer.
    HubBack,
    /// The hub does not answer. Reported once, until it answers again.
    HubAway(&'a AgentError),
    /// A run has started.
    RunStarted {
        /// The id of the run.
        run: &'a str,
        /// The name of the test.
        test: &'a str,
    },
    /// A run is over.
    RunOver {
        /// The id of the run.
        run: &'a str,
        /// The reason, if it has no result.
        reason: Option<&'static str>,
    },
    /// The disk is full; no runs start until there is space.
    DiskFull,
    /// A part of the agent failed; the others continue.
    PartFailed {
        /// The part, such as `STAMP reflector`.
        part: &'static str,
        /// The error.
        message: String,
    },
}
