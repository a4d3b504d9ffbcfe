//! Errors of the store.

use std::path::PathBuf;

use rusqlite::ErrorCode;

/// An error of the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file of the database cannot be opened.
    #[error("cannot open the database {}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: rusqlite::Error,
    },
    /// SQLite refused a statement.
    #[error("SQLite: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// PostgreSQL refused a statement or the connection failed.
    #[error("PostgreSQL: {}", postgres_text(.0))]
    Postgres(#[from] tokio_postgres::Error),
    /// PostgreSQL did not answer in time.
    #[error("PostgreSQL did not answer within {seconds} s")]
    Timeout {
        /// The limit.
        seconds: u64,
    },
    /// The address of the database is malformed.
    #[error("the address of the database is malformed: {0}")]
    Address(tokio_postgres::Error),
    /// The address of the database has an unknown `sslmode`.
    #[error("sslmode={mode} is not disable, prefer, require or verify-full")]
    TlsMode {
        /// The mode.
        mode: String,
    },
    /// A file with certificates in the address of the database cannot be used.
    #[error("the address of the database: {0}")]
    TlsSetting(String),
    /// A later version wrote the database.
    #[error("the database has schema {found}, and this version reads schemas up to {known}")]
    Newer {
        /// The schema of the database.
        found: i64,
        /// The schema of this version.
        known: i64,
    },
    /// A column has an unexpected type.
    #[error("column {index} of a row is not {expected}")]
    Column {
        /// The index of the column.
        index: usize,
        /// The expected type.
        expected: &'static str,
    },
    /// A stored document or block of samples is malformed.
    #[error("a stored {what} is malformed")]
    Malformed {
        /// The kind of the object.
        what: &'static str,
    },
    /// More transactions wait than the queue has room for.
    #[error("the queue of the database is full")]
    Busy,
    /// A panic or the end of the hub dropped the transaction.
    #[error("the hub is shutting down")]
    Closed,
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

/// Returns PostgreSQL's message; the library's `Display` has only its kind.
fn postgres_text(error: &tokio_postgres::Error) -> String {
    match (error.as_db_error(), std::error::Error::source(error)) {
        (Some(database), _) => database.message().to_owned(),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
}

impl StoreError {
    fn sqlite_code(&self) -> Option<ErrorCode> {
        match self {
            StoreError::Open { source, .. } | StoreError::Sqlite(source) => {
                source.sqlite_error_code()
            }
            _ => None,
        }
    }

    /// Returns whether the disk of the database is full.
    pub fn is_full_disk(&self) -> bool {
        use tokio_postgres::error::SqlState;
        match self {
            StoreError::Postgres(error) => error.code() == Some(&SqlState::DISK_FULL),
            _ => self.sqlite_code() == Some(ErrorCode::DiskFull),
        }
    }

    /// Returns the remedy of a failure that the operator can correct, as a part of a sentence.
    pub fn remedy(&self) -> Option<&'static str> {
        if self.is_full_disk() {
            return Some(
                "the disk is full: free space on the file system of the database; agents keep their \
                 results until then",
            );
        }
        match self.sqlite_code()? {
            ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt => Some(
                "the file hub.db is damaged: stop the hub, move hub.db, hub.db-wal and hub.db-shm \
                 away, and restore all files of a copy, if one exists",
            ),
            ErrorCode::ReadOnly => Some("the hub may not write to the file system of hub.db"),
            _ => None,
        }
    }

    /// True if the same transaction can succeed when it is repeated.
    pub(super) fn is_transient(&self) -> bool {
        use tokio_postgres::error::SqlState;
        match self {
            StoreError::Postgres(error) => error.code().is_some_and(|code| {
                [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED]
                    .contains(code)
            }),
            _ => false,
        }
    }
}
