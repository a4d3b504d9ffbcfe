//! The capacity of a bottleneck: computes the time by which bytes have been sent at a fixed rate,
//! at a rate that changes in steps, or with Mahimahi's opportunities.

use std::sync::Arc;
use std::time::Duration;

use longhaul_core::plan::link::{LinkDirection, RateSchedule, Steps};
use longhaul_core::units::Rate;

use super::LinkTime;

/// The capacity of a bottleneck.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Capacity {
    /// The rate in bit/s.
    Constant(u64),
    Steps(StepRates),
    Opportunities(Opportunities),
}

/// The progress of the bottleneck.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Progress {
    /// The time by which all accepted bytes have been sent, rounded down to a nanosecond.
    pub(super) free_at: LinkTime,
    /// The remainder of the rounding of `free_at`, in [`UNIT`]s divided by the rate, so that the
    /// mean rate is exact over any number of packets. With opportunities, the unused bytes of the
    /// last one.
    rest: u64,
    /// With opportunities, the index of the last one used.
    opportunity: u64,
}

/// One byte in units of 10^-9 bit, so that a rate in bit/s is the number of units sent per
/// nanosecond.
const UNIT: u64 = 8_000_000_000;

impl Capacity {
    /// Returns the capacity of `direction`, if it has one.
    pub(super) fn of(direction: &LinkDirection) -> Option<Self> {
        match direction.rate_schedule() {
            None => direction.rate_bps.map(|rate| Capacity::Constant(rate.bps().max(1))),
            Some(schedule) => Some(match &**schedule {
                RateSchedule::Steps(steps) => Capacity::Steps(StepRates::new(steps)),
                RateSchedule::Opportunities(_) => {
                    Capacity::Opportunities(Opportunities(Arc::clone(schedule)))
                }
            }),
        }
    }

    /// Returns the progress of an idle bottleneck at `now`.
    pub(super) fn begin(&self, now: LinkTime) -> Progress {
        match self {
            Capacity::Constant(_) | Capacity::Steps(_) => {
                Progress { free_at: now, ..Progress::default() }
            }
            Capacity::Opportunities(all) => {
                let opportunity = all.first_from(now);
                Progress { free_at: now, rest: RateSchedule::OPPORTUNITY_BYTES, opportunity }
            }
        }
    }

    /// Returns the progress after `bytes` more have been sent.
    pub(super) fn after(&self, progress: Progress, bytes: u64) -> Progress {
        match self {
            Capacity::Constant(rate) => {
                let work = bytes.saturating_mul(UNIT).saturating_add(progress.rest);
                let free_at = progress.free_at + Duration::from_nanos(work / rate);
                Progress { free_at, rest: work % rate, ..progress }
            }
            Capacity::Steps(rates) => rates.after(progress, bytes),
            Capacity::Opportunities(all) => all.after(progress, bytes),
        }
    }

    /// Returns the amount still to be sent at `now`, in fractions of a byte; [`bytes_of`] and
    /// [`units_of`] convert.
    pub(super) fn waiting(&self, progress: Progress, now: LinkTime) -> u128 {
        if progress.free_at <= now {
            return 0;
        }
        match self {
            Capacity::Constant(rate) => {
                progress.free_at.since(now).as_nanos() * u128::from(*rate)
                    + u128::from(progress.rest)
            }
            Capacity::Steps(rates) => {
                rates.done(progress.free_at) - rates.done(now) + u128::from(progress.rest)
            }
            // The bytes of the opportunity at `now` count as sent.
            Capacity::Opportunities(all) => all.carried(progress, now + Duration::from_nanos(1)),
        }
    }

    /// Returns the amount that was accepted since [`Capacity::begin`] at `start`, in fractions of a
    /// byte.
    pub(super) fn accepted(&self, progress: Progress, start: LinkTime) -> u128 {
        match self {
            Capacity::Constant(_) | Capacity::Steps(_) => self.waiting(progress, start),
            Capacity::Opportunities(all) => all.carried(progress, start),
        }
    }

    /// Returns the time that `bytes` take at the current rate, or with opportunities at the mean
    /// rate.
    pub(super) fn time_for(&self, bytes: u64, at: LinkTime) -> Duration {
        match self {
            Capacity::Constant(rate) => Rate::from_bps(*rate).time_for(bytes),
            Capacity::Steps(rates) => Rate::from_bps(rates.rate_at(at)).time_for(bytes),
            Capacity::Opportunities(all) => {
                let (times, period) = all.times();
                let nanos = period * bytes / RateSchedule::OPPORTUNITY_BYTES / times.len() as u64;
                Duration::from_nanos(nanos)
            }
        }
    }
}

