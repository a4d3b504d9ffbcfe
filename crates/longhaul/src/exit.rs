//! Exit codes, the same for every command. `longhaul wan run` and `wan exec` return the exit code
//! of their command.

use longhaul_agent::AgentError;
use longhaul_core::wire::RefusalKind;
use longhaul_engine::EngineError;
use longhaul_interop::InteropError;
use longhaul_watch::WatchError;

/// Success.
pub const OK: u8 = 0;
/// Any other error.
pub const FAILED: u8 = 1;
/// The arguments or the plan are invalid; nothing was started.
pub const USAGE: u8 = 2;
/// The peer is unreachable, or the connection was lost.
pub const UNREACHABLE: u8 = 3;
/// The peer refused the key or the service, or a limit was reached.
pub const REFUSED: u8 = 4;
/// An error of a file or disk on either host.
pub const FILES: u8 = 5;
/// This host lacks a permission, a device or a program.
pub const HOST: u8 = 6;
/// Partial success: some files, runs or measurements failed, and the output lists them.
pub const PARTIAL: u8 = 7;
/// `wan selftest`: a check failed, as the certificate shows.
pub const UNPROVEN: u8 = 8;
/// `doctor`: the findings include problems.
pub const UNFIT: u8 = 9;
/// Success, but the result could not be written to standard output.
pub const OUTPUT: u8 = 10;
/// `wan run` failed, and not its command, or a process that holds a site was killed (the convention
/// of `env` and `timeout`).
pub const WAN: u8 = 125;
/// `wan run`: the command could not be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// `wan run`: the command was not found.
pub const NOT_FOUND: u8 = 127;
/// The base for signals: 128 plus the number of the signal, such as 130 for Ctrl-C.
pub const SIGNAL_BASE: u8 = 128;

/// Returns the name of an exit code in JSON.
pub(crate) fn kind(code: u8) -> &'static str {
    match code {
        OK => "ok",
        USAGE => "usage",
        UNREACHABLE => "unreachable",
        REFUSED => "refused",
        FILES => "files",
        HOST => "host",
        PARTIAL => "partial",
        UNPROVEN => "unproven",
        UNFIT => "unfit",
        OUTPUT => "output",
        WAN => "wan",
        NOT_EXECUTABLE => "not_executable",
        NOT_FOUND => "not_found",
        SIGNAL_BASE.. => "interrupted",
        _ => "failed",
    }
}

/// An error with its exit code.
#[derive(Debug)]
pub struct Coded {
    /// One of the codes above.
    pub code: u8,
    /// The error, which is printed with its causes.
    pub error: anyhow::Error,
}

impl Coded {
    /// Returns `error` with the exit code `code`.
    pub fn new(code: u8, error: impl Into<anyhow::Error>) -> Self {
        Coded { code, error: error.into() }
    }
}

impl From<anyhow::Error> for Coded {
    fn from(error: anyhow::Error) -> Self {
        Coded { code: FAILED, error }
    }
}

impl From<EngineError> for Coded {
    fn from(error: EngineError) -> Self {
        let code = match &error {
            EngineError::Address(_) | EngineError::OtherFamily { .. } => USAGE,
            EngineError::Resolve { .. }
            | EngineError::Connect { .. }
            | EngineError::DataConnect { .. }
            | EngineError::DataMissing { .. }
            | EngineError::Handshake { .. }
            | EngineError::HandshakeRefusal { .. }
            | EngineError::Control { .. }
            | EngineError::Protocol { .. }
            | EngineError::InvalidEntry { .. }
            | EngineError::Failed { .. }
            | EngineError::Stalled { .. }
            | EngineError::FarProgram { .. }
            | EngineError::Login { .. }
            | EngineError::FarTimeout { .. }
            | EngineError::Data { .. } => UNREACHABLE,
            EngineError::Refused { kind: RefusalKind::Files, .. } => FILES,
            EngineError::Refused { kind: RefusalKind::Unreachable, .. } => UNREACHABLE,
            EngineError::KeyChanged { .. }
            | EngineError::KeyUnknown { .. }
            | EngineError::Lapsed { .. }
            | EngineError::Refused { .. } => REFUSED,
            EngineError::File { .. }
            | EngineError::NoSpace { .. }
            | EngineError::OverQuota { .. } => FILES,
            EngineError::Listen { .. }
            | EngineError::LocalAddress { .. }
            | EngineError::BadKey(_)
            | EngineError::Exposed { .. }
            | EngineError::Locked(_)
            | EngineError::WrongPassphrase(_)
            | EngineError::NoAgentKey { .. }
            | EngineError::NoNextKey(_)
            | EngineError::KeyOption { .. }
            | EngineError::NoConfigDir
            | EngineError::Spawn { .. }
            | EngineError::SocketOption(_)
            | EngineError::NoCpu { .. }
            | EngineError::System { .. } => HOST,
            EngineError::Interrupted => SIGNAL_BASE + 2,
        };
        Coded::new(code, error)
    }
}

impl From<AgentError> for Coded {
    fn from(error: AgentError) -> Self {
        let code = match &error {
            AgentError::NotEnrolled(_) => USAGE,
            AgentError::Unreachable { .. } | AgentError::Answer { .. } => UNREACHABLE,
            AgentError::Certificate { .. } | AgentError::Refused { .. } => REFUSED,
            AgentError::File { .. }
            | AgentError::Exposed { .. }
            | AgentError::InUse(_)
            | AgentError::OtherHub { .. }
            | AgentError::Damaged { .. }
            | AgentError::Key(_)
            | AgentError::Journal(_)
            | AgentError::NewerJournal { .. } => HOST,
        };
        Coded::new(code, error)
    }
}

impl From<InteropError> for Coded {
    fn from(error: InteropError) -> Self {
        let code = match error {
            InteropError::Engine(error) => return error.into(),
            InteropError::Unsupported { .. } => USAGE,
            InteropError::Resolve { .. }
            | InteropError::Connect { .. }
            | InteropError::Closed { .. }
            | InteropError::Silent { .. }
            | InteropError::Protocol { .. }
            | InteropError::Terminated { .. }
            | InteropError::Cut { .. } => UNREACHABLE,
            InteropError::Busy { .. }
            | InteropError::Denied { .. }
            | InteropError::Refused { .. }
            | InteropError::Reported { .. } => REFUSED,
            InteropError::KeyFile { .. }
            | InteropError::UserFile { .. }
            | InteropError::Host { .. } => HOST,
        };
        Coded::new(code, error)
    }
}

impl From<WatchError> for Coded {
    fn from(error: WatchError) -> Self {
        let code = match &error {
            WatchError::NoInterface(_) => USAGE,
            WatchError::Kernel { .. } | WatchError::Listen { .. } => HOST,
            WatchError::File { .. }
            | WatchError::Record { .. }
            | WatchError::RecordInUse(_)
            | WatchError::NoRecord(_)
            | WatchError::NotARecord(_)
            | WatchError::RecordVersion { .. }
            | WatchError::ForeignRecord { .. } => FILES,
        };
        Coded::new(code, error)
    }
}
