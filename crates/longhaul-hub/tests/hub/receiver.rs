//! Receivers of the messages of the hub: a mail server, a receiver of remote write, and a silent
//! one.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// A stream of either kind.
trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// A self-signed certificate of `localhost`.
pub(crate) struct Certificate {
    pub(crate) pem: String,
    pub(crate) key_pem: String,
    config: Arc<ServerConfig>,
}

impl Certificate {
    pub(crate) fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let key_pem = made.signing_key.serialize_pem();
        Certificate { pem: made.cert.pem(), key_pem, config: Arc::new(config) }
    }
}

async fn listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// A message that the mail server took.
#[derive(Debug, Clone, Default)]
pub(crate) struct Mail {
    /// The commands before the message, without its text.
    pub(crate) commands: Vec<String>,
    /// True if the message came over TLS.
    pub(crate) encrypted: bool,
    /// The lines of the message.
    pub(crate) text: String,
}

/// A mail server with STARTTLS and AUTH PLAIN. It refuses receivers whose name is `nobody`.
pub(crate) struct MailReceiver {
    pub(crate) port: u16,
    mails: Arc<Mutex<Vec<Mail>>>,
}

impl MailReceiver {
    pub(crate) async fn start(certificate: &Certificate) -> Self {
        let (listener, port) = listener().await;
        let mails = Arc::new(Mutex::new(Vec::new()));
        let (config, kept) = (certificate.config.clone(), mails.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (config, kept) = (config.clone(), kept.clone());
                tokio::spawn(async move {
                    // A client may end the connection at any time.
                    if let Some(mail) = mail_session(stream, config).await {
                        kept.lock().unwrap().push(mail);
                    }
                });
            }
        });
        MailReceiver { port, mails }
    }

    pub(crate) fn mails(&self) -> Vec<Mail> {
        self.mails.lock().unwrap().clone()
    }
}

async fn mail_session(stream: TcpStream, config: Arc<ServerConfig>) -> Option<Mail> {
    let mut mail = Mail::default();
    let mut stream: BufReader<Box<dyn Wire>> = BufReader::new(Box::new(stream));
    stream.write_all(b"220-localhost\r\n220 ready\r\n").await.ok()?;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
        let line = line.trim_end().to_owned();
        mail.commands.push(line.clone());
        let verb = line.split([' ', ':']).next().unwrap_or_default().to_uppercase();
        let reply: &[u8] = match verb.as_str() {
            "EHLO" if mail.encrypted => {
                b"250-localhost\r\n250-AUTH LOGIN PLAIN\r\n250 8BITMIME\r\n"
            }
            "EHLO" => b"250-localhost\r\n250 STARTTLS\r\n",
            "STARTTLS" => {
                stream.write_all(b"220 go ahead\r\n").await.ok()?;
                let tls =
                    TlsAcceptor::from(config.clone()).accept(stream.into_inner()).await.ok()?;
                stream = BufReader::new(Box::new(tls));
                mail.encrypted = true;
                continue;
            }
            "AUTH" => b"235 welcome\r\n",
            "RCPT" if line.contains("nobody") => b"550 no such user\r\n",
            "DATA" => {
                stream.write_all(b"354 end with a dot\r\n").await.ok()?;
                loop {
                    let mut line = String::new();
                    stream.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
                    if line == ".\r\n" {
                        break;
                    }
                    mail.text += &line;
                }
                stream.write_all(b"250 taken\r\n").await.ok()?;
                return Some(mail);
            }
            _ => b"250 fine\r\n",
        };
        stream.write_all(reply).await.ok()?;
    }
}

/// A receiver of webhooks over TLS. It knows the path `/hook`, and is away at the first request.
pub(crate) struct HookReceiver {
    pub(crate) port: u16,
    /// The heads and the bodies of the requests.
    requests: Arc<Mutex<Vec<(String, String)>>>,
}

impl HookReceiver {
    pub(crate) async fn start(certificate: &Certificate) -> Self {
        let (listener, port) = listener().await;
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (acceptor, seen) = (TlsAcceptor::from(certificate.config.clone()), requests.clone());
        tokio::spawn(async move {
            let mut known = 0;
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(stream) = acceptor.accept(stream).await else { continue };
                let Some((mut stream, head, body)) = request(stream).await else { continue };
                let is_known = head.starts_with("post /hook ");
                known += usize::from(is_known);
                seen.lock().unwrap().push((head, String::from_utf8(body).unwrap()));
                let answer: &[u8] = match (is_known, known) {
                    // An answer without end; the hub needs a part of it.
                    (false, _) => b"HTTP/1.1 404 Not Found\r\n\r\nno such <hook>\x1b[2J\n",
                    (true, 1) => b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n",
                    (true, _) => b"HTTP/1.1 204 No Content\r\n\r\n",
                };
                let _ = stream.write_all(answer).await;
                let endless = async { while stream.write_all(&[b'x'; 4096]).await.is_ok() {} };
                if !is_known {
                    let _ = tokio::time::timeout(std::time::Duration::from_secs(20), endless).await;
                }
            }
        });
        HookReceiver { port, requests }
    }

    pub(crate) fn requests(&self) -> Vec<(String, String)> {
        self.requests.lock().unwrap().clone()
    }
}