pub(super) fn units_of(bytes: u64) -> u128 {
    u128::from(bytes) * u128::from(UNIT)
}

pub(super) fn bytes_of(units: u128) -> u64 {
    (units / u128::from(UNIT)) as u64
}

/// Rates that change at given times, with the amount that could be sent before each change.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct StepRates {
    steps: Vec<Step>,
    /// The period in nanoseconds, and the amount that can be sent in one period.
    period: Option<(u64, u128)>,
}

#[derive(Debug, Clone, PartialEq)]
struct Step {
    start: u64,
    rate: u64,
    /// The amount that can be sent from the first step to the start of this one, in bits x 10^9.
    before: u128,
}

impl StepRates {
    fn new(plan: &Steps<Rate>) -> Self {
        let mut steps: Vec<Step> = Vec::new();
        for (start, rate) in plan.steps() {
            let start = start.as_nanos() as u64;
            let before = steps.last().map_or(0, |last| last.done(start));
            steps.push(Step { start, rate: rate.bps(), before });
        }
        let period = plan.period().map(|period| {
            let nanos = period.as_nanos() as u64;
            (nanos, steps.last().map_or(0, |last| last.done(nanos)))
        });
        StepRates { steps, period }
    }

    fn step_at(&self, inside: u64) -> &Step {
        let next = self.steps.partition_point(|step| step.start <= inside);
        &self.steps[next.max(1) - 1]
    }

    /// Returns the number of periods before `time`, and the time since the current one began.
    fn split(&self, time: LinkTime) -> (u64, u64) {
        let time = time.as_nanos();
        self.period.map_or((0, time), |(period, _)| (time / period, time % period))
    }

    fn rate_at(&self, time: LinkTime) -> u64 {
        self.step_at(self.split(time).1).rate
    }

    /// Returns the amount that can be sent from the link's start to `time`.
    fn done(&self, time: LinkTime) -> u128 {
        let (cycle, inside) = self.split(time);
        let whole = self.period.map_or(0, |(_, work)| work * u128::from(cycle));
        whole + self.step_at(inside).done(inside)
    }

    fn after(&self, progress: Progress, bytes: u64) -> Progress {
        let target = self.done(progress.free_at) + units_of(bytes) + u128::from(progress.rest);
        // The result is the earliest time at which this amount could be sent: the start of a
        // following pause, not its end.
        let (cycles, target) = match self.period {
            Some((_, work)) => {
                let cycles = target.saturating_sub(1) / work;
                (cycles, target - cycles * work)
            }
            None => (0, target),
        };
        let next = self.steps.partition_point(|step| step.before < target);
        let step = &self.steps[next.max(1) - 1];
        let (work, rate) = (target - step.before, u128::from(step.rate.max(1)));
        let start = u128::from(step.start) + self.period.map_or(0, |(p, _)| u128::from(p)) * cycles;
        let free_at = LinkTime::from_nanos((start + work / rate) as u64);
        if bytes == 0 {
            return progress;
        }
        Progress { free_at: free_at.max(progress.free_at), rest: (work % rate) as u64, ..progress }
    }
}

impl Step {
    fn done(&self, until: u64) -> u128 {
        self.before + u128::from(until - self.start) * u128::from(self.rate)
    }
}

/// Mahimahi's opportunities, counted over all repetitions of the file.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Opportunities(Arc<RateSchedule>);

impl Opportunities {
    const MS: u64 = 1_000_000;

    /// Returns the times in milliseconds and the period in nanoseconds.
    fn times(&self) -> (&[u64], u64) {
        match &*self.0 {
            RateSchedule::Opportunities(times) => {
                (times, times.last().map_or(1, |last| last * Self::MS))
            }
            RateSchedule::Steps(_) => (&[1], Self::MS),
        }
    }

    /// Returns the first opportunity at `time` or later.
    fn first_from(&self, time: LinkTime) -> u64 {
        let (times, period) = self.times();
        let cycle = time.as_nanos() / period;
        let inside = time.as_nanos() % period;
        let earlier = times.partition_point(|ms| ms * Self::MS < inside) as u64;
        let last_of_before = u64::from(inside == 0 && cycle > 0);
        // The last opportunity of a period coincides with the start of the next period.
        let same = times.iter().rev().take_while(|ms| **ms * Self::MS == period).count() as u64;
        cycle * times.len() as u64 + earlier - last_of_before * same
    }

    fn time(&self, opportunity: u64) -> LinkTime {
        let (times, period) = self.times();
        let count = times.len() as u64;
        let inside = times[(opportunity % count) as usize] * Self::MS;
        LinkTime::from_nanos(opportunity / count * period + inside)
    }

