//! Rules for TCP's behavior.

use std::time::Duration;

use super::switch;
use crate::doctor::rule::{NOTHING, RuleAnswer, advice, fine, problem};
use crate::doctor::{HostFacts, Target};

/// The payload of a full segment in a packet of 1500 bytes with time stamps.
const SEGMENT_BYTES: f64 = 1448.0;

pub(super) fn congestion(host: &HostFacts, target: &Target) -> RuleAnswer {
    let name = host.setting("net.ipv4.tcp_congestion_control")?;
    match name {
        "bbr" => fine("bbr"),
        "cubic" => fine("cubic"),
        // ESnet long recommended htcp for such paths.
        "htcp" => fine("htcp"),
        _ => problem("other"),
    }
    .with("name", name)
    .with("window_segments", segments(target).round())
    .with("tolerated_loss", cubic_loss(target))
    .for_target(target)
    .answer()
}

fn segments(target: &Target) -> f64 {
    target.bdp().get() as f64 / SEGMENT_BYTES
}

/// Returns the loss at which CUBIC's mean window equals the wanted window: 1.054 (RTT / p)^(3/4)
/// with its usual constants (RFC 9438, section 5.1).
fn cubic_loss(target: &Target) -> f64 {
    let window = segments(target).max(10.0);
    (target.rtt.as_secs_f64().max(1e-5) * (1.054 / window).powf(4.0 / 3.0)).min(1.0)
}

pub(super) fn bbr(host: &HostFacts, _: &Target) -> RuleAnswer {
    let has = |name: &str| Ok(host.setting(name)?.split_whitespace().any(|word| word == "bbr"));
    if !has("net.ipv4.tcp_available_congestion_control")? {
        return advice("not_loaded").answer();
    }
    let allowed = "net.ipv4.tcp_allowed_congestion_control";
    let judgement = if has(allowed)? { fine("allowed") } else { advice("root_only") };
    judgement.with("allowed", host.setting(allowed)?).answer()
}

pub(super) fn sack(host: &HostFacts, _: &Target) -> RuleAnswer {
    switch(host, "net.ipv4.tcp_sack")?.answer()
}

pub(super) fn timestamps(host: &HostFacts, target: &Target) -> RuleAnswer {
    // 2^31 is the usable half of the sequence space (RFC 7323, section 5.2).
    let wrap = whole_millis(target.rate.time_for(1 << 31));
    switch(host, "net.ipv4.tcp_timestamps")?.with_ms("wrap_ms", wrap).answer()
}

fn whole_millis(time: Duration) -> Duration {
    Duration::from_millis(time.as_millis() as u64)
}

pub(super) fn mtu_probing(host: &HostFacts, _: &Target) -> RuleAnswer {
    let on = host.number("net.ipv4.tcp_mtu_probing", 0)? > 0;
    let jumbo = host.interfaces.iter().any(|one| one.mtu.as_ref().is_ok_and(|mtu| *mtu > 1500));
    match (on, jumbo) {
        (true, _) => fine("on"),
        (false, false) => fine("off_small_packets"),
        (false, true) => advice("off"),
    }
    .answer()
}

pub(super) fn slow_start_after_idle(host: &HostFacts, target: &Target) -> RuleAnswer {
    if host.number("net.ipv4.tcp_slow_start_after_idle", 0)? == 0 {
        return fine("off").answer();
    }
    // The window doubles each round trip, starting with ten segments (RFC 6928).
    let rounds = (segments(target) / 10.0).log2().max(0.0).ceil();
    let lost = whole_millis(target.rtt.mul_f64(rounds));
    // An unnoticeable effect needs no advice.
    if lost.as_millis() < 100 {
        return fine("on_short_path").answer();
    }
    advice("on")
        .with("round_trips", rounds as u64)
        .with_ms("lost_ms", lost)
        .with("window_segments", segments(target).round())
        .answer()
}

pub(super) fn metrics(host: &HostFacts, _: &Target) -> RuleAnswer {
    let saves = host.number("net.ipv4.tcp_no_metrics_save", 0)? == 0;
    // Since Linux 5.8 the harmful part has a separate setting, which is off by default.
    if !saves || host.number("net.ipv4.tcp_no_ssthresh_metrics_save", 0).is_ok_and(|no| no > 0) {
        return fine("harmless").answer();
    }
    advice("kept").answer()
}

pub(super) fn default_queueing(host: &HostFacts, _: &Target) -> RuleAnswer {
    let name = host.setting("net.core.default_qdisc")?;
    match name {
        "fq" => fine("fq"),
        "fq_codel" => fine("fq_codel"),
        "" => return NOTHING,
        _ => advice("other"),
    }
    .with("qdisc", name)
    .answer()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::TargetSource;
    use crate::units::Rate;

    #[test]
    fn the_loss_that_cubic_tolerates_follows_rfc_9438() {
        let target = Target {
            rate: Rate::from_bps(10_000_000_000),
            rate_from: TargetSource::Asked,
            rtt: Duration::from_millis(100),
            rtt_from: TargetSource::Asked,
            to: None,
            port: 5210,
        };
        let loss = cubic_loss(&target);
        // The inverse formula: from p to the window.
        let window = 1.054 * (0.1 / loss).powf(0.75);
        assert!((window / (125e6 / 1448.0) - 1.0).abs() < 1e-9, "{window}");
        assert!((2e-8..4e-8).contains(&loss), "{loss}");
    }
}