/// A server that accepts connections and never answers.
pub(crate) struct Silent {
    pub(crate) port: u16,
    /// True once a client waits.
    pub(crate) waiting: Arc<AtomicBool>,
    /// True once a client stopped waiting.
    pub(crate) left: Arc<AtomicBool>,
}

impl Silent {
    pub(crate) async fn start() -> Self {
        let (listener, port) = listener().await;
        let (waiting, left) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let (waits, leaves) = (waiting.clone(), left.clone());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (waits, leaves) = (waits.clone(), leaves.clone());
                tokio::spawn(async move {
                    let mut bytes = [0; 4096];
                    while stream.read(&mut bytes).await.is_ok_and(|read| read > 0) {
                        waits.store(true, Ordering::Relaxed);
                    }
                    leaves.store(true, Ordering::Relaxed);
                });
            }
        });
        Silent { port, waiting, left }
    }
}

/// A sample with the labels of its series.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sample {
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) at_ms: i64,
    pub(crate) value: f64,
}

impl Sample {
    pub(crate) fn label(&self, name: &str) -> &str {
        self.labels.iter().find(|(label, _)| label == name).map_or("", |(_, value)| value)
    }
}

/// A receiver of remote write. It is away at first, and refuses requests with a series of an
/// interface `bad`.
pub(crate) struct WriteReceiver {
    pub(crate) address: SocketAddr,
    samples: Arc<Mutex<Vec<Sample>>>,
    /// The heads of the requests.
    heads: Arc<Mutex<Vec<String>>>,
}

impl WriteReceiver {
    pub(crate) async fn start() -> Self {
        let (listener, _) = listener().await;
        let address = listener.local_addr().unwrap();
        let (samples, heads) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
        let (kept, seen) = (samples.clone(), heads.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Some((stream, head, body)) = request(stream).await else { continue };
                seen.lock().unwrap().push(head);
                let number = seen.lock().unwrap().len();
                let body = snap::raw::Decoder::new().decompress_vec(&body).unwrap();
                let found = decoded(&body);
                let status = if number == 1 {
                    "503 Service Unavailable"
                } else if found.iter().any(|sample| sample.label("interface") == "bad") {
                    "400 Bad Request"
                } else {
                    kept.lock().unwrap().extend(found);
                    "204 No Content"
                };
                let mut stream = stream;
                let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n");
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        WriteReceiver { address, samples, heads }
    }

    pub(crate) fn samples(&self) -> Vec<Sample> {
        self.samples.lock().unwrap().clone()
    }

    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

/// Reads a request: the head in lower case, and the body.
async fn request<S: AsyncRead + Unpin>(stream: S) -> Option<(BufReader<S>, String, Vec<u8>)> {
    let mut stream = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await.ok().filter(|read| *read > 0)?;
        if line == "\r\n" {
            break;
        }
        let line = line.to_lowercase();
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.trim().parse().ok()?;
        }
        head += &line;
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some((stream, head, body))
}

/// Decodes a write request, independently of the hub's encoder.
fn decoded(bytes: &[u8]) -> Vec<Sample> {
    let mut all = Vec::new();
    for (_, series) in fields(bytes) {
        let series = fields(&series);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let label = |bytes: &[u8]| {
            let parts = fields(bytes);
            (text(&parts[0].1), text(&parts[1].1))
        };
        let labels: Vec<_> =
            series.iter().filter(|(number, _)| *number == 1).map(|(_, one)| label(one)).collect();
        for (_, sample) in series.iter().filter(|(number, _)| *number == 2) {
            let parts = fields(sample);
            let value = f64::from_le_bytes(parts[0].1.as_slice().try_into().unwrap());
            let at_ms = i64::from_le_bytes(parts[1].1.as_slice().try_into().unwrap());
            all.push(Sample { labels: labels.clone(), at_ms, value });
        }
    }
    all
}

/// Returns the fields of a message of Protocol Buffers; a varint as 8 bytes.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return value;
            }
        }
    }
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let contents = match key & 7 {
            0 => varint(&mut bytes).to_le_bytes().to_vec(),
            wire => {
                let length =
                    if wire == 1 { 8 } else { usize::try_from(varint(&mut bytes)).unwrap() };
                let (contents, rest) = bytes.split_at(length);
                bytes = rest;
                contents.to_vec()
            }
        };
        all.push((key >> 3, contents));
    }
    all
}
