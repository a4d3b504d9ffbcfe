//! The sessions that wait for data connections at the server, and the check of each connection.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use longhaul_core::plan::TestPlan;
use longhaul_core::wire::{DataHello, FrameError, GreetingKind, HELLO_BYTES, SessionId};
use longhaul_sys::tcp;

use super::allowance::{Allowance, Announced, DescriptorSource, Shortage};
use super::deadline::{DeadlineSocket, set_timeouts};
use super::secret::SessionSecret;
use super::udp::{self, FlowAnswers};
use crate::error::{EngineError, Result};
use crate::lock;

/// The time for which the hello of a data connection waits for its session to be registered. The
/// client sends the hello after the last message of the handshake, but a retransmission can delay
/// that message.
const OVERTAKEN: Duration = Duration::from_secs(3);
/// The maximum number of data connections that may wait for their session: those of the largest
/// test, which has 128 streams in each direction and one for latency.
const WAITING_STREAMS: usize = 2 * TestPlan::MAX_STREAMS as usize + 1;
/// The shortest round-trip time at which the kernel's first receive buffers noticeably delay a
/// transfer.
pub(crate) const LONG_PATH: Duration = Duration::from_millis(2);
/// The interval at which a wait for a data connection checks whether the client is there.
const PEER_CHECK: Duration = Duration::from_millis(100);
/// The interval at which accepted flows are answered while others are awaited.
const ANSWER_CHECK: Duration = Duration::from_millis(20);

/// The sessions that wait for data connections, shared by all threads of a server.
#[derive(Clone, Default)]
pub struct SessionRegistry(Arc<Sessions>);

#[derive(Default)]
struct Sessions {
    waiting: Mutex<HashMap<SessionId, Waiting>>,
    added: Condvar,
}

struct Waiting {
    secret: SessionSecret,
    allowance: Arc<Mutex<Allowance>>,
    streams: Sender<(u32, TcpStream)>,
    flows: Sender<(u32, UdpSocket)>,
    /// The minimum receive buffer of a data connection; zero keeps that of the kernel.
    receive_bytes: Arc<AtomicU32>,
    /// True if an authenticated connection is answered by a proof of this end.
    mutual: bool,
}

impl SessionRegistry {
    /// Accepts data connections for the session of `secret` until the acceptor is dropped.
    pub fn register(&self, secret: SessionSecret) -> DataAcceptor {
        self.add(secret, false, DescriptorSource::Unbounded)
    }

    /// As [`register`](Self::register), for connections that take `descriptors`.
    pub(super) fn register_counted(
        &self,
        secret: SessionSecret,
        descriptors: DescriptorSource,
    ) -> DataAcceptor {
        self.add(secret, false, descriptors)
    }

    /// As [`register`](Self::register), for connections whose opener expects a proof: the server of
    /// the control channel opens them, and must authenticate their acceptor.
    pub(crate) fn register_mutual(&self, secret: SessionSecret) -> DataAcceptor {
        self.add(secret, true, DescriptorSource::Unbounded)
    }

    fn add(
        &self,
        secret: SessionSecret,
        mutual: bool,
        descriptors: DescriptorSource,
    ) -> DataAcceptor {
        let id = secret.session_id();
        let (streams, arrivals) = bounded(WAITING_STREAMS);
        let (flows, flow_arrivals) = bounded(WAITING_STREAMS);
        let allowance = Arc::new(Mutex::new(Allowance::new(descriptors)));
        let receive_bytes = Arc::new(AtomicU32::new(0));
        let waiting = Waiting {
            secret: secret.clone(),
            allowance: allowance.clone(),
            streams,
            flows,
            receive_bytes: receive_bytes.clone(),
            mutual,
        };
        self.lock().insert(id, waiting);
        self.0.added.notify_all();
        let peer_left = None;
        let registry = self.clone();
        DataAcceptor {
            registry,
            id,
            secret,
            allowance,
            arrivals,
            flow_arrivals,
            receive_bytes,
            peer_left,
        }
    }

