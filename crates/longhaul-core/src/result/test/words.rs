//! The sentences for the reason of a rate, with their numbers.

use super::TestFacts;
use super::reason::{Attribution, Hosts, LEAST_SECONDS, Limit, Reason, find};
use crate::result::{End, EndFacts};
use crate::units::Bytes;

impl Reason {
    /// Derives the reason from the facts.
    pub fn derive(facts: TestFacts, hosts: Hosts<'_>) -> Self {
        let found = find(&facts);
        let (sentence, advice) = of(&found, &facts, hosts);
        let Attribution { limit, end, share_percent } = found;
        Reason { limit, end, share_percent, sentence, advice, facts }
    }
}

/// Returns the sentence, and the advice if there is one.
fn of(found: &Attribution, facts: &TestFacts, hosts: Hosts<'_>) -> (String, Option<String>) {
    let end = found.end.unwrap_or(End::Sender);
    let share = found.share_percent.unwrap_or(0.0);
    match found.limit {
        Limit::Pacing => (
            format!("sent at the requested rate (-b {})", facts.requested_bps.unwrap_or_default()),
            Some("omit -b to measure the rate of the path".to_owned()),
        ),
        Limit::TcpMemory => memory(end, share, facts.end(end), hosts.name(end)),
        Limit::SenderCpu | Limit::ReceiverCpu => cpu(end, facts.end(end), hosts.name(end)),
        Limit::ReceiverWindow => window(facts, end, share, hosts.name(end)),
        Limit::SendBuffer => window(facts, end, share, hosts.name(end)),
        Limit::HostDrops if facts.udp.is_some() => (
            format!("limited by the {end}'s host, which dropped {share:.1} % of the datagrams"),
            Some(match end {
                End::Sender => "send slower (-b)".to_owned(),
                End::Receiver => format!(
                    "use more streams (-P) or a larger buffer (-w, and net.core.rmem_max on {})",
                    hosts.name(end)
                ),
            }),
        ),
        Limit::Loss if facts.udp.is_some() => (
            format!(
                "limited by the path, which lost {share:.1} % of the datagrams and delivered {}",
                facts.throughput_bps
            ),
            Some("send slower (-b), until none are lost".to_owned()),
        ),
        Limit::HostDrops => (
            format!(
                "limited by the {end}'s host, which dropped {} packets ({} segments retransmitted)",
                facts.end(end).drops,
                facts.retransmits
            ),
            Some(format!(
                "on {}, enlarge the rings of the interface (ethtool -G) and \
                 net.core.netdev_max_backlog, and spread its interrupts over more cores",
                hosts.name(end)
            )),
        ),
        Limit::Loss => loss(facts),
        Limit::LinkRate => (link(facts, share), None),
        Limit::CongestionWindow => congestion(facts, share),
        Limit::SendingProgram => (
            format!(
                "limited by the sending program, which had nothing in its socket for {share:.0} % \
                 of the time though its threads ran for only {:.0} %",
                facts.sender.running_percent
            ),
            Some("use more streams (-P) or larger writes (-l)".to_owned()),
        ),
        Limit::Nothing if facts.seconds < LEAST_SECONDS => (
            format!("too short to determine the limit: {:.3} s", facts.seconds),
            Some("run a longer test (-t)".to_owned()),
        ),
        Limit::Nothing if !facts.sender.is_known() => (
            "nothing on this host limited the rate; the sender's program does not report its limit"
                .to_owned(),
            None,
        ),
        Limit::Nothing => ("nothing stands out".to_owned(), None),
    }
}

fn memory(end: End, share: f64, facts: &EndFacts, host: &str) -> (String, Option<String>) {
    let begins = match facts.tcp_memory_pressure_bytes.get() {
        0 => String::new(),
        _ => format!(", and pressure begins at {}", facts.tcp_memory_pressure_bytes),
    };
    (
        format!(
            "limited by the {end}'s kernel memory for TCP, under pressure for {share:.0} % of \
             the time: {} are in use{begins}",
            facts.tcp_memory_bytes
        ),
        Some(format!(
            "on {host}, close the connections that hold it (ss -tm shows them), or raise \
             net.ipv4.tcp_mem, which counts in pages"
        )),
    )
}

fn cpu(end: End, facts: &EndFacts, host: &str) -> (String, Option<String>) {
    let core = facts.core;
    if facts.load_percent() < facts.interrupts_percent {
        return (
            format!(
                "limited by the {end}'s CPU: core {} spent {:.0} % of its time in interrupts",
                facts.interrupts_core, facts.interrupts_percent
            ),
            Some(format!(
                "on {host}, spread the interface's interrupts over more cores (RSS or RPS)"
            )),
        );
    }
    let mut sentence = format!("limited by the {end}'s CPU: its thread ");
    if facts.waiting_percent < facts.running_percent / 2.0 {
        sentence += &format!(
            "ran for {:.0} % of the time and waited for core {core} for another {:.0} %",
            facts.running_percent, facts.waiting_percent
        );
        let advice = "share the work among more cores (-P), or copy less (-Z)";
        return (sentence, Some(advice.to_owned()));
    }
    sentence += &format!(
        "waited for core {core} for {:.0} % of the time and ran for only {:.0} %",
        facts.waiting_percent, facts.running_percent
    );
    if facts.core_stolen_percent > facts.core_others_percent {
        sentence += &format!(", as the hypervisor took {:.0} % of it", facts.core_stolen_percent);
        let advice = format!("give {host} processors of its own, or move it to an idle machine");
        return (sentence, Some(advice));
    }
    sentence += &format!(", as other programs used {:.0} % of it", facts.core_others_percent);
    (sentence, Some(format!("on {host}, stop what else runs there, or use other cores (-A)")))
}

