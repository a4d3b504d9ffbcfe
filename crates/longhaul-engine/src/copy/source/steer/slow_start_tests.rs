//! Slow start over a link with a queue, in virtual time: the senders learn of a delay or a loss one
//! round trip after it begins.

use super::*;

/// The congestion windows of a copy begin with 16 times 64 KiB.
const INITIAL_WINDOWS: f64 = 16.0 * 65_536.0;
const GIBIBYTE: f64 = 1_073_741_824.0;
const STEP: f64 = 0.000_5;
/// The time constant of the smoothed RTT, as a share of a round trip.
const SMOOTHING: f64 = 0.15;

/// The acknowledgements that arrive in one step.
#[derive(Clone, Copy, Default)]
struct Arrival {
    acked: f64,
    lost: f64,
    rtt: f64,
}

/// A link and the connections of a copy over it, in bytes and seconds.
struct SlowStart {
    bound: Bound,
    link: f64,
    trip: f64,
    queue_limit: f64,
    /// The amplitude of the jitter of the smoothed RTT.
    jitter: f64,
    window: f64,
    threshold: f64,
    in_flight: f64,
    queue: f64,
    smoothed: f64,
    /// The number of the step.
    now: usize,
    arrivals: Vec<Arrival>,
    acked: f64,
    retransmitted: f64,
    sent: f64,
    dropped: f64,
    rate: f64,
    sampled: f64,
    recovered: f64,
    random: u64,
}

impl SlowStart {
    fn new(link: f64, trip: f64, queue_trips: f64) -> Self {
        SlowStart {
            bound: Bound::default(),
            link,
            trip,
            queue_limit: queue_trips * link * trip,
            jitter: 0.0,
            window: INITIAL_WINDOWS,
            threshold: f64::INFINITY,
            in_flight: 0.0,
            queue: 0.0,
            smoothed: trip,
            now: 0,
            arrivals: vec![Arrival::default(); 40_000],
            acked: 0.0,
            retransmitted: 0.0,
            sent: 0.0,
            dropped: 0.0,
            rate: 0.0,
            sampled: f64::NEG_INFINITY,
            recovered: 0.0,
            random: 1,
        }
    }

    fn time(&self) -> f64 {
        self.now as f64 * STEP
    }

    /// Receives acknowledgements, samples the connections, and sends.
    fn step(&mut self) {
        self.receive();
        let interval = self.bound.interval(Duration::from_secs_f64(self.smoothed)).as_secs_f64();
        if self.time() - self.sampled >= interval - STEP / 2.0 {
            self.sample();
        }
        let growth = if self.window < self.threshold { 2.0 } else { 1.2 };
        let rate = self.rate.min(growth * self.window / self.smoothed);
        self.send((rate * STEP).min(self.window - self.in_flight).max(0.0));
        self.now += 1;
    }

    fn receive(&mut self) {
        let arrival = self.arrivals[self.now];
        self.acked += arrival.acked;
        self.retransmitted += arrival.lost;
        self.in_flight -= arrival.acked + arrival.lost;
        if arrival.acked > 0.0 {
            self.smoothed += (arrival.rtt - self.smoothed) * STEP / (SMOOTHING * self.trip);
            let per_trip = 16.0 * 1448.0 * arrival.acked / self.window;
            self.window += if self.window < self.threshold { arrival.acked } else { per_trip };
            // HyStart ends slow start at this delay.
            if arrival.rtt - self.trip > (self.trip / 8.0).clamp(0.004, 0.016) {
                self.threshold = self.threshold.min(self.window);
            }
        }
        if arrival.lost > 0.0 && self.time() > self.recovered {
            self.window *= 0.7;
            self.threshold = self.window;
            self.recovered = self.time() + self.smoothed;
        }
    }

    fn sample(&mut self) {
        self.sampled = self.time();
        let rtt = self.smoothed_rtt();
        let sample = ConnectionsSample {
            at: Duration::from_secs_f64(self.sampled),
            delivered: self.acked as u64,
            lost: self.retransmitted as u64,
            rtt,
            least_rtt: Duration::from_secs_f64(self.trip),
            initial_windows: INITIAL_WINDOWS as u64,
        };
        self.rate = self.bound.next(sample).unwrap();
    }

    /// Returns the smoothed RTT with a pseudo-random jitter.
    fn smoothed_rtt(&mut self) -> Duration {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let jitter = self.jitter * (self.random >> 40) as f64 / f64::from(1 << 24);
        Duration::from_secs_f64(self.smoothed + jitter)
    }

    fn send(&mut self, bytes: f64) {
        self.in_flight += bytes;
        self.sent += bytes;
        self.queue = (self.queue + bytes - self.link * STEP).max(0.0);
        let dropped = (self.queue - self.queue_limit).clamp(0.0, bytes);
        self.queue -= dropped;
        self.dropped += dropped;
        let rtt = self.trip + self.queue / self.link;
        let arrival = &mut self.arrivals[self.now + (rtt / STEP) as usize];
        arrival.acked += bytes - dropped;
        arrival.lost += dropped;
        arrival.rtt = rtt;
    }

