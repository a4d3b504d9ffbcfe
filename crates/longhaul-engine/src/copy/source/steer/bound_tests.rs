//! The bound on a link with one queue, in virtual time.

use super::*;

const LINK: f64 = 125e6;
const TRIP: Duration = Duration::from_millis(40);
const INTERVAL: Duration = Duration::from_millis(10);

/// A link with one queue in virtual time, which a copy shares with other traffic.
struct Path {
    bound: Bound,
    at: Duration,
    acked: f64,
    retransmitted: f64,
    /// The bytes that wait in the queue.
    queue: f64,
    /// The size of the queue in bytes.
    limit: f64,
    /// The share of the bytes that are lost at random.
    random: f64,
    /// The rate of other traffic, in bytes per second.
    other: f64,
}

impl Path {
    fn new(queue_trips: f64, random: f64) -> Self {
        Path {
            bound: Bound::default(),
            at: Duration::ZERO,
            acked: 0.0,
            retransmitted: 0.0,
            queue: 0.0,
            limit: queue_trips * LINK * TRIP.as_secs_f64(),
            random,
            other: 0.0,
        }
    }

    /// Sends at the bound for `seconds`. Returns the mean goodput divided by the link's rate,
    /// and the loss share.
    fn run(&mut self, seconds: f64) -> (f64, f64) {
        let (acked, retransmitted) = (self.acked, self.retransmitted);
        let step = INTERVAL.as_secs_f64();
        for _ in 0..(seconds / step) as usize {
            let rtt = TRIP + Duration::from_secs_f64(self.queue / LINK);
            let rate = self.bound.next(ConnectionsSample {
                at: self.at,
                delivered: self.acked as u64,
                lost: self.retransmitted as u64,
                rtt,
                least_rtt: TRIP,
                initial_windows: 40 * 1448,
            });
            let rate = rate.unwrap().min(2.0 * LINK);
            let offered = (rate + self.other) * step;
            let share = rate / (rate + self.other);
            self.queue += offered - LINK * step;
            let overflow = (self.queue - self.limit).max(0.0);
            let left = (-self.queue).max(0.0);
            self.queue = self.queue.clamp(0.0, self.limit);
            let served = share * (LINK * step - left);
            let lost = share * overflow + self.random * served;
            self.acked += served * (1.0 - self.random) - share * overflow.min(served);
            self.retransmitted += lost;
            self.at += INTERVAL;
        }
        let (acked, lost) = (self.acked - acked, self.retransmitted - retransmitted);
        (acked / (LINK * seconds), lost / (acked + lost))
    }
}

#[test]
fn a_copy_without_other_traffic_fills_the_path() {
    for queue in [0.25, 1.0, 4.0] {
        let mut path = Path::new(queue, 0.0);
        path.run(2.0);
        let (goodput, loss) = path.run(20.0);
        assert!(goodput > 0.95, "queue {queue}: {goodput}");
        assert!(loss < 0.02, "queue {queue}: {loss}");
    }
}

#[test]
fn random_loss_does_not_lower_the_rate() {
    for random in [1e-3, 1e-2] {
        let mut path = Path::new(1.0, random);
        path.run(2.0);
        let (goodput, _) = path.run(20.0);
        assert!(goodput > 0.88, "loss {random}: {goodput}");
    }
}

#[test]
fn a_shallow_queue_is_found_by_the_loss_that_vanishes_below_its_rate() {
    // The queue holds 0.5 ms of the rate of the link.
    let mut shallow = Path::new(0.0125, 0.0);
    shallow.run(5.0);
    let found = shallow.bound.drops_at().unwrap() / LINK;
    assert!((0.7..1.1).contains(&found), "{found}");
    for mut path in [Path::new(1.0, 0.0), Path::new(1.0, 1e-2), Path::new(1.0, 0.08)] {
        path.run(5.0);
        assert_eq!(path.bound.drops_at(), None, "{}", path.random);
    }
}

#[test]
fn an_overflow_lowers_the_bound_below_the_rate_of_the_link() {
    let mut path = Path::new(1.0, 0.0);
    while !path.bound.is_lowered() {
        path.run(0.01);
        assert!(path.at < Duration::from_secs(5), "slow start overflows the queue");
    }
    assert!(path.bound.lowered.unwrap().rate() < LINK);
}

#[test]
fn a_copy_takes_its_share_of_a_full_path_slowly() {
    let mut path = Path::new(1.0, 0.0);
    (path.other, path.queue) = (LINK, path.limit);
    let (goodput, loss) = path.run(5.0);
    assert!(goodput < 0.3, "{goodput}");
    assert!(loss < 0.05, "{loss}");
}

#[test]
fn a_known_rate_that_is_far_too_low_soon_has_no_effect() {
    let mut path = Path::new(1.0, 0.0);
    path.bound = Bound::with_earlier_rate(Some(LINK / 10.0));
    path.run(3.0);
    let (goodput, _) = path.run(5.0);
    assert!(goodput > 0.85, "{goodput}");
}

#[test]
fn a_short_path_is_not_bounded() {
    let least_rtt = Duration::from_micros(100);
    let sample = ConnectionsSample { rtt: least_rtt, least_rtt, ..ConnectionsSample::default() };
    assert_eq!(Bound::default().next(sample), None);
}

#[test]
fn losses_that_the_copy_causes_do_not_count_as_random() {
    // The queue holds 0.5 ms of the rate of the link, so it is never seen.
    let mut path = Path::new(0.0125, 0.0);
    path.other = 0.7 * LINK;
    path.run(10.0);
    let (_, loss) = path.run(10.0);
    assert!(loss < 0.03, "{loss}");
}

#[test]
fn losses_of_a_window_with_a_queue_do_not_count_as_random() {
    let mut bound = Bound::default();
    // The queue is empty again when its losses are known.
    for number in 0..200 {
        let is_full = number % 8 == 0;
        bound.next(ConnectionsSample {
            at: INTERVAL * number,
            delivered: u64::from(number) * 1_000_000,
            lost: u64::from(number / 8) * 40_000,
            rtt: if is_full { TRIP * 5 / 4 } else { TRIP },
            least_rtt: TRIP,
            initial_windows: 40 * 1448,
        });
    }
    assert_eq!(bound.random_loss, 0.0);
}
