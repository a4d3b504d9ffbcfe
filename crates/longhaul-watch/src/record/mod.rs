//! The record of interfaces on disk: a directory with a SQLite database.
//!
//! `docs/design/watch-record.md` describes the format. A process that is killed loses the intervals since
//! the last commit, at most five seconds. One process writes a record; any number read it.

mod files;
mod read;
mod rows;
mod schema;
mod write;

pub use files::FILE_NAME;
pub use read::{Record, RecordedInterface};
pub use write::Recorder;
