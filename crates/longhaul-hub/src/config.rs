//! The configuration of a hub, and its errors.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::outgoing::{MailServer, is_address, is_url, origin};
use crate::store::StoreError;
use crate::trust::TrustError;

/// The settings of a hub.
#[derive(Debug, Clone)]
pub struct HubConfig {
    /// The addresses to listen on.
    pub listen: Vec<SocketAddr>,
    /// The directory of the database and the certificate; created with mode 0700.
    pub data: PathBuf,
    /// The address of a PostgreSQL database; SQLite in `data` if `None`.
    pub database: Option<String>,
    /// The operator's certificate chain and private key in PEM; self-signed ones if `None`.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// True if anyone may read without a login.
    pub public: bool,
    /// The channels of notifications.
    pub channels: Vec<Channel>,
    /// The URL of a receiver of Prometheus remote write.
    pub remote_write: Option<String>,
    /// A file with root certificates (PEM) for outgoing connections, besides those of the host.
    pub outgoing_ca: Option<PathBuf>,
    /// Prints a line for the operator; it must escape the text.
    pub log: fn(&str),
    /// Prints the password of the first user. The hub calls it before it stores the password.
    pub first_password: fn(FirstPassword<'_>),
}

/// A message about the password of `admin`, the first user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FirstPassword<'a> {
    /// The hub is about to store this password.
    New(&'a str),
    /// Another hub with the same database added the user first, so the password is not in use.
    Unused,
}

impl HubConfig {
    /// Returns the settings of a hub with SQLite in `data`, without outgoing connections and
    /// without a log.
    pub fn new(data: PathBuf) -> Self {
        HubConfig {
            listen: Vec::new(),
            data,
            database: None,
            tls: None,
            public: false,
            channels: Vec::new(),
            remote_write: None,
            outgoing_ca: None,
            log: |_| {},
            first_password: |_| {},
        }
    }
}

/// A channel of notifications.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Channel {
    /// A program, started with the event as JSON on its standard input.
    Exec {
        /// The program.
        program: PathBuf,
    },
    /// A server that takes the event as JSON by POST.
    Webhook {
        /// The URL.
        url: String,
    },
    /// A message by SMTP to one address.
    Mail {
        /// The mail server.
        server: MailServer,
        /// The address of the sender.
        from: String,
        /// The address of the receiver.
        to: String,
    },
}

impl Channel {
    /// Returns the channel of a URL; `None` if it is not `https://HOST[:PORT]/PATH`.
    pub fn webhook(url: &str) -> Option<Self> {
        is_url(url, &["https"]).then(|| Channel::Webhook { url: url.to_owned() })
    }

    /// Returns the channel of a receiver; `None` if an address is malformed.
    pub fn mail(server: MailServer, from: &str, to: &str) -> Option<Self> {
        let good = is_address(from) && is_address(to);
        good.then(|| Channel::Mail { server, from: from.to_owned(), to: to.to_owned() })
    }

    /// Returns the name of the channel in the store.
    pub(crate) fn name(&self) -> String {
        match self {
            Channel::Exec { program } => format!("exec:{}", program.display()),
            Channel::Webhook { url } => format!("webhook:{url}"),
            Channel::Mail { to, .. } => format!("mail:{to}"),
        }
    }

    /// Returns the name of the channel for events, which every viewer can read. The path of a webhook
    /// is commonly its only secret.
    pub(crate) fn public_name(&self) -> String {
        match self {
            Channel::Webhook { url } => format!("webhook:{}", origin(url)),
            _ => self.name(),
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
    #[error("{} has mode {mode:o} or belongs to another user", path.display())]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The directory of the hub belongs to another user, or others can write to it.
    #[error("the directory {} has mode {mode:o} or belongs to another user", path.display())]
    OpenDirectory {
        /// The directory.
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
    /// The root certificates of outgoing connections cannot be used.
    #[error(transparent)]
    Trust(#[from] TrustError),
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
    #[error("the user {name} already exists")]
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
    /// A name or password violates the rules.
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
