//! The reflector: answers the requests that arrive at UDP sockets.

mod answer;
mod guest;
mod machine;
mod reflect;
mod sessions;
mod settings;
mod sources;

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use longhaul_sys::poll;
use longhaul_sys::probe::{
    Header, Note, Stamped, now_nanos, prepare_stamped, receive_note, receive_stamped, send_stamped,
};
use socket2::{Domain, Protocol, Socket, Type};

use super::stamping::Stamping;

pub use answer::{Answer, Arrival, ReflectorCounts, Unanswered};
pub use machine::ReflectorMachine;
pub use sessions::{EndedSession, StampSessionId};
pub use settings::{LocalClock, ReflectorSettings};

/// The longest UDP payload.
const LARGEST: usize = 65_535;
/// The longest wait before the reflector checks whether to stop.
const STOP_LOOK: Duration = Duration::from_millis(500 / HASTE);
/// The time between two readings of the state of the clock.
const CLOCK_LOOK: Duration = Duration::from_millis(1000 / HASTE);
/// Divides these intervals, which tests shorten.
const HASTE: u64 = if cfg!(test) { 5 } else { 1 };
/// The maximum number of packets between two checks of other work.
const BATCH: usize = 64;

/// An event of a reflector, for a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReflectorEvent {
    /// The first request of a session was answered.
    Began(StampSessionId),
    /// A session has ended.
    Ended(EndedSession),
    /// Requests got no answer since the last report; at most once per second.
    Refused {
        /// The source of the last of them.
        from: SocketAddr,
        /// The reason for the last of them.
        reason: Unanswered,
        /// The number of requests without an answer.
        count: u64,
    },
}

/// A reflector with one socket.
#[derive(Debug)]
pub struct Reflector {
    socket: UdpSocket,
    address: SocketAddr,
    settings: ReflectorSettings,
    stamping: Mutex<Stamping>,
}

impl Reflector {
    /// Binds to `address`. An IPv6 socket does not receive IPv4 packets.
    ///
    /// # Errors
    /// The address is in use or unavailable, or the kernel rejects an option.
    pub fn bind(address: SocketAddr, settings: ReflectorSettings) -> io::Result<Self> {
        let socket = open(address)?;
        let address = socket.local_addr()?;
        let settings = ReflectorSettings { port: address.port(), ..settings };
        // Now, because a server may lose the right to open the clocks.
        let stamping = Mutex::new(Stamping::of_all_interfaces(&socket));
        Ok(Reflector { socket, address, settings, stamping })
    }

    /// Returns the address of the socket.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers requests until `stopped` returns true, which it asks several times per second. `log`
    /// receives events; it must not block.
    pub fn run(&self, stopped: impl Fn() -> bool, log: impl FnMut(ReflectorEvent)) {
        let now = Instant::now();
        let mut running = Running {
            socket: &self.socket,
            ipv6: self.address.is_ipv6(),
            mirror: ReflectorMachine::new(self.settings.clone(), now),
            buffer: vec![0; LARGEST],
            stamping: &mut self.stamping.lock().unwrap_or_else(PoisonError::into_inner),
            clock: LocalClock::of_host(),
            looked: now,
            refused: None,
            log,
        };
        while !stopped() {
            running.serve();
        }
        running.end();
    }
}

fn open(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    prepare_stamped(&socket, address.is_ipv6())?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// A running reflector.
struct Running<'a, L> {
    socket: &'a UdpSocket,
    ipv6: bool,
    mirror: ReflectorMachine,
    buffer: Vec<u8>,
    stamping: &'a mut Stamping,
    clock: LocalClock,
    looked: Instant,
    /// The last request without an answer, and the number of them since the last report.
    refused: Option<(SocketAddr, Unanswered, u64)>,
    log: L,
}

