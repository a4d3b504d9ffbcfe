//! The trust in servers that the hub connects to: root certificates, and TLS as a client.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

/// The certificates of Debian, of Fedora, and of distributions derived from them.
const SYSTEM_CERTIFICATES: [&str; 2] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];

/// The root certificates of outgoing connections cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file has no certificate, or an invalid one.
    #[error("{} has no certificate in PEM, or an invalid one", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
    },
    /// TLS cannot be used.
    #[error("cannot use TLS: {0}")]
    Tls(rustls::Error),
}

/// A connection, encrypted or not.
pub(crate) trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Returns the root certificates of this host, and those of `file`.
///
/// # Errors
/// The file is inaccessible or has no certificate.
pub(crate) fn roots(file: Option<&Path>) -> Result<RootCertStore, TrustError> {
    let mut roots = RootCertStore::empty();
    if let Some(text) = SYSTEM_CERTIFICATES.iter().find_map(|path| std::fs::read(path).ok()) {
        // Some system certificates use algorithms that rustls does not support.
        let certificates = CertificateDer::pem_slice_iter(&text).filter_map(Result::ok);
        roots.add_parsable_certificates(certificates);
    }
    if let Some(path) = file {
        add_file(&mut roots, path)?;
    }
    Ok(roots)
}

/// Returns only the root certificates of `file`.
///
/// # Errors
/// The file is inaccessible or has no certificate.
pub(crate) fn roots_of_file(file: &Path) -> Result<RootCertStore, TrustError> {
    let mut roots = RootCertStore::empty();
    add_file(&mut roots, file)?;
    Ok(roots)
}

fn add_file(roots: &mut RootCertStore, path: &Path) -> Result<(), TrustError> {
    let read = |source| TrustError::Unreadable { path: path.to_owned(), source };
    let text = std::fs::read(path).map_err(read)?;
    let invalid = || TrustError::Invalid { path: path.to_owned() };
    let mut added = 0;
    for certificate in CertificateDer::pem_slice_iter(&text) {
        roots.add(certificate.map_err(|_| invalid())?).map_err(|_| invalid())?;
        added += 1;
    }
    if added == 0 { Err(invalid()) } else { Ok(()) }
}

/// Returns the configuration of a client that trusts `roots`.
pub(crate) fn client(roots: RootCertStore) -> Result<Arc<ClientConfig>, TrustError> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(TrustError::Tls)?;
    Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
}

/// Returns the configuration of a client that accepts every certificate: it protects from readers
/// on the path, not from attackers who answer for the server.
pub(crate) fn unverified_client() -> Result<Arc<ClientConfig>, TrustError> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(TrustError::Tls)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Unverified(provider())));
    Ok(Arc::new(builder.with_no_client_auth()))
}

/// Returns the name of a server for TLS: a DNS name or an address.
pub(crate) fn server_name(host: &str) -> Result<ServerName<'static>, InvalidDnsNameError> {
    ServerName::try_from(host.trim_matches(['[', ']']).to_owned())
}

/// Starts TLS on a connection to `host`.
///
/// # Errors
/// The name or the certificate of the server is invalid.
pub(crate) async fn secured(
    stream: impl Wire + 'static,
    host: &str,
    tls: &Arc<ClientConfig>,
) -> std::io::Result<Box<dyn Wire>> {
    let name = server_name(host).map_err(std::io::Error::other)?;
    Ok(Box::new(TlsConnector::from(tls.clone()).connect(name, stream).await?))
}

/// Accepts every certificate, and checks that the server has its key.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
