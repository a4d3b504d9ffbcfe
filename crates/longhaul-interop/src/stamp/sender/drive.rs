//! The driver of a sender: a socket, the clocks, and the machine.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::plan::StampPlan;
use longhaul_core::result::{NoHardware, PathEnd};
use longhaul_sys::poll;
use longhaul_sys::probe::{
    Header, Note, now_nanos, prepare_stamped, receive_note, receive_stamped, send_stamped,
};
use ring::rand::{SecureRandom, SystemRandom};

use super::super::key::StampKey;
use super::super::reflector::LocalClock;
use super::super::stamping::Stamping;
use super::machine::SenderMachine;
use super::traits::ReflectorTraits;
use super::{Moment, PeriodReport, ReplyArrival, SenderAction, StampError};

/// The bytes of an IPv4 or IPv6 header with a UDP header.
const V4_HEADER_BYTES: usize = 28;
const V6_HEADER_BYTES: usize = 48;
/// ECT(0) (RFC 3168, section 5).
const ECT0: u8 = 2;
/// The longest wait before the driver checks whether to stop.
const STOP_LOOK: Duration = Duration::from_millis(100);
/// The time between two readings of the state of the clock.
const CLOCK_LOOK: Duration = Duration::from_secs(1);
/// The maximum number of packets between two checks of other work.
const BATCH: usize = 64;
const LARGEST: usize = 65_535;
/// The longest time between two readings of the clocks that count as one time.
const ONE_MOMENT: Duration = Duration::from_micros(50);

/// A measurement that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// The reason for the end.
    pub end: PathEnd,
    /// The duration.
    pub time: Duration,
    /// The whole measurement, or of one without an end the time after the last record.
    pub last: MeasuredPeriod,
}

/// A period of a measurement without an end.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredPeriod {
    /// The figures of the period.
    pub report: PeriodReport,
    /// The properties of the reflector.
    pub reflector: ReflectorTraits,
    /// This host's clock.
    pub clock: LocalClock,
    /// The local address.
    pub local: Option<IpAddr>,
    /// The reason why the timestamps of the network interface are not used.
    pub no_hardware: Option<NoHardware>,
}

/// The reflector of a measurement, and the local address of the packets.
#[derive(Debug, Clone, Copy)]
pub struct StampEnds {
    /// The reflector.
    pub target: SocketAddr,
    /// The local address; the routing table chooses it if `None`.
    pub local: Option<SocketAddr>,
}

impl From<SocketAddr> for StampEnds {
    fn from(target: SocketAddr) -> Self {
        StampEnds { target, local: None }
    }
}

/// Measures with the reflector of `ends` until the plan is complete or `stop` is set. Passes each
/// period of a measurement without an end to `record`, which returns false to stop.
///
/// # Errors
/// The packet size is too small, the socket cannot be opened, or the first packets get no valid
/// reply within 5 s.
pub fn measure(
    ends: StampEnds,
    plan: &StampPlan,
    key: Option<StampKey>,
    stop: &AtomicBool,
    mut record: impl FnMut(MeasuredPeriod) -> bool,
) -> Result<Measured, StampError> {
    let mut sender = Sender::open(ends, plan, key)?;
    loop {
        if stop.load(Ordering::Acquire) {
            return Ok(sender.finish(PathEnd::Interrupted));
        }
        match sender.advance()? {
            Advance::Wait(Duration::ZERO) => {}
            Advance::Wait(limit) => {
                poll::readable(&sender, limit.min(STOP_LOOK));
            }
            Advance::Record(progress) => {
                if !record(*progress) {
                    return Ok(sender.finish(PathEnd::Interrupted));
                }
            }
            Advance::Done => return Ok(sender.finish(PathEnd::Completed)),
        }
    }
}

/// A measurement with one reflector, which the caller advances. Several can share a thread.
#[derive(Debug)]
pub struct Sender {
    socket: UdpSocket,
    target: SocketAddr,
    stamping: Stamping,
    header: Header,
    machine: SenderMachine,
    buffer: Vec<u8>,
    begun: Instant,
    clock: LocalClock,
    looked: Instant,
}

/// The state of a [`Sender`] after a step.
#[derive(Debug, Clone, PartialEq)]
pub enum Advance {
    /// Nothing is due for this long, unless the socket becomes readable. It may be zero.
    Wait(Duration),
    /// A period of a measurement without an end is complete.
    Record(Box<MeasuredPeriod>),
    /// The plan is complete.
    Done,
}

