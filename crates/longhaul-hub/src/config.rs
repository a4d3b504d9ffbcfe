//! The configuration of a hub, and its errors.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::store::StoreError;

/// The settings of a hub.
#[derive(Debug, Clone)]
pub struct HubConfig {
    /// The addresses to listen on.
    pub listen: Vec<SocketAddr>,
    /// The directory of the database and the certificate; created with mode 0700.
    pub data: PathBuf,
    /// The address of a PostgreSQL database; SQLite in `data` if `None`.
    pub database: Option<String>,
    /// The operator's certificate chain and private key in PEM; self-made ones if `None`.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// True if everybody may read without a login.
    pub public: bool,
    /// The channels of notifications.
    pub channels: Vec<Channel>,
}

/// A channel of notifications.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Channel {
    /// A program, started with the event as JSON on its standard input.
    Exec {
        /// The program.
        program: PathBuf,
    },
}

impl Channel {
    /// Returns the name of the channel in the store.
    pub(crate) fn name(&self) -> String {
        match self {
            Channel::Exec { program } => format!("exec:{}", program.display()),
        }
    }
}

/// An error that ends a hub.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file or directory failed.
    #[error("cannot {operation} {}: {source}", path.display())]
    File {
        /// The operation.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A file of the hub belongs to another user, or others can write or read it.
    #[error("{} has mode {mode:o} or another owner", path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// A certificate or its key is invalid.
    #[error("the certificate {} or its key is invalid", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
    },
    /// An address cannot be bound.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: std::io::Error,
    },
    /// The runtime cannot start.
    #[error("cannot start the runtime: {0}")]
    Runtime(std::io::Error),
    /// The kernel returned no random bytes.
    #[error("the kernel returned no random bytes")]
    NoRandom,
    /// A user of this name exists.
    #[error("the user {name} exists")]
    UserExists {
        /// The name.
        name: String,
    },
    /// No user has this name.
    #[error("there is no user {name}")]
    NoUser {
        /// The name.
        name: String,
    },
    /// A name or password does not fit the rules.
    #[error("the name or password of the user is too short or too long")]
    BadUser,
}

impl From<crate::secret::NoRandom> for HubError {
    fn from(_: crate::secret::NoRandom) -> Self {
        HubError::NoRandom
    }
}

impl HubError {
    /// Returns the error of a file operation.
    pub(crate) fn file(
        operation: &'static str,
        path: &Path,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| HubError::File { operation, path, source }
    }
}
