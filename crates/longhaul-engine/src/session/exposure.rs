//! The reasons why a file that grants rights is rejected.

use std::fmt;
use std::path::Path;

/// The reason why a file is rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exposure {
    /// It belongs to another user.
    Owner {
        /// The user ID of the owner.
        found: u32,
        /// The user ID that the owner should have.
        wanted: u32,
    },
    /// The group or others may write to it.
    Writable {
        /// Its permission bits.
        mode: u32,
    },
    /// The group or others may read it, and it is secret.
    Readable {
        /// Its permission bits.
        mode: u32,
    },
    /// It is a directory, a device or a pipe.
    NoFile,
}

impl Exposure {
    /// Returns the sentence about `path`, with the command that helps.
    pub(crate) fn about<'a>(&'a self, path: &'a Path) -> impl fmt::Display + 'a {
        fmt::from_fn(move |f| {
            let shown = path.display();
            match self {
                Exposure::Owner { found, wanted } => {
                    write!(f, "{shown} belongs to user {found}, not {wanted}")
                }
                Exposure::Writable { mode } => {
                    write!(f, "other users may write to {shown} (mode {mode:04o})")
                }
                Exposure::Readable { mode } => {
                    write!(f, "other users may read {shown} (mode {mode:04o})")
                }
                Exposure::NoFile => write!(f, "{shown} is not a regular file"),
            }
        })
    }
}
