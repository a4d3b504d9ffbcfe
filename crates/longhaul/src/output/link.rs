//! The options of a link as text.

use longhaul_core::plan::link::{
    Aqm, DelayDistribution, ETHERNET_OVERHEAD, Loss, Probability, QueueLimit,
};
use longhaul_core::plan::{LinkDirection, LinkPlan, Side};
use longhaul_core::units::format_span;

/// Returns all options of a link but the seed.
pub(crate) fn link_text(plan: &LinkPlan) -> String {
    let [up, down] = Side::BOTH.map(|side| rate_text(plan.from(side), "unlimited"));
    let rate = if up == down { up } else { format!("{up} up, {down} down") };
    let traced = Side::BOTH.iter().any(|side| plan.from(*side).delay_trace.is_some());
    let rtt = if traced { BY_TRACE.to_owned() } else { format_span(plan.rtt()) };
    let basis = format!("RTT {rtt}, rate {rate}, MTU {}", plan.mtu);
    let words = std::iter::once(basis).chain(link_options(plan));
    words.collect::<Vec<_>>().join(", ")
}

/// The text for a value that follows a trace. The plan from the holder has the name of the trace,
/// but not its content.
const BY_TRACE: &str = "by trace";

/// Returns the rate of a direction, or `none`.
pub(super) fn rate_text(direction: &LinkDirection, none: &str) -> String {
    if direction.rate_trace.is_some() {
        return BY_TRACE.to_owned();
    }
    direction.rate_bps.map_or_else(|| none.to_owned(), |rate| rate.to_string())
}

pub(super) fn delay_text(direction: &LinkDirection) -> String {
    if direction.delay_trace.is_some() {
        return BY_TRACE.to_owned();
    }
    format_span(direction.delay)
}

/// Returns the options of a link in addition to its delay, rate and MTU, each as the name of the
/// option and its value. An option of one direction has the prefix `up-` or `down-`.
pub(super) fn link_options(plan: &LinkPlan) -> Vec<String> {
    let [up, down] = [options(&plan.up), options(&plan.down)];
    let mut words = Vec::new();
    if plan.queues > 1 {
        words.push(format!("queues {}", plan.queues));
    }
    for option in &up {
        let prefix = if down.contains(option) { "" } else { "up-" };
        words.push(format!("{prefix}{option}"));
    }
    let only_down = down.iter().filter(|option| !up.contains(option));
    words.extend(only_down.map(|option| format!("down-{option}")));
    words
}

/// Returns the options of a direction.
fn options(link: &LinkDirection) -> Vec<String> {
    let mut words = Vec::new();
    let mut add = |name: &str, value: Option<String>| {
        words.extend(value.map(|value| format!("{name} {value}")));
    };
    add("delay-trace", link.delay_trace.as_ref().map(|trace| trace.file.clone()));
    add("replay", link.replay.as_ref().map(|trace| trace.file.clone()));
    add(
        "jitter",
        link.jitter.as_ref().map(|jitter| {
            let reorder = if jitter.reorder { ":reorder" } else { "" };
            format!("{}{reorder}", spread(&jitter.spread))
        }),
    );
    add("reorder", link.reorder.map(|reorder| reorder.to_string()));
    add("rate-trace", link.rate_trace.as_ref().map(|trace| trace.file.clone()));
    add(
        "rate-layer",
        match link.overhead_bytes {
            0 => None,
            ETHERNET_OVERHEAD => Some("wire".to_owned()),
            bytes => Some(format!("wire:{bytes}")),
        },
    );
    add("queue", link.queue.map(limit));
    add("aqm", link.aqm.as_ref().map(aqm));
    add("cross", link.cross.map(|traffic| traffic.to_string()));
    add("police", link.police.map(|policer| policer.to_string()));
    words.extend(link.loss.as_ref().map(loss));
    let mut add = |name: &str, value: Option<String>| {
        words.extend(value.map(|value| format!("{name} {value}")));
    };
    let share = |share: Probability| (!share.is_zero()).then(|| share.to_string());
    add("ber", share(link.bit_errors));
    add("corrupt", share(link.corrupt));
    add("corrupt-silent", share(link.corrupt_silent));
    add("duplicate", share(link.duplicate));
    add("mark", share(link.mark_ce));
    add("slot", link.slots.map(|slots| slots.to_string()));
    let outages: Vec<String> = link.outages.iter().map(ToString::to_string).collect();
    add("outage", (!outages.is_empty()).then(|| outages.join(",")));
    add("priority", (link.priority > 0).then(|| link.priority.to_string()));
    for class in &link.classes {
        let own = class.options.iter().map(|(name, value)| format!(" {name} {value}"));
        add("class", Some(format!("{}:{}", class.matches, own.collect::<Vec<_>>().join(""))));
    }
    words
}

