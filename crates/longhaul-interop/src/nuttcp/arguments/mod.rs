//! The command line of nuttcp, whose options are followed by their values without a space.

mod options;
mod values;

use super::{Parameters, Version};

/// The control port of a server.
pub const CONTROL_PORT: u16 = 5000;
/// The bytes of a datagram, unless the segment size of the path is smaller.
const DATAGRAM_BYTES: u32 = 8192;
/// The default rate over UDP, in kbit/s.
const DATAGRAM_RATE_KBPS: u64 = 1000;
/// The time of a test without `-T` and `-n`, in seconds.
const DEFAULT_SECONDS: f64 = 10.0;

/// A parsed command line.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// `-h`, or no host.
    Usage,
    /// `-V`.
    Version,
    /// `-S` or `-1`.
    Server(ServerArguments),
    /// A test with a server.
    Client(Box<ClientArguments>),
}

/// The arguments of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerArguments {
    /// The control port.
    pub port: u16,
    /// True to end after one client (`-1`).
    pub once: bool,
    /// The IP version, 4 or 6; `None` is both.
    pub family: Option<u8>,
    /// Options that have no effect here, as the user wrote them.
    pub ignored: Vec<String>,
}

/// The arguments of a client.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientArguments {
    /// The host of the server.
    pub host: String,
    /// The control port of the server.
    pub control_port: u16,
    /// The parameters of the test.
    pub parameters: Parameters,
    /// True if the length of a datagram may shrink to the segment size of the path.
    pub fit_datagram: bool,
    /// The socket buffer of this end; 0 leaves it to the kernel.
    pub window_bytes: u32,
    /// The IP version, 4 or 6; `None` is any.
    pub family: Option<u8>,
    /// The output.
    pub output: Output,
    /// The identifier of `-I`.
    pub ident: String,
    /// Options that have no effect here, as the user wrote them.
    pub ignored: Vec<String>,
}

/// The lines that a client prints at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Output {
    /// True for the last line (`-b`).
    pub brief: bool,
    /// True for the lines about both ends (`-v`).
    pub blocks: bool,
    /// True to add the CPU seconds (`-vv`).
    pub cpu_seconds: bool,
}

/// A fault of a command line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentError {
    /// nuttcp has no such option.
    #[error("unknown option {0}")]
    Unknown(String),
    /// The option has no value.
    #[error("option {0} needs a value")]
    Missing(String),
    /// The value is invalid.
    #[error("invalid value {value:?} of option {option}")]
    Invalid {
        /// The option.
        option: String,
        /// The value.
        value: String,
    },
    /// nuttcp has the option, but this program does not.
    #[error("option {0} is not available")]
    Unavailable(String),
    /// The options contradict each other.
    #[error("option {0} cannot be used with {1}")]
    Conflict(&'static str, &'static str),
}

/// Parses the words of a command line, without the name of the program.
///
/// # Errors
/// An option is unknown, invalid or unavailable.
pub fn parse(words: &[String]) -> Result<Command, ArgumentError> {
    let mut state = options::State::default();
    let mut rest = words;
    while let Some((word, after)) = rest.split_first().filter(|(word, _)| word.starts_with('-')) {
        let taken = state.option(word, after)?;
        rest = &after[usize::from(taken)..];
    }
    state.finish(rest)
}

/// Returns the text of `-V`.
#[must_use]
pub fn version_text(program: &str) -> String {
    format!("nuttcp-{} ({program})\n", Version::OURS)
}
