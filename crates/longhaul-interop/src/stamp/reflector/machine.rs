//! The answers of a reflector, without sockets and clocks.

use std::collections::VecDeque;
use std::time::Instant;

use super::super::extensions::Counters;
use super::super::packet::{MIN_REPLY_BYTES, Mode, Reply, Request};
use super::super::stamping::PacketTime;
use super::super::time::{TimeFormat, Timestamp};
use super::super::tlv::sign;
use super::answer::{Answer, Arrival, ReflectorCounts, Unanswered};
use super::reflect::{EarlierReply, Facts, reflect};
use super::sessions::{EndedSession, Sessions, StampSessionId};
use super::settings::{LocalClock, ReflectorSettings};
use super::sources::Sources;

/// The ports below belong to services (RFC 6335, section 6).
const FIRST_USER_PORT: u16 = 1024;

/// The maximum number of replies that wait for the time of their departure.
const MOST_DEPARTING: usize = 256;

/// A reflector without sockets and clocks.
#[derive(Debug)]
pub struct ReflectorMachine {
    settings: ReflectorSettings,
    sources: Sources,
    sessions: Sessions,
    departing: VecDeque<Departing>,
    counts: ReflectorCounts,
}

/// A reply whose departure is not known yet.
#[derive(Debug)]
struct Departing {
    time: Timestamp,
    sequence: u32,
    id: StampSessionId,
}

impl ReflectorMachine {
    /// Creates a reflector.
    #[must_use]
    pub fn new(settings: ReflectorSettings, now: Instant) -> Self {
        let sources = Sources::new(settings.rate, settings.all_rate, now);
        ReflectorMachine {
            settings,
            sources,
            sessions: Sessions::new(now),
            departing: VecDeque::new(),
            counts: ReflectorCounts::default(),
        }
    }

    /// Returns the counts so far.
    #[must_use]
    pub fn counts(&self) -> ReflectorCounts {
        self.counts
    }

    /// Writes the answer to the request in `packet` over it; its length stays the same. `clock` is
    /// read last: it returns the time in nanoseconds since 1970.
    ///
    /// # Errors
    /// The request has no answer.
    pub fn answer(
        &mut self,
        packet: &mut [u8],
        arrival: &Arrival,
        local: LocalClock,
        clock: impl FnOnce() -> u64,
    ) -> Result<Answer, Unanswered> {
        let answered = self.try_answer(packet, arrival, local, clock);
        let count = match &answered {
            Ok(_) => &mut self.counts.replied,
            Err(Unanswered::Short) => &mut self.counts.short,
            Err(Unanswered::Unauthentic) => &mut self.counts.unauthentic,
            Err(Unanswered::TooFast) => &mut self.counts.too_fast,
            Err(Unanswered::Reply) => &mut self.counts.replies,
        };
        *count += 1;
        answered
    }

    fn try_answer(
        &mut self,
        packet: &mut [u8],
        arrival: &Arrival,
        local: LocalClock,
        clock: impl FnOnce() -> u64,
    ) -> Result<Answer, Unanswered> {
        // Before the HMAC, whose computation has a cost.
        if !self.sources.admit(arrival.from.ip(), arrival.now) {
            return Err(Unanswered::TooFast);
        }
        let request = self.verify(packet)?;
        let port = arrival.from.port();
        let of_service = port < FIRST_USER_PORT || port == self.settings.port;
        if of_service && Request::looks_like_reply(packet, self.mode()) {
            return Err(Unanswered::Reply);
        }
        let mode = self.mode();
        let id = StampSessionId { sender: arrival.from, reflector: arrival.to, ssid: request.ssid };
        let (sequence, facts, began) = self.count(id, request.sequence, arrival, packet.len());
        let facts = Facts { synchronised: local.synchronised, ..facts };
        let area = mode.base_bytes().min(packet.len());
        let key = self.settings.key.as_ref();
        let reflected = reflect(&mut packet[area..], request.sequence, key, &facts);
        if let Some(key) = key.filter(|_| reflected.verified) {
            sign(&mut packet[area..], sequence, key);
        }
        let reply = Reply {
            sequence,
            time: Timestamp::of(clock(), TimeFormat::Ntp),
            error: local.estimate(),
            ssid: request.ssid,
            received: Timestamp::of(arrival.time.at_nanos, TimeFormat::Ntp),
            sender_sequence: request.sequence,
            sender_time: request.time,
            sender_error: request.error,
            sender_hop_limit: arrival.hop_limit,
        };
        reply.encode(packet, mode);
        if let (Some(range), Some(key)) = (mode.hmac(), key) {
            let tag = key.tag(&[&packet[..range.start]]);
            packet[range].copy_from_slice(&tag);
        }
        let stamp = reflected.follow_up && facts.counters.is_some();
        if stamp {
            self.depart(Departing { time: reply.time, sequence, id });
        }
        Ok(Answer { class: reflected.dscp.unwrap_or(arrival.class >> 2) << 2, began, stamp })
    }