fn window(facts: &TestFacts, end: End, share: f64, host: &str) -> (String, Option<String>) {
    let side = facts.end(end);
    let (name, size, setting, most) = match end {
        End::Receiver => ("window", facts.receiver_window_bytes, "rmem", "rmem_max"),
        End::Sender => {
            let total = side.buffer_bytes.get().saturating_mul(facts.streams.into());
            ("buffer", Bytes::new(total), "wmem", "wmem_max")
        }
    };
    let product = facts.bandwidth_delay_bytes;
    let mut sentence = format!("limited by the {end}'s {name} ({share:.0} % of the time): {size}");
    if facts.streams > 1 {
        sentence += &format!(" over {} streams", facts.streams);
    }
    sentence += &if product > size {
        format!(
            " against a bandwidth-delay product of {product} ({} at {})",
            facts.reference_bps,
            millis(facts.rtt_min_ms)
        )
    } else {
        format!(" at a round-trip time of {}", millis(facts.rtt_ms))
    };
    // Half of the kernel's buffer is payload and half is overhead (tcp_win_from_space with
    // TCP_DEFAULT_SCALING_RATIO, net/tcp.h). A window that already equals the product is doubled.
    let streams = u64::from(facts.streams.max(1));
    let twice = |bytes: Bytes| Bytes::new(bytes.get().saturating_mul(2));
    let wanted = Bytes::new(twice(product.max(twice(size))).get() / streams);
    let limits = &side.limits;
    let near = |limit: Bytes| side.buffer_bytes.get() as f64 >= 0.9 * limit.get() as f64;
    let advice = if !side.is_known() {
        format!(
            "raise the third number of net.ipv4.tcp_{setting} or net.core.{most} on {host} to {}, \
             or use more streams (-P)",
            wanted.get()
        )
    } else if facts.window_asked {
        let clipped = limits.asked_bytes.get() > 0 && near(twice(limits.asked_bytes));
        if clipped {
            format!(
                "raise net.core.{most} on {host} from {} to {}, or leave -w out",
                limits.asked_bytes.get(),
                wanted.get()
            )
        } else {
            format!("ask for more (-w {}), or leave -w out", wanted.get() / 2)
        }
    } else if near(limits.autotuned_bytes) {
        format!(
            "raise the third number of net.ipv4.tcp_{setting} on {host} from {} to {}, or use \
             more streams (-P)",
            limits.autotuned_bytes.get(),
            wanted.get()
        )
    } else {
        format!(
            "the kernel of {host} let it grow to {} of the {} that net.ipv4.tcp_{setting} allows; \
             run a longer test (-t), or use more streams (-P)",
            side.buffer_bytes, limits.autotuned_bytes
        )
    };
    (sentence, Some(advice))
}

fn loss(facts: &TestFacts) -> (String, Option<String>) {
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
    (sentence, Some(advice.to_owned()))
}

/// The interquartile range in percent above which a rate is not called steady.
const STEADY_PERCENT: f64 = 25.0;

fn link(facts: &TestFacts, share: f64) -> String {
    let carries = facts.steady_bps.unwrap_or(facts.throughput_bps);
    let mut sentence = format!("limited by the path: its slowest link carries {carries}");
    match facts.spread_percent {
        Some(spread) if spread <= STEADY_PERCENT => {
            sentence += &format!(", varied by {spread:.0} %");
        }
        Some(spread) => {
            sentence += &format!(
                " in the median, though not steadily: the middle half of the time spans \
                 {spread:.0} % of that"
            );
        }
        None => {}
    }
    sentence += &format!(
        " ({} was held back for {share:.0} % of the time, with {} of queue on a round \
         trip of {}",
        facts.congestion,
        millis(facts.queue_ms()),
        millis(facts.rtt_min_ms)
    );
    if facts.retransmits > 0 {
        sentence += &format!(", {} sent again", fine_percent(facts.loss_percent));
    }
    if facts.marked_percent > 0.0 {
        sentence += &format!(", {} marked", fine_percent(facts.marked_percent));
    }
    sentence.push(')');
    sentence
}

fn congestion(facts: &TestFacts, share: f64) -> (String, Option<String>) {
    let growing = if facts.settled { "" } else { ", which was still changing when the test ended" };
    let sentence = format!(
        "limited by the congestion window of {} ({share:.0} % of the time){growing}: {} on a \
         round trip of {}",
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

/// Formats with three digits: `90.1 ms`, `0.052 ms`.
fn millis(value: f64) -> String {
    let digits = match value {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.9995 => 2,
        _ => 3,
    };
    format!("{value:.digits$} ms")
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
