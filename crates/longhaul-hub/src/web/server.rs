//! Connections: TLS, HTTP/1.1, limits on their number and on every wait.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tower_service::Service as _;

use super::connection::{Client, Taking};
use super::failure::{Cause, Refusal};
use crate::guard::Shares;
use crate::hub::Hub;

/// The maximum number of connections at the same time.
const CONNECTIONS: usize = 8192;
/// The limit per network.
const CONNECTIONS_OF_NETWORK: usize = 4096;
/// The limit on a TLS handshake, and on the headers of a request.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// The limit on a request until its answer begins: longer than a long poll after a slow upload.
const REQUEST: Duration = Duration::from_secs(240);
/// The time in ms after which the kernel ends a connection whose client takes no bytes.
const UNTAKEN_MS: u32 = 60_000;

/// The time between two looks at the answer that a client takes.
const LOOK: Duration = Duration::from_secs(30);

/// Accepts connections until the future is dropped.
pub(crate) async fn accept(listener: TcpListener, tls: TlsAcceptor, app: Router, hub: Arc<Hub>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let shares = Shares::new(CONNECTIONS_OF_NETWORK);
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, client)) => {
                // Without a share the connection is closed.
                let Ok(share) = shares.of(client.ip(), false).try_acquire_owned() else { continue };
                let (tls, app, hub) = (tls.clone(), app.clone(), hub.clone());
                tokio::spawn(async move {
                    serve((stream, client), tls, app, hub).await;
                    drop((place, share));
                });
            }
            // The process has no free descriptor; some connections will end.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn serve(
    (stream, client): (TcpStream, SocketAddr),
    tls: TlsAcceptor,
    app: Router,
    hub: Arc<Hub>,
) {
    let _ = stream.set_nodelay(true);
    let _ = rustix::net::sockopt::set_tcp_user_timeout(&stream, UNTAKEN_MS);
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await else { return };
    let taking = Taking::default();
    let taken = taking.clone();
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let mut request = request.map(axum::body::Body::new);
        let line = format!("{} {}", request.method(), request.uri().path());
        request.extensions_mut().insert(Client(client));
        request.extensions_mut().insert(taken.clone());
        let answer = app.clone().call(request);
        let hub = hub.clone();
        async move {
            match tokio::time::timeout(REQUEST, answer).await {
                Ok(Ok(answer)) => {
                    if let Some(Cause(error)) = answer.extensions().get() {
                        hub.log.store_failure(error);
                    }
                    if let Some(Refusal(reason)) = answer.extensions().get::<Refusal>().copied() {
                        hub.log.note(reason, &refused(&line, client, reason));
                    }
                    Ok(guarded(answer))
                }
                Ok(Err(never)) => match never {},
                Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut)),
            }
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HANDSHAKE)
        .max_buf_size(64 << 10)
        .serve_connection(TokioIo::new(stream), service);
    let late = async {
        while !taking.is_late() {
            tokio::time::sleep(LOOK).await;
        }
    };
    // A lost connection is not a failure of the hub.
    tokio::select! { _ = connection => {}, () = late => {} }
}

/// Returns the line of the log about a refused request.
fn refused(line: &str, client: SocketAddr, reason: &str) -> String {
    let line: String = line.chars().take(100).collect();
    format!("refused {line} from {}: {reason}", client.ip().to_canonical())
}

/// Adds the headers that forbid caching, framing and MIME sniffing, unless the answer has them.
fn guarded(mut answer: Response) -> Response {
    let headers = answer.headers_mut();
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    ] {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    answer
}
