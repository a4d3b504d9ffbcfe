//! Exit codes, the same for every command; `longhaul wan run` alone passes on its command's own.

use longhaul_core::wire::RefusalKind;
use longhaul_engine::EngineError;

/// The work was done.
pub const OK: u8 = 0;
/// The work failed in a way that no other code names.
pub const FAILED: u8 = 1;
/// The arguments or the plan make no sense; nothing was started.
pub const USAGE: u8 = 2;
/// The other side could not be reached, or the connection was lost.
pub const UNREACHABLE: u8 = 3;
/// The other side refused: key, limit or service.
pub const REFUSED: u8 = 4;
/// A file or disk at either end.
pub const FILES: u8 = 5;
/// This host lacks a permission, a device or a program.
pub const HOST: u8 = 6;
/// The work was done in part: some files, runs or parts of a measurement failed, and the output says which.
pub const PARTIAL: u8 = 7;
/// `wan selftest`: a check failed; the certificate says which.
pub const UNPROVEN: u8 = 8;
/// `doctor`: something keeps the host from the target; the findings say what.
pub const UNFIT: u8 = 9;
/// The work was done and its result could not be written to standard output.
pub const OUTPUT: u8 = 10;
/// `wan run` itself failed, or a process that holds a site was killed; not its command (the
/// convention of `env` and `timeout`).
pub const WAN: u8 = 125;
/// `wan run`: the command could not be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// `wan run`: the command was not found.
pub const NOT_FOUND: u8 = 127;
/// Added to a signal's number when a signal ended the work: 130 for Ctrl-C.
pub const SIGNAL_BASE: u8 = 128;

/// An error with the exit code that it stands for.
#[derive(Debug)]
pub struct Coded {
    /// One of the codes above.
    pub code: u8,
    /// What went wrong; printed with its chain of causes.
    pub error: anyhow::Error,
}

impl Coded {
    /// `error`, ending the program with `code`.
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
            EngineError::Address(_) => USAGE,
            EngineError::Resolve { .. }
            | EngineError::Connect { .. }
            | EngineError::DataConnect { .. }
            | EngineError::DataMissing { .. }
            | EngineError::Handshake { .. }
            | EngineError::TurnedAway { .. }
            | EngineError::Control { .. }
            | EngineError::Protocol { .. }
            | EngineError::Failed { .. }
            | EngineError::Stalled { .. }
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
