//! Connections: TLS, HTTP/1.1, limits on their number and on every wait.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tower_service::Service as _;

/// The most connections at the same time.
const CONNECTIONS: usize = 8192;
/// The limit on a TLS handshake, and on the headers of a request.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// The address of the client of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Client(pub(crate) SocketAddr);

/// Accepts connections until the future is dropped.
pub(crate) async fn accept(listener: TcpListener, tls: TlsAcceptor, app: Router) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, client)) => {
                tokio::spawn(serve(stream, client, tls.clone(), app.clone(), place));
            }
            // The process has no free descriptor; some connections will end.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn serve(
    stream: TcpStream,
    client: SocketAddr,
    tls: TlsAcceptor,
    app: Router,
    _place: OwnedSemaphorePermit,
) {
    let _ = stream.set_nodelay(true);
    let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, tls.accept(stream)).await else { return };
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let mut request = request.map(axum::body::Body::new);
        request.extensions_mut().insert(Client(client));
        app.clone().call(request)
    });
    // A lost connection is no failure of the hub.
    let _ = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HANDSHAKE)
        .max_buf_size(64 << 10)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}