fn connect(StampEnds { target, local }: StampEnds) -> io::Result<UdpSocket> {
    let any: IpAddr = if target.is_ipv6() { [0u8; 16].into() } else { [0u8; 4].into() };
    let socket = UdpSocket::bind(local.unwrap_or(SocketAddr::new(any, 0)))?;
    prepare_stamped(&socket, target.is_ipv6())?;
    socket.connect(target)?;
    Ok(socket)
}

impl AsFd for Sender {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Sender {
    /// Opens a socket for the measurement of `plan` with a reflector.
    ///
    /// # Errors
    /// The packet size is too small, or the socket cannot be opened.
    pub fn open(
        ends: impl Into<StampEnds>,
        plan: &StampPlan,
        key: Option<StampKey>,
    ) -> Result<Self, StampError> {
        let ends = ends.into();
        let target = ends.target;
        let header = if target.is_ipv6() { V6_HEADER_BYTES } else { V4_HEADER_BYTES };
        let least = SenderMachine::min_bytes(plan, header);
        if let Some(bytes) = plan.packet_bytes.filter(|bytes| (*bytes as usize) < least) {
            return Err(StampError::PacketSize { bytes, least });
        }
        let failed = |source| StampError::Socket { address: target, source };
        let socket = connect(ends).map_err(failed)?;
        let stamping = Stamping::for_target(&socket, target.ip());
        let mut ssid = [0; 2];
        // A constant identifier only makes sessions less distinct.
        let _ = SystemRandom::new().fill(&mut ssid);
        let mut machine = SenderMachine::new(plan.clone(), key, u16::from_be_bytes(ssid), header);
        let ecn = if plan.ecn { ECT0 } else { 0 };
        let begun = Instant::now();
        let clock = LocalClock::of_host();
        machine.set_clock(clock);
        Ok(Sender {
            header: Header {
                ipv6: target.is_ipv6(),
                class: plan.dscp << 2 | ecn,
                stamp: true,
                hardware: stamping.no_hardware().is_none(),
                ..Header::default()
            },
            socket,
            target,
            stamping,
            machine,
            buffer: vec![0; LARGEST],
            begun,
            clock,
            looked: begun,
        })
    }

    /// Reads the replies that have arrived, and sends a packet if one is due. Never waits.
    ///
    /// # Errors
    /// The port of the reflector is closed, or the first packets got no valid reply within 5 s.
    pub fn advance(&mut self) -> Result<Advance, StampError> {
        self.drain();
        if self.machine.is_refused() {
            return Err(StampError::PortClosed { address: self.target });
        }
        self.look_at_clock();
        let now = self.moment();
        match self.machine.poll(now) {
            SenderAction::Send => {
                self.send();
                Ok(Advance::Wait(Duration::ZERO))
            }
            SenderAction::Wait(until) => Ok(Advance::Wait(until.saturating_sub(now.at))),
            SenderAction::Record(report) => Ok(Advance::Record(Box::new(self.progress(*report)))),
            SenderAction::Done => Ok(Advance::Done),
            SenderAction::Silent(silence) => {
                Err(StampError::Silent { address: self.target, silence })
            }
        }
    }

    /// Returns the properties of the reflector.
    pub fn reflector(&self) -> ReflectorTraits {
        self.machine.reflector()
    }

    /// Ends the measurement for the reason `end`, and returns the rest: of a measurement with an end,
    /// all.
    pub fn finish(&mut self, end: PathEnd) -> Measured {
        let now = self.moment();
        let report = self.machine.finish(now);
        Measured { end, time: now.at, last: self.progress(report) }
    }

    fn progress(&self, report: PeriodReport) -> MeasuredPeriod {
        MeasuredPeriod {
            report,
            reflector: self.machine.reflector(),
            clock: self.clock,
            local: self.socket.local_addr().ok().map(|address| address.ip()),
            no_hardware: self.stamping.no_hardware(),
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
                    let landed = ReplyArrival {
                        time: self.stamping.arrival(&arrived),
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
                Ok(Some(Note::Departed { bytes, at_nanos, hardware })) => {
                    if let Some(time) = self.stamping.departure(at_nanos, hardware) {
                        self.machine.departed(&self.buffer[..bytes], time);
                    }
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
            self.clock.max_error += self.stamping.renew();
            self.machine.set_clock(self.clock);
        }
    }
}