impl<L: FnMut(ReflectorEvent)> Running<'_, L> {
    /// Waits for packets and answers those that have arrived.
    fn serve(&mut self) {
        poll::readable(self.socket, STOP_LOOK);
        for _ in 0..BATCH {
            // An error is about a reply that did not arrive; the next call continues.
            match receive_stamped(self.socket, &mut self.buffer) {
                Ok(Some(arrived)) => self.answer(&arrived),
                Ok(None) => break,
                Err(_) => {}
            }
        }
        self.notes();
        self.housekeep(Instant::now());
    }

    fn answer(&mut self, arrived: &Stamped) {
        let Stamped { received, from, to, class, .. } = *arrived;
        let time = self.stamping.arrival(arrived);
        let hop_limit = received.hop_limit.unwrap_or(0);
        let arrival = Arrival { from, to, time, hop_limit, class, now: Instant::now() };
        let packet = &mut self.buffer[..received.bytes];
        let answer = match self.mirror.answer(packet, &arrival, self.clock, now_nanos) {
            Ok(answer) => answer,
            Err(reason) => {
                let count = self.refused.map_or(0, |(.., count)| count);
                self.refused = Some((from, reason, count + 1));
                return;
            }
        };
        let Answer { class, began, stamp } = answer;
        let (ipv6, hardware) = (self.ipv6, self.stamping.no_hardware().is_none());
        let header = Header { to: Some(from), from: to, ipv6, class, stamp, hardware };
        // A reply that the kernel rejects is a lost packet to the sender.
        let _ = send_stamped(self.socket, packet, &header);
        if let Some(id) = began {
            (self.log)(ReflectorEvent::Began(id));
        }
        // Now, so that the next reply has the time.
        if stamp {
            self.notes();
        }
    }

    /// Reads the times at which replies left.
    fn notes(&mut self) {
        for _ in 0..BATCH {
            match receive_note(self.socket, &mut self.buffer) {
                Ok(Some(Note::Departed { bytes, at_nanos, hardware })) => {
                    if let Some(time) = self.stamping.departure(at_nanos, hardware) {
                        self.mirror.departed(&self.buffer[..bytes], time);
                    }
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
        self.clock = LocalClock::of_host();
        self.clock.max_error += self.stamping.renew();
        let ended = self.mirror.expired(now);
        ended.into_iter().for_each(|ended| (self.log)(ReflectorEvent::Ended(ended)));
        if let Some((from, reason, count)) = self.refused.take() {
            (self.log)(ReflectorEvent::Refused { from, reason, count });
        }
    }

    fn end(&mut self) {
        self.mirror.end().into_iter().for_each(|ended| (self.log)(ReflectorEvent::Ended(ended)));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::channel;
    use std::thread;

    use super::super::packet::{Mode, Reply, Request};
    use super::super::time::{ErrorEstimate, TimeFormat, Timestamp};
    use super::*;

    fn bind(address: &str) -> io::Result<Reflector> {
        Reflector::bind(address.parse().unwrap(), ReflectorSettings::default())
    }

    fn ask(reflector: &Reflector, local: &str, asked: &str) -> (SocketAddr, Reply, u64) {
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
        (sender.local_addr().unwrap(), reply, before)
    }

    #[test]
    fn a_reflector_answers_over_loopback_from_the_address_that_was_asked() {
        for (any, local, asked) in
            [("0.0.0.0:0", "127.0.0.1:0", "127.0.0.3"), ("[::]:0", "[::1]:0", "::1")]
        {
            let reflector = bind(any).unwrap();
            let (stop, (say, received)) = (AtomicBool::new(false), channel());
            let sender = thread::scope(|scope| {
                let (reflector, stop) = (&reflector, &stop);
                let stopped = || stop.load(Ordering::Relaxed);
                scope.spawn(move || reflector.run(stopped, |event| say.send(event).unwrap()));
                let (sender, reply, before) = ask(reflector, local, asked);
                assert_eq!((reply.sender_sequence, reply.sequence, reply.ssid), (3, 0, 8));
                let nanos = |time: Timestamp| time.unix_nanos(TimeFormat::Ntp, before).unwrap();
                let (received, replied) = (nanos(reply.received), nanos(reply.time));
                assert!(before <= received && received <= replied && replied <= now_nanos());
                thread::sleep(CLOCK_LOOK + STOP_LOOK);
                stop.store(true, Ordering::Relaxed);
                sender
            });
            let events: Vec<_> = received.iter().collect();
            let [ReflectorEvent::Began(id), refused, ReflectorEvent::Ended(ended)] = events[..]
            else {
                panic!("{events:?}");
            };
            assert_eq!((id.sender, id.ssid, ended.replied), (sender, 8, 1));
            let reason = Unanswered::Short;
            assert_eq!(refused, ReflectorEvent::Refused { from: sender, reason, count: 1 });
        }
    }

    #[test]
    fn an_address_in_use_is_an_error() {
        let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(bind(&taken.local_addr().unwrap().to_string()).is_err());
    }
}
