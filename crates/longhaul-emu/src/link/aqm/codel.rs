//! CoDel: drops or marks segments that have waited for longer than a target.

use std::time::Duration;

use super::super::LinkTime;
use super::Management;

/// CoDel (RFC 8289, section 5), called once per segment in the order of the queue.
///
/// CoDel decides when a segment reaches the head of the queue. In a queue that is served in order,
/// that time depends only on earlier segments, so the decision can be made when the segment
/// arrives. One input is unknown at that time: whether less than a packet will follow the segment.
/// The caller compensates with a target that is at least a packet's transmission time.
#[derive(Debug, Clone)]
pub(in super::super) struct Codel {
    pub(super) target: Duration,
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
    pub(in super::super) fn new(target: Duration, interval: Duration) -> Self {
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
    pub(in super::super) fn decide(
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
}
