//! The proofs that the checks of channels, queues, classes and slots can fail, and that the noise of
//! the machine does not excuse more than it explains.

use std::time::Duration;

use longhaul_core::plan::LinkPlan;
use longhaul_core::plan::link::{Aqm, CrossTraffic, Loss, Probability, QueueLimit, Slots};
use longhaul_core::result::MachineTiming;
use longhaul_core::units::{Bytes, Rate};

use super::checks::{bottleneck, capacity, channels, classes, delay, queues, rate};
use super::virtual_lab::{Group, assert_found, failures_beside, scale_probability, scaled};

fn scale_rate(rate: &mut Rate) {
    *rate = Rate::from_bps((rate.bps() as f64 * 1.05) as u64);
}

/// Makes the parameter of a loss channel with this index wrong.
fn wrong_channel(plan: &mut LinkPlan, index: usize) {
    let mut parameters: Vec<&mut Probability> = match &mut plan.up.loss {
        Some(Loss::GilbertElliott { to_bad, to_good, bad_loss, good_loss }) => {
            vec![to_bad, to_good, bad_loss, good_loss]
        }
        Some(Loss::FourState {
            gap_to_burst,
            burst_to_gap,
            burst_to_delivery,
            delivery_to_burst,
            gap_to_single,
        }) => vec![gap_to_burst, burst_to_gap, burst_to_delivery, delivery_to_burst, gap_to_single],
        Some(Loss::Correlated { rate, correlation }) => vec![rate, correlation],
        _ => Vec::new(),
    };
    if let Some(parameter) = parameters.get_mut(index) {
        scale_probability(parameter, 1.05);
    }
}

#[test]
fn every_wrong_parameter_of_a_channel_is_found() {
    assert_found(channels::gilbert_elliott, "Gilbert", |plan| wrong_channel(plan, 0));
    assert_found(channels::gilbert_elliott, "Gilbert", |plan| wrong_channel(plan, 1));
    assert_found(channels::gilbert_elliott, "Gilbert", |plan| wrong_channel(plan, 2));
    assert_found(channels::gilbert_elliott, "Gilbert", |plan| wrong_channel(plan, 3));
    assert_found(channels::correlated, "correlated", |plan| wrong_channel(plan, 0));
    assert_found(channels::correlated, "correlated", |plan| wrong_channel(plan, 1));
}

#[test]
fn every_wrong_parameter_of_four_states_is_found() {
    // A parameter changes the share, the runs, or both.
    const RUNS: &str = "mean run of losses by four states";
    assert_found(channels::four_states, RUNS, |plan| wrong_channel(plan, 0));
    assert_found(channels::four_states, RUNS, |plan| wrong_channel(plan, 1));
    assert_found(channels::four_states, RUNS, |plan| wrong_channel(plan, 2));
    assert_found(channels::four_states, "loss by", |plan| wrong_channel(plan, 3));
    assert_found(channels::four_states, "loss by", |plan| wrong_channel(plan, 4));
}

#[test]
fn a_wrong_layer_or_cross_traffic_is_found() {
    assert_found(bottleneck::check, "rate with 100 bytes", |plan| plan.up.overhead_bytes = 105);
    assert_found(bottleneck::check, "cross traffic", |plan| {
        if let Some(CrossTraffic { rate_bps, .. }) = &mut plan.up.cross {
            scale_rate(rate_bps);
        }
    });
}

#[test]
fn wrong_slots_are_found() {
    fn change(plan: &mut LinkPlan, change: fn(&mut Slots)) {
        if let Some(slots) = &mut plan.up.slots {
            change(slots);
        }
    }
    assert_found(bottleneck::slots, "slots of 4", |plan| {
        change(plan, |slots| {
            slots.least = scaled(slots.least);
            slots.most = slots.most.max(slots.least);
        });
    });
    assert_found(bottleneck::slots, "slots of 4", |plan| {
        change(plan, |slots| slots.most = scaled(slots.most));
    });
    assert_found(bottleneck::slots, "slots of 4", |plan| {
        change(plan, |slots| slots.segments = slots.segments.map(|count| count + 1));
    });
    assert_found(bottleneck::slots, "slots of 12,800", |plan| {
        change(plan, |slots| slots.bytes = Some(Bytes::new(12_800 * 21 / 20)));
    });
}

const CODEL: Group = |lab, each| queues::codel(lab, "codel").into_iter().for_each(each);
const FQ_CODEL: Group = |lab, each| queues::codel(lab, "fq-codel").into_iter().for_each(each);

