//! The UDP flow of a path measurement between two longhauls.

use std::io;
use std::net::{IpAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use longhaul_core::path::TrainPacket;
use longhaul_core::plan::TrainSpec;
use longhaul_core::result::{ProbeFigures, Prober};
use longhaul_core::units::Rate;
use longhaul_core::wire::{PROBE_BYTES, ProbeHeader, ProbeKind};
use longhaul_sys::probe::{self, ReceivedProbe as Packet, now_nanos};
use longhaul_sys::{poll, udp};
use socket2::SockRef;

use super::probe_socket::{
    PeerTimes, ProbeReply, ProbeSocket, ProbeSpec, ReplyKind, is_too_big, past_reports, reported,
};
use super::tally::ProbeTally;
use crate::lock;

/// The interval at which the receiving thread checks whether to end.
const STOP_CHECK: Duration = Duration::from_millis(50);
/// The receive buffer, as of a flow of a test: longer than a thread waits for a busy core.
pub(super) const RECEIVE_BUFFER_BYTES: usize = 16 << 20;
/// The send buffer, which holds a train.
const SEND_BUFFER_BYTES: usize = 4 << 20;
/// The largest packet.
const LARGEST: usize = 1 << 16;
/// The maximum number of packets of trains that are stored: those of all trains of one order.
const MOST_ARRIVALS: usize = TrainSpec::MOST_TRAINS as usize * TrainSpec::MOST_PACKETS as usize;
/// The maximum number of answers that wait to be taken; further ones are dropped, as by a full
/// socket.
const MOST_HEARD: usize = 1 << 14;
/// The bytes that a sender may send beyond its rate: a burst of trains.
const ALLOWANCE_BYTES: u64 = 64 << 20;

/// One end of the UDP flow of a measurement: a thread answers requests, counts and records times;
/// the owner asks and sends.
pub(super) struct ProbeFlow {
    pub(super) shared: Arc<Shared>,
    reply: Receiver<ProbeReply>,
    thread: Option<JoinHandle<()>>,
    numbers: u32,
    far: IpAddr,
}

pub(super) struct Shared {
    pub(super) socket: UdpSocket,
    pub(super) tag: u64,
    pub(super) ipv6: bool,
    state: Mutex<State>,
    stop: AtomicBool,
    /// True after the peer has exceeded its rate; it is then ignored.
    pub(super) cut: AtomicBool,
    /// The bytes received, probes or not.
    pub(super) received: AtomicU64,
    /// The number of requests received; its lowest byte is in every answer.
    requests: AtomicU64,
}

struct State {
    tally: ProbeTally,
    arrivals: Vec<(u8, TrainPacket)>,
}

impl ProbeFlow {
    /// Creates a probe flow over a connected UDP flow of the session. A peer that exceeds `limit`
    /// is ignored. The socket buffers at most `socket_bytes`.
    ///
    /// # Errors
    /// The kernel refuses an option or a thread.
    pub(super) fn start(
        socket: UdpSocket,
        tag: u64,
        limit: Option<Rate>,
        socket_bytes: usize,
    ) -> io::Result<Self> {
        let ipv6 = socket.local_addr()?.is_ipv6();
        let far = socket.peer_addr()?.ip();
        probe::prepare(&socket, ipv6)?;
        socket.set_nonblocking(false)?;
        let options = SockRef::from(&socket);
        options.set_send_buffer_size(SEND_BUFFER_BYTES.min(socket_bytes))?;
        let receive = RECEIVE_BUFFER_BYTES.min(socket_bytes);
        udp::force_receive_buffer(&socket, receive)
            .or_else(|_| options.set_recv_buffer_size(receive))?;
        let shared = Arc::new(Shared {
            socket,
            tag,
            ipv6,
            state: Mutex::new(State { tally: ProbeTally::new(), arrivals: Vec::new() }),
            stop: AtomicBool::new(false),
            cut: AtomicBool::new(false),
            received: AtomicU64::new(0),
            requests: AtomicU64::new(0),
        });
        let (forward, reply) = mpsc::sync_channel(MOST_HEARD);
        let (ours, relay) = (shared.clone(), Relay(forward));
        let thread = thread::Builder::new()
            .name("probes".into())
            .spawn(move || ours.receive_packets(limit, &relay))?;
        Ok(ProbeFlow { shared, reply, thread: Some(thread), numbers: 0, far })
    }

    /// Returns the length of the IP and UDP headers.
    pub(super) fn header_bytes(&self) -> u32 {
        self.shared.header_bytes()
    }

    /// Returns the figures of the peer's stream.
    pub(super) fn count(&self, datagrams: u64, sender_dropped: u64) -> ProbeFigures {
        let drops = udp::drops(&self.shared.socket).unwrap_or(0);
        lock(&self.shared.state).tally.figures(datagrams, sender_dropped, drops.into())
    }

    /// Removes and returns the packets of the peer's trains in the order of their arrival.
    pub(super) fn take_arrivals(&self, trains: u8) -> Vec<Vec<TrainPacket>> {
        let mut sorted = vec![Vec::new(); trains.min(TrainSpec::MOST_TRAINS).into()];
        for (train, arrival) in std::mem::take(&mut lock(&self.shared.state).arrivals) {
            if let Some(packets) = sorted.get_mut(usize::from(train)) {
                packets.push(arrival);
            }
        }
        sorted
    }
}

impl Drop for ProbeFlow {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Passes answers on while a receiver takes them.
struct Relay(mpsc::SyncSender<ProbeReply>);

impl Relay {
    fn forward(&self, reply: ProbeReply) {
        let _ = self.0.try_send(reply);
    }
}

impl Shared {
    fn header_bytes(&self) -> u32 {
        if self.ipv6 { 48 } else { 28 }
    }

    fn receive_packets(&self, limit: Option<Rate>, relay: &Relay) {
        let mut buffer = vec![0; LARGEST];
        let begun = Instant::now();
        let mut received = 0u64;
        while !self.stop.load(Ordering::Acquire) {
            poll::readable(&self.socket, STOP_CHECK);
            while let Ok(Some(report)) = probe::receive_report(&self.socket, &mut buffer) {
                let number = self.header(&buffer[..report.bytes]).map(|header| header.number);
                // A port of the peer that is closed now is not an answer.
                relay.forward(reported(number, &report, ReplyKind::Unreachable));
            }
            // The error repeats a report that was read.
            while let Ok(Some(packet)) = probe::receive(&self.socket, &mut buffer) {
                received += packet.bytes as u64;
                self.received.store(received, Ordering::Relaxed);
                if over(limit, received, begun) {
                    self.cut.store(true, Ordering::Release);
                    return;
                }
                if let Some(header) = self.header(&buffer[..packet.bytes]) {
                    self.take(&header, &packet, relay);
                }
            }
        }
    }

    fn header(&self, bytes: &[u8]) -> Option<ProbeHeader> {
        ProbeHeader::decode(bytes).filter(|header| header.tag == self.tag)
    }

    fn take(&self, header: &ProbeHeader, packet: &Packet, relay: &Relay) {
        let at_ns = if packet.at_nanos > 0 { packet.at_nanos } else { now_nanos() };
        match header.kind {
            ProbeKind::Request => self.answer(header, packet.bytes, at_ns),
            ProbeKind::Answer => relay.forward(ProbeReply {
                number: Some(header.number),
                by: self.socket.peer_addr().ok().map(|peer| peer.ip()),
                what: ReplyKind::Answer(Some(PeerTimes {
                    arrived_ns: header.arrived_ns,
                    answered_ns: header.last,
                    requests: header.train,
                })),
                at_ns,
            }),
            ProbeKind::Stream => {
                lock(&self.state).tally.take(header.last, header.sent_ns, at_ns);
            }
            ProbeKind::Train => {
                let arrivals = &mut lock(&self.state).arrivals;
                if arrivals.len() < MOST_ARRIVALS {
                    arrivals.push((header.train, TrainPacket { number: header.number, at_ns }));
                }
            }
        }
    }

    /// Answers a request of `bytes` with at most as many.
    fn answer(&self, header: &ProbeHeader, bytes: usize, arrived_ns: u64) {
        let length = usize::from(header.answer_bytes).min(bytes).max(PROBE_BYTES);
        let mut answer = vec![0; length];
        let header = ProbeHeader {
            kind: ProbeKind::Answer,
            answer_bytes: 0,
            train: (self.requests.fetch_add(1, Ordering::Relaxed) + 1) as u8,
            arrived_ns,
            last: now_nanos(),
            ..*header
        };
        answer[..PROBE_BYTES].copy_from_slice(&header.encode());
        // An answer that cannot be sent counts as lost.
        let _ = self.send(&answer, None);
    }

    /// Sends a packet.
    ///
    /// # Errors
    /// Those of [`probe::send`], except errors that belong to other packets.
    pub(super) fn send(&self, bytes: &[u8], hop_limit: Option<u8>) -> io::Result<()> {
        past_reports(|| probe::send(&self.socket, bytes, hop_limit, self.ipv6).map(drop))
    }
}

/// Returns whether a peer has sent more than it may.
fn over(limit: Option<Rate>, received: u64, begun: Instant) -> bool {
    limit.is_some_and(|limit| {
        let allowed = limit.bytes_per_second() as f64 * begun.elapsed().as_secs_f64();
        received > ALLOWANCE_BYTES.saturating_add(allowed as u64)
    })
}

impl ProbeSocket for ProbeFlow {
    fn send_probe(&mut self, probe: &ProbeSpec) -> io::Result<()> {
        let headers = self.header_bytes();
        let payload = |packet: u32| packet.saturating_sub(headers).max(PROBE_BYTES as u32);
        let header = ProbeHeader {
            tag: self.shared.tag,
            kind: ProbeKind::Request,
            train: 0,
            answer_bytes: payload(probe.answer_bytes).try_into().unwrap_or(u16::MAX),
            number: probe.number,
            sent_ns: now_nanos(),
            arrived_ns: 0,
            last: 0,
        };
        let mut packet = vec![0; payload(probe.packet_bytes) as usize];
        packet[..PROBE_BYTES].copy_from_slice(&header.encode());
        match self.shared.send(&packet, probe.hop_limit) {
            // The interface's queue is full: the packet counts as lost.
            Err(error) if !is_too_big(&error) && error.kind() == io::ErrorKind::WouldBlock => {
                Ok(())
            }
            sent => sent,
        }
    }

    fn receive_reply(&mut self, until: Instant) -> Option<ProbeReply> {
        self.reply.recv_timeout(until.saturating_duration_since(Instant::now())).ok()
    }

    fn number(&mut self) -> u32 {
        self.numbers = self.numbers.wrapping_add(1);
        self.numbers
    }

    fn prober(&self) -> Prober {
        Prober::Udp
    }

    fn far(&self) -> IpAddr {
        self.far
    }

    fn least_bytes(&self) -> u32 {
        self.header_bytes() + PROBE_BYTES as u32
    }
}
