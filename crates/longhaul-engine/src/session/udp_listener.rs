//! The UDP socket of a server, which accepts the flows of its sessions.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use longhaul_core::wire::{Greeting, GreetingKind, HELLO_BYTES, SessionId};
use longhaul_sys::{poll, udp};
use ring::hmac;

use super::data_acceptor::SessionRegistry;
use super::flow_port::FlowPort;
use super::secret::random_keying_material;
use super::udp::Cookie;

/// The interval at which a waiting thread checks whether to stop.
const STOP_CHECK: Duration = Duration::from_millis(100 / crate::HASTE);

/// The UDP socket beside a listener's TCP socket, which accepts flows.
#[derive(Debug)]
pub(crate) struct UdpListener {
    port: FlowPort,
    key: hmac::Key,
}

impl UdpListener {
    /// Binds to `address` with its port. An IPv6 wildcard accepts IPv4, too.
    pub(crate) fn bind(address: SocketAddr) -> io::Result<Self> {
        let port = FlowPort::bind(address)?;
        let key = hmac::Key::new(hmac::HMAC_SHA256, &random_keying_material());
        Ok(UdpListener { port, key })
    }

    /// Accepts flows of the sessions of `registry` until `stopped`.
    pub(crate) fn run(&self, registry: &SessionRegistry, stopped: impl Fn() -> bool) {
        let mut bytes = [0; HELLO_BYTES + 1];
        while !stopped() {
            match self.port.receive(&mut bytes) {
                Ok(found) => self.greet(&bytes[..found.bytes], &found, registry),
                // ICMP errors about answers are ignored.
                Err(_) => {
                    poll::readable(self.port.socket(), STOP_CHECK);
                }
            }
        }
    }

    fn greet(&self, bytes: &[u8], found: &udp::Addressed, registry: &SessionRegistry) {
        let Some((greeting, mac)) = Greeting::decode(bytes) else { return };
        let Some(secret) = registry.secret(greeting.session) else { return };
        if !secret.verify_greeting(&greeting, &mac) {
            return;
        }
        let cookie = self.cookie(greeting.session, greeting.stream, found.from);
        match greeting.kind {
            GreetingKind::Hello => {
                let challenge = secret.greeting(GreetingKind::Challenge, greeting.stream, cookie);
                let Some(ours) = found.to else { return };
                let _ = udp::send_from(self.port.socket(), &challenge, found.from, ours);
            }
            GreetingKind::Confirm if greeting.cookie == cookie => {
                registry.admit_flow(greeting.session, greeting.stream, || {
                    let flow = self.port.flow(found)?;
                    let accept = secret.greeting(GreetingKind::Accept, greeting.stream, cookie);
                    // A lost answer is repeated when the opener repeats its request.
                    let _ = flow.send(&accept);
                    Ok(flow)
                });
            }
            GreetingKind::Confirm | GreetingKind::Challenge | GreetingKind::Accept => {}
        }
    }

