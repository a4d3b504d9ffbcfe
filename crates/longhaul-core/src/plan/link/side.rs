//! The two ends of a link.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One end of an emulated link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The end at which the main command of a command line runs.
    Near,
    /// The other end.
    Far,
}

impl Side {
    /// Both ends.
    pub const BOTH: [Side; 2] = [Side::Near, Side::Far];

    /// Returns the host name of this end: `near` or `far`.
    pub const fn name(self) -> &'static str {
        match self {
            Side::Near => "near",
            Side::Far => "far",
        }
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
