//! The sentences of limits of the two hosts: dropped packets, memory, CPU, window and buffer.

use longhaul_core::result::{End, EndFacts, TestFacts};
use longhaul_core::units::Bytes;

use crate::output::test::words::millis;

pub(super) fn host_drops(
    facts: &TestFacts,
    end: End,
    share: f64,
    host: &str,
) -> (String, Option<String>) {
    if facts.udp.is_none() {
        let sentence = format!(
            "limited by the {end}'s host, which dropped {} packets ({} segments retransmitted)",
            facts.end(end).drops,
            facts.retransmits
        );
        let advice = format!(
            "on {host}, enlarge the rings of the interface (ethtool -G) and \
             net.core.netdev_max_backlog, and spread its interrupts over more cores"
        );
        return (sentence, Some(advice));
    }
    let advice = match end {
        End::Sender => "send slower (-b)".to_owned(),
        End::Receiver => format!(
            "use more streams (-P) or a larger buffer (-w, and net.core.rmem_max on {host})"
        ),
    };
    let sentence =
        format!("limited by the {end}'s host, which dropped {share:.1} % of the datagrams");
    (sentence, Some(advice))
}

pub(super) fn memory(
    end: End,
    share: f64,
    facts: &EndFacts,
    host: &str,
) -> (String, Option<String>) {
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
            "on {host}, close the connections that use it (ss -tm lists them), or raise \
             net.ipv4.tcp_mem, which counts in pages"
        )),
    )
}

pub(super) fn cpu(end: End, facts: &EndFacts, host: &str) -> (String, Option<String>) {
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
        sentence += &format!("ran for {:.0} % of the time", facts.running_percent);
        if facts.waiting_percent >= 1.0 {
            let waiting = facts.waiting_percent;
            sentence += &format!(" and waited for core {core} for another {waiting:.0} %");
        }
        let advice = "distribute the work over more cores (-P), or send without copying (-Z)";
        return (sentence, Some(advice.to_owned()));
    }
    sentence += &format!(
        "waited for core {core} for {:.0} % of the time and ran for only {:.0} %",
        facts.waiting_percent, facts.running_percent
    );
    if facts.core_stolen_percent > facts.core_others_percent {
        sentence +=
            &format!(", because the hypervisor took {:.0} % of it", facts.core_stolen_percent);
        let advice = format!("give {host} dedicated processors, or move it to an idle machine");
        return (sentence, Some(advice));
    }
    sentence += &format!(", because other programs used {:.0} % of it", facts.core_others_percent);
    (sentence, Some(format!("on {host}, stop the other programs, or use other cores (-A)")))
}

pub(super) fn window(
    facts: &TestFacts,
    end: End,
    share: f64,
    host: &str,
) -> (String, Option<String>) {
    let side = facts.end(end);
    let (name, size) = match end {
        End::Receiver => ("window", facts.receiver_window_bytes),
        End::Sender => {
            let total = side.buffer_bytes.get().saturating_mul(facts.streams.into());
            ("buffer", Bytes::new(total))
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
    (sentence, Some(window_advice(facts, end, wanted, host)))
}

/// Returns the advice that gives the buffers of `end` the size `wanted`.
fn window_advice(facts: &TestFacts, end: End, wanted: Bytes, host: &str) -> String {
    let side = facts.end(end);
    let (setting, most) = match end {
        End::Receiver => ("rmem", "rmem_max"),
        End::Sender => ("wmem", "wmem_max"),
    };
    let limits = &side.limits;
    let near = |limit: Bytes| side.buffer_bytes.get() as f64 >= 0.9 * limit.get() as f64;
    if !side.is_known() {
        format!(
            "raise the third number of net.ipv4.tcp_{setting} or net.core.{most} on {host} to {}, \
             or use more streams (-P)",
            wanted.get()
        )
    } else if facts.window_asked {
        let clipped = limits.asked_bytes.get() > 0
            && near(Bytes::new(limits.asked_bytes.get().saturating_mul(2)));
        if clipped {
            format!(
                "raise net.core.{most} on {host} from {} to {}, or omit -w",
                limits.asked_bytes.get(),
                wanted.get()
            )
        } else {
            format!("request more (-w {}), or omit -w", wanted.get() / 2)
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
            "the kernel of {host} increased it to {} of the {} that net.ipv4.tcp_{setting} allows; \
             run a longer test (-t), or use more streams (-P)",
            side.buffer_bytes, limits.autotuned_bytes
        )
    }
}
