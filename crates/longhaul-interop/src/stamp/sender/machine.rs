//! The state machine of a sender, without sockets and clocks.

use std::time::Duration;

use longhaul_core::plan::StampPlan;
use longhaul_core::result::StampNumbering;
use longhaul_core::stats::quantile;
use longhaul_sys::probe::Report;

use super::super::extensions::{ReplyExtensions, RequestedExtensions};
use super::super::key::StampKey;
use super::super::packet::{Mode, Reply, Request};
use super::super::reflector::LocalClock;
use super::super::stamping::PacketTime;
use super::super::time::{TimeFormat, Timestamp};
use super::histograms::histograms;
use super::ledger::{Arrived, Ledger, Place};
use super::losses::LossState;
use super::period::Period;
use super::traits::{LEFT_OUT, ReflectorTraits};
use super::{Moment, NoReply, PeriodReport, ReplyArrival, SenderAction};

/// A packet without a reply after this time is lost.
pub(super) const TIMEOUT: Duration = Duration::from_secs(3);
/// The number of packets, and the time for each, in which the first reply must arrive.
const OPENING: (u32, Duration) = (5, Duration::from_secs(1));
/// The maximum number of packets after the last one, until one is answered: the losses before it
/// have a direction then.
const MOST_CLOSING: u32 = 5;
/// The minimum wait for the last replies.
const LEAST_PATIENCE: Duration = Duration::from_millis(200);
/// The largest change of the clock against a clock that never steps, beyond a thousandth of the
/// time: a program that adjusts the clock changes its speed by at most 0.05 % (adjtimex(2)).
const STEP: u64 = 10_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Waits for the first reply.
    Opening(u32),
    Running,
    /// Sends until the last packet is answered.
    Closing(u32),
    /// Waits for replies.
    Draining,
}

/// A sender without sockets and clocks.
#[derive(Debug)]
pub struct SenderMachine {
    plan: StampPlan,
    key: Option<StampKey>,
    ssid: u16,
    area: usize,
    ledger: Ledger,
    phase: Phase,
    packet: Vec<u8>,
    /// The time of the next packet, or the end of a wait.
    due: Duration,
    sent: u64,
    reflector: ReflectorTraits,
    silence: NoReply,
    slowest: Duration,
    clock: LocalClock,
    last: Option<Moment>,
    period: Period,
    period_began: Option<Moment>,
    carry: LossState,
}

impl SenderMachine {
    /// Creates a sender. `header_bytes` is the size of the IP and UDP headers, `ssid` a random
    /// number.
    #[must_use]
    pub fn new(plan: StampPlan, key: Option<StampKey>, ssid: u16, header_bytes: usize) -> Self {
        let mode = if key.is_some() { Mode::Authenticated } else { Mode::Open };
        let wanted = plan.packet_bytes.map_or(0, |bytes| bytes as usize);
        let waiting = TIMEOUT.as_nanos().div_ceil(plan.interval.as_nanos().max(1));
        let waiting = usize::try_from(waiting).unwrap_or(usize::MAX).min(1 << 15);
        SenderMachine {
            area: wanted.saturating_sub(header_bytes + mode.base_bytes()),
            ledger: Ledger::new(waiting + 64),
            plan,
            key,
            ssid: ssid.max(1),
            phase: Phase::Opening(0),
            packet: Vec::new(),
            due: Duration::ZERO,
            sent: 0,
            reflector: ReflectorTraits::default(),
            silence: NoReply::default(),
            slowest: Duration::ZERO,
            clock: LocalClock::default(),
            last: None,
            period: Period::default(),
            period_began: None,
            carry: LossState::default(),
        }
    }

    /// Returns the minimum size of a packet with its headers in bytes.
    #[must_use]
    pub fn min_bytes(plan: &StampPlan, header_bytes: usize) -> usize {
        let mode = if plan.authenticated { Mode::Authenticated } else { Mode::Open };
        let area = RequestedExtensions::min_bytes(plan.extensions, plan.authenticated);
        header_bytes + mode.base_bytes() + area
    }

    /// Sets the state of this host's clock.
    pub fn set_clock(&mut self, clock: LocalClock) {
        self.clock = clock;
    }

    /// Returns the properties of the reflector.
    #[must_use]
    pub fn reflector(&self) -> ReflectorTraits {
        self.reflector
    }

    /// Returns the packet to send.
    #[must_use]
    pub fn packet(&self) -> &[u8] {
        &self.packet
    }

