//! A link of the self-test in virtual time: the link model between a sender and a receiver.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use longhaul_core::plan::link::Headers;
use longhaul_core::plan::{LinkPlan, Side};
use longhaul_core::result::MachineTiming;
use longhaul_sys::datagram::MergedDatagrams;

use super::lab::{Outcome, PORT, Stream};
use super::probe::{Header, ProbeReport, Sent, Tally, seal};
use crate::link::{Corruption, LinkModel, LinkTime, PacketShape, Piece, QueueOutcome};

/// A datagram that has left the link.
struct Arrival {
    stream: usize,
    number: u64,
    sent: LinkTime,
    piece: Piece,
}

/// A link in virtual time.
pub(super) struct VirtualLink<'a> {
    model: LinkModel,
    ipv6: bool,
    streams: &'a [Stream],
    arrivals: Vec<Arrival>,
    held: VecDeque<Arrival>,
    pieces: Vec<Piece>,
    /// The segments offered so far, which are their tickets.
    offered: u64,
    /// The parked segments by ticket: their stream, number and time.
    parked: BTreeMap<u64, (usize, u64, LinkTime)>,
}

impl<'a> VirtualLink<'a> {
    pub(super) fn new(plan: &LinkPlan, ipv6: bool, streams: &'a [Stream]) -> Self {
        VirtualLink {
            model: LinkModel::new(plan, Side::Near),
            ipv6,
            streams,
            arrivals: Vec::new(),
            held: VecDeque::new(),
            pieces: Vec::new(),
            offered: 0,
            parked: BTreeMap::new(),
        }
    }

    pub(super) fn offer(&mut self, index: usize, now: LinkTime, (first, count): (u64, u64)) {
        let stream = &self.streams[index];
        let packet = PacketShape {
            header_bytes: if self.ipv6 { 48 } else { 28 },
            payload_bytes: u32::from(stream.payload_bytes) * count as u32,
            segment_bytes: u32::from(stream.payload_bytes),
            ecn_capable: stream.ecn_capable,
        };
        let mut pieces = std::mem::take(&mut self.pieces);
        let headers = self.model.needs_headers().then(|| headers(index, self.ipv6));
        self.model.offer_with(now, &packet, headers.as_ref(), &mut pieces);
        for piece in pieces.drain(..) {
            if piece.treatment.parked {
                let tickets = piece.segments.clone().map(|segment| {
                    let segment = u64::from(segment);
                    (self.offered + segment, (index, first + segment, now))
                });
                self.parked.extend(tickets);
            } else {
                self.keep(index, now, first, &piece);
            }
        }
        self.pieces = pieces;
        self.offered += count;
        self.serve(now);
    }

    /// Takes the parked segments whose turn has come at `now`.
    fn serve(&mut self, now: LinkTime) {
        if !self.model.needs_headers() {
            return;
        }
        let mut served = Vec::new();
        self.model.serve(now, &mut served);
        for QueueOutcome { ticket, pieces } in served {
            let Some((stream, number, sent)) = self.parked.remove(&ticket) else { continue };
            for piece in pieces {
                self.keep(stream, sent, number, &piece);
            }
        }
    }

    fn keep(&mut self, stream: usize, sent: LinkTime, first: u64, piece: &Piece) {
        if piece.is_release() {
            while self.held.front().is_some_and(|held| held.piece.at <= piece.at) {
                self.arrivals.extend(self.held.pop_front());
            }
            if let Some(mut released) = self.held.pop_front() {
                released.piece.at = piece.at;
                self.arrivals.push(released);
            }
        }
        for segment in piece.segments.clone() {
            let number = first + u64::from(segment);
            let arrival = Arrival { stream, number, sent, piece: piece.clone() };
            if piece.treatment.held {
                self.held.push_back(arrival);
            } else {
                self.arrivals.push(arrival);
            }
        }
    }

    pub(super) fn finish(mut self) -> Outcome {
        while let Some(turn) = self.model.next_turn() {
            self.serve(turn);
        }
        self.arrivals.extend(self.held);
        self.arrivals.sort_by_key(|arrival| arrival.piece.at);
        let receive = |(index, stream): (usize, &Stream)| {
            let own = self.arrivals.iter().filter(|arrival| arrival.stream == index);
            receive(stream, self.ipv6, own)
        };
        Outcome {
            probes: self.streams.iter().enumerate().map(receive).collect(),
            counts: *self.model.counts(),
            interface_drops: 0,
            emulator_warning: None,
            machine: MachineTiming::default(),
        }
    }
}

/// Returns the headers of the datagrams of a stream, as the lab of sites sends them.
fn headers(stream: usize, ipv6: bool) -> Headers {
    let host = |last: u16| {
        if ipv6 {
            IpAddr::from([0x2001, 2, 0, 0, 0, 0, 0, last])
        } else {
            IpAddr::from([198, 18, 0, last as u8])
        }
    };
    let port = PORT + stream as u16;
    Headers {
        dscp: 0,
        ecn: 0,
        protocol: 17,
        source: host(1),
        destination: host(2),
        ports: Some((port + 30_000, port)),
    }
}

/// Returns the report of a receiver of these datagrams.
fn receive<'a>(
    stream: &Stream,
    ipv6: bool,
    arrivals: impl Iterator<Item = &'a Arrival>,
) -> ProbeReport {
    let mut receiver = Tally::new(stream.verify, ipv6);
    let (mut checksum_errors, mut bytes) = (0, vec![7; usize::from(stream.payload_bytes)]);
    for arrival in arrivals {
        let treatment = arrival.piece.treatment;
        if let Some(Corruption::Detected { .. }) = treatment.corruption {
            checksum_errors += 1;
            continue;
        }
        let header = Header { number: arrival.number, sent_nanos: arrival.sent.as_nanos() };
        seal(&mut bytes, header, true);
        if let Some(Corruption::Silent { bit }) = treatment.corruption {
            let at = (bit % (bytes.len() as u64 * 8)) as usize;
            bytes[at / 8] ^= 1 << (at % 8);
        }
        let ecn = if treatment.mark_ce { 3 } else { u8::from(stream.ecn_capable) * 2 };
        receiver.add(&MergedDatagrams {
            bytes: &bytes,
            length: bytes.len(),
            segment_bytes: bytes.len(),
            at_nanos: arrival.piece.at.as_nanos(),
            ecn,
        });
        bytes.fill(7);
    }
    let packets = stream.datagrams.div_ceil(u64::from(stream.together));
    let seconds = stream.interval.as_secs_f64() * packets as f64;
    let mut report = receiver.report(stream.datagrams);
    report.sent = Sent { datagrams: stream.datagrams, refused: 0, seconds };
    report.checksum_errors = checksum_errors;
    report
}
