//! The sentences of limits of the path: loss, its link rate and its queue, and the congestion window.

use longhaul_core::result::TestFacts;
use longhaul_core::units::Rate;

use crate::output::test::words::millis;

pub(super) fn loss(facts: &TestFacts) -> (String, Option<String>) {
    let sentence = format!(
        "limited by loss: {} of the segments were retransmitted, at which {} keeps its window at {} \
         against a bandwidth-delay product of {} ({} at {})",
        fine_percent(facts.loss_percent),
        facts.congestion,
        facts.cwnd_bytes,
        facts.bandwidth_delay_bytes,
        facts.reference_bps,
        millis(facts.rtt_min_ms)
    );
    let advice = "find where the path loses packets, or use a congestion control that tolerates more loss \
                  (-C bbr), or more streams (-P)";
    (sentence, compare(facts).or_else(|| Some(advice.to_owned())))
}

/// The lowest loss in percent at which a policer or a shallow queue is as likely as a damaged link, and
/// the part of the rate at which their loss differs.
const COMPARED_PERCENT: f64 = 1.0;
const COMPARED_PART: u64 = 4;

/// Returns the advice to compare the loss at a lower rate, if the test does not show its cause.
pub(super) fn compare(facts: &TestFacts) -> Option<String> {
    let rate = Rate::from_bps(facts.throughput_bps.bps() / COMPARED_PART);
    // A queue that overflows during the test is that of a full link.
    let queued = facts.fills_a_queue(facts.queue_ms());
    (facts.loss_percent >= COMPARED_PERCENT && !queued).then(|| {
        format!(
            "compare the loss at a lower rate (-b {}), as longhaul diagnose does: if there is none, a \
             policer or a switch with small buffers drops bursts; otherwise the path damages packets",
            rate.to_string().replace(' ', "").replace("b/s", "")
        )
    })
}

pub(super) fn shallow_queue(facts: &TestFacts) -> (String, Option<String>) {
    let rate = facts.steady_bps.unwrap_or(facts.throughput_bps);
    let sentence = format!(
        "limited by a policer or a switch with small buffers, which drops bursts instead of queueing \
         them: {} of the segments were retransmitted, {:.0} % of them after bursts of loss, the \
         queueing delay was {} on an RTT of {}, and {} reached {rate}",
        fine_percent(facts.loss_percent),
        facts.burst_percent,
        millis(facts.queue_ms()),
        millis(facts.rtt_min_ms),
        facts.congestion,
    );
    let advice = "find the highest rate without loss (-b), and increase the queue or the burst size of the \
                  policer; longhaul diagnose compares the loss at two rates";
    (sentence, Some(advice.to_owned()))
}

/// The interquartile range in percent above which a rate is not called steady.
const STEADY_PERCENT: f64 = 25.0;

pub(super) fn link(facts: &TestFacts, share: f64) -> String {
    let carries = facts.steady_bps.unwrap_or(facts.throughput_bps);
    let mut sentence = format!("limited by the path: its slowest link carries {carries}");
    match facts.spread_percent {
        Some(spread) if spread <= STEADY_PERCENT => {
            sentence += &format!(", which varied by {spread:.0} %");
        }
        Some(spread) => {
            sentence += &format!(
                " in the median, with an interquartile range of {spread:.0} % of the median"
            );
        }
        None => {}
    }
    sentence += &format!(
        " ({} limited the sender for {share:.0} % of the time, with {} of queueing delay on an \
         RTT of {}",
        facts.congestion,
        millis(facts.queue_ms()),
        millis(facts.rtt_min_ms)
    );
    if facts.retransmits > 0 {
        sentence += &format!(", {} retransmitted", fine_percent(facts.loss_percent));
    }
    if facts.marked_percent > 0.0 {
        sentence += &format!(", {} marked", fine_percent(facts.marked_percent));
    }
    sentence.push(')');
    sentence
}

pub(super) fn congestion(facts: &TestFacts, share: f64) -> (String, Option<String>) {
    let growing = if facts.settled { "" } else { ", which was still changing when the test ended" };
    let sentence = format!(
        "limited by the congestion window of {} ({share:.0} % of the time){growing}: {} on an \
         RTT of {}",
        facts.congestion,
        facts.cwnd_bytes,
        millis(facts.rtt_min_ms)
    );
    let advice = if facts.settled {
        "try another congestion control (-C), or more streams (-P)"
    } else {
        "run a longer test (-t)"
    };
    (sentence, Some(advice.to_owned()))
}

/// Formats with two significant digits: `12 %`, `0.010 %`.
fn fine_percent(value: f64) -> String {
    let digits = match value {
        v if v >= 9.95 => 0,
        v if v >= 0.995 => 1,
        v if v >= 0.0995 => 2,
        v if v >= 0.00995 => 3,
        _ => 4,
    };
    format!("{value:.digits$} %")
}
