//! DualPI2 (RFC 9332): a queue for L4S traffic with a low delay, and a queue for other traffic.
//! A controller couples their marks and drops so that flows of both kinds get similar rates.

use std::collections::VecDeque;
use std::time::Duration;

use super::super::LinkTime;
use super::super::random::Stream;
use super::{QueuedSegment, ServiceTurn};

/// The parameters of RFC 9332, appendix A.1.
const COUPLING: f64 = 2.0;
const STEP: Duration = Duration::from_millis(1);
/// The share of the capacity that the other queue gets while L4S traffic waits: 1/16.
const CLASSIC_SHARE: u64 = 16;
/// The largest drop probability of the other queue; beyond it both queues drop.
const MOST: f64 = 0.25;
/// The largest expected round-trip time if the link has none longer.
const LONGEST_RTT: Duration = Duration::from_millis(100);

/// The two queues and their controller.
#[derive(Debug, Clone)]
pub(super) struct DualPi2 {
    l4s: VecDeque<QueuedSegment>,
    classic: VecDeque<QueuedSegment>,
    target: Duration,
    /// The interval between updates of the probability.
    update: Duration,
    updated_at: LinkTime,
    /// The gains in 1/s.
    alpha: f64,
    beta: f64,
    /// The base probability, whose square is that of the other queue.
    base: f64,
    delay: Duration,
    random: Stream,
    /// The bytes of L4S traffic that were sent since the last other segment, and of that segment.
    credit: i64,
}

impl DualPi2 {
    pub(super) fn new(target: Duration, rtt: Duration, random: Stream, now: LinkTime) -> Self {
        let rtt = rtt.max(LONGEST_RTT).as_secs_f64();
        let update = target.min(Duration::from_secs_f64(rtt / 3.0));
        DualPi2 {
            l4s: VecDeque::new(),
            classic: VecDeque::new(),
            target,
            update,
            updated_at: now,
            alpha: 0.1 * update.as_secs_f64() / (rtt * rtt),
            beta: 0.3 / rtt,
            base: 0.0,
            delay: Duration::ZERO,
            random,
            credit: 0,
        }
    }

    pub(super) fn push(&mut self, segment: QueuedSegment) {
        if segment.origin.l4s { &mut self.l4s } else { &mut self.classic }.push_back(segment);
    }

    /// Takes the next segment, and whether to mark it.
    pub(super) fn pop(
        &mut self,
        turn: ServiceTurn,
        dropped: &mut Vec<QueuedSegment>,
    ) -> Option<(QueuedSegment, bool)> {
        self.control(turn.now);
        loop {
            let is_l4s = self.l4s_is_next();
            let queue = if is_l4s { &mut self.l4s } else { &mut self.classic };
            let segment = queue.pop_front()?;
            let (p, chance) = (self.base, self.random.unit(segment.origin.ticket));
            let classic = (p * p).min(1.0);
            let is_overload = classic >= MOST;
            if is_l4s {
                let above = turn.now.since(segment.arrived) > STEP && !self.l4s.is_empty();
                if is_overload && chance <= classic {
                    dropped.push(segment);
                    continue;
                }
                self.charge(is_l4s, segment.bytes);
                return Some((segment, above || chance <= (p * COUPLING).min(1.0)));
            }
            if chance <= classic {
                if is_overload || !segment.shape.ecn_capable {
                    dropped.push(segment);
                    continue;
                }
                self.charge(is_l4s, segment.bytes);
                return Some((segment, true));
            }
            self.charge(is_l4s, segment.bytes);
            return Some((segment, false));
        }
    }

    /// Returns whether the L4S queue is served: while both wait, the other queue gets its share.
    fn l4s_is_next(&self) -> bool {
        match (self.l4s.is_empty(), self.classic.is_empty()) {
            (false, false) => self.credit >= 0,
            (l4s_is_empty, _) => !l4s_is_empty,
        }
    }

    fn charge(&mut self, is_l4s: bool, bytes: u64) {
        let bytes = bytes as i64;
        let share = CLASSIC_SHARE as i64;
        self.credit += if is_l4s { -bytes } else { bytes * (share - 1) };
        if self.l4s.is_empty() || self.classic.is_empty() {
            self.credit = 0;
        }
    }

    /// Updates the base probability from the delay of the longer queue.
    fn control(&mut self, now: LinkTime) {
        while now.since(self.updated_at) >= self.update {
            self.updated_at = self.updated_at + self.update;
            let wait = |queue: &VecDeque<QueuedSegment>| {
                queue.front().map_or(Duration::ZERO, |first| self.updated_at.since(first.arrived))
            };
            let delay = wait(&self.classic).max(wait(&self.l4s));
            let seconds = Duration::as_secs_f64;
            let change = self.alpha * (seconds(&delay) - seconds(&self.target))
                + self.beta * (seconds(&delay) - seconds(&self.delay));
            self.base = (self.base + change).clamp(0.0, 1.0);
            self.delay = delay;
            if self.base == 0.0 && delay.is_zero() {
                self.updated_at = self.updated_at.max(now.before(self.update));
            }
        }
    }

    /// Removes the newest segment of the longer queue.
    pub(super) fn shed(&mut self) -> Option<QueuedSegment> {
        let bytes = |queue: &VecDeque<QueuedSegment>| queue.iter().map(|s| s.bytes).sum::<u64>();
        let classic = bytes(&self.classic) >= bytes(&self.l4s);
        if classic { &mut self.classic } else { &mut self.l4s }.pop_back()
    }

    /// Takes the next segment without marks and drops.
    pub(super) fn shed_first(&mut self) -> Option<QueuedSegment> {
        self.l4s.pop_front().or_else(|| self.classic.pop_front())
    }
}
