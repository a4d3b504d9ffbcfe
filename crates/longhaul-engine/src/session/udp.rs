//! UDP flows of a session, on the same port number as everything else.
//!
//! No data is sent to an address before it has proved that it takes part in the session: who
//! opens a flow says hello, is sent a cookie, and sends it back. All four greetings are
//! authenticated under the session's secret and of one length, so that a stranger gets no answer
//! at all, and a party to the session cannot have more sent elsewhere than it sends itself. After
//! that each flow has a socket of its own at both ends, connected to the other, so that the
//! kernel keeps strangers out.
//!
//! Greetings may be lost: the opener repeats them, and who accepts answers
//! [for as long](TestAnswers) as the opener may not have heard.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use longhaul_core::wire::{Greeting, GreetingKind, HELLO_BYTES, SessionId};
use longhaul_sys::{poll, udp};
use ring::hmac;
use socket2::{Domain, Protocol, Socket, Type};

use super::client::CONNECT_TIMEOUT;
use super::secret::{SessionSecret, random_keying_material};
use super::server::SessionRegistry;

/// How long the opener waits for an answer at first; twice as long each time after, up to
/// [`LONGEST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// How often a waiting thread looks whether it should stop.
const STOP_LOOK: Duration = Duration::from_millis(100);

type Cookie = [u8; 7];

/// The UDP socket beside a listener's TCP socket: lets flows in.
#[derive(Debug)]
pub(crate) struct UdpDoor {
    socket: UdpSocket,
    key: hmac::Key,
}

impl UdpDoor {
    /// Binds to `address`, which has its port. An IPv6 wildcard takes IPv4 as well.
    pub(crate) fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = shared_socket(address)?;
        let socket = UdpSocket::from(socket);
        udp::tell_destination(&socket, address.is_ipv6())?;
        if address.is_ipv6() {
            // For those that come as IPv4 mapped into IPv6.
            udp::tell_destination(&socket, false)?;
        }
        socket.set_nonblocking(true)?;
        let key = hmac::Key::new(hmac::HMAC_SHA256, &random_keying_material());
        Ok(UdpDoor { socket, key })
    }

    /// Lets flows of the sessions of `registry` in until `stopped`.
    pub(crate) fn run(&self, registry: &SessionRegistry, stopped: impl Fn() -> bool) {
        let mut bytes = [0; HELLO_BYTES + 1];
        while !stopped() {
            match udp::receive_addressed(&self.socket, &mut bytes) {
                Ok(found) => self.greet(&bytes[..found.bytes], &found.canonical(), registry),
                // An error that the network reported of an answer is nobody's business here.
                Err(_) => {
                    poll::readable(&self.socket, STOP_LOOK);
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
                let _ = udp::send_from(&self.socket, &challenge, found.from, ours);
            }
            GreetingKind::Confirm if greeting.cookie == cookie => {
                registry.admit_flow(greeting.session, greeting.stream, || {
                    let flow = self.flow(found)?;
                    let accept = secret.greeting(GreetingKind::Accept, greeting.stream, cookie);
                    // What is lost is sent again when the opener asks again.
                    let _ = flow.send(&accept);
                    Ok(flow)
                });
            }
            GreetingKind::Confirm | GreetingKind::Challenge | GreetingKind::Accept => {}
        }
    }

    /// What an opener at `from` has to send back; nobody else can know it.
    fn cookie(&self, session: SessionId, stream: u32, from: SocketAddr) -> Cookie {
        let text = format!("{session:?} {stream} {from}");
        let tag = hmac::sign(&self.key, text.as_bytes());
        let mut cookie = Cookie::default();
        cookie.copy_from_slice(&tag.as_ref()[..7]);
        cookie
    }

    /// A socket for one flow alone: the kernel prefers it for datagrams from that peer.
    fn flow(&self, found: &udp::Addressed) -> io::Result<UdpSocket> {
        let ours = found.to.ok_or(io::ErrorKind::AddrNotAvailable)?;
        let mut ours = SocketAddr::new(ours, self.socket.local_addr()?.port());
        if let (SocketAddr::V6(ours), SocketAddr::V6(from)) = (&mut ours, found.from) {
            // Both ends of a link-local flow are in one zone.
            ours.set_scope_id(from.scope_id());
        }
        let socket = shared_socket(ours)?;
        socket.connect(&found.from.into())?;
        Ok(socket.into())
    }
}

/// A socket on an address that the door and the flows share.
fn shared_socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Opens flow `stream` on `socket`, which is connected to the other end's port. Its read timeout
/// is changed.
pub(super) fn open_flow(socket: &UdpSocket, secret: &SessionSecret, stream: u32) -> io::Result<()> {
    let deadline = Instant::now() + CONNECT_TIMEOUT;
    let mut asking = secret.greeting(GreetingKind::Hello, stream, Cookie::default());
    let mut wait = FIRST_WAIT;
    'ask: loop {
        // The far side's firewall may report what it does not let through: time will tell.
        let _ = socket.send(&asking);
        let heard_by = Instant::now() + wait;
        wait = (wait * 2).min(LONGEST_WAIT);
        loop {
            let now = Instant::now();
            if now >= deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let Some(left) = heard_by.checked_duration_since(now).filter(|l| !l.is_zero()) else {
                continue 'ask;
            };
            socket.set_read_timeout(Some(left))?;
            let mut bytes = [0; HELLO_BYTES + 1];
            let Ok(count) = socket.recv(&mut bytes) else { continue };
            let Some((greeting, mac)) = Greeting::decode(&bytes[..count]) else { continue };
            if greeting.stream != stream || !secret.verify_greeting(&greeting, &mac) {
                continue;
            }
            match greeting.kind {
                GreetingKind::Challenge => {
                    asking = secret.greeting(GreetingKind::Confirm, stream, greeting.cookie);
                    continue 'ask;
                }
                GreetingKind::Accept => return Ok(()),
                GreetingKind::Hello | GreetingKind::Confirm => {}
            }
        }
    }
}

