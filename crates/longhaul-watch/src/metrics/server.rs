//! The HTTP server of the metrics: bounded requests, one thread per connection, at most eight at once.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::WatchError;
use crate::metrics::metrics_text;
use crate::sample::Sample;

/// The port for metrics.
pub const DEFAULT_PORT: u16 = 9210;

/// The maximum number of connections at once; further ones are closed.
const MOST_CONNECTIONS: usize = 8;
/// The largest request in bytes.
const MOST_REQUEST: usize = 8192;
/// The time limit of a connection.
const LIMIT: Duration = Duration::from_secs(5);
/// The pause after a failed `accept`, for example if no descriptor is free.
const PAUSE: Duration = Duration::from_millis(100);

/// A running server. It ends when the value is dropped.
#[derive(Debug)]
pub struct MetricsServer {
    shared: Arc<Shared>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    sample: Mutex<Option<Arc<Sample>>>,
    stop: AtomicBool,
    connections: AtomicUsize,
}

impl MetricsServer {
    /// Listens on `address` and serves `GET /metrics` to any client.
    ///
    /// # Errors
    /// The address is in use or not of this host, or no thread could be started.
    pub fn start(address: SocketAddr) -> Result<Self, WatchError> {
        let listen = || -> io::Result<Self> {
            let listener = TcpListener::bind(address)?;
            let address = listener.local_addr()?;
            let shared = Arc::new(Shared::default());
            let of_thread = shared.clone();
            let thread = thread::Builder::new()
                .name("metrics".into())
                .spawn(move || accept(&listener, &of_thread))?;
            Ok(MetricsServer { shared, address, thread: Some(thread) })
        };
        listen().map_err(|source| WatchError::Listen { address, source })
    }

    /// Returns the address of the server.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Replaces the sample that later requests read.
    pub fn publish(&self, sample: Arc<Sample>) {
        *lock(&self.shared.sample) = Some(sample);
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        // The thread waits in `accept`, which a connection ends.
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip(match address {
                SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
            });
        }
        let connected = TcpStream::connect_timeout(&address, LIMIT);
        if let (Ok(_), Some(thread)) = (connected, self.thread.take()) {
            let _ = thread.join();
        }
    }
}

fn lock(sample: &Mutex<Option<Arc<Sample>>>) -> std::sync::MutexGuard<'_, Option<Arc<Sample>>> {
    // The value is complete even if a thread panicked while it held the lock.
    sample.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    loop {
        let accepted = listener.accept();
        if shared.stop.load(Ordering::SeqCst) {
            return;
        }
        let Ok((stream, _)) = accepted else {
            thread::sleep(PAUSE);
            continue;
        };
        if shared.connections.fetch_add(1, Ordering::SeqCst) >= MOST_CONNECTIONS {
            shared.connections.fetch_sub(1, Ordering::SeqCst);
            continue;
        }
        let of_thread = shared.clone();
        let started = thread::Builder::new().name("metrics client".into()).spawn(move || {
            // A client that fails has no one to report to.
            let _ = serve(stream, &of_thread);
            of_thread.connections.fetch_sub(1, Ordering::SeqCst);
        });
        if started.is_err() {
            shared.connections.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Answers one request and closes the connection.
fn serve(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let end = Instant::now() + LIMIT;
    let line = request_line(&mut stream, end)?;
    let mut words = line.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = target.split('?').next().unwrap_or_default();
    let (status, body) = match (method, path) {
        ("GET" | "HEAD", "/metrics") => match lock(&shared.sample).clone() {
            Some(sample) => ("200 OK", metrics_text(&sample)),
            None => ("503 Service Unavailable", "no sample yet\n".to_owned()),
        },
        ("GET" | "HEAD", "/") => ("200 OK", "longhaul watch: see /metrics\n".to_owned()),
        ("GET" | "HEAD", _) => ("404 Not Found", "not found; see /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "only GET is allowed\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.set_write_timeout(Some(LIMIT))?;
    let body = if method == "HEAD" { String::new() } else { body };
    stream.write_all((head + &body).as_bytes())
}

/// Reads the head of a request and returns its first line.
fn request_line(stream: &mut TcpStream, end: Instant) -> io::Result<String> {
    let mut head = Vec::new();
    let mut buffer = [0; 1024];
    while !head.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || head.len() > MOST_REQUEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            length => head.extend(&buffer[..length]),
        }
    }
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    Ok(String::from_utf8_lossy(line).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Sampler, SamplerOptions};

    fn ask(server: &MetricsServer, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        // The server may close the connection before it has read an oversized request.
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn started() -> MetricsServer {
        MetricsServer::start("127.0.0.1:0".parse().unwrap()).unwrap()
    }

    #[test]
    fn the_latest_sample_is_served() {
        let server = started();
        let get = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
        assert!(ask(&server, get).starts_with("HTTP/1.1 503 "));
        let mut sampler = Sampler::new(SamplerOptions::default()).unwrap();
        server.publish(Arc::new(sampler.sample().unwrap()));
        let answer = ask(&server, get);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(
            answer.contains("longhaul_network_receive_bytes_total{device=\"lo\"} "),
            "{answer}"
        );
        assert!(answer.contains("longhaul_cpu_softirq_seconds_total{cpu=\"0\"} "), "{answer}");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}", body.len())));
        assert!(ask(&server, b"GET / HTTP/1.1\r\n\r\n").contains("/metrics"));
        assert!(ask(&server, b"GET /x HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
        assert!(ask(&server, b"POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
    }

    #[test]
    fn an_endless_request_is_dropped_and_the_server_stays() {
        let server = started();
        assert_eq!(ask(&server, &[b'x'; 100_000]), "");
        assert!(ask(&server, b"GET /none HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    }

    #[test]
    fn too_many_clients_do_not_start_more_threads() {
        let server = started();
        let idle: Vec<TcpStream> = (0..MOST_CONNECTIONS * 3)
            .map(|_| TcpStream::connect(server.address()).unwrap())
            .collect();
        // An excess connection is closed at once; the read returns the end of the stream.
        let mut last = idle.last().unwrap();
        last.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        assert!(matches!(last.read(&mut [0; 1]), Ok(0)));
        assert!(server.shared.connections.load(Ordering::SeqCst) <= MOST_CONNECTIONS);
        drop(idle);
        let end = Instant::now() + Duration::from_secs(30);
        while !ask(&server, b"GET / HTTP/1.1\r\n\r\n").contains("/metrics") {
            assert!(Instant::now() < end, "the server recovers");
        }
    }
}