    /// Returns the next action. A packet to send counts as sent.
    pub fn poll(&mut self, now: Moment) -> SenderAction {
        self.watch_clock(now);
        let old = now.at.checked_sub(TIMEOUT);
        if let Some(report) = old.and_then(|until| self.settle(until, now)) {
            return SenderAction::Record(Box::new(report));
        }
        if now.at < self.due {
            return if self.is_over() { SenderAction::Done } else { SenderAction::Wait(self.due) };
        }
        match self.phase {
            Phase::Opening(sent) if sent >= OPENING.0 => {
                SenderAction::Silent(NoReply { sent: self.sent, waited: now.at, ..self.silence })
            }
            Phase::Opening(sent) => {
                self.phase = Phase::Opening(sent + 1);
                self.send(now, OPENING.1)
            }
            Phase::Running if self.plan.packets.is_some_and(|packets| self.sent >= packets) => {
                self.phase = Phase::Closing(0);
                self.poll(now)
            }
            Phase::Running => {
                // After a pause of the host the rate stays the same.
                let late = now.at.saturating_sub(self.due);
                let next = if late > OPENING.1 { now.at } else { self.due };
                self.send(now, (next + self.plan.interval).saturating_sub(now.at))
            }
            Phase::Closing(sent) => {
                let settled = self.ledger.last_is_answered()
                    || sent > MOST_CLOSING
                    || self.reflector.numbering != StampNumbering::Stateful;
                self.phase = if settled { Phase::Draining } else { Phase::Closing(sent + 1) };
                if settled || sent == 0 {
                    self.due = now.at + self.patience();
                    return SenderAction::Wait(self.due);
                }
                let patience = self.patience();
                self.send(now, patience)
            }
            Phase::Draining => SenderAction::Done,
        }
    }

    /// Ends the measurement and returns the rest: of a measurement with an end, all.
    pub fn finish(&mut self, now: Moment) -> PeriodReport {
        while let Some(packet) = self.ledger.settle(now.at) {
            packet.iter().for_each(|packet| self.period.add(packet));
        }
        self.report(now)
    }

    fn is_over(&self) -> bool {
        match self.phase {
            Phase::Draining => self.ledger.all_are_answered(),
            Phase::Opening(_) | Phase::Running | Phase::Closing(_) => false,
        }
    }

    /// Returns the time to wait for a reply.
    fn patience(&self) -> Duration {
        (self.slowest * 4).clamp(LEAST_PATIENCE, TIMEOUT)
    }

    fn send(&mut self, now: Moment, interval: Duration) -> SenderAction {
        self.due = now.at + interval;
        if self.ledger.is_full()
            && let Some(Some(packet)) = self.ledger.settle(Duration::MAX)
        {
            self.period.add(&packet);
        }
        self.sent += 1;
        let sequence = self.ledger.next() as u32;
        let time = Timestamp::of(now.unix_ns, TimeFormat::Ntp);
        self.ledger.send(time, now.unix_ns, now.at);
        self.write(Request { sequence, time, error: self.clock.estimate(), ssid: self.ssid });
        self.period_began.get_or_insert(now);
        SenderAction::Send
    }

    fn write(&mut self, request: Request) {
        let mode = if self.key.is_some() { Mode::Authenticated } else { Mode::Open };
        self.packet.clear();
        self.packet.resize(mode.base_bytes(), 0);
        request.encode(&mut self.packet, mode);
        if let (Some(range), Some(key)) = (mode.hmac(), &self.key) {
            let tag = key.tag(&[&self.packet[..range.start]]);
            self.packet[range].copy_from_slice(&tag);
        }
        let wanted = RequestedExtensions {
            information: self.plan.extensions,
            dscp: self.plan.dscp,
            sent: self.sent as u32,
            bytes: self.area,
        };
        wanted.append(&mut self.packet, request.sequence, self.key.as_ref());
    }

    /// Records that the kernel refused the last packet.
    pub fn unsent(&mut self) {
        self.ledger.unsend();
        self.period.unsent += 1;
    }

    /// Records an ICMP error about a packet.
    pub fn failed(&mut self, report: Report) {
        self.silence.icmp = Some(report);
    }

