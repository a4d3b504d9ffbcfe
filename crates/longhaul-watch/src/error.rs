//! Errors of this crate.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// An error, with its operation and object.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The kernel did not answer a query.
    #[error("cannot read {what} from the kernel")]
    Kernel {
        /// The object of the query.
        what: &'static str,
        /// The error of the kernel.
        source: io::Error,
    },
    /// No interface has the requested name.
    #[error("there is no interface '{0}'")]
    NoInterface(String),
    /// A file or directory cannot be used.
    #[error("cannot {operation} {}", path.display())]
    File {
        /// The operation, such as "write".
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The database of a record failed.
    #[error("cannot {operation} the record {}", path.display())]
    Record {
        /// The operation, such as "read".
        operation: &'static str,
        /// The database.
        path: PathBuf,
        /// The error of SQLite.
        source: rusqlite::Error,
    },
    /// Another process writes the record.
    #[error("another process records into {}", .0.display())]
    RecordInUse(PathBuf),
    /// The directory has no record.
    #[error("{} has no record", .0.display())]
    NoRecord(PathBuf),
    /// Another program wrote the file.
    #[error("{} is not a record of longhaul watch", .0.display())]
    NotARecord(PathBuf),
    /// A later version of the program wrote the record.
    #[error("the record {} has version {found}, and this program knows versions up to {known}", path.display())]
    RecordVersion {
        /// The database.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The version of this program.
        known: i64,
    },
    /// Another user could have changed the record.
    #[error("{} belongs to user {found}, not to user {wanted}", path.display())]
    ForeignRecord {
        /// The database or its directory.
        path: PathBuf,
        /// Its owner.
        found: u32,
        /// The user of this process.
        wanted: u32,
    },
    /// The address of the metrics cannot be used.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the kernel.
        source: io::Error,
    },
}
