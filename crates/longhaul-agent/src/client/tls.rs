//! TLS to the hub: the key of its certificate is pinned, or its chain is verified.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_fleet::protocol::key_pin;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
    StreamOwned,
};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, Transport,
    TransportAdapter,
};

use crate::error::{AgentError, Result};

/// The certificates of Debian and of distributions derived from it.
const SYSTEM_CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// The reason for which a hub is trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// The pin of its key.
    Pin(String),
    /// The certificates in a file (PEM).
    File(PathBuf),
    /// The certificates of this host.
    System,
}

impl Trust {
    /// Returns the trust by a pin, or else by a file, or else by the certificates of this host.
    pub fn of(pin: Option<&str>, ca: Option<&Path>) -> Self {
        match (ca, pin) {
            (Some(file), _) => Trust::File(file.to_owned()),
            (None, Some(pin)) => Trust::Pin(pin.to_owned()),
            (None, None) => Trust::System,
        }
    }

    /// Returns the configuration of TLS 1.3 with this trust.
    pub(super) fn config(&self) -> Result<ClientConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13]);
        // The provider has suites of TLS 1.3.
        let builder = builder.map_err(|source| AgentError::Certificate {
            hub: String::new(),
            by_pin: false,
            source,
        })?;
        let builder = match self {
            Trust::Pin(pin) => {
                let verifier = PinVerifier { pin: pin.clone(), provider };
                builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
            }
            Trust::File(path) => builder.with_root_certificates(roots(path)?),
            Trust::System => builder.with_root_certificates(roots(SYSTEM_CERTIFICATES.as_ref())?),
        };
        Ok(builder.with_no_client_auth())
    }
}

fn roots(path: &Path) -> Result<RootCertStore> {
    let damaged = |message: String| AgentError::Damaged { path: path.to_owned(), message };
    let contents = std::fs::read(path).map_err(AgentError::file("read", path))?;
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&contents) {
        let certificate = certificate.map_err(|error| damaged(error.to_string()))?;
        // Some system certificates use algorithms that rustls does not support.
        let _ = store.add(certificate);
    }
    if store.is_empty() { Err(damaged("it has no certificate".to_owned())) } else { Ok(store) }
}

/// Accepts one key, independent of the names and dates in the certificate.
#[derive(Debug)]
struct PinVerifier {
    pin: String,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        if key_pin(&certificate.subject_public_key_info()) == self.pin {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(rustls::Error::InvalidCertificate(
                rustls::CertificateError::ApplicationVerificationFailure,
            ))
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.2 is not used".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Wraps a connection to the hub in TLS. The connection to an HTTP proxy stays plain, and the one to the
/// hub is inside it.
#[derive(Debug)]
pub(super) struct TlsConnector(pub(super) Arc<ClientConfig>);

impl<In: Transport> Connector<In> for TlsConnector {
    type Out = Either<In, TlsTransport>;

    fn connect(
        &self,
        details: &ConnectionDetails,
        chained: Option<In>,
    ) -> std::result::Result<Option<Self::Out>, ureq::Error> {
        let Some(transport) = chained else { return Ok(None) };
        if !details.needs_tls() {
            return Ok(Some(Either::A(transport)));
        }
        let host = details.uri.host().unwrap_or_default();
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let name = ServerName::try_from(bare.to_owned());
        let name = name.map_err(|_| ureq::Error::Tls("the hub's name is invalid"))?;
        let failed = |error| ureq::Error::Io(std::io::Error::other(error));
        let mut connection = ClientConnection::new(self.0.clone(), name).map_err(failed)?;
        let boxed: Box<dyn Transport> = Box::new(transport);
        let mut socket = TransportAdapter::new(boxed, details.current_time.clone());
        socket.set_timeout(details.timeout);
        connection.complete_io(&mut socket)?;
        let stream = StreamOwned::new(connection, socket);
        let buffers = LazyBuffers::new(
            details.config.input_buffer_size(),
            details.config.output_buffer_size(),
        );
        Ok(Some(Either::B(TlsTransport { buffers, stream })))
    }
}

/// A connection with TLS.
pub(super) struct TlsTransport {
    buffers: LazyBuffers,
    stream: StreamOwned<ClientConnection, TransportAdapter>,
}

impl Transport for TlsTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(
        &mut self,
        amount: usize,
        timeout: NextTimeout,
    ) -> std::result::Result<(), ureq::Error> {
        self.stream.get_mut().set_timeout(timeout);
        let output = &self.buffers.output()[..amount];
        Ok(self.stream.write_all(output)?)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> std::result::Result<bool, ureq::Error> {
        self.stream.get_mut().set_timeout(timeout);
        let input = self.buffers.input_append_buf();
        let amount = self.stream.read(input)?;
        self.buffers.input_appended(amount);
        Ok(amount > 0)
    }

    fn is_open(&mut self) -> bool {
        self.stream.get_mut().get_mut().is_open()
    }

    fn is_tls(&self) -> bool {
        true
    }
}

impl std::fmt::Debug for TlsTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsTransport").finish_non_exhaustive()
    }
}
