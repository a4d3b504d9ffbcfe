//! Active queue management: CoDel, PIE and RED drop or mark segments before the queue is full.

pub(super) mod codel;
mod pie;
mod red;

use std::time::Duration;

use longhaul_core::plan::link::Aqm;

use self::codel::Codel;
use self::pie::Pie;
use self::red::Red;
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
    Red(Red),
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
    /// The bytes that wait or are being sent, as the rate counts them.
    pub(super) waiting_bytes: u64,
    /// True if less than two packets of the MTU wait.
    pub(super) is_short: bool,
    pub(super) ecn_capable: bool,
    /// The random numbers of the queue management, and the index of this segment's number.
    pub(super) random: (Stream, u64),
}

impl Manager {
    /// Creates the queue management of `plan` at `now`; `None` for a plan with several queues.
    pub(super) fn new(plan: Aqm, now: LinkTime) -> Option<Self> {
        match plan {
            Aqm::Codel { target, interval } => Some(Manager::Codel(Codel::new(target, interval))),
            Aqm::Pie { target } => Some(Manager::Pie(Pie::new(target, now))),
            Aqm::Red { min, max, probability } => {
                Some(Manager::Red(Red::new(min, max, probability)))
            }
            Aqm::FqCodel { .. } | Aqm::DualPi2 { .. } => None,
        }
    }

    pub(super) fn decide(&mut self, segment: &Arriving) -> Management {
        match self {
            Manager::Codel(codel) => {
                let head = segment.free_at.max(segment.now);
                let target = codel.target.max(segment.packet_time);
                codel.decide(head, head.since(segment.now), target, segment.ecn_capable)
            }
            Manager::Pie(pie) => pie.decide(segment),
            Manager::Red(red) => red.decide(segment),
        }
    }
}

impl Arriving {
    /// Returns the segment's random number, uniform over (0, 1].
    fn random(&self) -> f64 {
        self.random.0.unit(self.random.1)
    }

    /// Returns the time for which the segment would wait.
    fn wait(&self) -> Duration {
        self.free_at.since(self.now)
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::plan::Side;

    use super::super::random::Purpose;
    use super::*;

    /// Returns segment `number`, which arrives at `now` and would wait for `wait`, at 8 Mb/s.
    pub(super) fn arriving(now: LinkTime, wait: Duration, number: u64) -> Arriving {
        Arriving {
            now,
            free_at: now + wait,
            packet_time: Duration::from_micros(1500),
            waiting_bytes: wait.as_micros() as u64,
            is_short: false,
            ecn_capable: false,
            random: (Stream::new(5, Side::Near, Purpose::Pie), number),
        }
    }
}