    fn mode(&self) -> Mode {
        if self.settings.key.is_some() { Mode::Authenticated } else { Mode::Open }
    }

    /// Returns the request in `packet` if it is authentic and has space for a reply.
    fn verify(&self, packet: &[u8]) -> Result<Request, Unanswered> {
        let mode = self.mode();
        let request = Request::decode(packet, mode).ok_or(Unanswered::Short)?;
        if packet.len() < MIN_REPLY_BYTES {
            return Err(Unanswered::Short);
        }
        match (mode.hmac(), &self.settings.key) {
            (Some(range), Some(key))
                if !key.verify(&[&packet[..range.start]], &packet[range.clone()]) =>
            {
                Err(Unanswered::Unauthentic)
            }
            _ => Ok(request),
        }
    }

    /// Counts the request in its session. Returns the number of the reply, the facts for its
    /// extensions, and the session if it is new. If the table of sessions is full, the answer is
    /// stateless.
    fn count(
        &mut self,
        id: StampSessionId,
        sequence: u32,
        arrival: &Arrival,
        bytes: usize,
    ) -> (u32, Facts, Option<StampSessionId>) {
        let received_by_hardware = arrival.time.by_hardware;
        let facts = Facts { class: arrival.class, received_by_hardware, ..Facts::default() };
        let stateful = self.settings.stateful;
        let entered = if stateful { self.sessions.enter(id, arrival.now) } else { None };
        let Some((session, new)) = entered else { return (sequence, facts, None) };
        let sequence = session.replied;
        session.received = session.received.wrapping_add(1);
        session.replied = session.replied.wrapping_add(1);
        session.bytes = session.bytes.saturating_add(bytes as u64);
        let counters = Counters { received: session.received, replied: session.replied };
        let facts = Facts { counters: Some(counters), follow_up: session.departed, ..facts };
        (sequence, facts, new.then_some(id))
    }

    fn depart(&mut self, departing: Departing) {
        if self.departing.len() == MOST_DEPARTING {
            self.departing.pop_front();
        }
        self.departing.push_back(departing);
    }

    /// Records the time at which a reply left. `frame` ends with the reply of `bytes` bytes.
    pub fn departed(&mut self, frame: &[u8], time: PacketTime) {
        // The time in the reply identifies it. The frame has unknown headers before it.
        let offset = if self.settings.key.is_some() { 16 } else { 4 };
        let found = self.departing.iter().position(|departing| {
            let time = departing.time.0.to_be_bytes();
            let sequence = departing.sequence.to_be_bytes();
            let mut starts = frame.windows(4).enumerate().filter(|(_, four)| *four == sequence);
            starts.any(|(at, _)| frame.get(at + offset..at + offset + 8) == Some(&time))
        });
        let Some(departing) = found.and_then(|index| self.departing.remove(index)) else { return };
        if let Some(session) = self.sessions.get(&departing.id) {
            let by_hardware = time.by_hardware;
            let time = Timestamp::of(time.at_nanos, TimeFormat::Ntp);
            session.departed =
                Some(EarlierReply { sequence: departing.sequence, time, by_hardware });
        }
    }

    /// Returns the sessions that have expired.
    pub fn expired(&mut self, now: Instant) -> Vec<EndedSession> {
        self.sessions.expire(now)
    }

