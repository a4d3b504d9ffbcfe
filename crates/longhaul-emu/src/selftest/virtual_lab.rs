//! Runs every check over the link model in virtual time, with correct and with deliberately wrong
//! models: the proof that the checks can fail.

use std::time::Duration;

use longhaul_core::plan::LinkPlan;
use longhaul_core::plan::link::{DelayDistribution, Extent, Loss, Outage, Probability, QueueLimit};
use longhaul_core::result::{Check, CheckVerdict, MachineTiming};
use longhaul_core::units::{Bytes, Rate};

use super::checks::{
    bottleneck, capacity, channels, classes, damage, delay, identity, jitter, loss, queues, rate,
    reorder,
};
use super::lab::{Lab, Outcome, Stream, Unmeasured, parse};
use super::virtual_link::VirtualLink;
use crate::link::LinkTime;

/// A lab whose link is the model with a wrong plan.
struct VirtualLab {
    wrong: fn(&mut LinkPlan),
    seed: u64,
    /// The timing of the machine, as a witness would report it.
    machine: MachineTiming,
}

impl Lab for VirtualLab {
    fn send_all(
        &mut self,
        options: &str,
        ipv6: bool,
        streams: &[Stream],
    ) -> Result<Outcome, Unmeasured> {
        let mut plan = parse(options)?;
        self.seed += 1;
        plan.seed = Some(self.seed);
        (self.wrong)(&mut plan);
        let mut link = VirtualLink::new(&plan, ipv6, streams);
        // The next packet of every stream, by time.
        let mut next: Vec<(u64, u64)> = streams.iter().map(|_| (0, 0)).collect();
        while let Some((at, index)) = (0..streams.len())
            .filter(|index| next[*index].1 < streams[*index].datagrams)
            .map(|index| (next[index].0, index))
            .min()
        {
            let stream = &streams[index];
            let first = next[index].1;
            let count = u64::from(stream.together).min(stream.datagrams - first);
            link.offer(index, LinkTime::from_nanos(at), (first, count));
            next[index] = (at + stream.interval.as_nanos() as u64, first + count);
        }
        Ok(Outcome { machine: self.machine, ..link.finish() })
    }
}

/// Some of the checks.
pub(super) type Group = fn(&mut dyn Lab, &mut dyn FnMut(Check));

/// Runs checks and returns the names of those that failed.
pub(super) fn failures(group: Group, wrong: fn(&mut LinkPlan), seed: u64) -> Vec<String> {
    failures_beside(MachineTiming::default(), group, wrong, seed)
}

/// Runs checks on a machine with this timing and returns the names of those that failed.
pub(super) fn failures_beside(
    machine: MachineTiming,
    group: Group,
    wrong: fn(&mut LinkPlan),
    seed: u64,
) -> Vec<String> {
    let mut failed = Vec::new();
    let mut lab = VirtualLab { wrong, seed, machine };
    group(&mut lab, &mut |check: Check| match check.verdict {
        CheckVerdict::Pass => {}
        CheckVerdict::Fail => failed.push(format!("{} ({})", check.name, check.reason)),
        CheckVerdict::NotDone if check.spoiled_by_host => {}
        CheckVerdict::NotDone => panic!("{}: {}", check.name, check.reason),
    });
    failed
}

const DELAYS: Group = |lab, each| delay::idle(lab, false, true, each);
const RATES: Group = |lab, each| {
    for rate in [("1M", 1e6), ("1G", 1e9)] {
        each(rate::one(lab, rate, 1.3));
    }
};
const LOSSES: Group = |lab, each| loss::independent(lab, false, (0.1, 250_000), each);
const REORDERINGS: Group = |lab, each| reorder::check(lab, true, each);

#[test]
fn a_correct_model_passes_every_check() {
    for ipv6 in [false, true] {
        let mut lab = VirtualLab { wrong: |_| {}, seed: 500, machine: MachineTiming::default() };
        identity::check(&mut lab, ipv6, true, &mut assert_passed);
    }
    for group in [
        DELAYS,
        RATES,
        LOSSES,
        |lab, each| delay::loaded(lab, true, each),
        loss::bursty,
        loss::bit_errors,
        jitter::check,
        REORDERINGS,
        capacity::check,
        damage::check,
        bottleneck::check,
        channels::check,
        classes::check,
        queues::check,
    ] {
        assert_eq!(failures(group, |_| {}, 1000), [""; 0]);
    }
}

fn assert_passed(check: Check) {
    assert_eq!(check.verdict, CheckVerdict::Pass, "{}: {}", check.name, check.reason);
}

/// Asserts that a model with the error fails the check with this name, with two seeds.
#[track_caller]
pub(super) fn assert_found(group: Group, name: &str, wrong: fn(&mut LinkPlan)) {
    for seed in [10_000, 20_000] {
        let failed = failures(group, wrong, seed);
        assert!(failed.iter().any(|failure| failure.starts_with(name)), "{name}: {failed:?}");
    }
}

pub(super) fn scaled(span: Duration) -> Duration {
    span.mul_f64(1.05)
}

pub(super) fn scale_probability(probability: &mut Probability, by: f64) {
    *probability = Probability::try_from(probability.get() * by).unwrap();
}

#[test]
fn a_wrong_delay_is_found() {
    assert_found(DELAYS, "delay 10 ms, idle, median", |plan| plan.up.delay = scaled(plan.up.delay));
    assert_found(DELAYS, "delay 10 ms, idle, median", |plan| {
        plan.up.delay = plan.up.delay.mul_f64(0.95);
    });
}

