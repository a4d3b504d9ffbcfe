//! Active queue management: CoDel and PIE drop or mark segments before the queue is full.

use std::time::Duration;

use longhaul_core::plan::link::Aqm;

use super::LinkTime;
use super::random::Stream;

/// The decision of the queue management on a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Management {
    Pass,
    Mark,
    Drop,
}

/// The queue management of a plan.
#[derive(Debug, Clone)]
pub(super) enum Manager {
    Codel(Codel),
    Pie(Pie),
}

/// A segment that arrives at a managed queue.
#[derive(Debug)]
pub(super) struct Arriving {
    /// The time of arrival.
    pub(super) now: LinkTime,
    /// The time by which the segments before it have been sent.
    pub(super) free_at: LinkTime,
    /// The transmission time of a packet of the MTU.
    pub(super) packet_time: Duration,
    /// True if less than two packets of the MTU wait.
    pub(super) is_short: bool,
    pub(super) ecn_capable: bool,
    /// The random numbers of the queue management, and the index of this segment's number.
    pub(super) random: (Stream, u64),
}

impl Manager {
    pub(super) fn new(plan: Aqm, now: LinkTime) -> Self {
        match plan {
            Aqm::Codel { target, interval } => Manager::Codel(Codel::new(target, interval)),
            Aqm::Pie { target } => Manager::Pie(Pie::new(target, now)),
        }
    }

    pub(super) fn decide(&mut self, segment: &Arriving) -> Management {
        let Arriving { now, free_at, ecn_capable, random, .. } = *segment;
        match self {
            Manager::Codel(codel) => {
                let head = free_at.max(now);
                let target = codel.target.max(segment.packet_time);
                codel.decide(head, head.since(now), target, ecn_capable)
            }
            Manager::Pie(pie) => {
                let random = || random.0.unit(random.1);
                pie.decide(now, free_at, segment.is_short, ecn_capable, random)
            }
        }
    }
}

/// CoDel (RFC 8289, section 5), called once per segment in the order of the queue.
///
/// CoDel decides when a segment reaches the head of the queue. In a queue that is served in order,
/// that time depends only on earlier segments, so the decision can be made when the segment
/// arrives. One input is unknown at that time: whether less than a packet will follow the segment.
/// The caller compensates with a target that is at least a packet's transmission time.
#[derive(Debug, Clone)]
pub(super) struct Codel {
    target: Duration,
    interval: Duration,
    /// The time at which the wait will have been above the target for one interval.
    first_above: Option<LinkTime>,
    dropping: bool,
    drop_next: LinkTime,
    /// The number of drops since dropping began, and that of the previous dropping state.
    count: u32,
    last_count: u32,
    /// True if the segment after a drop sets the next time of dropping.
    advance: bool,
}

impl Codel {
    fn new(target: Duration, interval: Duration) -> Self {
        Codel {
            target,
            interval,
            first_above: None,
            dropping: false,
            drop_next: LinkTime::default(),
            count: 0,
            last_count: 0,
            advance: false,
        }
    }

    /// Decides on a segment that leaves the queue at `head` after waiting for `sojourn`.
    fn decide(
        &mut self,
        head: LinkTime,
        sojourn: Duration,
        target: Duration,
        ecn_capable: bool,
    ) -> Management {
        let above = self.is_above(head, sojourn, target);
        if self.dropping {
            if !above {
                self.dropping = false;
                return Management::Pass;
            }
            if std::mem::take(&mut self.advance) {
                self.drop_next = self.control_law(self.drop_next);
            }
            if head < self.drop_next {
                return Management::Pass;
            }
            self.count += 1;
            self.advance = true;
        } else if above {
            self.dropping = true;
            self.advance = false;
            let delta = self.count - self.last_count;
            // After a recent dropping state, dropping continues at about its last rate.
            let recent = head.since(self.drop_next) < self.interval * 16;
            self.count = if delta > 1 && recent { delta } else { 1 };
            self.last_count = self.count;
            self.drop_next = self.control_law(head);
        } else {
            return Management::Pass;
        }
        if ecn_capable { Management::Mark } else { Management::Drop }
    }