    /// Ends all sessions and returns them.
    pub fn end(&mut self) -> Vec<EndedSession> {
        self.sessions.end()
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use super::super::super::extensions::{FollowUp, ReplyExtensions, RequestedExtensions};
    use super::super::super::key::StampKey;
    use super::super::super::time::ErrorEstimate;
    use super::*;

    const NANOS: u64 = 1_795_305_600_000_000_000;

    fn arrival(port: u16) -> Arrival {
        Arrival {
            from: SocketAddr::new("192.0.2.1".parse().unwrap(), port),
            to: "192.0.2.2".parse().ok(),
            time: PacketTime { at_nanos: NANOS, by_hardware: false },
            hop_limit: 250,
            class: 46 << 2 | 1,
            now: Instant::now(),
        }
    }

    fn request(sequence: u32, key: Option<&StampKey>) -> Vec<u8> {
        let mode = if key.is_some() { Mode::Authenticated } else { Mode::Open };
        let mut packet = vec![0; mode.base_bytes()];
        let time = Timestamp::of(NANOS - 1_000_000, TimeFormat::Ntp);
        Request { sequence, time, error: ErrorEstimate(1), ssid: 9 }.encode(&mut packet, mode);
        if let Some(key) = key {
            let tag = key.tag(&[&packet[..96]]);
            packet[96..112].copy_from_slice(&tag);
        }
        RequestedExtensions { information: true, dscp: 10, sent: 3, bytes: 0 }.append(
            &mut packet,
            sequence,
            key,
        );
        packet
    }

    fn machine(settings: ReflectorSettings) -> ReflectorMachine {
        ReflectorMachine::new(settings, Instant::now())
    }

    fn reply(
        machine: &mut ReflectorMachine,
        packet: &mut [u8],
        port: u16,
    ) -> Result<Answer, Unanswered> {
        let clock = LocalClock { synchronised: true, max_error: Duration::from_millis(1) };
        machine.answer(packet, &arrival(port), clock, || NANOS + 5000)
    }

    #[test]
    fn a_reply_repeats_the_request_and_states_both_times() {
        let mut machine = machine(ReflectorSettings::default());
        let mut packet = request(100, None);
        let bytes = packet.len();
        let answer = reply(&mut machine, &mut packet, 5).unwrap();
        assert_eq!((packet.len(), answer.class, answer.stamp), (bytes, 10 << 2, true));
        let found = Reply::decode(&packet, Mode::Open).unwrap();
        let time = |nanos| Timestamp::of(nanos, TimeFormat::Ntp);
        let clock = LocalClock { synchronised: true, max_error: Duration::from_millis(1) };
        let expected = Reply {
            sequence: 0,
            time: time(NANOS + 5000),
            error: clock.estimate(),
            ssid: 9,
            received: time(NANOS),
            sender_sequence: 100,
            sender_time: time(NANOS - 1_000_000),
            sender_error: ErrorEstimate(1),
            sender_hop_limit: 250,
        };
        assert_eq!(found, expected);
        let answers = ReplyExtensions::read(&packet[44..], 0, None).unwrap();
        assert_eq!(answers.counters, Some(Counters { received: 1, replied: 1 }));
        let class = answers.class.unwrap();
        assert_eq!((class.dscp, class.ecn, class.refused), (46, 1, false));
    }

    #[test]
    fn a_stateful_reflector_counts_per_session_and_a_stateless_one_repeats() {
        let mut stateful = machine(ReflectorSettings::default());
        let numbers = |machine: &mut ReflectorMachine, port| {
            [3, 5, 9].map(|sequence| {
                let mut packet = request(sequence, None);
                reply(machine, &mut packet, port).unwrap();
                Reply::decode(&packet, Mode::Open).unwrap().sequence
            })
        };
        assert_eq!(numbers(&mut stateful, 1), [0, 1, 2]);
        assert_eq!(numbers(&mut stateful, 2), [0, 1, 2]);
        assert_eq!(numbers(&mut stateful, 1), [3, 4, 5]);
        let mut stateless =
            machine(ReflectorSettings { stateful: false, ..ReflectorSettings::default() });
        assert_eq!(numbers(&mut stateless, 1), [3, 5, 9]);
        assert_eq!(stateless.end(), []);
        let mut ended = stateful.end();
        ended.sort_by_key(|ended| ended.replied);
        assert_eq!(ended.iter().map(|ended| ended.replied).collect::<Vec<_>>(), [3, 6]);
    }

    #[test]
    fn the_departure_of_a_reply_is_in_the_next() {
        for key in [None, StampKey::parse(&"42".repeat(16)).ok()] {
            let mut machine =
                machine(ReflectorSettings { key: key.clone(), ..ReflectorSettings::default() });
            let mut packet = request(0, key.as_ref());
            reply(&mut machine, &mut packet, 1).unwrap();
            let time = PacketTime { at_nanos: NANOS + 7000, by_hardware: true };
            machine.departed(&[&[1, 2, 3][..], &packet[..96]].concat(), time);
            // A frame that is not a reply of this reflector.
            machine.departed(&[0; 200], time);
            let mut packet = request(1, key.as_ref());
            reply(&mut machine, &mut packet, 1).unwrap();
            let base = if key.is_some() { 112 } else { 44 };
            let answers = ReplyExtensions::read(&packet[base..], 1, key.as_ref()).unwrap();
            let time = Timestamp::of(NANOS + 7000, TimeFormat::Ntp);
            assert_eq!(answers.follow_up, Some(FollowUp { sequence: 0, time }));
        }
    }

    #[test]
    fn with_a_key_only_authentic_requests_are_answered() {
        let key = StampKey::parse(&"42".repeat(16)).unwrap();
        let other = StampKey::parse(&"43".repeat(16)).unwrap();
        let settings = ReflectorSettings { key: Some(key.clone()), ..ReflectorSettings::default() };
        let mut machine = machine(settings);
        let mut packet = request(7, Some(&key));
        reply(&mut machine, &mut packet, 1).unwrap();
        assert!(key.verify(&[&packet[..96]], &packet[96..112]));
        for mut packet in [request(7, Some(&other)), vec![0; 200]] {
            let before = packet.clone();
            assert_eq!(reply(&mut machine, &mut packet, 1), Err(Unanswered::Unauthentic));
            assert_eq!(packet, before);
        }
        assert_eq!(reply(&mut machine, &mut request(7, None), 1), Err(Unanswered::Short));
        let counts = machine.counts();
        assert_eq!((counts.replied, counts.unauthentic, counts.short), (1, 2, 1));
    }

    #[test]
    fn no_reply_is_longer_than_its_request() {
        let mut machine = machine(ReflectorSettings::default());
        for bytes in 0..300 {
            let mut packet = vec![0xa5; bytes];
            let answered = reply(&mut machine, &mut packet, 5000);
            assert_eq!(answered.is_ok(), bytes >= MIN_REPLY_BYTES, "{bytes}");
            assert_eq!(packet.len(), bytes);
        }
    }

    #[test]
    fn two_reflectors_do_not_answer_each_other() {
        let key = StampKey::parse(&"42".repeat(16)).unwrap();
        for key in [None, Some(&key)] {
            let settings =
                ReflectorSettings { key: key.cloned(), port: 4000, ..ReflectorSettings::default() };
            let mut machine = machine(settings);
            for port in [862, 4000, 7] {
                let mut packet = request(1, key);
                assert!(
                    reply(&mut machine, &mut packet, port).is_ok(),
                    "a sender may use the port"
                );
                assert_eq!(reply(&mut machine, &mut packet, port), Err(Unanswered::Reply));
            }
            // A sender of TWAMP Light at another port may send any padding.
            let mut packet = request(1, key);
            reply(&mut machine, &mut packet, 5000).unwrap();
            assert!(reply(&mut machine, &mut packet, 5000).is_ok());
            assert_eq!(machine.counts().replies, 3);
        }
    }

    #[test]
    fn a_source_above_its_rate_gets_no_replies() {
        let settings = ReflectorSettings { rate: 10, ..ReflectorSettings::default() };
        let mut machine = machine(settings);
        let answered = (0..100).filter(|_| reply(&mut machine, &mut request(0, None), 1).is_ok());
        let answered = answered.count() as u64;
        assert!((10..15).contains(&answered), "{answered}");
        assert_eq!(machine.counts().too_fast, 100 - answered);
    }
}
