//! Round trips of small and large packets.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::plan::PathPlan;
use longhaul_sys::probe::now_nanos;

use super::probe_socket::{ProbeReply, ProbeSocket, ProbeSpec, ReplyKind};

/// The round trips of one packet size.
#[derive(Debug, Clone, Default)]
pub(super) struct Trips {
    pub(super) packet_bytes: u32,
    pub(super) sent: u64,
    /// The times without the peer's processing.
    pub(super) times_ms: Vec<f64>,
    /// The smallest delay from this host to the peer by both clocks.
    pub(super) forward_ns: Option<i64>,
    /// The smallest delay in the opposite direction.
    pub(super) reverse_ns: Option<i64>,
}

impl Trips {
    fn take(&mut self, sent_ns: u64, reply: &ProbeReply) {
        let ReplyKind::Answer(far) = reply.what else { return };
        let whole = reply.at_ns.saturating_sub(sent_ns);
        // The peer's time cannot exceed the whole.
        let there = far.map_or(0, |far| far.answered_ns.saturating_sub(far.arrived_ns));
        self.times_ms
            .push(whole.saturating_sub(if there <= whole { there } else { 0 }) as f64 / 1e6);
        if let Some(far) = far {
            let least = |known: Option<i64>, new: i64| Some(known.map_or(new, |old| old.min(new)));
            let forward = far.arrived_ns.wrapping_sub(sent_ns) as i64;
            let reverse = reply.at_ns.wrapping_sub(far.answered_ns) as i64;
            self.forward_ns = least(self.forward_ns, forward);
            self.reverse_ns = least(self.reverse_ns, reverse);
        }
    }
}

/// The first round trips, which show the additional time of large packets.
const FIRST_TRIPS: u32 = 3;
/// The share of the slowest link that the large packets of both directions may take.
const SHARE: f64 = 0.2;
/// The longest time of all round trips, if more than [`LEAST_TRIPS`] are left.
const ALL_TIME: Duration = Duration::from_secs(10);
const LEAST_TRIPS: u32 = 5;

/// Measures round trips of a small and a large size in turn, as many and as often as `plan`
/// requests, or fewer if large packets would fill the path.
pub(super) fn gentle_trips(
    prober: &mut impl ProbeSocket,
    sizes: [u32; 2],
    plan: &PathPlan,
    patience: Duration,
    stop: &AtomicBool,
) -> Vec<Trips> {
    // Each waits for the answer to the previous one.
    let pace = patience / 2;
    let series = EchoSeries { sizes: &sizes, count: FIRST_TRIPS, pace, patience };
    let first = round_trips(prober, series, stop);
    let least = |trips: &Trips| trips.times_ms.iter().copied().min_by(f64::total_cmp);
    let longer = first.first().and_then(least).zip(first.last().and_then(least));
    let longer_ms = longer.map_or(0.0, |(small, large)| (large - small).max(0.0));
    let interval = plan.echo_interval.max(Duration::from_secs_f64(longer_ms / SHARE / 1e3));
    let most = ALL_TIME.as_nanos() / interval.as_nanos().max(1);
    let most = u32::try_from(most).unwrap_or(u32::MAX).max(LEAST_TRIPS);
    // The user chooses the pace of the plan.
    let count = if interval > plan.echo_interval { plan.echoes.min(most) } else { plan.echoes };
    round_trips(prober, EchoSeries { count, pace: interval / 2, ..series }, stop)
}

/// A series of probes that are answered one by one.
#[derive(Debug, Clone, Copy)]
pub(super) struct EchoSeries<'a> {
    /// The lengths of the packets, which take turns.
    pub(super) sizes: &'a [u32],
    /// The number of probes per size.
    pub(super) count: u32,
    /// The time between two probes.
    pub(super) pace: Duration,
    /// The time limit for the last answers.
    pub(super) patience: Duration,
}

/// Sends the probes of a series and measures their round trips. Sizes above the interface's MTU are
/// omitted.
pub(super) fn round_trips(
    prober: &mut impl ProbeSocket,
    series: EchoSeries<'_>,
    stop: &AtomicBool,
) -> Vec<Trips> {
    let EchoSeries { sizes, count, pace, patience } = series;
    let mut trips: Vec<Trips> =
        sizes.iter().map(|size| Trips { packet_bytes: *size, ..Trips::default() }).collect();
    // The size and time of each open probe; an answer counts once.
    let mut open: HashMap<u32, (usize, u64)> = HashMap::new();
    let mut due = Instant::now();
    for turn in 0..count as usize * sizes.len() {
        if stop.load(Ordering::Acquire) {
            break;
        }
        let size = turn % sizes.len();
        let (number, packet_bytes) = (prober.number(), sizes[size]);
        let probe = ProbeSpec { number, packet_bytes, answer_bytes: packet_bytes, hop_limit: None };
        let sent_ns = now_nanos();
        if prober.send_probe(&probe).is_ok() {
            trips[size].sent += 1;
            open.insert(number, (size, sent_ns));
        }
        due += pace;
        receive_reply(prober, due, &mut open, &mut trips);
        due = due.max(Instant::now());
    }
    let end = Instant::now() + patience;
    while !open.is_empty() && !stop.load(Ordering::Acquire) && Instant::now() < end {
        receive_one(prober, end, &mut open, &mut trips);
    }
    trips
}

fn receive_reply(
    prober: &mut impl ProbeSocket,
    until: Instant,
    open: &mut HashMap<u32, (usize, u64)>,
    trips: &mut [Trips],
) {
    while Instant::now() < until {
        receive_one(prober, until, open, trips);
    }
}

fn receive_one(
    prober: &mut impl ProbeSocket,
    until: Instant,
    open: &mut HashMap<u32, (usize, u64)>,
    trips: &mut [Trips],
) {
    if let Some(reply) = prober.receive_reply(until)
        && matches!(reply.what, ReplyKind::Answer(_))
        && let Some((size, sent_ns)) = reply.number.and_then(|number| open.remove(&number))
    {
        trips[size].take(sent_ns, &reply);
    }
}
