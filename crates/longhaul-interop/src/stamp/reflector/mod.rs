//! The reflector: answers the requests that arrive at UDP sockets.

mod mirror;
mod reflect;
mod sessions;
mod sources;

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use longhaul_sys::probe::{
    Header, Note, Stamped, now_nanos, prepare_stamped, receive_note, receive_stamped, send_stamped,
};
use longhaul_sys::{clock, poll};

pub use mirror::{
    Answer, Arrival, LocalClock, Mirror, ReflectorCounts, ReflectorSettings, Unanswered,
};
pub use sessions::{EndedSession, SessionId};

/// The longest UDP payload.
const LARGEST: usize = 65_535;
/// The longest wait before the reflector checks whether to stop.
const STOP_LOOK: Duration = Duration::from_millis(200);
/// The time between two readings of the state of the clock.
const CLOCK_LOOK: Duration = Duration::from_secs(1);
/// The most packets between two looks at other work.
const BATCH: usize = 64;

/// An event of a reflector, for a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReflectorEvent {
    /// The first request of a session was answered.
    Began(SessionId),
    /// A session has ended.
    Ended(EndedSession),
    /// The counts changed since the last report: requests were refused.
    Refused(ReflectorCounts),
}

/// A running reflector with one socket. It stops when the value is dropped.
#[derive(Debug)]
pub struct Reflector {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Reflector {
    /// Binds to `address` and answers requests on a thread. An IPv6 socket does not receive IPv4
    /// packets. `log` receives events; it must not block.
    ///
    /// # Errors
    /// The address is in use or unavailable, or the kernel rejects an option.
    pub fn start(
        address: SocketAddr,
        settings: ReflectorSettings,
        log: impl FnMut(ReflectorEvent) + Send + 'static,
    ) -> io::Result<Self> {
        let socket = bind(address)?;
        let address = socket.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let mut running = Running::new(socket, settings, log);
        let thread = thread::Builder::new().name("stamp".into()).spawn({
            let stop = stop.clone();
            move || running.run(&stop)
        })?;
        Ok(Reflector { address, stop, thread: Some(thread) })
    }

    /// Returns the address of the socket.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Reflector {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let kind = rustix::net::SocketType::DGRAM;
    let ipv6 = address.is_ipv6();
    let family =
        if ipv6 { rustix::net::AddressFamily::INET6 } else { rustix::net::AddressFamily::INET };
    let socket = rustix::net::socket(family, kind, None)?;
    if ipv6 {
        rustix::net::sockopt::set_ipv6_v6only(&socket, true)?;
    }
    prepare_stamped(&socket, ipv6)?;
    rustix::net::bind(&socket, &address)?;
    Ok(UdpSocket::from(socket))
}

/// The thread of a reflector.
struct Running<L> {
    socket: UdpSocket,
    ipv6: bool,
    mirror: Mirror,
    buffer: Vec<u8>,
    clock: LocalClock,
    looked: Instant,
    reported: ReflectorCounts,
    log: L,
}

impl<L: FnMut(ReflectorEvent)> Running<L> {
    fn new(socket: UdpSocket, settings: ReflectorSettings, log: L) -> Self {
        let now = Instant::now();
        let ipv6 = socket.local_addr().is_ok_and(|address| address.is_ipv6());
        Running {
            socket,
            ipv6,
            mirror: Mirror::new(settings, now),
            buffer: vec![0; LARGEST],
            clock: local_clock(),
            looked: now,
            reported: ReflectorCounts::default(),
            log,
        }
    }

    fn run(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Acquire) {
            poll::readable(&self.socket, STOP_LOOK);
            for _ in 0..BATCH {
                // An error is about a reply that did not arrive; the next call continues.
                match receive_stamped(&self.socket, &mut self.buffer) {
                    Ok(Some(arrived)) => self.answer(&arrived),
                    Ok(None) => break,
                    Err(_) => {}
                }
            }
            self.notes();
            self.housekeep(Instant::now());
        }
        self.mirror.end().into_iter().for_each(|ended| (self.log)(ReflectorEvent::Ended(ended)));
    }