/// Answers the confirmations that come again on flows already accepted, because the first answer
/// was lost. No data may come meanwhile.
pub(super) fn answer_again<'a>(
    flows: impl IntoIterator<Item = &'a UdpSocket>,
    secret: &SessionSecret,
) {
    let mut bytes = [0; HELLO_BYTES + 1];
    for flow in flows {
        while poll::readable(flow, Duration::ZERO) {
            let Ok(count) = flow.recv(&mut bytes) else { break };
            if let Some((greeting, mac)) = Greeting::decode(&bytes[..count])
                && greeting.kind == GreetingKind::Confirm
                && secret.verify_greeting(&greeting, &mac)
            {
                let (stream, cookie) = (greeting.stream, greeting.cookie);
                let _ = flow.send(&secret.greeting(GreetingKind::Accept, stream, cookie));
            }
        }
    }
}

/// Answers on accepted flows until it is dropped, which must be before data may come.
pub(crate) struct TestAnswers {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl TestAnswers {
    pub(super) fn start(flows: &[UdpSocket], secret: &SessionSecret) -> io::Result<Self> {
        let flows: Vec<_> = flows.iter().map(UdpSocket::try_clone).collect::<Result<_, _>>()?;
        let (secret, stop) = (secret.clone(), Arc::new(AtomicBool::new(false)));
        let stopped = stop.clone();
        let thread = thread::Builder::new().name("udp-answers".into()).spawn(move || {
            while !stopped.load(Ordering::Acquire) {
                answer_again(&flows, &secret);
                thread::park_timeout(FIRST_WAIT / 10);
            }
        })?;
        Ok(TestAnswers { stop, thread: Some(thread) })
    }
}

impl Drop for TestAnswers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Served {
        registry: SessionRegistry,
        address: SocketAddr,
        stop: Arc<AtomicBool>,
        thread: Option<JoinHandle<()>>,
    }

    impl Served {
        fn start(bind: &str) -> Self {
            let registry = SessionRegistry::default();
            // Any port that is free.
            let probe = UdpSocket::bind(bind).unwrap();
            let address = probe.local_addr().unwrap();
            drop(probe);
            let door = UdpDoor::bind(address).unwrap();
            let stop = Arc::new(AtomicBool::new(false));
            let (known, stopped) = (registry.clone(), stop.clone());
            let thread = thread::spawn(move || {
                door.run(&known, || stopped.load(Ordering::Relaxed));
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
            let far = acceptor.accept_flow(Duration::from_secs(5)).unwrap();
            assert_eq!(far.0, stream);
            assert_eq!(far.1.peer_addr().unwrap(), near.local_addr().unwrap());
            assert_eq!(far.1.local_addr().unwrap(), near.peer_addr().unwrap());
            near.send(b"there").unwrap();
            far.1.send(b"back").unwrap();
            let mut bytes = [0; 100];
            assert_eq!(far.1.recv(&mut bytes).unwrap(), 5);
            near.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            assert_eq!(near.recv(&mut bytes).unwrap(), 4);
        }
    }

    #[test]
    fn a_stranger_gets_no_answer() {
        let served = Served::start("127.0.0.1:0");
        let secret = SessionSecret::from_keying_material(&[1; 32]);
        let stranger = SessionSecret::from_keying_material(&[2; 32]);
        let acceptor = served.registry.register(secret.clone());
        let socket = client("127.0.0.1", served.port());
        // Of another session, of none, too long, and with a cookie that was never given.
        let hello = secret.greeting(GreetingKind::Hello, 0, Cookie::default());
        let mut forged = hello;
        forged[40] ^= 1;
        for bytes in [
            &stranger.greeting(GreetingKind::Hello, 0, Cookie::default())[..],
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
    fn a_cookie_is_of_no_use_from_another_address() {
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
        assert!(acceptor.accept_flow(Duration::from_secs(5)).is_ok());
    }

    #[test]
    fn a_lost_acceptance_is_said_again() {
        let served = Served::start("127.0.0.1:0");
        let secret = SessionSecret::from_keying_material(&[1; 32]);
        let acceptor = served.registry.register(secret.clone());
        let near = client("127.0.0.1", served.port());
        let opener = {
            let (near, secret) = (near.try_clone().unwrap(), secret.clone());
            // Hello and confirmation, whose answer is thrown away.
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
        let (_, flow) = acceptor.accept_flow(Duration::from_secs(5)).unwrap();
        let _answers = TestAnswers::start(&[flow], &secret).unwrap();
        assert_eq!(opener.join().unwrap(), GreetingKind::Accept);
    }
}
