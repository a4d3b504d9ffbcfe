//! HTTP POST to a server that the operator named.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderName, Request, Uri, header};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::net::TcpStream;

use super::DeliveryError;
use crate::trust::{Wire, secured};

/// The maximum number of bytes of an answer that are read, for the message of a failure.
const ANSWER_BYTES: usize = 4096;

/// Returns whether a text is a URL with a host and one of `schemes`.
pub fn is_url(text: &str, schemes: &[&str]) -> bool {
    text.parse::<Uri>().is_ok_and(|url| {
        url.scheme_str().is_some_and(|scheme| schemes.contains(&scheme)) && url.host().is_some()
    })
}

/// Returns the scheme, host and port of a URL, without its path and its user.
pub(crate) fn origin(url: &str) -> String {
    let origin = url.parse::<Uri>().ok().and_then(|url| {
        let authority = url.authority()?.as_str();
        let place = authority.rsplit_once('@').map_or(authority, |(_, place)| place);
        Some(format!("{}://{place}", url.scheme_str()?))
    });
    origin.unwrap_or_default()
}

/// Posts a body with additional headers. The caller limits the time.
///
/// # Errors
/// The server is unreachable, or its status is not a success. A status of 400 to 499 is permanent,
/// except 408 and 429.
pub(crate) async fn post(
    tls: &Arc<ClientConfig>,
    url: &str,
    headers: &[(HeaderName, &'static str)],
    body: Vec<u8>,
) -> Result<(), DeliveryError> {
    let url: Uri = url.parse().map_err(DeliveryError::forever)?;
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let authority = url.authority().map(|name| name.as_str()).unwrap_or_default();
    let mut request = Request::post(url.path_and_query().map_or("/", |path| path.as_str()))
        .header(header::HOST, authority)
        .header(header::USER_AGENT, concat!("longhaul-hub/", env!("CARGO_PKG_VERSION")));
    for (name, value) in headers {
        request = request.header(name, *value);
    }
    let request = request.body(Body::from(body)).map_err(DeliveryError::forever)?;
    let is_plain = url.scheme_str() == Some("http");
    let port = url.port_u16().unwrap_or(if is_plain { 80 } else { 443 });
    let stream = TcpStream::connect((host.as_str(), port)).await.map_err(DeliveryError::for_now)?;
    let stream: Box<dyn Wire> = if is_plain {
        Box::new(stream)
    } else {
        secured(stream, &host, tls).await.map_err(DeliveryError::for_now)?
    };
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(DeliveryError::for_now)?;
    // The connection ends when the sender is dropped.
    let driver = tokio::spawn(connection);
    let answer = sender.send_request(request).await;
    let outcome = match answer {
        Ok(answer) => outcome(answer.map(Body::new)).await,
        Err(error) => Err(DeliveryError::for_now(error)),
    };
    driver.abort();
    outcome
}

async fn outcome(answer: axum::http::Response<Body>) -> Result<(), DeliveryError> {
    let status = answer.status();
    if status.is_success() {
        return Ok(());
    }
    let text = axum::body::to_bytes(answer.into_body(), ANSWER_BYTES).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let line: String = text.lines().next().unwrap_or_default().chars().take(200).collect();
    let reason = format!("the server answered {status} {}", line.trim());
    let repeatable = [408, 429].contains(&status.as_u16());
    Err(DeliveryError { permanent: status.is_client_error() && !repeatable, reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_origin_of_a_url_has_no_secret() {
        let hook = "https://user:secret@example.net:8443/services/T0/secret?token=secret";
        assert_eq!(origin(hook), "https://example.net:8443");
        assert_eq!(origin("http://[::1]/x"), "http://[::1]");
        assert_eq!(origin("no url"), "");
    }

    #[test]
    fn a_url_has_a_host_and_a_scheme() {
        assert!(is_url("https://example.net:8443/hook?x=1", &["https"]));
        assert!(is_url("http://[::1]:9090/api/v1/write", &["http", "https"]));
        for bad in ["http://example.net/", "https:///x", "example.net", "", "https://a b/"] {
            assert!(!is_url(bad, &["https"]), "{bad}");
        }
    }
}
