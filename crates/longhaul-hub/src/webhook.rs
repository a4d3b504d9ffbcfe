//! Notifications by HTTPS POST.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Request, Uri, header};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::records::events::Event;

/// The certificates of Debian and its relatives, and of Fedora and its relatives.
const SYSTEM_CERTIFICATES: [&str; 2] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];

/// Returns whether a text is the URL of a webhook: `https://HOST[:PORT]/PATH`.
pub(crate) fn is_url(text: &str) -> bool {
    text.parse::<Uri>().is_ok_and(|url| url.scheme_str() == Some("https") && url.host().is_some())
}

/// Posts an event as JSON, and returns whether the server accepted it. The caller limits the time.
pub(crate) async fn post(url: &str, event: &Event) -> bool {
    try_post(url, event).await.unwrap_or(false)
}

async fn try_post(url: &str, event: &Event) -> Option<bool> {
    let url: Uri = url.parse().ok()?;
    let host = url.host()?.trim_matches(['[', ']']).to_owned();
    let stream = TcpStream::connect((host.as_str(), url.port_u16().unwrap_or(443))).await.ok()?;
    let config = tokio::task::spawn_blocking(config).await.ok()??;
    let name = ServerName::try_from(host).ok()?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.ok()?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
    let request = Request::post(url.path_and_query().map_or("/", |path| path.as_str()))
        .header(header::HOST, url.authority()?.as_str())
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::USER_AGENT, concat!("longhaul-hub/", env!("CARGO_PKG_VERSION")))
        .body(Body::from(serde_json::to_vec(event).ok()?))
        .ok()?;
    // The connection ends when the sender is dropped.
    let driver = tokio::spawn(connection);
    let answer = sender.send_request(request).await;
    drop(sender);
    driver.abort();
    Some(answer.ok()?.status().is_success())
}

/// Returns the configuration of TLS with the certificates of this host.
fn config() -> Option<ClientConfig> {
    let text = SYSTEM_CERTIFICATES.iter().find_map(|path| std::fs::read(path).ok())?;
    let mut roots = RootCertStore::empty();
    // Some system certificates use algorithms that rustls does not know.
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&text).filter_map(Result::ok));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().ok()?;
    Some(builder.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_webhook_has_a_host_and_https() {
        assert!(is_url("https://example.net:8443/hook?x=1"));
        for bad in ["http://example.net/", "https:///x", "example.net", "", "https://a b/"] {
            assert!(!is_url(bad), "{bad}");
        }
    }
}