    /// Reads the hello of a fresh data connection and passes it to its session. A connection
    /// without a valid proof, or one that its session has not announced, is closed without an
    /// answer. After a valid proof `proved` drops every other reference to the socket.
    pub(crate) fn admit(
        &self,
        socket: Arc<TcpStream>,
        deadline: Instant,
        proved: impl FnOnce(),
    ) -> Admitted {
        let mut bytes = [0; HELLO_BYTES];
        if let Err(error) = DeadlineSocket::at(&socket, deadline).read_exact(&mut bytes) {
            return Admitted::Incomplete(error);
        }
        let Ok((hello, mac)) = DataHello::decode(&bytes) else { return Admitted::Wrong };
        let unknown = |sessions: &mut HashMap<_, _>| !sessions.contains_key(&hello.session);
        let sessions = self.0.added.wait_timeout_while(self.lock(), OVERTAKEN, unknown);
        let sessions = sessions.unwrap_or_else(PoisonError::into_inner).0;
        let Some(waiting) = sessions.get(&hello.session) else { return Admitted::Unwanted };
        if !waiting.secret.verify_hello(&hello, &mac) {
            return Admitted::Wrong;
        }
        proved();
        let Some(socket) = Arc::into_inner(socket) else { return Admitted::Unwanted };
        if !lock(&waiting.allowance).admit_stream(hello.stream) {
            return Admitted::Unwanted;
        }
        grow_receive_buffer(&socket, waiting.receive_bytes.load(Ordering::Relaxed));
        if waiting.mutual {
            let answer = waiting.secret.greeting(GreetingKind::Accept, hello.stream, [0; 7]);
            // A fresh connection accepts 64 bytes without blocking.
            if (&socket).write_all(&answer).is_err() {
                return Admitted::Unwanted;
            }
        }
        if set_timeouts(&socket, None).is_ok() {
            let _ = waiting.streams.try_send((hello.stream, socket));
        }
        Admitted::Passed
    }

    /// Passes an authenticated UDP flow, which `open` creates, to its session if that has announced
    /// it.
    pub(super) fn admit_flow(
        &self,
        session: SessionId,
        stream: u32,
        open: impl FnOnce() -> std::io::Result<UdpSocket>,
    ) {
        if let Some(waiting) = self.lock().get(&session)
            && let Some(flow) = lock(&waiting.allowance).admit_flow(stream, open)
        {
            let _ = waiting.flows.try_send((stream, flow));
        }
    }

