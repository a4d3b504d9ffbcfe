//! Tests of the whole model in virtual time: statistics of long runs with fixed seeds, and
//! properties of any run.

mod capacity;
mod changes;
mod classes;
mod coverage;
mod loss_chains;
mod order;
mod policing;
mod properties;
mod random;
mod replays;
mod scheduling;

use std::collections::VecDeque;
use std::time::Duration;

use longhaul_core::plan::link::{Headers, LinkOptions};
use longhaul_core::plan::{LinkPlan, Side};

use super::{LinkModel, LinkTime, PacketShape, Piece, Served, Treatment};

/// Returns the plan of command-line options; every file that they name has the same text.
fn plan_with_file(options: &str, file: &str) -> LinkPlan {
    let mut parsed = LinkOptions::default();
    let words: Vec<&str> = options.split_whitespace().collect();
    for pair in words.chunks(2) {
        parsed.set(pair[0].trim_start_matches("--"), pair[1]).unwrap();
    }
    parsed.plan(&|_| Ok(file.to_owned())).unwrap()
}

fn plan(options: &str) -> LinkPlan {
    plan_with_file(options, "")
}

/// Returns a super-packet of `segments` segments of 1500 bytes each.
fn bulk(segments: u32) -> PacketShape {
    PacketShape {
        header_bytes: 52,
        payload_bytes: segments * 1448,
        segment_bytes: 1448,
        ecn_capable: false,
    }
}

fn us(micros: u64) -> LinkTime {
    LinkTime::from_nanos(micros * 1000)
}

/// A segment that left the link.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Arrival {
    /// The number of the segment among all offered segments, from 0.
    number: u64,
    at: LinkTime,
    treatment: Treatment,
}

/// A model, and the segments that have left it as a driver would write them.
struct Run {
    model: LinkModel,
    offered: u64,
    /// The arrivals in the order in which they were scheduled.
    arrivals: Vec<Arrival>,
    held: VecDeque<Arrival>,
    pieces: Vec<Piece>,
}

impl Run {
    fn new(plan: &LinkPlan) -> Self {
        Run {
            model: LinkModel::new(plan, Side::Near),
            offered: 0,
            arrivals: Vec::new(),
            held: VecDeque::new(),
            pieces: Vec::new(),
        }
    }

    fn offer(&mut self, now: LinkTime, packet: &PacketShape) {
        self.offer_with(now, packet, None);
    }

    fn offer_with(&mut self, now: LinkTime, packet: &PacketShape, headers: Option<&Headers>) {
        self.pieces.clear();
        self.model.offer_with(now, packet, headers, &mut self.pieces);
        let pieces: Vec<Piece> =
            self.pieces.iter().filter(|piece| !piece.treatment.parked).cloned().collect();
        self.schedule(self.offered, &pieces);
        self.offered += u64::from(packet.segments());
        self.serve(now);
    }

    /// Takes the segments that are due at `now`.
    fn serve(&mut self, now: LinkTime) {
        let mut served = Vec::new();
        self.model.serve(now, &mut served);
        for Served { ticket, pieces } in served {
            self.schedule(ticket, &pieces);
        }
    }

    /// Takes all waiting segments.
    fn serve_all(&mut self) {
        while let Some(turn) = self.model.next_turn() {
            self.serve(turn);
        }
    }

    /// Schedules the pieces of a packet, of which `first` is the number of the first segment.
    fn schedule(&mut self, first: u64, pieces: &[Piece]) {
        for piece in pieces {
            if piece.is_release() {
                while self.held.front().is_some_and(|held| held.at <= piece.at) {
                    self.arrivals.extend(self.held.pop_front());
                }
                let released = self.held.pop_front().unwrap();
                self.arrivals.push(Arrival { at: piece.at, ..released });
            }
            for segment in piece.segments.clone() {
                let number = first + u64::from(segment);
                let arrival = Arrival { number, at: piece.at, treatment: piece.treatment };
                if piece.treatment.held {
                    self.held.push_back(arrival);
                } else {
                    self.arrivals.push(arrival);
                }
            }
        }
    }

    /// Offers `count` packets at a fixed interval.
    fn offer_many(&mut self, count: u64, interval: Duration, packet: &PacketShape) {
        let start = self.arrivals.last().map_or(LinkTime::default(), |last| last.at);
        for i in 0..count {
            self.offer(start + interval * i as u32, packet);
        }
    }

    /// Returns all arrivals, by time.
    fn finish(mut self) -> Vec<Arrival> {
        self.arrivals.extend(self.held);
        self.arrivals.sort_by_key(|arrival| arrival.at);
        self.arrivals
    }

    /// Returns the numbers of the segments that did not arrive.
    fn missing(&self) -> Vec<u64> {
        let mut there = vec![false; self.offered as usize];
        for arrival in self.arrivals.iter().chain(&self.held) {
            there[arrival.number as usize] = true;
        }
        (0..self.offered).filter(|number| !there[*number as usize]).collect()
    }
}

/// Asserts that `hits` of `trials` is within four standard errors of probability `p`. By chance
/// this fails once in 16,000 runs, but these runs have fixed seeds.
#[track_caller]
fn assert_share(hits: usize, trials: u64, p: f64) {
    let (expected, n) = (p * trials as f64, trials as f64);
    let error = (n * p * (1.0 - p)).sqrt();
    assert!((hits as f64 - expected).abs() < 4.0 * error, "{hits} of {trials}, not {p}");
}
