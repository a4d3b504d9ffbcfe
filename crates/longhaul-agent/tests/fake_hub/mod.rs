//! A hub in this process: HTTPS over TLS 1.3 on loopback, with a script of answers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use longhaul_fleet::protocol::{
    AgentSettings, DeclaredCapacity, ENROLL_PATH, EnrollRequest, EnrollResponse, Lease,
    RefusalBody, RefusalCode, SYNC_PATH, SyncRequest, SyncResponse, key_pin, signature_holds,
    signed_text,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde::Serialize;

/// The state of the hub, which tests read and change.
#[derive(Default)]
pub(crate) struct Book {
    pub(crate) leases: Vec<Lease>,
    pub(crate) uploads: Vec<SyncRequest>,
    pub(crate) refused: usize,
    pub(crate) counter: u64,
    pub(crate) public_key: String,
    /// True to store uploads without an acknowledgement.
    pub(crate) silent: bool,
    /// True to refuse all syncs as from a revoked agent.
    pub(crate) revoked: bool,
    /// The capacity that the mesh declares for the host of the agent.
    pub(crate) capacity: Option<DeclaredCapacity>,
}

pub(crate) struct FakeHub {
    pub(crate) address: SocketAddr,
    pub(crate) pin: String,
    pub(crate) certificate: String,
    pub(crate) book: Arc<Mutex<Book>>,
}

pub(crate) const SECRET: &str = "0123456789abcdef0123";

impl FakeHub {
    pub(crate) fn start() -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        let pin = key_pin(&rcgen::PublicKeyData::subject_public_key_info(&made.signing_key));
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let chain = vec![CertificateDer::from(made.cert.der().to_vec())];
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let book = Arc::new(Mutex::new(Book::default()));
        let (config, shared) = (Arc::new(config), book.clone());
        // The thread ends with the process of the tests.
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (config, book) = (config.clone(), shared.clone());
                thread::spawn(move || serve(stream, config, &book));
            }
        });
        FakeHub { address, pin, certificate: made.cert.pem(), book }
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.address)
    }
}

pub(crate) fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

fn serve(stream: TcpStream, config: Arc<ServerConfig>, book: &Mutex<Book>) {
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut tls = StreamOwned::new(ServerConnection::new(config).unwrap(), stream);
    while let Some((path, head, body)) = read_request(&mut tls) {
        let (status, answer) = answer(&path, &head, &body, book);
        let reply = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            answer.len()
        );
        let sent = tls.write_all(reply.as_bytes()).and_then(|()| tls.write_all(&answer));
        if sent.and_then(|()| tls.flush()).is_err() {
            return;
        }
    }
}

/// Returns the path, the head and the body of a request.
fn read_request(tls: &mut impl Read) -> Option<(String, String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        let read = tls.read(&mut piece).ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&piece[..read]);
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let length = header(&head, "content-length").map_or(0, |text| text.parse().unwrap());
    while bytes.len() < end + length {
        let read = tls.read(&mut piece).ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&piece[..read]);
    }
    let path = head.split_whitespace().nth(1)?.to_owned();
    Some((path, head, bytes[end..].to_vec()))
}

fn header(head: &str, name: &str) -> Option<String> {
    head.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
    })
}

fn json(status: u16, body: &impl Serialize) -> (u16, Vec<u8>) {
    (status, serde_json::to_vec(body).unwrap())
}

fn refuse(code: RefusalCode, counter: Option<u64>) -> (u16, Vec<u8>) {
    json(code.status(), &RefusalBody { code, message: "no".to_owned(), counter })
}

fn answer(path: &str, head: &str, body: &[u8], book: &Mutex<Book>) -> (u16, Vec<u8>) {
    let mut book = book.lock().unwrap();
    if path == ENROLL_PATH {
        let request: EnrollRequest = serde_json::from_slice(body).unwrap();
        if request.secret != SECRET {
            return refuse(RefusalCode::UnknownToken, None);
        }
        book.public_key = request.public_key;
        let (agent, hub_version) = ("agent-1".to_owned(), "1".to_owned());
        return json(200, &EnrollResponse { agent, host: request.host, hub_version });
    }
    if !path.starts_with(SYNC_PATH) {
        return refuse(RefusalCode::Other, None);
    }
    let counter: u64 = header(head, "longhaul-counter").unwrap().parse().unwrap();
    let text = signed_text("POST", path, counter, body);
    let signature = header(head, "longhaul-signature").unwrap();
    assert_eq!(header(head, "longhaul-agent").as_deref(), Some("agent-1"));
    if !signature_holds(&book.public_key, &text, &signature) {
        book.refused += 1;
        return refuse(RefusalCode::BadSignature, None);
    }
    if counter <= book.counter {
        book.refused += 1;
        return refuse(RefusalCode::Replayed, Some(book.counter));
    }
    if book.revoked {
        return refuse(RefusalCode::Revoked, None);
    }
    book.counter = counter;
    let request: SyncRequest = serde_json::from_slice(body).unwrap();
    let results = request.results.iter().map(|one| one.id);
    let samples = request.samples.iter().map(|one| one.id);
    let others = request.events.iter().map(|one| one.id);
    let acknowledged =
        if book.silent { vec![] } else { results.chain(samples).chain(others).collect() };
    book.uploads.push(request);
    json(
        200,
        &SyncResponse {
            acknowledged,
            facts_stored: true,
            leases: book.leases.clone(),
            cancel: vec![],
            stamp_peers: vec![],
            settings: AgentSettings {
                hub_ms: now_ms(),
                sample_interval_ms: 1000,
                upload_seconds: 1,
                capacity: book.capacity.clone(),
            },
        },
    )
}