    /// Returns the secret of a session that waits for data connections.
    pub(super) fn secret(&self, session: SessionId) -> Option<SessionSecret> {
        self.lock().get(&session).map(|waiting| waiting.secret.clone())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionId, Waiting>> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The outcome of a fresh data connection.
#[derive(Debug)]
pub(crate) enum Admitted {
    /// Passed to its session.
    Passed,
    /// Its session is over, or has not announced it.
    Unwanted,
    /// Its proof is invalid.
    Wrong,
    /// Its hello did not arrive.
    Incomplete(std::io::Error),
}

/// Accepts the data connections of one session at the server.
pub struct DataAcceptor {
    registry: SessionRegistry,
    id: SessionId,
    secret: SessionSecret,
    allowance: Arc<Mutex<Allowance>>,
    arrivals: Receiver<(u32, TcpStream)>,
    flow_arrivals: Receiver<(u32, UdpSocket)>,
    receive_bytes: Arc<AtomicU32>,
    /// Returns whether the client has closed its control channel.
    peer_left: Option<Box<dyn Fn() -> bool + Send + Sync>>,
}

impl DataAcceptor {
    /// Ends every wait for a connection soon after `peer_left` returns true.
    pub(super) fn end_when(&mut self, peer_left: impl Fn() -> bool + Send + Sync + 'static) {
        self.peer_left = Some(Box::new(peer_left));
    }

    /// Lets the receive buffer of each later connection over a long path hold at least `bytes`, from
    /// its proof on, because the data follow at once.
    pub(crate) fn receive_at_least(&self, bytes: u32) {
        self.receive_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Permits these connections, and reserves descriptors for them until the session is over.
    ///
    /// # Errors
    /// Too few descriptors are available.
    pub(crate) fn announce(&self, announced: Announced) -> std::result::Result<(), Shortage> {
        lock(&self.allowance).announce(announced)
    }

    /// Permits one more connection after the announced ones have ended.
    pub(crate) fn announce_again(&self) {
        lock(&self.allowance).announce_again();
    }

    /// Returns the descriptors of the session's data connections, which are reserved until this is
    /// dropped, too.
    pub(crate) fn allowance(&self) -> Arc<Mutex<Allowance>> {
        self.allowance.clone()
    }

    /// Returns the next authenticated data connection and its number.
    ///
    /// # Errors
    /// None arrived within `timeout`, or the client has closed its control channel.
    pub fn accept(&self, timeout: Duration) -> Result<(u32, TcpStream)> {
        self.next(&self.arrivals, timeout)
    }

    fn next<T>(&self, arrivals: &Receiver<T>, timeout: Duration) -> Result<T> {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match arrivals.recv_timeout(left.min(PEER_CHECK)) {
                Ok(arrived) => return Ok(arrived),
                Err(RecvTimeoutError::Timeout) if left > PEER_CHECK => self.check_peer()?,
                Err(_) => {
                    self.check_peer()?;
                    return Err(EngineError::DataMissing { peer: "the client".to_owned() });
                }
            }
        }
    }

    fn check_peer(&self) -> Result<()> {
        match &self.peer_left {
            Some(left) if left() => {
                let peer = "the client".to_owned();
                Err(EngineError::Control { peer, source: FrameError::Closed })
            }
            _ => Ok(()),
        }
    }

    /// Returns all `count` connections of the session in the order of their numbers.
    ///
    /// # Errors
    /// They did not arrive within `timeout`, or a number is repeated or out of range.
    pub fn accept_all(&self, count: u32, timeout: Duration) -> Result<Vec<TcpStream>> {
        let deadline = Instant::now() + timeout;
        let mut sockets = Numbered::new(count);
        for _ in 0..count {
            sockets.put(self.accept(deadline.saturating_duration_since(Instant::now()))?)?;
        }
        Ok(sockets.in_order())
    }

    /// Returns the next UDP flow and its number.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub(super) fn accept_flow(&self, timeout: Duration) -> Result<(u32, UdpSocket)> {
        self.next(&self.flow_arrivals, timeout)
    }

    /// Returns all `count` UDP flows of the session in the order of their numbers, and the thread
    /// that answers on them until data may arrive.
    ///
    /// # Errors
    /// As [`accept_all`](Self::accept_all).
    pub(crate) fn accept_all_flows(
        &self,
        count: u32,
        timeout: Duration,
    ) -> Result<(Vec<UdpSocket>, FlowAnswers)> {
        let deadline = Instant::now() + timeout;
        let mut flows = Numbered::new(count);
        let mut found = 0;
        while found < count {
            match self.accept_flow(ANSWER_CHECK) {
                Ok(flow) => {
                    flows.put(flow)?;
                    found += 1;
                }
                Err(EngineError::DataMissing { .. }) if Instant::now() < deadline => {
                    udp::answer_again(flows.so_far(), &self.secret);
                }
                Err(error) => return Err(error),
            }
        }
        let flows = flows.in_order();
        let answers = FlowAnswers::start(&flows, &self.secret)
            .map_err(|source| EngineError::System { operation: "start a thread", source })?;
        Ok((flows, answers))
    }

    /// Returns the session's secret.
    pub fn secret(&self) -> &SessionSecret {
        &self.secret
    }
}

/// Lets the receive buffer of `socket` hold `bytes` if its path is long. On failure the kernel's
/// autotuning enlarges it, some round trips later.
fn grow_receive_buffer(socket: &TcpStream, bytes: u32) {
    let is_long = || tcp::tcp_info(socket).is_ok_and(|info| info.rtt >= LONG_PATH);
    if bytes > 0 && is_long() {
        let _ = tcp::grow_receive_buffer(socket, bytes);
    }
}

/// Connections that arrive in any order, sorted by their numbers.
struct Numbered<T>(Vec<Option<T>>);

impl<T> Numbered<T> {
    fn new(count: u32) -> Self {
        Numbered((0..count).map(|_| None).collect())
    }

    fn put(&mut self, (stream, socket): (u32, T)) -> Result<()> {
        match self.0.get_mut(stream as usize) {
            Some(place @ None) => {
                *place = Some(socket);
                Ok(())
            }
            _ => Err(EngineError::Protocol {
                peer: "the client".to_owned(),
                what: "a data connection has an invalid number",
            }),
        }
    }

    fn so_far(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flatten()
    }

    fn in_order(self) -> Vec<T> {
        self.0.into_iter().flatten().collect()
    }
}

impl Drop for DataAcceptor {
    fn drop(&mut self) {
        self.registry.lock().remove(&self.id);
    }
}