    /// Returns the ICMP error that ends a measurement before its first reply: the port is closed.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        let opening = matches!(self.phase, Phase::Opening(_));
        opening && self.silence.icmp == Some(Report::PortClosed)
    }

    /// Records the time of a departure. `frame` ends with the packet.
    pub fn departed(&mut self, frame: &[u8], time: PacketTime) {
        let mode = if self.key.is_some() { Mode::Authenticated } else { Mode::Open };
        let start = frame.len().checked_sub(self.packet.len());
        let request = start.and_then(|start| Request::decode(&frame[start..], mode));
        if let Some(request) = request {
            self.ledger.departed(request.sequence, request.time, time);
        }
    }

    /// Reads a packet that arrived.
    pub fn receive(&mut self, packet: &[u8], landed: &ReplyArrival) {
        let mode = if self.key.is_some() { Mode::Authenticated } else { Mode::Open };
        let Some(reply) = Reply::decode(packet, mode) else {
            self.silence.short = Some(packet.len());
            self.period.invalid += 1;
            return;
        };
        if let (Some(range), Some(key)) = (mode.hmac(), &self.key)
            && !key.verify(&[&packet[..range.start]], &packet[range])
        {
            self.silence.unauthentic += 1;
            self.period.invalid += 1;
            return;
        }
        let area = packet.get(mode.base_bytes()..).unwrap_or_default();
        let answers =
            ReplyExtensions::read(area, reply.sequence, self.key.as_ref()).unwrap_or_default();
        match self.place(&reply, &answers, landed) {
            Some(Place::First) => self.learn(&reply, &answers, landed),
            Some(Place::Further) => {}
            Some(Place::Late) => self.period.late += 1,
            Some(Place::Foreign) | None => {
                self.silence.foreign += 1;
                self.period.invalid += 1;
            }
        }
    }

    fn place(
        &mut self,
        reply: &Reply,
        answers: &ReplyExtensions,
        landed: &ReplyArrival,
    ) -> Option<Place> {
        if reply.ssid != 0 && reply.ssid != self.ssid {
            return None;
        }
        let format = reply.error.format();
        let arrived = Arrived {
            number: reply.sequence,
            received_ns: reply.received.unix_nanos(format, landed.time.at_nanos)?,
            replied_ns: reply.time.unix_nanos(format, landed.time.at_nanos)?,
            arrived_ns: landed.time.at_nanos,
            by_hardware: landed.time.by_hardware,
            forward_class: answers.class.map(|class| class.dscp << 2 | class.ecn),
            reverse_class: landed.class,
            forward_hop_limit: reply.sender_hop_limit,
            reverse_hop_limit: landed.hop_limit,
        };
        Some(self.ledger.take(reply.sender_sequence, reply.sender_time, arrived))
    }

    /// Reads the first reply to a packet.
    fn learn(&mut self, reply: &Reply, answers: &ReplyExtensions, landed: &ReplyArrival) {
        self.reflector.learn(reply, answers);
        let sent = reply.sender_time.unix_nanos(TimeFormat::Ntp, landed.time.at_nanos);
        let took = landed.time.at_nanos.saturating_sub(sent.unwrap_or(landed.time.at_nanos));
        self.slowest = self.slowest.max(Duration::from_nanos(took)).min(TIMEOUT);
        let format = reply.error.format();
        if let Some(follow_up) = answers.follow_up
            && let Some(at) = follow_up.time.unix_nanos(format, landed.time.at_nanos)
        {
            self.ledger.follow_up(follow_up.sequence, at);
        }
        if matches!(self.phase, Phase::Opening(_)) {
            self.phase = Phase::Running;
            self.due = self.due.saturating_sub(OPENING.1) + self.plan.interval;
            let now = self.last.map_or(Duration::ZERO, |last| last.at);
            self.ledger.skip(LEFT_OUT, now);
        }
    }

    /// Detects steps of this host's clock.
    fn watch_clock(&mut self, now: Moment) {
        if let Some(last) = self.last.replace(now) {
            let since = now.at.saturating_sub(last.at).as_nanos() as u64;
            let by_clock = now.unix_ns.wrapping_sub(last.unix_ns) as i64;
            let changed = by_clock.abs_diff(since as i64);
            if changed > STEP + since / 1000 {
                self.period.clock_steps += 1;
                self.ledger.step();
            }
        }
    }

    /// Settles the packets that were sent at `until` or before. Returns the report of a period that
    /// is complete.
    fn settle(&mut self, until: Duration, now: Moment) -> Option<PeriodReport> {
        let end = match (self.plan.packets, self.period_began) {
            (None, Some(began)) => began.at + self.plan.record,
            _ => Duration::MAX,
        };
        let last = until.min(end.saturating_sub(Duration::from_nanos(1)));
        while let Some(packet) = self.ledger.settle(last) {
            packet.iter().for_each(|packet| self.period.add(packet));
        }
        (until >= end).then(|| self.report(Moment { at: end, ..now }))
    }

    fn report(&mut self, end: Moment) -> PeriodReport {
        let began = self.period_began.unwrap_or(end);
        let next = self.period.next();
        let period = std::mem::replace(&mut self.period, next);
        let times = period.times();
        let replies: Vec<_> = times.iter().map(|times| times.reply as f64 / 1e6).collect();
        let report = PeriodReport {
            departures: period.departures(),
            arrivals: period.arrivals(),
            reply_p50_ms: quantile(&replies, 0.5),
            unix_ns: began.unix_ns,
            length: end.at.saturating_sub(began.at),
            figures: period.figures(self.reflector.numbering, &mut self.carry),
            histograms: histograms(&times),
        };
        let length = report.length.as_nanos() as u64;
        self.period_began = Some(Moment { at: end.at, unix_ns: began.unix_ns + length });
        report
    }
}
