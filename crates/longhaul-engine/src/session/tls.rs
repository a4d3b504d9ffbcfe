//! TLS 1.3 with raw public keys (RFC 7250): both ends send an Ed25519 key and prove its possession.
//! There are no certificates, names or dates; [`known_hosts`](super::known_hosts) and
//! [`authorized`](super::authorized) decide on the key after the handshake.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{CryptoProvider, ring as provider};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error,
    PeerIncompatible, ServerConfig, SignatureAlgorithm, SignatureScheme,
};

use super::identity::Identity;
use super::public_key::PublicKey;
use super::secret::SessionSecret;

const ALPN: &[u8] = b"longhaul/1";

pub(super) fn client_config(identity: &Identity) -> Arc<ClientConfig> {
    let provider = Arc::new(provider::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])
        .expect("ring has TLS 1.3 suites")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyRawKey(provider)))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(certified(
            identity,
        ))));
    config.alpn_protocols = vec![ALPN.to_vec()];
    // A ticket saves no round trip: only 0-RTT data would, which an attacker can replay, and a
    // request changes files. So every session proves the keys of both ends again.
    config.resumption = Resumption::disabled();
    Arc::new(config)
}

pub(super) fn server_config(identity: &Identity) -> Arc<ServerConfig> {
    let provider = Arc::new(provider::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])
        .expect("ring has TLS 1.3 suites")
        .with_client_cert_verifier(Arc::new(AnyRawKey(provider)))
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(certified(identity))));
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.send_tls13_tickets = 0;
    Arc::new(config)
}

/// Exporter label (RFC 8446, section 7.5) of the session's secret.
const EXPORTER_LABEL: &[u8] = b"EXPORTER-longhaul-session-1";

/// Returns the secret of the session that both ends derive from the handshake.
pub(super) fn export_secret(connection: &mut rustls::Connection) -> Option<SessionSecret> {
    let material = connection.export_keying_material([0; 32], EXPORTER_LABEL, None).ok()?;
    Some(SessionSecret::from_keying_material(&material))
}

/// Returns the key of the peer, which every successful handshake has proved.
pub(super) fn peer_key(connection: &rustls::Connection) -> Option<PublicKey> {
    PublicKey::from_spki(connection.peer_certificates()?.first()?)
}

fn certified(identity: &Identity) -> Arc<CertifiedKey> {
    let spki = vec![CertificateDer::from(identity.public().to_spki())];
    Arc::new(CertifiedKey::new(spki, Arc::new(HandshakeKey(identity.clone()))))
}

/// Signs handshakes with an identity. An ssh agent may have the private key.
#[derive(Debug)]
struct HandshakeKey(Identity);

impl SigningKey for HandshakeKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let takes = offered.contains(&SignatureScheme::ED25519);
        takes.then(|| Box::new(HandshakeKey(self.0.clone())) as _)
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        Some(SubjectPublicKeyInfoDer::from(self.0.public().to_spki()))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ED25519
    }
}

impl Signer for HandshakeKey {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        let signature = self.0.sign(message);
        signature.map(Vec::from).map_err(|error| Error::General(error.to_string()))
    }

    fn scheme(&self) -> SignatureScheme {
        SignatureScheme::ED25519
    }
}

/// Accepts any Ed25519 key whose holder signs the handshake.
#[derive(Debug)]
struct AnyRawKey(Arc<CryptoProvider>);

impl AnyRawKey {
    fn well_formed(spki: &[u8]) -> Result<(), Error> {
        PublicKey::from_spki(spki)
            .map(|_| ())
            .ok_or(Error::InvalidCertificate(CertificateError::BadEncoding))
    }

    fn verify(
        &self,
        message: &[u8],
        spki: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature_with_raw_key(
            message,
            &SubjectPublicKeyInfoDer::from(spki.as_ref()),
            signature,
            &self.0.signature_verification_algorithms,
        )
    }
}

const TLS12_IS_OFF: Error = Error::PeerIncompatible(PeerIncompatible::Tls13RequiredForQuic);

impl ServerCertVerifier for AnyRawKey {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Self::well_formed(end_entity).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(TLS12_IS_OFF)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, cert, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for AnyRawKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Self::well_formed(end_entity).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(TLS12_IS_OFF)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(message, cert, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use rustls::{ClientConnection, HandshakeKind, ServerConnection};

    use super::*;

    /// Runs a handshake in memory, and returns the key that the client saw, the kind of the
    /// handshake, and the number of tickets that the client got.
    fn handshake(
        client: &Arc<ClientConfig>,
        server: &Arc<ServerConfig>,
    ) -> (PublicKey, HandshakeKind, u32) {
        let name = ServerName::IpAddress(std::net::IpAddr::from([192, 0, 2, 1]).into());
        let mut near = ClientConnection::new(client.clone(), name).unwrap();
        let mut far = ServerConnection::new(server.clone()).unwrap();
        // The last round brings the messages that a server sends after its handshake.
        for _ in 0..4 {
            let (mut there, mut back) = (Vec::new(), Vec::new());
            while near.wants_write() {
                near.write_tls(&mut there).unwrap();
            }
            while !there.is_empty() {
                let taken = far.read_tls(&mut &there[..]).unwrap();
                there.drain(..taken);
                far.process_new_packets().unwrap();
            }
            while far.wants_write() {
                far.write_tls(&mut back).unwrap();
            }
            while !back.is_empty() {
                let taken = near.read_tls(&mut &back[..]).unwrap();
                back.drain(..taken);
                near.process_new_packets().unwrap();
            }
        }
        let (kind, tickets) = (near.handshake_kind().unwrap(), near.tls13_tickets_received());
        (peer_key(&rustls::Connection::Client(near)).unwrap(), kind, tickets)
    }

    #[test]
    fn every_session_proves_the_key_of_the_server() {
        let [user, host, other] = [(); 3].map(|()| Identity::generate());
        let (client, server) = (client_config(&user), server_config(&host));
        for _ in 0..3 {
            let found = handshake(&client, &server);
            assert_eq!(found, (host.public(), HandshakeKind::Full, 0));
        }
        // A server with another key at the same address is noticed at once.
        let found = handshake(&client, &server_config(&other));
        assert_eq!(found, (other.public(), HandshakeKind::Full, 0));
    }
}
