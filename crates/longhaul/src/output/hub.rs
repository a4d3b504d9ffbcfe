//! The words for errors of the hub.

use anyhow::anyhow;
use longhaul_hub::HubError;
use longhaul_hub::store::StoreError;

use crate::exit::{self, Coded};

/// Returns an error of the hub with its exit code and the advice.
pub(crate) fn hub_failure(error: HubError) -> Coded {
    let (code, text) = match &error {
        HubError::Store(StoreError::Newer { found, known }) => (
            exit::FILES,
            format!(
                "a newer version of longhaul wrote the database of the hub (schema {found}, this \
                 version reads {known}); install that version, or use another --data or --database"
            ),
        ),
        HubError::Store(StoreError::TlsMode { .. } | StoreError::TlsSetting(_)) => {
            (exit::USAGE, error.to_string())
        }
        HubError::Store(StoreError::Address(_)) => (
            exit::USAGE,
            format!("{error}; use --database postgres://USER@HOST/NAME"),
        ),
        HubError::Store(StoreError::Postgres(_) | StoreError::Timeout { .. }) => (
            exit::UNREACHABLE,
            format!("cannot use the database of --database: {error}"),
        ),
        HubError::Store(failure) if failure.remedy().is_some() => {
            (exit::FILES, format!("{error}; {}", failure.remedy().unwrap_or_default()))
        }
        HubError::Store(_) | HubError::File { .. } | HubError::Trust(_) => {
            (exit::FILES, error.to_string())
        }
        HubError::Exposed { path, mode } => (
            exit::FILES,
            format!(
                "{} has mode {mode:o} or belongs to another user; only the user of the hub may read it (chmod 600)",
                path.display()
            ),
        ),
        HubError::OpenDirectory { path, mode } => (
            exit::FILES,
            format!(
                "the directory {} has mode {mode:o} or belongs to another user; only the user of the hub may write to it (chmod go-w)",
                path.display()
            ),
        ),
        HubError::Certificate { path } => (
            exit::FILES,
            format!("{} is not a certificate in PEM format, or the key does not belong to it", path.display()),
        ),
        HubError::Listen { source, .. } => {
            let advice = if source.kind() == std::io::ErrorKind::AddrInUse {
                "stop the program that uses the port, or choose another one with --listen ADDR:PORT"
            } else {
                "choose another address with --listen ADDR:PORT"
            };
            (exit::HOST, format!("{error}; {advice}"))
        }
        HubError::Runtime(_) | HubError::NoRandom => (exit::HOST, error.to_string()),
        HubError::UserExists { name } => (
            exit::USAGE,
            format!("the user {name} already exists; 'longhaul hub user passwd {name}' changes the password"),
        ),
        HubError::NoUser { .. } => (exit::USAGE, error.to_string()),
        HubError::BadUser => (
            exit::USAGE,
            "a user has a name of 1 to 64 letters, digits, '-', '_', '.' and '@', and a password of 10 \
             to 1024 characters"
                .to_owned(),
        ),
    };
    Coded::new(code, anyhow!("{text}"))
}