#[test]
fn a_wrong_rate_is_found() {
    fn scale(plan: &mut LinkPlan, by: f64) {
        plan.up.rate_bps =
            plan.up.rate_bps.map(|rate| Rate::from_bps((rate.bps() as f64 * by) as u64));
    }
    assert_found(RATES, "rate 1Mb/s", |plan| scale(plan, 1.05));
    assert_found(RATES, "rate 1Mb/s", |plan| scale(plan, 0.95));
    assert_found(RATES, "rate 1Gb/s", |plan| scale(plan, 0.95));
}

#[test]
fn a_wrong_rate_of_loss_is_found() {
    fn scale(plan: &mut LinkPlan, by: f64) {
        if let Some(Loss::Independent { rate }) = &mut plan.up.loss {
            scale_probability(rate, by);
        }
    }
    assert_found(LOSSES, "loss 1e-1", |plan| scale(plan, 1.05));
    assert_found(LOSSES, "loss 1e-1", |plan| scale(plan, 0.95));
}

#[test]
fn a_wrong_policer_and_wrong_bit_errors_are_found() {
    fn scale(plan: &mut LinkPlan, rate: f64, burst: f64) {
        if let Some(policer) = &mut plan.up.police {
            policer.rate_bps = Rate::from_bps((policer.rate_bps.bps() as f64 * rate) as u64);
            policer.burst_bytes = Bytes::new((policer.burst_bytes.get() as f64 * burst) as u64);
        }
    }
    assert_found(capacity::check, "policer of 100 Mb/s", |plan| scale(plan, 0.95, 1.0));
    assert_found(capacity::check, "burst of the policer", |plan| scale(plan, 1.0, 1.05));
    assert_found(loss::bit_errors, "bit errors", |plan| {
        scale_probability(&mut plan.up.bit_errors, 1.05);
    });
}

#[test]
fn a_wrong_rate_and_length_of_bursts_are_found() {
    assert_found(loss::bursty, "loss 0.2 in bursts", |plan| {
        if let Some(Loss::Bursty { rate, .. }) = &mut plan.up.loss {
            scale_probability(rate, 1.05);
        }
    });
    assert_found(loss::bursty, "mean burst of losses", |plan| {
        if let Some(Loss::Bursty { mean_burst_segments, .. }) = &mut plan.up.loss {
            *mean_burst_segments *= 1.05;
        }
    });
}

#[test]
fn a_wrong_spread_of_each_distribution_is_found() {
    fn scale(plan: &mut LinkPlan, by: f64) {
        if let Some(jitter) = &mut plan.up.jitter {
            match &mut jitter.spread {
                DelayDistribution::Uniform { spread }
                | DelayDistribution::Normal { spread }
                | DelayDistribution::Pareto { spread } => {
                    *spread = spread.mul_f64(by);
                }
                DelayDistribution::File(_) => {}
            }
        }
    }
    for name in ["jitter uniform, spread", "jitter normal, spread", "jitter pareto, spread"] {
        assert_found(jitter::check, name, |plan| scale(plan, 1.05));
        assert_found(jitter::check, name, |plan| scale(plan, 0.95));
    }
}

#[test]
fn a_wrong_share_or_time_of_reordering_is_found() {
    assert_found(REORDERINGS, "reordering 0.1", |plan| {
        if let Some(reorder) = &mut plan.up.reorder {
            scale_probability(&mut reorder.rate, 1.05);
        }
    });
    assert_found(REORDERINGS, "reordering by 20 ms", |plan| {
        if let Some(reorder) = &mut plan.up.reorder
            && let Extent::Time(time) = &mut reorder.extent
        {
            *time = scaled(*time);
        }
    });
    assert_found(REORDERINGS, "reordering extent", |plan| {
        if let Some(reorder) = &mut plan.up.reorder
            && let Extent::Segments(count) = &mut reorder.extent
        {
            *count += 1;
        }
    });
}

#[test]
fn a_wrong_queue_or_outage_is_found() {
    assert_found(capacity::check, "full queue of 50 ms", |plan| {
        if let Some(QueueLimit::Time(time)) = &mut plan.up.queue {
            *time = scaled(*time);
        }
    });
    assert_found(capacity::check, "outage for a quarter", |plan| {
        for outage in &mut plan.up.outages {
            *outage = Outage { length: scaled(outage.length), ..*outage };
        }
    });
    assert_found(capacity::check, "outage for a quarter", |plan| {
        for outage in &mut plan.up.outages {
            *outage = Outage { every: outage.every.map(scaled), ..*outage };
        }
    });
}

#[test]
fn wrong_shares_of_damage_duplicates_and_marks_are_found() {
    assert_found(
        |lab, each| damage::duplicates(lab, Stream::shares(), each),
        "duplication 0.1",
        |plan| scale_probability(&mut plan.up.duplicate, 1.05),
    );
    assert_found(
        |lab, each| damage::detected(lab, Stream::shares(), each),
        "corruption 0.1, detected",
        |plan| scale_probability(&mut plan.up.corrupt, 0.95),
    );
    assert_found(
        |lab, each| damage::silent(lab, Stream::shares(), each),
        "corruption 0.1, silent",
        |plan| scale_probability(&mut plan.up.corrupt_silent, 1.05),
    );
    assert_found(
        |lab, each| {
            damage::marks(lab, Stream { ecn_capable: true, ..Stream::shares() }, each);
        },
        "ECN marks 0.1",
        |plan| scale_probability(&mut plan.up.mark_ce, 0.95),
    );
}