#[test]
fn a_wrong_codel_is_found() {
    for (group, name) in [(CODEL, "codel"), (FQ_CODEL, "fq-codel")] {
        assert_found(group, &format!("{name}, first drop"), |plan| {
            if let Some(Aqm::Codel { target, .. } | Aqm::FqCodel { target, .. }) = &mut plan.up.aqm
            {
                *target = scaled(*target);
            }
        });
        assert_found(group, &format!("{name}, drops"), |plan| {
            if let Some(Aqm::Codel { interval, .. } | Aqm::FqCodel { interval, .. }) =
                &mut plan.up.aqm
            {
                *interval = scaled(*interval);
            }
        });
    }
}

#[test]
fn a_wrong_red_is_found() {
    fn change(plan: &mut LinkPlan, (low, high, share): (f64, f64, f64)) {
        if let Some(Aqm::Red { min, max, probability }) = &mut plan.up.aqm {
            for (limit, by) in [(min, low), (max, high)] {
                if let QueueLimit::Time(time) = limit {
                    *time = time.mul_f64(by);
                }
            }
            scale_probability(probability, share);
        }
    }
    const RED: Group = |lab, each| each(queues::red(lab));
    assert_found(RED, "RED", |plan| change(plan, (1.05, 1.0, 1.0)));
    assert_found(RED, "RED", |plan| change(plan, (1.0, 1.05, 1.0)));
    assert_found(RED, "RED", |plan| change(plan, (1.0, 1.0, 1.05)));
}

#[test]
fn a_wrong_target_of_a_controller_is_found() {
    fn wrong(plan: &mut LinkPlan) {
        if let Some(Aqm::Pie { target } | Aqm::DualPi2 { target }) = &mut plan.up.aqm {
            *target = scaled(*target);
        }
    }
    assert_found(|lab, each| each(queues::controlled(lab, "pie")), "pie", wrong);
    assert_found(|lab, each| each(queues::controlled(lab, "dualpi2")), "dualpi2", wrong);
}

#[test]
fn a_queue_that_does_not_tell_flows_apart_is_found() {
    assert_found(
        |lab, each| queues::fair_queues(lab).into_iter().for_each(each),
        "fq-codel, share",
        |plan| plan.up.aqm = None,
    );
}

#[test]
fn a_wrong_class_is_found() {
    assert_found(classes::check, "class with a delay of 30 ms, delay of the class", |plan| {
        plan.up.classes.iter_mut().for_each(|class| class.link.delay = scaled(class.link.delay));
    });
    assert_found(classes::check, "class with a loss of 0.1", |plan| {
        for class in &mut plan.up.classes {
            if let Some(Loss::Independent { rate }) = &mut class.link.loss {
                scale_probability(rate, 1.05);
            }
        }
    });
    assert_found(classes::check, "class with a rate, rate of the class", |plan| {
        plan.up.classes.iter_mut().filter(|class| class.has_own_queue()).for_each(|class| {
            class.link.rate_bps.iter_mut().for_each(scale_rate);
        });
    });
    assert_found(classes::check, "class with a priority", |plan| {
        plan.up.classes.iter_mut().for_each(|class| class.link.priority = 0);
    });
}

/// A machine that wakes a timer up to 0.4 ms late explains 0.8 ms of a delay, and not the 4.5 ms by
/// which a delay of 90 ms is wrong; likewise a rate, a queue and a median.
#[test]
fn the_noise_of_the_machine_excuses_only_what_it_explains() {
    let machine = MachineTiming {
        realtime: true,
        seconds: 2.0,
        processors: 2,
        wakings: 4000,
        p50_ms: 0.05,
        p99_ms: 0.2,
        p999_ms: 0.3,
        max_ms: 0.4,
        stalled_share: 0.002,
        withheld_share: 0.2,
    };
    let failures =
        |group: Group, wrong: fn(&mut LinkPlan)| failures_beside(machine, group, wrong, 10_000);
    let failed = failures(IDLE, |plan| plan.up.delay = scaled(plan.up.delay));
    for name in ["delay 90 ms, idle, median", "delay 90 ms, idle, 99 %"] {
        assert!(failed.iter().any(|failure| failure.starts_with(name)), "{failed:?}");
    }
    let failed = failures(RATE, |plan| plan.up.rate_bps.iter_mut().for_each(scale_rate));
    assert_eq!(failed.len(), 1);
    let failed = failures(capacity::check, |plan| {
        if let Some(QueueLimit::Time(time)) = &mut plan.up.queue {
            *time += Duration::from_micros(2500);
        }
    });
    assert!(failed.iter().any(|failure| failure.starts_with("full queue")), "{failed:?}");
}

const IDLE: Group = |lab, each| delay::idle(lab, false, true, each);
const RATE: Group = |lab, each| each(rate::one(lab, ("1M", 1e6), 1.3));