    fn run(&mut self, seconds: f64) {
        while self.time() < seconds {
            self.step();
        }
    }

    /// Returns the time in which the receiver acknowledges `bytes`.
    fn time_of(mut self, bytes: f64) -> f64 {
        while self.acked < bytes {
            self.step();
        }
        self.time()
    }
}

/// The rates of links in bytes per second: the rate at which slow start reaches a link decides how far
/// it exceeds it.
fn links() -> impl Iterator<Item = f64> {
    (0..12).map(|number| 62.5e6 * 2.0_f64.powf(f64::from(number) / 6.0))
}

/// Returns the loss shares in the first second over `links`, with a queue of `queue_trips`. An earlier
/// copy over a link reached the rate `earlier` of it.
fn losses(trip: f64, queue_trips: f64, earlier: impl Fn(f64) -> Option<f64>) -> Vec<f64> {
    links()
        .map(|link| {
            let mut path = SlowStart::new(link, trip, queue_trips);
            path.bound = Bound::with_earlier_rate(earlier(link));
            path.run(1.0);
            path.dropped / path.sent
        })
        .collect()
}

/// Returns the time in which a copy without a limit sends `bytes` over a link: the round trips of
/// slow start, and the time of the rest at the rate of the link (docs/design/ramp-up.md).
fn shortest_time(link: f64, trip: f64, bytes: f64) -> f64 {
    let doublings = (link * trip / INITIAL_WINDOWS).log2().ceil();
    let before = INITIAL_WINDOWS * (2.0_f64.powf(doublings) - 1.0);
    (1.0 + doublings) * trip + (bytes - before) / link
}

#[test]
fn slow_start_finds_the_queue_before_it_overflows() {
    for (trip, queue, mean, worst) in [
        (0.04, 0.25, 0.035, 0.06),
        (0.09, 0.25, 0.03, 0.05),
        (0.09, 1.0, 0.001, 0.001),
        (0.18, 0.25, 0.005, 0.01),
    ] {
        let losses = losses(trip, queue, |_| None);
        let sum: f64 = losses.iter().sum();
        assert!(sum < mean * losses.len() as f64, "{trip} s, {queue}: {losses:?}");
        assert!(losses.iter().all(|loss| *loss < worst), "{trip} s, {queue}: {losses:?}");
    }
}

#[test]
fn slow_start_at_a_known_rate_is_short_and_loses_little() {
    for (trip, queue, worst) in
        [(0.04, 0.25, 0.015), (0.09, 0.25, 0.03), (0.09, 1.0, 0.0), (0.18, 0.25, 0.0)]
    {
        let losses = losses(trip, queue, Some);
        assert!(losses.iter().all(|loss| *loss <= worst), "{trip} s, {queue}: {losses:?}");
        let mut path = SlowStart::new(1.25e9, trip, queue);
        path.bound = Bound::with_earlier_rate(Some(path.link));
        let ratio = path.time_of(GIBIBYTE) / shortest_time(1.25e9, trip, GIBIBYTE);
        assert!(ratio < 1.1, "{trip} s, {queue}: {ratio}");
    }
}

#[test]
fn a_known_rate_that_is_far_too_high_causes_limited_loss() {
    for (trip, queue, mean) in [(0.04, 0.25, 0.035), (0.09, 0.25, 0.055), (0.09, 1.0, 0.0)] {
        let losses = losses(trip, queue, |link| Some(8.0 * link));
        let sum: f64 = losses.iter().sum();
        assert!(sum <= mean * losses.len() as f64, "{trip} s, {queue}: {losses:?}");
    }
}

#[test]
fn jitter_does_not_delay_the_ramp_up() {
    for trip in [0.09, 0.18] {
        for jitter in [0.0, 0.003, 0.005] {
            let mut path = SlowStart::new(1e9, trip, 1.0);
            path.jitter = jitter;
            let ratio = path.time_of(GIBIBYTE) / shortest_time(1e9, trip, GIBIBYTE);
            assert!(ratio < 1.2, "{trip} s, {jitter} s: {ratio}");
        }
    }
}

#[test]
fn the_link_is_full_after_the_ramp_up() {
    for queue in [0.25, 1.0, 4.0] {
        let mut path = SlowStart::new(125e6, 0.09, queue);
        path.run(2.0);
        let (acked, dropped) = (path.acked, path.dropped);
        path.run(12.0);
        assert!(path.acked - acked > 0.95 * 10.0 * path.link, "{queue}: {}", path.acked - acked);
        assert!(path.dropped - dropped < 0.001 * path.acked, "{queue}: {}", path.dropped);
    }
}