fn limit(limit: QueueLimit) -> String {
    match limit {
        QueueLimit::Bytes(bytes) => bytes.to_string(),
        QueueLimit::Time(time) => format_span(time),
        QueueLimit::Segments(count) => format!("{count}p"),
    }
}

/// Returns the distribution of a jitter.
fn spread(distribution: &DelayDistribution) -> String {
    match distribution {
        DelayDistribution::Uniform { spread } => format!("{}:uniform", format_span(*spread)),
        DelayDistribution::Normal { spread } => format!("{}:normal", format_span(*spread)),
        DelayDistribution::Pareto { spread } => format!("{}:pareto", format_span(*spread)),
        DelayDistribution::File(trace) => format!("file:{}", trace.file),
    }
}

fn aqm(aqm: &Aqm) -> String {
    let with = |name: &str, target| format!("{name}:{}", format_span(target));
    match aqm {
        Aqm::Codel { target, .. } => with("codel", *target),
        Aqm::FqCodel { target, .. } => with("fq-codel", *target),
        Aqm::Pie { target } => with("pie", *target),
        Aqm::DualPi2 { target } => with("dualpi2", *target),
        Aqm::Red { min, max, probability } => {
            format!("red:{}:{}:{probability}", limit(*min), limit(*max))
        }
    }
}

/// Returns the option of a loss with its name.
fn loss(loss: &Loss) -> String {
    match loss {
        Loss::Independent { rate } => format!("loss {rate}"),
        Loss::Bursty { rate, mean_burst_segments } => {
            format!("loss {rate} in bursts of {mean_burst_segments}")
        }
        Loss::Correlated { rate, correlation } => {
            format!("loss {rate} with correlation {correlation}")
        }
        Loss::GilbertElliott { to_bad, to_good, bad_loss, good_loss } => {
            format!("loss-ge {to_bad}:{to_good}:{bad_loss}:{good_loss}")
        }
        Loss::FourState {
            gap_to_burst,
            burst_to_gap,
            burst_to_delivery,
            delivery_to_burst,
            gap_to_single,
        } => format!(
            "loss-state {gap_to_burst}:{burst_to_gap}:{burst_to_delivery}:{delivery_to_burst}:\
             {gap_to_single}"
        ),
        Loss::Pattern { segments } => format!("loss-pattern {segments}"),
        Loss::Trace(trace) => format!("loss-trace {}", trace.file),
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::plan::LinkOptions;

    use super::*;

    fn text(options: &[(&str, &str)]) -> String {
        let mut link = LinkOptions::default();
        options.iter().for_each(|(name, value)| link.set(name, *value).unwrap());
        link_text(&link.plan(&|_| Err(std::io::ErrorKind::NotFound.into())).unwrap())
    }

    #[test]
    fn every_option_of_a_link_is_shown() {
        assert_eq!(text(&[("rtt", "90ms")]), "RTT 90ms, rate unlimited, MTU 9000");
        let lossy = text(&[("rtt", "90ms"), ("loss", "1e-3"), ("up-duplicate", "0.01")]);
        assert!(lossy.contains(", MTU 9000, loss "), "{lossy}");
        assert!(lossy.contains(", up-duplicate "), "{lossy}");
        for (name, value) in [
            ("jitter", "1ms:pareto"),
            ("jitter", "1ms:normal:reorder"),
            ("reorder", "0.01:5ms"),
            ("rate-layer", "wire"),
            ("queue", "50ms"),
            ("queue", "1000p"),
            ("aqm", "codel:5ms"),
            ("aqm", "pie:20ms"),
            ("cross", "5M:64KiB"),
            ("police", "2G:1MiB"),
            ("loss-ge", "0.1:0.2:0.9:0.01"),
            ("loss-pattern", "3,17"),
            ("loss", "0.01"),
            ("ber", "0.000001"),
            ("corrupt", "0.01"),
            ("corrupt-silent", "0.01"),
            ("duplicate", "0.01"),
            ("mark", "0.5"),
            ("slot", "1ms-3ms"),
            ("outage", "10s+2s"),
            ("priority", "3"),
            ("class", "tcp: loss 0.1"),
        ] {
            let option = format!("down-{name}");
            let basis = [("rtt", "20ms"), ("rate", "10M")];
            let with = |name| text(&[&basis[..], &[(name, value)]].concat());
            let shown = with(name);
            assert!(shown.contains(&format!(", {name} ")), "{name} {value}: {shown}");
            let one_way = with(&option);
            assert!(one_way.contains(&format!(", down-{name} ")), "{name} {value}: {one_way}");
        }
    }
}
