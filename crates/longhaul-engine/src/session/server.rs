//! A session at the server: the TLS handshake, the request of the client, and the answer.

use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::wire::{AnyHello, HostKeys, PROTOCOL_VERSION, RefusalKind, Service, Welcome};
use rustls::{Connection, ServerConnection};
use socket2::{SockRef, TcpKeepalive};

use super::address::canonical;
use super::allowance::DescriptorSource;
use super::channel::{ControlReceiver, ControlSender, control_over_tls};
use super::data_acceptor::{DataAcceptor, SessionRegistry};
use super::deadline::DeadlineSocket;
use super::grant::Grant;
use super::identity::Identity;
use super::key_quota::KeyQuota;
use super::key_rate::KeyRate;
use super::public_key::PublicKey;
use super::work::WorkRecord;
use super::{rotation, tls};
use crate::error::{EngineError, Result};

/// The time after which unacknowledged data end a client's session.
const VANISHED: Duration = Duration::from_secs(30);
/// The silence after which TCP checks whether the client is there, and repeats it every
/// [`KEEPALIVE_INTERVAL`]; with [`VANISHED`] a host that is gone is noticed within 45 s.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// An open session at the server, after its request.
pub struct ServedSession {
    /// The sender to the client.
    pub sender: ControlSender,
    /// The receiver from the client.
    pub receiver: ControlReceiver,
    /// The data connections.
    pub streams: DataAcceptor,
    /// True if the client's key is in the authorized list.
    pub authorized: bool,
    /// The rights of the key.
    pub grant: Grant,
    /// The client's key; `None` if the channel needs none.
    pub key: Option<PublicKey>,
    /// The record of the service's work.
    pub record: WorkRecord,
    /// The keys that the server announces.
    pub host_keys: Option<HostKeys>,
    /// The rate that it shares with the other sessions of its key.
    pub(crate) rate: Option<Arc<KeyRate>>,
    /// The bytes that its key may store.
    pub(crate) quota: Option<KeyQuota>,
}

impl ServedSession {
    /// Reads the client's request. `allow` returns a refusal, or `None` for an offered service.
    /// Returns the service to [welcome](Self::welcome) the client to.
    ///
    /// # Errors
    /// The channel broke, or the client was refused.
    pub fn read_request(
        &mut self,
        allow: impl FnOnce(Service, bool) -> Option<(RefusalKind, String)>,
    ) -> Result<Service> {
        let hello: AnyHello = self.receiver.receive()?;
        if hello.protocol != PROTOCOL_VERSION {
            let reason = format!(
                "it uses protocol {PROTOCOL_VERSION} (longhaul {}), the client {} (longhaul \
                 {}); use the same version at both ends",
                env!("CARGO_PKG_VERSION"),
                hello.protocol,
                hello.short_version()
            );
            return Err(self.refuse(RefusalKind::Version, reason));
        }
        let Some(service) = hello.service() else {
            let reason = "it does not offer the requested service".to_owned();
            return Err(self.refuse(RefusalKind::Invalid, reason));
        };
        match allow(service, self.authorized) {
            None => Ok(service),
            Some((kind, reason)) => Err(self.refuse(kind, reason)),
        }
    }

    /// Welcomes the client to the service.
    ///
    /// # Errors
    /// The channel broke.
    pub fn welcome(&self) -> Result<()> {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        self.sender.send(&Welcome::Ready { version, host_keys: self.host_keys.clone() })
    }

    /// Refuses the client. The error is the refusal, or that it could not be sent.
    pub fn refuse(&self, kind: RefusalKind, reason: String) -> EngineError {
        match self.sender.send(&Welcome::Refused { kind, reason: reason.clone() }) {
            Ok(()) => EngineError::Refused { peer: self.sender.peer().to_owned(), kind, reason },
            Err(error) => error,
        }
    }
}

/// A fresh connection that begins with a TLS handshake.
pub(crate) struct Opening {
    /// The connection.
    pub(crate) socket: Arc<TcpStream>,
    /// The deadline of the handshake and the request.
    pub(crate) deadline: Instant,
}

/// Returns the address of a client for errors, in the same form as the server's log.
fn peer_name(socket: &TcpStream) -> String {
    let address = socket.peer_addr().map(canonical);
    address.map_or_else(|_| "a client".to_owned(), |address| address.to_string())
}

/// Creates a session from a fresh connection. `descriptors` returns the source of the descriptors
/// of its data connections, by whether the client's key is authorized.
pub(crate) fn serve_tls(
    opening: Opening,
    identity: &Identity,
    authorized: impl FnOnce(&PublicKey) -> Option<Grant>,
    registry: &SessionRegistry,
    descriptors: impl FnOnce(bool) -> DescriptorSource,
) -> Result<ServedSession> {
    let Opening { socket, deadline } = opening;
    let peer = peer_name(&socket);
    let failed = |source| EngineError::Handshake { peer: peer.clone(), source };
    let connection = ServerConnection::new(tls::server_config(identity))
        .map_err(|error| failed(std::io::Error::other(error)))?;
    let mut connection = Connection::Server(connection);
    notice_vanished(&socket);
    let mut until = DeadlineSocket::at(&socket, deadline);
    while connection.is_handshaking() {
        connection.complete_io(&mut until).map_err(failed)?;
    }
    let key = tls::peer_key(&connection)
        .ok_or(EngineError::Protocol { peer: peer.clone(), what: "it presented no key" })?;
    let secret = tls::export_secret(&mut connection)
        .ok_or(EngineError::Protocol { peer: peer.clone(), what: "no keying material" })?;
    let host_keys = rotation::announce(identity, &secret);
    let grant = authorized(&key);
    let authorized = grant.is_some();
    // Registered before the first message, so that no data connection is too early.
    let mut streams = registry.register_counted(secret, descriptors(authorized));
    let (sender, receiver) = control_over_tls(connection, socket, &peer).map_err(failed)?;
    streams.end_when(receiver.peer_check());
    let left = deadline.saturating_duration_since(Instant::now());
    receiver.set_timeout(Some(left.max(Duration::from_millis(1))))?;
    Ok(ServedSession {
        sender,
        receiver,
        streams,
        authorized,
        grant: grant.unwrap_or_default(),
        key: Some(key),
        record: WorkRecord::default(),
        host_keys,
        rate: None,
        quota: None,
    })
}

/// Makes the kernel end a connection whose host is gone. If it refuses, the time limits of each
/// step apply.
fn notice_vanished(socket: &TcpStream) {
    let _ = socket.set_nodelay(true);
    let socket = SockRef::from(socket);
    // A host that is gone does not answer keepalives.
    let _ = socket.set_tcp_user_timeout(Some(VANISHED));
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_IDLE).with_interval(KEEPALIVE_INTERVAL);
    let _ = socket.set_tcp_keepalive(&keepalive);
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn an_error_names_an_ipv4_client_by_its_ipv4_address() {
        let listener = TcpListener::bind("[::]:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (socket, _) = listener.accept().unwrap();
        assert_eq!(peer_name(&socket), client.local_addr().unwrap().to_string());
    }
}
