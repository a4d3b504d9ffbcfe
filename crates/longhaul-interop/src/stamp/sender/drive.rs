//! The driver of a sender: a socket, the clocks, and the machine.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::plan::StampPlan;
use longhaul_core::result::PathEnd;
use longhaul_sys::poll;
use longhaul_sys::probe::{
    Header, Note, now_nanos, prepare_stamped, receive_note, receive_stamped, send_stamped,
};
use ring::rand::{SecureRandom, SystemRandom};

use super::super::error::StampError;
use super::super::key::StampKey;
use super::super::reflector::LocalClock;
use super::machine::SenderMachine;
use super::step::{Moment, PeriodReport, ReplyArrival, Step};
use super::traits::ReflectorTraits;

/// The bytes of an IPv4 or IPv6 header with a UDP header.
const V4_HEADER_BYTES: usize = 28;
const V6_HEADER_BYTES: usize = 48;
/// ECT(0) (RFC 3168, section 5).
const ECT0: u8 = 2;
/// The longest wait before the driver checks whether to stop.
const STOP_LOOK: Duration = Duration::from_millis(100);
/// The time between two readings of the state of the clock.
const CLOCK_LOOK: Duration = Duration::from_secs(1);
/// The most packets between two looks at other work.
const BATCH: usize = 64;
const LARGEST: usize = 65_535;
/// The longest time between two readings of the clocks that count as one moment.
const ONE_MOMENT: Duration = Duration::from_micros(50);

/// A measurement that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// The reason for the end.
    pub end: PathEnd,
    /// The duration.
    pub time: Duration,
    /// The whole measurement, or of one without an end the time after the last record.
    pub last: Progress,
}

/// A period of a measurement without an end.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// The figures of the period.
    pub report: PeriodReport,
    /// The properties of the reflector.
    pub seen: ReflectorTraits,
    /// This host's clock.
    pub clock: LocalClock,
    /// The local address.
    pub local: Option<IpAddr>,
}

/// Measures with the reflector at `target` until the plan is complete or `stop` is set. Passes each
/// period of a measurement without an end to `record`, which returns false to stop.
///
/// # Errors
/// The packet size is too small, the socket cannot be opened, or the first packets get no valid
/// reply within 5 s.
pub fn measure(
    target: SocketAddr,
    plan: &StampPlan,
    key: Option<StampKey>,
    stop: &AtomicBool,
    record: impl FnMut(Progress) -> bool,
) -> Result<Measured, StampError> {
    let header = if target.is_ipv6() { V6_HEADER_BYTES } else { V4_HEADER_BYTES };
    let least = SenderMachine::min_bytes(plan, header);
    if let Some(bytes) = plan.packet_bytes.filter(|bytes| (*bytes as usize) < least) {
        return Err(StampError::PacketSize { bytes, least });
    }
    let failed = |source| StampError::Socket { address: target, source };
    let socket = connect(target).map_err(failed)?;
    let mut ssid = [0; 2];
    // A constant identifier only makes sessions less distinct.
    let _ = SystemRandom::new().fill(&mut ssid);
    let machine = SenderMachine::new(plan.clone(), key, u16::from_be_bytes(ssid), header);
    let ecn = if plan.ecn { ECT0 } else { 0 };
    let begun = Instant::now();
    let mut driver = Driver {
        header: Header {
            ipv6: target.is_ipv6(),
            class: plan.dscp << 2 | ecn,
            stamp: true,
            ..Header::default()
        },
        socket,
        target,
        machine,
        buffer: vec![0; LARGEST],
        begun,
        clock: LocalClock::of_host(),
        looked: begun,
        record,
    };
    driver.run(stop)
}

fn connect(target: SocketAddr) -> io::Result<UdpSocket> {
    let any = if target.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
    let socket = UdpSocket::bind(any)?;
    prepare_stamped(&socket, target.is_ipv6())?;
    socket.connect(target)?;
    Ok(socket)
}

