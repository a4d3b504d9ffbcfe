//! The command that produced a result.

use serde::{Deserialize, Serialize};

/// The command, host and time of a result.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Invocation {
    /// The time of the start in UTC, RFC 3339 with milliseconds.
    pub started_at: String,
    /// The name of the host that ran the command.
    pub host: String,
    /// The version of the program.
    pub version: String,
    /// The command line, beginning with the program. Bytes that are not UTF-8 are replaced.
    pub command: Vec<String>,
}
