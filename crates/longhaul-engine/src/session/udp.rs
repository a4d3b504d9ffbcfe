//! The UDP flows of a session, on the port of its server.
//!
//! No data are sent to an address before it has proved that it takes part in the session: the
//! opener sends a hello, gets a cookie, and returns it. All four greetings are authenticated by the
//! session's secret and have one length, so that a third party gets no answer, and a party to the
//! session cannot direct more bytes elsewhere than it sends. Each flow then has a separate
//! connected socket at both ends, so that the kernel drops datagrams of others.
//!
//! Greetings may be lost: the opener repeats them, and the acceptor answers [for as
//! long](FlowAnswers) as the opener may have missed an answer.

use std::io;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use longhaul_core::wire::{Greeting, GreetingKind, HELLO_BYTES};
use longhaul_sys::poll;

use super::deadline::CONNECT_TIMEOUT;
use super::secret::SessionSecret;

/// The first wait of the opener for an answer; it doubles up to [`LONGEST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// The cookie that proves the opener's address.
pub(super) type Cookie = [u8; 7];

/// Opens flow `stream` on `socket`, which is connected to the peer's port. Its read timeout is
/// changed.
pub(super) fn open_flow(socket: &UdpSocket, secret: &SessionSecret, stream: u32) -> io::Result<()> {
    let deadline = Instant::now() + CONNECT_TIMEOUT;
    let mut asking = secret.greeting(GreetingKind::Hello, stream, Cookie::default());
    let mut wait = FIRST_WAIT;
    'ask: loop {
        // A firewall may report that it drops the datagram; the time limit decides.
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

/// Answers repeated confirmations on accepted flows, because the first answer was lost. No data may
/// arrive meanwhile.
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

/// Answers on accepted flows until it is dropped, which must be before data may arrive.
pub(crate) struct FlowAnswers {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl FlowAnswers {
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
        Ok(FlowAnswers { stop, thread: Some(thread) })
    }
}

impl Drop for FlowAnswers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}
