//! A client of a hub: HTTPS/1.1 with a pinned key, as agents and scripts have.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use longhaul_fleet::protocol::{CHECK_PATH, SYNC_PATH, body_digest, key_pin, signed_text};
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use serde_json::Value as Json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The limit on every request.
const LIMIT: Duration = Duration::from_secs(60);

/// The answer to a request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Json {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns the cookie that the answer sets.
    pub(crate) fn cookie(&self) -> String {
        let line = self.head.lines().find(|line| line.to_lowercase().starts_with("set-cookie:"));
        let line = line.unwrap_or_else(|| panic!("no cookie: {self:?}"));
        line["set-cookie:".len()..].split(';').next().unwrap().trim().to_owned()
    }
}

/// A client of one hub.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    config: Arc<ClientConfig>,
}

impl Client {
    pub(crate) fn new(address: SocketAddr, pin: &str) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = Pinned { pin: pin.to_owned(), algorithms: algorithms(&provider) };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        Client { address, config: Arc::new(config) }
    }

    /// Sends a request with headers, each a line, and returns the answer.
    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[String],
        body: &[u8],
    ) -> Answer {
        let work = async {
            let mut stream = self.connect().await;
            let mut head =
                format!("{method} {path} HTTP/1.1\r\nhost: hub\r\nconnection: close\r\n");
            head += &format!("content-length: {}\r\n", body.len());
            for header in headers {
                head += &format!("{header}\r\n");
            }
            head += "\r\n";
            // The hub may refuse a body before it has read it.
            let _ = stream.write_all(head.as_bytes()).await;
            let _ = stream.write_all(body).await;
            let _ = stream.flush().await;
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer).await;
            String::from_utf8_lossy(&answer).into_owned()
        };
        answer(&tokio::time::timeout(LIMIT, work).await.expect("an answer in time"))
    }

    /// Sends only the head of a request with a body, and returns the answer.
    pub(crate) async fn send_head(&self, path: &str, headers: &[String], bytes: usize) -> Answer {
        let mut head = format!("POST {path} HTTP/1.1\r\nhost: hub\r\ncontent-length: {bytes}\r\n");
        for header in headers {
            head += &format!("{header}\r\n");
        }
        let work = async {
            let mut stream = self.connect().await;
            stream.write_all(format!("{head}\r\n").as_bytes()).await.unwrap();
            let mut answer = vec![0; 4096];
            let read = stream.read(&mut answer).await.unwrap();
            String::from_utf8_lossy(&answer[..read]).into_owned()
        };
        answer(&tokio::time::timeout(LIMIT, work).await.expect("an answer without a body"))
    }

    async fn connect(&self) -> TlsStream<TcpStream> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let connector = TlsConnector::from(self.config.clone());
        let name = ServerName::try_from("hub").unwrap();
        connector.connect(name, stream).await.expect("the key has the pin")
    }

    /// Posts a JSON document `count` times on one connection, and counts the statuses.
    pub(crate) async fn post_often(
        &self,
        path: &str,
        body: &Json,
        count: usize,
    ) -> BTreeMap<u16, usize> {
        let mut stream = BufReader::new(self.connect().await);
        let mut statuses = BTreeMap::new();
        let body = body.to_string();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: hub\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        for _ in 0..count {
            stream.write_all(request.as_bytes()).await.unwrap();
            stream.flush().await.unwrap();
            let (mut status, mut length) = (0, 0);
            loop {
                let mut line = String::new();
                assert!(
                    stream.read_line(&mut line).await.unwrap() > 0,
                    "the connection stays open"
                );
                let line = line.trim_end().to_lowercase();
                if line.is_empty() {
                    break;
                }
                if line.starts_with("http/1.1 ") {
                    status = line[9..12].parse().unwrap();
                }
                if let Some(value) = line.strip_prefix("content-length: ") {
                    length = value.parse().unwrap();
                }
            }
            let mut skipped = vec![0; length];
            stream.read_exact(&mut skipped).await.unwrap();
            *statuses.entry(status).or_default() += 1;
        }
        statuses
    }

    pub(crate) async fn get(&self, path: &str, header: &str) -> Answer {
        self.send("GET", path, &[header.to_owned()], b"").await
    }

    /// Posts a JSON document.
    pub(crate) async fn post(&self, path: &str, headers: &[String], body: &Json) -> Answer {
        let mut headers = headers.to_vec();
        headers.push("content-type: application/json".to_owned());
        self.send("POST", path, &headers, body.to_string().as_bytes()).await
    }

    /// Posts a form.
    pub(crate) async fn form(&self, path: &str, cookie: &str, body: &str) -> Answer {
        let kind = "content-type: application/x-www-form-urlencoded".to_owned();
        self.send("POST", path, &[kind, format!("cookie: {cookie}")], body.as_bytes()).await
    }

    /// Returns a bearer header from a login.
    pub(crate) async fn bearer(&self, user: &str, password: &str) -> String {
        let body = serde_json::json!({ "user": user, "password": password, "label": "test" });
        let answer = self.post("/api/v1/login", &[], &body).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        format!("authorization: Bearer {}", answer.json()["token"].as_str().unwrap())
    }
}

fn answer(text: &str) -> Answer {
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    Answer { status, head: head.to_owned(), body: body.to_owned() }
}

/// An agent, as the hub sees it.
pub(crate) struct Agent {
    pub(crate) id: String,
    pub(crate) counter: u64,
    key: Ed25519KeyPair,
}

impl Agent {
    /// Makes the key of an agent from a seed.
    pub(crate) fn new(seed: u8) -> Self {
        let key = Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap();
        Agent { id: String::new(), counter: 0, key }
    }

    pub(crate) fn public_key(&self) -> String {
        STANDARD.encode(self.key.public_key())
    }

    /// Returns the headers of a sync with a counter.
    pub(crate) fn headers(&self, counter: u64, path: &str, body: &[u8]) -> Vec<String> {
        self.signed("POST", counter, path, body)
    }

    fn signed(&self, method: &str, counter: u64, path: &str, body: &[u8]) -> Vec<String> {
        let signature = self.key.sign(signed_text(method, path, counter, body).as_bytes());
        vec![
            format!("longhaul-agent: {}", self.id),
            format!("longhaul-counter: {counter}"),
            format!("longhaul-digest: {}", body_digest(body)),
            format!("longhaul-signature: {}", STANDARD.encode(signature)),
        ]
    }

    /// Asks the hub to recognize the key, with any counter.
    pub(crate) async fn check(&self, client: &Client, counter: u64) -> Answer {
        client.send("GET", CHECK_PATH, &self.signed("GET", counter, CHECK_PATH, b""), b"").await
    }

    /// Sends a sync with the next counter.
    pub(crate) async fn sync(&mut self, client: &Client, wait: u64, body: &Json) -> Answer {
        self.counter += 1;
        let path = format!("{SYNC_PATH}?wait={wait}");
        let body = body.to_string();
        let headers = self.headers(self.counter, &path, body.as_bytes());
        client.send("POST", &path, &headers, body.as_bytes()).await
    }
}

#[derive(Debug)]
struct Pinned {
    pin: String,
    algorithms: WebPkiSupportedAlgorithms,
}

fn algorithms(provider: &CryptoProvider) -> WebPkiSupportedAlgorithms {
    provider.signature_verification_algorithms
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let certificate = webpki::EndEntityCert::try_from(certificate).unwrap();
        if key_pin(&certificate.subject_public_key_info()) == self.pin {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(Error::General("another key".to_owned()))
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