struct Driver<R> {
    socket: UdpSocket,
    target: SocketAddr,
    header: Header,
    machine: SenderMachine,
    buffer: Vec<u8>,
    begun: Instant,
    clock: LocalClock,
    looked: Instant,
    record: R,
}

impl<R: FnMut(Progress) -> bool> Driver<R> {
    fn run(&mut self, stop: &AtomicBool) -> Result<Measured, StampError> {
        self.machine.set_clock(self.clock);
        loop {
            self.drain();
            if stop.load(Ordering::Acquire) {
                return Ok(self.end(PathEnd::Interrupted));
            }
            if self.machine.is_refused() {
                return Err(StampError::PortClosed { address: self.target });
            }
            let now = self.moment();
            match self.machine.poll(now) {
                Step::Send => self.send(),
                Step::Wait(until) => {
                    poll::readable(&self.socket, until.saturating_sub(now.at).min(STOP_LOOK));
                }
                Step::Record(report) => {
                    let progress = self.progress(*report);
                    if !(self.record)(progress) {
                        return Ok(self.end(PathEnd::Interrupted));
                    }
                }
                Step::Done => return Ok(self.end(PathEnd::Completed)),
                Step::Silent(silence) => {
                    return Err(StampError::Silent { address: self.target, silence });
                }
            }
            self.look_at_clock();
        }
    }

    fn end(&mut self, end: PathEnd) -> Measured {
        let now = self.moment();
        let report = self.machine.finish(now);
        Measured { end, time: now.at, last: self.progress(report) }
    }

    fn progress(&self, report: PeriodReport) -> Progress {
        Progress {
            report,
            seen: self.machine.seen(),
            clock: self.clock,
            local: self.socket.local_addr().ok().map(|address| address.ip()),
        }
    }

    /// Reads both clocks as close together as possible: the machine detects steps by their
    /// difference.
    fn moment(&self) -> Moment {
        const TRIES: usize = 5;
        let mut moment = self.read_clocks();
        for _ in 0..TRIES {
            if moment.1 < ONE_MOMENT {
                break;
            }
            moment = self.read_clocks();
        }
        moment.0
    }

    fn read_clocks(&self) -> (Moment, Duration) {
        let at = self.begun.elapsed();
        let unix_ns = now_nanos();
        (Moment { at, unix_ns }, self.begun.elapsed() - at)
    }

    fn send(&mut self) {
        // The first error is an ICMP error about an earlier packet.
        let sent =
            (0..2).any(|_| send_stamped(&self.socket, self.machine.packet(), &self.header).is_ok());
        if !sent {
            self.machine.unsent();
        }
    }

    /// Reads the waiting replies and notes.
    fn drain(&mut self) {
        for _ in 0..BATCH {
            match receive_stamped(&self.socket, &mut self.buffer) {
                Ok(Some(arrived)) => {
                    let received = arrived.received;
                    let at_nanos =
                        if received.at_nanos == 0 { now_nanos() } else { received.at_nanos };
                    let landed = ReplyArrival {
                        at_nanos,
                        hop_limit: received.hop_limit,
                        class: arrived.class,
                    };
                    self.machine.receive(&self.buffer[..received.bytes], &landed);
                }
                Ok(None) => break,
                // An ICMP error, which is also a note.
                Err(_) => {}
            }
        }
        for _ in 0..BATCH {
            match receive_note(&self.socket, &mut self.buffer) {
                Ok(Some(Note::Departed { bytes, at_nanos })) => {
                    self.machine.departed(&self.buffer[..bytes], at_nanos);
                }
                Ok(Some(Note::Failed(report))) => self.machine.failed(report),
                Ok(None) => break,
                Err(_) => {}
            }
        }
    }

    fn look_at_clock(&mut self) {
        if self.looked.elapsed() >= CLOCK_LOOK {
            self.looked = Instant::now();
            self.clock = LocalClock::of_host();
            self.machine.set_clock(self.clock);
        }
    }
}