    fn is_above(&mut self, head: LinkTime, sojourn: Duration, target: Duration) -> bool {
        if sojourn < target {
            self.first_above = None;
            return false;
        }
        match self.first_above {
            None => {
                self.first_above = Some(head + self.interval);
                false
            }
            Some(time) => head >= time,
        }
    }

    fn control_law(&self, from: LinkTime) -> LinkTime {
        from + self.interval.div_f64(f64::from(self.count.max(1)).sqrt())
    }
}

/// PIE (RFC 8033, sections 4 and 5), called once per arriving segment.
///
/// The controller of PIE runs every 15 ms. Between two arrivals the queue only shrinks, so the
/// controller runs for all missed times when the next segment arrives, each time with the wait at
/// that time. The wait is known exactly and is not estimated from a departure rate.
#[derive(Debug, Clone)]
pub(super) struct Pie {
    target: Duration,
    drop_probability: f64,
    /// The sum of probabilities since the last drop.
    accumulated: f64,
    burst_allowance: Duration,
    wait_before: Duration,
    next_update: LinkTime,
}

/// `T_UPDATE`, `MAX_BURST`, and the coefficients in 1/s (RFC 8033, section 4.2).
const UPDATE: Duration = Duration::from_millis(15);
const MAX_BURST: Duration = Duration::from_millis(150);
const ALPHA: f64 = 0.125;
const BETA: f64 = 1.25;
/// The drop probability above which ECN-capable segments are dropped too (`MARK_ECNTH`, section
/// 5.1).
const MARK_UP_TO: f64 = 0.1;

impl Pie {
    fn new(target: Duration, now: LinkTime) -> Self {
        Pie {
            target,
            drop_probability: 0.0,
            accumulated: 0.0,
            burst_allowance: MAX_BURST,
            wait_before: Duration::ZERO,
            next_update: now + UPDATE,
        }
    }

    /// Decides on a segment that arrives at `now` in a queue that will be empty at `free_at`.
    /// `small` means that less than two packets wait; `random` is uniform over (0, 1].
    fn decide(
        &mut self,
        now: LinkTime,
        free_at: LinkTime,
        small: bool,
        ecn_capable: bool,
        random: impl FnOnce() -> f64,
    ) -> Management {
        self.catch_up(now, free_at);
        if self.drop_probability == 0.0 {
            self.accumulated = 0.0;
        }
        if !self.burst_allowance.is_zero() {
            return Management::Pass;
        }
        let calm = self.wait_before < self.target / 2 && self.drop_probability < 0.2;
        if calm || small {
            return Management::Pass;
        }
        // Drops are spread evenly over time (section 5.4).
        self.accumulated += self.drop_probability;
        if self.accumulated < 0.85 {
            return Management::Pass;
        }
        if self.accumulated < 8.5 && random() > self.drop_probability {
            return Management::Pass;
        }
        self.accumulated = 0.0;
        if ecn_capable && self.drop_probability <= MARK_UP_TO {
            Management::Mark
        } else {
            Management::Drop
        }
    }

    fn catch_up(&mut self, now: LinkTime, free_at: LinkTime) {
        while self.next_update <= now {
            self.update(free_at.since(self.next_update));
            self.next_update = self.next_update + UPDATE;
            let at_rest = self.drop_probability == 0.0 && self.wait_before.is_zero();
            if at_rest && free_at <= self.next_update && self.burst_allowance == MAX_BURST {
                // From here on the state does not change during idle time.
                let phase = now.since(self.next_update).as_nanos() % UPDATE.as_nanos();
                if self.next_update <= now {
                    self.next_update = now + (UPDATE - Duration::from_nanos(phase as u64));
                }
                return;
            }
        }
    }

