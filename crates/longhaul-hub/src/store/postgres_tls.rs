//! The address of a PostgreSQL database, and TLS to it: `sslmode` and `sslrootcert` as in libpq.

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

use super::StoreError;
use crate::trust;

/// A database with the TLS settings of its address.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) config: Config,
    pub(super) tls: Tls,
}

/// The settings of TLS in an address.
#[derive(Debug, Default, PartialEq, Eq)]
struct Settings {
    mode: Option<String>,
    roots: Option<PathBuf>,
}

impl Address {
    /// Reads a URL or a list of `key=value`. The modes are `disable`, `prefer` (the default),
    /// `require` (encryption without a check of the certificate) and `verify-full`.
    ///
    /// # Errors
    /// The address, or a file that it names, is invalid.
    pub(super) fn parse(text: &str) -> Result<Self, StoreError> {
        let (settings, rest) = settings(text);
        let mut config: Config = rest.parse().map_err(StoreError::Address)?;
        let mode = settings.mode.as_deref().unwrap_or("prefer");
        config.ssl_mode(match mode {
            "disable" => SslMode::Disable,
            "prefer" => SslMode::Prefer,
            "require" | "verify-full" => SslMode::Require,
            _ => return Err(StoreError::TlsMode { mode: mode.to_owned() }),
        });
        let failed = |error: trust::TrustError| StoreError::TlsSetting(error.to_string());
        let client = if mode == "verify-full" {
            let roots = match &settings.roots {
                Some(path) => trust::roots_of_file(path),
                None => trust::roots(None),
            };
            trust::client(roots.map_err(failed)?)
        } else {
            trust::unverified_client()
        };
        Ok(Address { config, tls: Tls(client.map_err(failed)?) })
    }
}

/// Removes the TLS settings from an address, because the library does not support all of them.
fn settings(text: &str) -> (Settings, String) {
    let mut found = Settings::default();
    let is_url = text.starts_with("postgres://") || text.starts_with("postgresql://");
    if is_url {
        let Some((base, query)) = text.split_once('?') else { return (found, text.to_owned()) };
        let kept: Vec<&str> = query.split('&').filter(|part| !take(&mut found, part)).collect();
        let mark = if kept.is_empty() { "" } else { "?" };
        return (found, format!("{base}{mark}{}", kept.join("&")));
    }
    let kept: Vec<&str> = words(text).into_iter().filter(|part| !take(&mut found, part)).collect();
    (found, kept.join(" "))
}

/// Notes a setting of TLS; returns false for another setting.
fn take(found: &mut Settings, part: &str) -> bool {
    match part.trim().split_once('=') {
        Some(("sslmode", mode)) => found.mode = Some(unquoted(mode)),
        Some(("sslrootcert", path)) => found.roots = Some(unquoted(path).into()),
        _ => return false,
    }
    true
}

/// Returns the settings of a list of `key=value`, whose values may have quotes with spaces.
fn words(text: &str) -> Vec<&str> {
    let (mut quoted, mut escaped) = (false, false);
    let ends = |c: char| {
        let plain = !escaped;
        escaped = plain && c == '\\';
        quoted ^= plain && c == '\'';
        !quoted && c.is_whitespace()
    };
    text.split(ends).filter(|word| !word.is_empty()).collect()
}

/// Returns a value without quotes and percent codes.
fn unquoted(value: &str) -> String {
    let value = value.trim_matches('\'');
    let mut bytes = Vec::new();
    let mut rest = value.as_bytes();
    while let [first, tail @ ..] = rest {
        let code = tail.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        match code.and_then(|two| u8::from_str_radix(two, 16).ok()) {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The configuration of TLS to a server.
#[derive(Clone)]
pub(super) struct Tls(Arc<ClientConfig>);

/// TLS to one host.
pub(super) struct TlsToHost {
    tls: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Tls {
    type Stream = Encrypted<S>;
    type TlsConnect = TlsToHost;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<TlsToHost> {
        // A Unix socket has no name, and PostgreSQL uses no TLS on it.
        let host = if host.is_empty() { "localhost" } else { host };
        let name = trust::server_name(host).map_err(io::Error::other)?;
        Ok(TlsToHost { tls: self.0.clone(), name })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for TlsToHost {
    type Stream = Encrypted<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        let connecting = TlsConnector::from(self.tls).connect(self.name, stream);
        Box::pin(async { Ok(Encrypted(connecting.await?)) })
    }
}

/// An encrypted connection. It offers no channel binding for logins: the certificate authenticates
/// the server.
pub(super) struct Encrypted<S>(tokio_rustls::client::TlsStream<S>);

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Encrypted<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Encrypted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Encrypted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (Option<String>, Option<PathBuf>, String) {
        let (found, rest) = settings(text);
        (found.mode, found.roots, rest)
    }

    #[test]
    fn settings_of_tls_are_taken_out_of_both_forms() {
        let url =
            "postgres://hub@db/fleet?sslmode=verify-full&sslrootcert=%2Fetc%2Fpg%20ca.pem&port=5";
        let (mode, roots, rest) = parsed(url);
        assert_eq!(mode.as_deref(), Some("verify-full"));
        assert_eq!(roots, Some("/etc/pg ca.pem".into()));
        assert_eq!(rest, "postgres://hub@db/fleet?port=5");
        let list = "host=db password='a b\\' sslmode=x' sslmode=require dbname=fleet";
        let (mode, roots, rest) = parsed(list);
        assert_eq!((mode.as_deref(), roots), (Some("require"), None));
        assert_eq!(rest, "host=db password='a b\\' sslmode=x' dbname=fleet");
        assert_eq!(parsed("postgres://hub@db/fleet").2, "postgres://hub@db/fleet");
    }

    #[test]
    fn unknown_modes_and_missing_files_are_errors() {
        let mode = |text: &str| Address::parse(text).err();
        let unknown = mode("postgres://hub@db/fleet?sslmode=verify-ca");
        assert!(matches!(unknown, Some(StoreError::TlsMode { .. })));
        let missing = mode("postgres://hub@db/fleet?sslmode=verify-full&sslrootcert=/none.pem");
        assert!(matches!(missing, Some(StoreError::TlsSetting(_))));
        assert!(mode("postgres://hub@db/fleet?sslmode=require").is_none());
    }
}