    /// Returns the amount that the opportunities from `start` on carry.
    fn carried(&self, progress: Progress, start: LinkTime) -> u128 {
        let count = (progress.opportunity + 1).saturating_sub(self.first_from(start));
        units_of((count * RateSchedule::OPPORTUNITY_BYTES).saturating_sub(progress.rest))
    }

    fn after(&self, mut progress: Progress, bytes: u64) -> Progress {
        if bytes > progress.rest {
            let more = bytes - progress.rest;
            let opportunities = more.div_ceil(RateSchedule::OPPORTUNITY_BYTES);
            progress.opportunity += opportunities;
            progress.rest = opportunities * RateSchedule::OPPORTUNITY_BYTES - more;
        } else {
            progress.rest -= bytes;
        }
        progress.free_at = progress.free_at.max(self.time(progress.opportunity));
        progress
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::plan::link::Trace;

    use super::*;

    const MS: fn(u64) -> LinkTime = |ms| LinkTime::from_nanos(ms * 1_000_000);

    fn traced(text: &str) -> Capacity {
        match RateSchedule::parse(text).unwrap() {
            RateSchedule::Steps(steps) => Capacity::Steps(StepRates::new(&steps)),
            other => Capacity::Opportunities(Opportunities(Arc::new(other))),
        }
    }

    /// Returns the times at which `packets`, which all enter at `now`, have been sent.
    fn sent(capacity: &Capacity, now: LinkTime, packets: &[u64]) -> Vec<f64> {
        let mut progress = capacity.begin(now);
        let send = |bytes: &u64| {
            progress = capacity.after(progress, *bytes);
            progress.free_at.as_nanos() as f64 / 1e6
        };
        packets.iter().map(send).collect()
    }

    #[test]
    fn steps_are_followed_in_the_middle_of_a_packet_and_through_a_pause() {
        // At 8 Mb/s a byte takes 1 us: 1000 bytes in the first millisecond of every four.
        let capacity = traced("0 8M\n1ms 0\n3ms 4M\n4ms repeat");
        assert_eq!(sent(&capacity, MS(0), &[500, 500, 250, 500, 1]), [0.5, 1.0, 3.5, 4.25, 4.251]);
        assert_eq!(sent(&capacity, MS(2), &[500, 1000, 500]), [4.0, 5.0, 8.0]);
        assert_eq!(sent(&capacity, MS(4001), &[500]), [4004.0]);
        let ending = traced("0 8M\n1ms 4M");
        assert_eq!(sent(&ending, MS(0), &[2000]), [3.0]);
    }

    #[test]
    fn the_waiting_bytes_are_those_not_yet_sent() {
        for capacity in [Capacity::Constant(3_000_000), traced("0 8M\n1ms 0\n3ms 4M\n4ms repeat")] {
            let mut progress = capacity.begin(MS(0));
            let mut total = 0;
            for bytes in [1499, 1, 700] {
                progress = capacity.after(progress, bytes);
                total += bytes;
                assert_eq!(capacity.waiting(progress, MS(0)), units_of(total));
            }
            assert_eq!(capacity.waiting(progress, progress.free_at), 0);
        }
    }

    #[test]
    fn mahimahi_opportunities_carry_1500_bytes_and_wrap() {
        // Two at 1 ms, one at 3 ms, and one at 4 ms, then the file repeats.
        let capacity = traced("1\n1\n3\n4");
        let four = [1500, 1000, 500, 1500, 1500, 1500];
        assert_eq!(sent(&capacity, MS(0), &four), [1.0, 1.0, 1.0, 3.0, 4.0, 5.0]);
        assert_eq!(sent(&capacity, MS(2), &[100, 100, 1400]), [3.0, 3.0, 4.0]);
        assert_eq!(sent(&capacity, MS(4), &[1500, 1500]), [4.0, 5.0], "at the wrap");
        assert_eq!(sent(&capacity, MS(0), &[9000]), [5.0], "a jumbo frame takes six");
        let progress = capacity.after(capacity.begin(MS(2)), 2000);
        assert_eq!(bytes_of(capacity.waiting(progress, MS(2))), 2000);
        assert_eq!(bytes_of(capacity.waiting(progress, LinkTime::from_nanos(3_500_000))), 500);
    }

    #[test]
    fn mahimahi_has_its_mean_rate() {
        let capacity = traced("1\n1\n3\n4");
        let packets = vec![1500; 4000];
        assert_eq!(sent(&capacity, MS(0), &packets).last(), Some(&4000.0));
        assert_eq!(capacity.time_for(6000, MS(0)), Duration::from_millis(4));
    }
}