    fn update(&mut self, wait: Duration) {
        let (before, target) = (self.wait_before, self.target);
        let seconds = |span: Duration| span.as_secs_f64();
        let mut step =
            ALPHA * (seconds(wait) - seconds(target)) + BETA * (seconds(wait) - seconds(before));
        // Small probabilities change in small steps (section 4.2).
        step /= match self.drop_probability {
            p if p < 1e-6 => 2048.0,
            p if p < 1e-5 => 512.0,
            p if p < 1e-4 => 128.0,
            p if p < 1e-3 => 32.0,
            p if p < 1e-2 => 8.0,
            p if p < 1e-1 => 2.0,
            _ => 1.0,
        };
        // Large probabilities increase in bounded steps (section 5.5).
        if self.drop_probability >= 0.1 {
            step = step.min(0.02);
        }
        let mut probability = self.drop_probability + step;
        if wait.is_zero() && before.is_zero() {
            probability *= 0.98;
        }
        // The queue is far too long (section 5.3).
        if wait > Duration::from_millis(250) {
            probability += 0.02;
        }
        self.drop_probability = probability.clamp(0.0, 1.0);
        self.wait_before = wait;
        self.burst_allowance = self.burst_allowance.saturating_sub(UPDATE);
        if self.drop_probability == 0.0 && wait < target / 2 && before < target / 2 {
            self.burst_allowance = MAX_BURST;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    /// Returns the milliseconds at which segments that wait for `sojourn` ms are dropped.
    fn drops(codel: &mut Codel, times: std::ops::Range<u64>, sojourn: u64) -> Vec<u64> {
        times
            .filter(|ms| {
                let head = LinkTime::default() + MS(*ms);
                codel.decide(head, MS(sojourn), MS(5), false) == Management::Drop
            })
            .collect()
    }

    #[test]
    fn drops_begin_after_an_interval_and_come_faster_by_the_control_law() {
        let mut codel = Codel::new(MS(5), MS(100));
        // Drops occur after 100 ms above the target, then after another 100, 100/sqrt(2),
        // 100/sqrt(3) ... ms.
        assert_eq!(drops(&mut codel, 0..450, 20), [100, 200, 271, 329, 379, 424]);
        assert_eq!(drops(&mut codel, 450..1000, 4), [0; 0]);
        // Dropping starts again after an interval, at the rate it had reached.
        let again = drops(&mut codel, 1000..1200, 20);
        assert_eq!(again[0], 1100);
        assert!(again.len() > 2, "{again:?}");
    }

    #[test]
    fn a_short_excess_and_a_capable_segment_are_not_dropped() {
        let mut codel = Codel::new(MS(5), MS(100));
        assert_eq!(drops(&mut codel, 0..99, 20), [0; 0]);
        assert_eq!(drops(&mut codel, 99..100, 4), [0; 0]);
        assert_eq!(drops(&mut codel, 100..199, 20), [0; 0]);
        let head = LinkTime::default() + MS(200);
        assert_eq!(codel.decide(head, MS(20), MS(5), true), Management::Mark);
    }

    /// Offers segments every 0.1 ms for `span` ms from `start` ms on, each with a wait of `wait`
    /// ms. Returns the number of segments that were dropped or marked.
    fn stopped(pie: &mut Pie, start: u64, span: u64, wait: u64, ecn_capable: bool) -> u64 {
        let mut count = 0;
        for i in 0..span * 10 {
            let now = LinkTime::default() + MS(start) + Duration::from_micros(100 * i);
            let random = || (i * 7919 % 1000 + 1) as f64 / 1000.0;
            let fate = pie.decide(now, now + MS(wait), false, ecn_capable, random);
            count += u64::from(fate != Management::Pass);
        }
        count
    }

    #[test]
    fn a_burst_passes_and_a_standing_queue_does_not() {
        let mut pie = Pie::new(MS(15), LinkTime::default());
        assert_eq!(stopped(&mut pie, 0, 149, 100, false), 0, "within the allowance");
        assert!(stopped(&mut pie, 149, 3000, 100, false) > 20);
        assert!(pie.drop_probability > 0.01);
    }

    #[test]
    fn a_short_queue_loses_nothing_and_an_idle_link_resets() {
        let mut pie = Pie::new(MS(15), LinkTime::default());
        assert_eq!(stopped(&mut pie, 0, 3000, 5, false), 0);
        stopped(&mut pie, 3000, 3000, 100, false);
        let later = LinkTime::default() + Duration::from_secs(86_400 * 365);
        pie.catch_up(later, LinkTime::default());
        assert_eq!((pie.drop_probability, pie.burst_allowance), (0.0, MAX_BURST));
        assert!(pie.next_update > later && pie.next_update <= later + UPDATE);
    }
}
