use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::plan::PathPlan;
use longhaul_sys::probe::now_nanos;

use super::ask::{Ask, Heard, Question, What};

/// Round trips of one size.
#[derive(Debug, Clone, Default)]
pub(super) struct Trips {
    pub(super) packet_bytes: u32,
    pub(super) asked: u64,
    /// Without the far end's time.
    pub(super) times_ms: Vec<f64>,
    /// From here to there by the two ends' clocks, the least.
    pub(super) forward_ns: Option<i64>,
    /// From there to here.
    pub(super) reverse_ns: Option<i64>,
}

impl Trips {
    fn take(&mut self, sent_ns: u64, heard: &Heard) {
        let What::Answer(far) = heard.what else { return };
        let whole = heard.at_ns.saturating_sub(sent_ns);
        // A far end cannot have taken longer than the whole.
        let there = far.map_or(0, |far| far.answered_ns.saturating_sub(far.arrived_ns));
        self.times_ms
            .push(whole.saturating_sub(if there <= whole { there } else { 0 }) as f64 / 1e6);
        if let Some(far) = far {
            let least = |known: Option<i64>, new: i64| Some(known.map_or(new, |old| old.min(new)));
            let forward = far.arrived_ns.wrapping_sub(sent_ns) as i64;
            let reverse = heard.at_ns.wrapping_sub(far.answered_ns) as i64;
            self.forward_ns = least(self.forward_ns, forward);
            self.reverse_ns = least(self.reverse_ns, reverse);
        }
    }
}

/// Round trips by which is known how much longer large packets take.
const FIRST_TRIPS: u32 = 3;
/// Of the time from one large packet to the next it may take this part on the slowest link, there
/// and back together.
const SHARE: f64 = 0.2;
/// What the round trips of a measurement take at most, where no fewer than [`LEAST_TRIPS`] are left.
const ALL_TIME: Duration = Duration::from_secs(10);
const LEAST_TRIPS: u32 = 5;

/// Round trips of a small and a large size in turn, as many and as often as `plan` says, or fewer
/// where large packets would fill the path.
pub(super) fn gentle_trips(
    prober: &mut impl Ask,
    sizes: [u32; 2],
    plan: &PathPlan,
    patience: Duration,
    stop: &AtomicBool,
) -> Vec<Trips> {
    // One waits for the other.
    let pace = patience / 2;
    let first = round_trips(prober, &sizes, FIRST_TRIPS, pace, patience, stop);
    let least = |trips: &Trips| trips.times_ms.iter().copied().min_by(f64::total_cmp);
    let longer = first.first().and_then(least).zip(first.last().and_then(least));
    let longer_ms = longer.map_or(0.0, |(small, large)| (large - small).max(0.0));
    let interval = plan.echo_interval.max(Duration::from_secs_f64(longer_ms / SHARE / 1e3));
    let most = ALL_TIME.as_nanos() / interval.as_nanos().max(1);
    let most = u32::try_from(most).unwrap_or(u32::MAX).max(LEAST_TRIPS);
    // The plan's own pace is the user's to choose.
    let count = if interval > plan.echo_interval { plan.echoes.min(most) } else { plan.echoes };
    round_trips(prober, &sizes, count, interval / 2, patience, stop)
}

/// Asks `count` times for each of `sizes`, in turn, one in `pace`; the last answers are waited for
/// `patience`. Of a size that the interface does not take nothing is asked.
pub(super) fn round_trips(
    prober: &mut impl Ask,
    sizes: &[u32],
    count: u32,
    pace: Duration,
    patience: Duration,
    stop: &AtomicBool,
) -> Vec<Trips> {
    let mut trips: Vec<Trips> =
        sizes.iter().map(|size| Trips { packet_bytes: *size, ..Trips::default() }).collect();
    // Which size each question had, and when it was sent; an answer counts once.
    let mut open: HashMap<u32, (usize, u64)> = HashMap::new();
    let mut due = Instant::now();
    for turn in 0..count as usize * sizes.len() {
        if stop.load(Ordering::Acquire) {
            break;
        }
        let size = turn % sizes.len();
        let (number, packet_bytes) = (prober.number(), sizes[size]);
        let question =
            Question { number, packet_bytes, answer_bytes: packet_bytes, hop_limit: None };
        let sent_ns = now_nanos();
        if prober.ask(&question).is_ok() {
            trips[size].asked += 1;
            open.insert(number, (size, sent_ns));
        }
        due += pace;
        hear(prober, due, &mut open, &mut trips);
        due = due.max(Instant::now());
    }
    let end = Instant::now() + patience;
    while !open.is_empty() && !stop.load(Ordering::Acquire) && Instant::now() < end {
        hear_one(prober, end, &mut open, &mut trips);
    }
    trips
}

fn hear(
    prober: &mut impl Ask,
    until: Instant,
    open: &mut HashMap<u32, (usize, u64)>,
    trips: &mut [Trips],
) {
    while Instant::now() < until {
        hear_one(prober, until, open, trips);
    }
}

fn hear_one(
    prober: &mut impl Ask,
    until: Instant,
    open: &mut HashMap<u32, (usize, u64)>,
    trips: &mut [Trips],
) {
    if let Some(heard) = prober.hear(until)
        && matches!(heard.what, What::Answer(_))
        && let Some((size, sent_ns)) = heard.number.and_then(|number| open.remove(&number))
    {
        trips[size].take(sent_ns, &heard);
    }
}
