//! Tests of the whole model in virtual time: statistics of long runs with fixed seeds, and
//! properties of any run.

mod capacity;
mod changes;
mod classes;
mod departures;
mod loss_chains;
mod order;
mod policing;
mod properties;
mod random;
mod replays;
mod scheduling;

use std::collections::VecDeque;
use std::time::Duration;

use longhaul_core::plan::link::{Headers, LINK_OPTIONS, LinkOptions};
use longhaul_core::plan::{LinkPlan, Side};

use super::{LinkModel, LinkTime, PacketShape, Piece, QueueOutcome, Treatment};

/// Returns the plan of command-line options; every file that they name has the same text.
fn plan_with_file(options: &str, file: &str) -> LinkPlan {
    let mut parsed = LinkOptions::default();
    let words: Vec<&str> = options.split_whitespace().collect();
    for pair in words.chunks(2) {
        parsed.set(pair[0].trim_start_matches("--"), pair[1]).unwrap();
    }
    parsed.plan(&|_| Ok(Box::new(std::io::Cursor::new(file.to_owned())))).unwrap()
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
        for QueueOutcome { ticket, pieces } in served {
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

/// The tests of each option in virtual time, by file: the text of the file, and the name of a test
/// function in it.
const TESTS: [(&str, &str, &str); 35] = [
    ("netem", NETEM, "a_line_has_the_meaning_that_tc_gives_it"),
    ("preset", PLANS, "the_special_goes_before_the_general_and_builds_on_it"),
    ("rtt", LINK, "options_make_the_plan"),
    ("delay", ORDER, "a_fixed_delay_moves_all_alike_and_follows_its_trace_in_order"),
    ("distance", PRESET, "fiber_takes_five_microseconds_for_each_kilometer"),
    ("delay-trace", ORDER, "a_fixed_delay_moves_all_alike_and_follows_its_trace_in_order"),
    ("replay", REPLAYS, "a_replayed_path_has_the_distributions_of_the_recording"),
    ("jitter", ORDER, "jitter_keeps_order_unless_it_may_not"),
    ("reorder", ORDER, "reordered_segments_have_the_share_and_the_extent_that_were_asked_for"),
    ("rate", CAPACITY, "the_mean_rate_is_exact_however_packets_are_cut"),
    ("rate-trace", CAPACITY, "a_rate_of_steps_carries_what_its_steps_allow"),
    ("rate-layer", CAPACITY, "a_rate_of_the_wire_counts_what_each_packet_adds"),
    ("queue", CAPACITY, "the_queue_never_holds_more_than_its_limit"),
    ("aqm", CAPACITY, "queue_management_marks_capable_segments_and_drops_others"),
    ("cross", CAPACITY, "cross_traffic_takes_its_part_of_the_rate"),
    ("police", POLICING, "a_policer_passes_its_burst_and_then_exactly_its_rate"),
    ("loss", RANDOM, "independent_loss_has_its_rate_and_no_memory"),
    ("loss-burst", RANDOM, "bursts_have_their_rate_and_geometric_lengths"),
    ("loss-correlation", CHAINS, "correlated_losses_are_those_of_netem"),
    ("loss-ge", CHAINS, "a_gilbert_elliott_channel_has_the_losses_of_its_matrix"),
    ("loss-state", CHAINS, "the_chain_of_four_states_has_the_losses_of_its_matrix"),
    ("loss-pattern", RANDOM, "patterns_and_traces_lose_what_they_say"),
    ("loss-trace", RANDOM, "patterns_and_traces_lose_what_they_say"),
    ("ber", POLICING, "bit_errors_depend_on_the_size_of_segments"),
    ("corrupt", RANDOM, "damage_duplicates_and_marks_have_their_rates"),
    ("corrupt-silent", RANDOM, "damage_duplicates_and_marks_have_their_rates"),
    ("duplicate", RANDOM, "damage_duplicates_and_marks_have_their_rates"),
    ("mark", RANDOM, "only_capable_segments_are_marked"),
    ("slot", POLICING, "slots_release_segments_together_within_their_limits"),
    ("outage", CHANGES, "an_outage_drops_arriving_and_waiting_segments_only"),
    ("priority", CLASSES, "a_higher_priority_is_served_first_and_displaces_a_lower_one"),
    ("class", CLASSES, "a_class_has_its_own_delay_and_loss_and_shares_the_rate"),
    ("mtu", LINK, "options_make_the_plan"),
    ("queues", QUEUES, "flows_are_spread_over_queues_and_keep_their_order"),
    ("seed", CHANGES, "the_seed_decides_and_directions_differ"),
];

const CAPACITY: &str = include_str!("capacity.rs");
const CHAINS: &str = include_str!("loss_chains.rs");
const CHANGES: &str = include_str!("changes.rs");
const CLASSES: &str = include_str!("classes.rs");
const ORDER: &str = include_str!("order.rs");
const POLICING: &str = include_str!("policing.rs");
const RANDOM: &str = include_str!("random.rs");
const REPLAYS: &str = include_str!("replays.rs");
const QUEUES: &str = include_str!("../../../../longhaul/tests/integration/wan_queues.rs");
const LINK: &str = include_str!("../../../../longhaul/src/cli/link.rs");
const NETEM: &str = include_str!("../../../../longhaul-core/src/plan/link/netem.rs");
const PLANS: &str = include_str!("../../../../longhaul-core/src/plan/link/options.rs");
const PRESET: &str = include_str!("../../../../longhaul-core/src/plan/link/preset.rs");

#[test]
fn every_option_has_a_test() {
    for option in &LINK_OPTIONS {
        let found = TESTS.iter().find(|(name, ..)| *name == option.name);
        let Some((name, file, test)) = found else { panic!("no test of --{}", option.name) };
        let start = file.find(&format!("fn {test}()")).unwrap_or_else(|| panic!("no {test}"));
        let before = file[..start].trim_end();
        assert!(before.ends_with("#[test]"), "{test} is not a test");
        // A test that does not use the option, directly or in a function of its file, is not a
        // test of it.
        assert!(file.contains(*name), "the file of {test} does not use --{name}");
    }
    assert!(TESTS.iter().all(|(name, ..)| LINK_OPTIONS.iter().any(|known| known.name == *name)));
}