    /// Returns the cookie that an opener at `from` must return; nobody else can compute it.
    fn cookie(&self, session: SessionId, stream: u32, from: SocketAddr) -> Cookie {
        let text = format!("{session:?} {stream} {from}");
        let tag = hmac::sign(&self.key, text.as_bytes());
        let mut cookie = Cookie::default();
        cookie.copy_from_slice(&tag.as_ref()[..7]);
        cookie
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread::{self, JoinHandle};

    use super::*;
    use crate::session::secret::SessionSecret;
    use crate::session::udp::{FlowAnswers, open_flow};

    struct Served {
        registry: SessionRegistry,
        address: SocketAddr,
        stop: Arc<AtomicBool>,
        thread: Option<JoinHandle<()>>,
    }

    impl Served {
        fn start(bind: &str) -> Self {
            let registry = SessionRegistry::default();
            // Any free port.
            let probe = UdpSocket::bind(bind).unwrap();
            let address = probe.local_addr().unwrap();
            drop(probe);
            let listener = UdpListener::bind(address).unwrap();
            let stop = Arc::new(AtomicBool::new(false));
            let (known, stopped) = (registry.clone(), stop.clone());
            let thread = thread::spawn(move || {
                listener.run(&known, || stopped.load(Ordering::Relaxed));
            });
            Served { registry, address, stop, thread: Some(thread) }
        }

        fn port(&self) -> u16 {
            self.address.port()
        }
    }

    impl Drop for Served {
        fn drop(&mut self) {
            self.stop.store(true, Ordering::Relaxed);
            self.thread.take().unwrap().join().unwrap();
        }
    }

    fn client(host: &str, port: u16) -> UdpSocket {
        let any = if host.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
        let socket = UdpSocket::bind(any).unwrap();
        socket.connect((host, port)).unwrap();
        socket
    }

    fn silent(socket: &UdpSocket) -> bool {
        socket.set_read_timeout(Some(Duration::from_millis(150))).unwrap();
        socket.recv(&mut [0; 100]).is_err()
    }

    #[test]
    fn a_flow_opens_over_both_families_and_carries_data_both_ways() {
        let served = Served::start("[::]:0");
        let secret = SessionSecret::from_keying_material(&[1; 32]);
        let acceptor = served.registry.register(secret.clone());
        for (stream, host) in [(0, "127.0.0.1"), (1, "::1"), (2, "127.0.0.2")] {
            let near = client(host, served.port());
            open_flow(&near, &secret, stream).unwrap();
            let far = acceptor.accept_flow(Duration::from_secs(20)).unwrap();
            assert_eq!(far.0, stream);
            assert_eq!(far.1.peer_addr().unwrap(), near.local_addr().unwrap());
            assert_eq!(far.1.local_addr().unwrap(), near.peer_addr().unwrap());
            near.send(b"there").unwrap();
            far.1.send(b"back").unwrap();
            let mut bytes = [0; 100];
            assert_eq!(far.1.recv(&mut bytes).unwrap(), 5);
            near.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            assert_eq!(near.recv(&mut bytes).unwrap(), 4);
        }
    }

    #[test]
    fn an_unauthenticated_greeting_gets_no_answer() {
        let served = Served::start("127.0.0.1:0");
        let secret = SessionSecret::from_keying_material(&[1; 32]);
        let unknown = SessionSecret::from_keying_material(&[2; 32]);
        let acceptor = served.registry.register(secret.clone());
        let socket = client("127.0.0.1", served.port());
        // Of another session, of none, too long, and with an invalid cookie.
        let hello = secret.greeting(GreetingKind::Hello, 0, Cookie::default());
        let mut forged = hello;
        forged[40] ^= 1;
        for bytes in [
            &unknown.greeting(GreetingKind::Hello, 0, Cookie::default())[..],
            &forged,
            &[&hello[..], &[0; 1000]].concat(),
            &secret.greeting(GreetingKind::Confirm, 0, [7; 7]),
            b"",
        ] {
            socket.send(bytes).unwrap();
            assert!(silent(&socket));
        }
        assert!(acceptor.accept_flow(Duration::ZERO).is_err());
    }

    #[test]
    fn a_cookie_is_invalid_from_another_address() {
        let served = Served::start("127.0.0.1:0");
        let secret = SessionSecret::from_keying_material(&[1; 32]);
        let acceptor = served.registry.register(secret.clone());
        let (ours, victim) =
            (client("127.0.0.1", served.port()), client("127.0.0.1", served.port()));
        ours.send(&secret.greeting(GreetingKind::Hello, 0, Cookie::default())).unwrap();
        let mut challenge = [0; 100];
        assert_eq!(ours.recv(&mut challenge).unwrap(), HELLO_BYTES, "no longer than the hello");
        let (challenge, _) = Greeting::decode(&challenge[..HELLO_BYTES]).unwrap();
        victim.send(&secret.greeting(GreetingKind::Confirm, 0, challenge.cookie)).unwrap();
        assert!(silent(&victim));
        assert!(acceptor.accept_flow(Duration::ZERO).is_err());
        ours.send(&secret.greeting(GreetingKind::Confirm, 0, challenge.cookie)).unwrap();
        assert!(acceptor.accept_flow(Duration::from_secs(20)).is_ok());
    }

    #[test]
    fn a_lost_acceptance_is_repeated() {
        let served = Served::start("127.0.0.1:0");
        let secret = SessionSecret::from_keying_material(&[1; 32]);
        let acceptor = served.registry.register(secret.clone());
        let near = client("127.0.0.1", served.port());
        let opener = {
            let (near, secret) = (near.try_clone().unwrap(), secret.clone());
            // Hello and confirmation, whose answer is dropped.
            thread::spawn(move || {
                near.send(&secret.greeting(GreetingKind::Hello, 0, Cookie::default())).unwrap();
                let mut bytes = [0; HELLO_BYTES];
                near.recv(&mut bytes).unwrap();
                let (challenge, _) = Greeting::decode(&bytes).unwrap();
                let confirm = secret.greeting(GreetingKind::Confirm, 0, challenge.cookie);
                near.send(&confirm).unwrap();
                near.recv(&mut bytes).unwrap();
                near.send(&confirm).unwrap();
                near.recv(&mut bytes).unwrap();
                Greeting::decode(&bytes).unwrap().0.kind
            })
        };
        let (_, flow) = acceptor.accept_flow(Duration::from_secs(20)).unwrap();
        let _answers = FlowAnswers::start(&[flow], &secret).unwrap();
        assert_eq!(opener.join().unwrap(), GreetingKind::Accept);
    }
}
