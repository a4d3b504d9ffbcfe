//! `longhaul.error/1`: a fatal error of a command.

use serde::{Deserialize, Serialize};

/// The schema of [`ErrorDocument`] in JSON.
pub const ERROR_SCHEMA: &str = "longhaul.error/1";

/// A fatal error of a command with JSON output; `docs/design/results.md` describes every field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorDocument {
    /// [`ERROR_SCHEMA`].
    pub schema: String,
    /// The exit code.
    pub code: u8,
    /// The name of the exit code, in snake case.
    pub kind: String,
    /// The sentence that the program prints.
    pub message: String,
}

impl ErrorDocument {
    /// Returns the document of an error.
    pub fn new(code: u8, kind: &str, message: String) -> Self {
        ErrorDocument { schema: ERROR_SCHEMA.to_owned(), code, kind: kind.to_owned(), message }
    }
}
