//! The HTTPS client of an agent: requests to one hub.

mod tls;
mod url;

pub use tls::Trust;
pub use url::{HubUrl, InvalidUrl};

use std::io;
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::text;
use longhaul_fleet::protocol::{MAX_BODY_BYTES, RefusalBody, RefusalCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{ConnectProxyConnector, Connector, TcpConnector};

use crate::error::{AgentError, Result};
use tls::TlsConnector;

/// The longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest time of a request in addition to its long poll.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A client of one hub. It keeps its connection open between requests.
#[derive(Debug, Clone)]
pub struct HubClient {
    url: HubUrl,
    http: ureq::Agent,
    by_pin: bool,
}

impl HubClient {
    /// Creates a client of the hub at `url`.
    ///
    /// # Errors
    /// The file of the certificates cannot be read or has none.
    pub fn new(url: HubUrl, trust: &Trust) -> Result<Self> {
        Self::over(url, trust, ureq::Proxy::try_from_env())
    }

    /// Creates a client of the hub at `url`, which runs on this host. Ignores the HTTP proxy of the
    /// environment, which cannot reach a loopback address of this host.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn on_this_host(url: HubUrl, trust: &Trust) -> Result<Self> {
        Self::over(url, trust, None)
    }

    fn over(url: HubUrl, trust: &Trust, proxy: Option<ureq::Proxy>) -> Result<Self> {
        let tls = TlsConnector(Arc::new(trust.config()?));
        let connector =
            ().chain(ConnectProxyConnector::default()).chain(TcpConnector::default()).chain(tls);
        let config = ureq::config::Config::builder()
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .http_status_as_error(false)
            .max_redirects(0)
            .max_idle_connections(1)
            .proxy(proxy)
            .user_agent(concat!("longhaul/", env!("CARGO_PKG_VERSION")))
            .build();
        let http = ureq::Agent::with_parts(config, connector, DefaultResolver::default());
        Ok(HubClient { url, http, by_pin: matches!(trust, Trust::Pin(_)) })
    }

    /// Returns the address of the hub.
    pub fn url(&self) -> &HubUrl {
        &self.url
    }

    /// Ends all requests at once, and refuses later ones.
    pub(crate) fn shut_down(&self) {
        self.http.clone().shutdown();
    }

    /// Sends `body` to `path` as JSON, and reads the JSON answer.
    ///
    /// # Errors
    /// The hub does not answer within a minute, its certificate is not accepted, it refuses the
    /// request, or its answer is invalid.
    pub fn post<B: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: &B,
    ) -> Result<T> {
        let body = serde_json::to_vec(body).map_err(|error| self.answer(&error.to_string()))?;
        self.post_bytes(path, headers, &body, Duration::ZERO)
    }

    /// Reads the JSON document at `path`.
    ///
    /// # Errors
    /// As [`post`](Self::post).
    pub fn get<T: DeserializeOwned>(&self, path: &str, headers: &[(&str, &str)]) -> Result<T> {
        let mut request = self.http.get(self.url.at(path));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.config().timeout_global(Some(REQUEST_TIMEOUT)).build();
        self.read(request.call().map_err(|error| self.failure(error))?)
    }

    /// Sends the bytes `body` to `path`; the answer may take `wait` longer than usual.
    pub(crate) fn post_bytes<T: DeserializeOwned>(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
        wait: Duration,
    ) -> Result<T> {
        let mut request = self.http.post(self.url.at(path));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.header("content-type", "application/json");
        let request = request.config().timeout_global(Some(REQUEST_TIMEOUT + wait)).build();
        self.read(request.send(body).map_err(|error| self.failure(error))?)
    }

    fn read<T: DeserializeOwned>(&self, response: ureq::http::Response<ureq::Body>) -> Result<T> {
        let (parts, mut body) = response.into_parts();
        let body = body.with_config().limit(MAX_BODY_BYTES as u64).read_to_vec();
        let body = body.map_err(|error| self.failure(error))?;
        if !parts.status.is_success() {
            return Err(self.refusal(parts.status.as_u16(), &body));
        }
        serde_json::from_slice(&body).map_err(|error| self.answer(&error.to_string()))
    }

    fn refusal(&self, status: u16, body: &[u8]) -> AgentError {
        let refusal: RefusalBody = serde_json::from_slice(body).unwrap_or_else(|_| RefusalBody {
            code: if status >= 500 || status == 429 {
                RefusalCode::Busy
            } else {
                RefusalCode::Other
            },
            message: format!("HTTP status {status}"),
            counter: None,
        });
        let message: String = refusal.message.chars().take(300).collect();
        AgentError::Refused {
            hub: self.url.to_string(),
            code: refusal.code,
            message: text::escape(&message).into_owned(),
            counter: refusal.counter,
        }
    }

    fn answer(&self, message: &str) -> AgentError {
        let message = text::escape(message).into_owned();
        AgentError::Answer { hub: self.url.to_string(), message }
    }

    /// Separates an unaccepted certificate from other failures.
    fn failure(&self, error: ureq::Error) -> AgentError {
        let hub = self.url.to_string();
        if let ureq::Error::Io(failure) = &error {
            let tls = failure.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
            if let Some(source @ rustls::Error::InvalidCertificate(_)) = tls {
                let (by_pin, source) = (self.by_pin, source.clone());
                return AgentError::Certificate { hub, by_pin, source };
            }
            if failure.kind() == io::ErrorKind::UnexpectedEof {
                // The library's text names its manual.
                let closed = io::Error::new(failure.kind(), "the hub closed the connection");
                return AgentError::Unreachable { hub, source: ureq::Error::Io(closed) };
            }
        }
        AgentError::Unreachable { hub, source: error }
    }
}