    fn answer(&mut self, arrived: &Stamped) {
        let Stamped { heard, from, to, class } = *arrived;
        let at_nanos = if heard.at_nanos == 0 { now_nanos() } else { heard.at_nanos };
        let hop_limit = heard.hop_limit.unwrap_or(0);
        let arrival = Arrival { from, to, at_nanos, hop_limit, class, now: Instant::now() };
        let packet = &mut self.buffer[..heard.bytes];
        let Ok(answer) = self.mirror.answer(packet, &arrival, self.clock, now_nanos) else {
            return;
        };
        let header = Header {
            to: Some(from),
            from: to,
            ipv6: self.ipv6,
            class: answer.class,
            stamp: answer.stamp,
        };
        // A reply that the kernel rejects is a lost packet to the sender.
        let _ = send_stamped(&self.socket, packet, &header);
        if let Some(id) = answer.began {
            (self.log)(ReflectorEvent::Began(id));
        }
    }

    /// Reads the times at which replies left.
    fn notes(&mut self) {
        for _ in 0..BATCH {
            match receive_note(&self.socket, &mut self.buffer) {
                Ok(Some(Note::Departed { bytes, at_nanos })) => {
                    self.mirror.departed(&self.buffer[..bytes], at_nanos);
                }
                Ok(Some(Note::Failed(_))) | Err(_) => {}
                Ok(None) => break,
            }
        }
    }

    fn housekeep(&mut self, now: Instant) {
        if now.saturating_duration_since(self.looked) < CLOCK_LOOK {
            return;
        }
        self.looked = now;
        self.clock = local_clock();
        let ended = self.mirror.expired(now);
        ended.into_iter().for_each(|ended| (self.log)(ReflectorEvent::Ended(ended)));
        let counts = self.mirror.counts();
        let refused = |counts: ReflectorCounts| counts.short + counts.unauthentic + counts.too_fast;
        if refused(counts) > refused(self.reported) {
            self.reported = counts;
            (self.log)(ReflectorEvent::Refused(counts));
        }
    }
}

/// Returns the state of this host's clock; unsynchronised if a sandbox hides it.
pub(super) fn local_clock() -> LocalClock {
    clock::state().map_or_else(
        |_| LocalClock::default(),
        |state| LocalClock { synchronised: state.synchronised, max_error: state.max_error },
    )
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::super::packet::{Mode, Reply, Request};
    use super::super::time::{ErrorEstimate, TimeFormat, Timestamp};
    use super::*;

    #[test]
    fn a_reflector_answers_over_loopback_from_the_address_that_was_asked() {
        for (any, asked) in [("0.0.0.0:0", "127.0.0.3"), ("[::]:0", "::1")] {
            let (say, heard) = channel();
            let log = move |event| say.send(event).unwrap();
            let settings = ReflectorSettings::default();
            let reflector = Reflector::start(any.parse().unwrap(), settings, log).unwrap();
            let local = if any.starts_with('[') { "[::1]:0" } else { "127.0.0.1:0" };
            let sender = UdpSocket::bind(local).unwrap();
            sender.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            sender.connect((asked, reflector.address().port())).unwrap();
            let before = now_nanos();
            let mut packet = [0; 60];
            let time = Timestamp::of(before, TimeFormat::Ntp);
            let request = Request { sequence: 3, time, error: ErrorEstimate(1), ssid: 8 };
            request.encode(&mut packet, Mode::Open);
            // Too short, so without an answer.
            sender.send(&packet[..40]).unwrap();
            sender.send(&packet).unwrap();
            let mut buffer = [0; 100];
            assert_eq!(sender.recv(&mut buffer).unwrap(), 60);
            let reply = Reply::decode(&buffer[..60], Mode::Open).unwrap();
            assert_eq!((reply.sender_sequence, reply.sequence, reply.ssid), (3, 0, 8));
            let nanos = |time: Timestamp| time.unix_nanos(TimeFormat::Ntp, before).unwrap();
            let (received, replied) = (nanos(reply.received), nanos(reply.time));
            assert!(before <= received && received <= replied && replied <= now_nanos());
            let Ok(ReflectorEvent::Began(id)) = heard.recv() else { panic!("it is not logged") };
            assert_eq!((id.sender, id.ssid), (sender.local_addr().unwrap(), 8));
            drop(reflector);
            let rest: Vec<_> = heard.iter().collect();
            assert!(
                matches!(rest[..], [ReflectorEvent::Ended(ended)] if ended.replied == 1),
                "{rest:?}"
            );
        }
    }

    #[test]
    fn an_address_in_use_is_an_error() {
        let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
        let settings = ReflectorSettings::default();
        assert!(Reflector::start(taken.local_addr().unwrap(), settings, |_| ()).is_err());
    }
}
