//! Rules for TCP's behaviour.

use crate::doctor::rule::{Answer, NOTHING, advice, fine, problem};
use crate::doctor::{HostFacts, Target};
use crate::units::format_span;

/// The payload of a full segment in a packet of 1500 bytes with time stamps.
const SEGMENT_BYTES: f64 = 1448.0;

pub(super) fn congestion(host: &HostFacts, target: &Target) -> Answer {
    let name = host.setting("net.ipv4.tcp_congestion_control")?;
    let sum = format!(
        "CUBIC holds {} over {} while fewer than one segment in {:.1e} is lost (RFC 9438, 5.1)",
        target.rate,
        format_span(target.rtt),
        1.0 / cubic_loss(target)
    );
    match name {
        "bbr" => fine(name).why(format!("paced by the delivered rate; {sum}")).answer(),
        "cubic" => fine(name).why(format!("{sum}; BBR tolerates more loss")).answer(),
        // ESnet long recommended htcp for such paths.
        "htcp" => fine(name).why("designed for long fast paths").answer(),
        _ => problem(name)
            .wanted("bbr or cubic")
            .why(format!(
                "{name} is not made for windows of {} segments; {sum}",
                segments(target).round()
            ))
            .set("net.ipv4.tcp_congestion_control", "cubic")
            .answer(),
    }
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

pub(super) fn bbr(host: &HostFacts, _: &Target) -> Answer {
    let has = |name: &str| Ok(host.setting(name)?.split_whitespace().any(|word| word == "bbr"));
    let why = "longhaul cp changes to BBR by itself when the path loses packets and the kernel \
               lets it";
    if !has("net.ipv4.tcp_available_congestion_control")? {
        return advice("not loaded")
            .wanted("loaded")
            .why(why)
            .run("sudo modprobe tcp_bbr")
            .answer();
    }
    let allowed = host.setting("net.ipv4.tcp_allowed_congestion_control")?;
    if !has("net.ipv4.tcp_allowed_congestion_control")? {
        return advice(format!("only root may use it; others: {allowed}"))
            .wanted("allowed for all users")
            .why(why)
            .set("net.ipv4.tcp_allowed_congestion_control", format_args!("{allowed} bbr"))
            .answer();
    }
    fine("loaded, and allowed for all users").answer()
}

pub(super) fn sack(host: &HostFacts, _: &Target) -> Answer {
    let why = "without them one loss costs a round trip each, and what came is sent again";
    on(host, "net.ipv4.tcp_sack", why)
}

pub(super) fn timestamps(host: &HostFacts, target: &Target) -> Answer {
    // 2^31 is the usable half of the sequence space (RFC 7323, section 5.2).
    let wrap = target.rate.time_for(1 << 31);
    let why = format!(
        "sequence numbers come round in {}; time stamps tell old segments from new, and measure \
         the round trip (RFC 7323)",
        format_span(std::time::Duration::from_millis(wrap.as_millis() as u64))
    );
    on(host, "net.ipv4.tcp_timestamps", &why)
}

fn on(host: &HostFacts, name: &str, why: &str) -> Answer {
    match host.number(name, 0)? {
        0 => problem("off").wanted("on").why(why).set(name, 1).answer(),
        _ => fine("on").why(why).answer(),
    }
}

pub(super) fn mtu_probing(host: &HostFacts, _: &Target) -> Answer {
    let name = "net.ipv4.tcp_mtu_probing";
    let seen = host.number(name, 0)?;
    let jumbo = host.interfaces.iter().any(|one| one.mtu.as_ref().is_ok_and(|mtu| *mtu > 1500));
    if seen > 0 || !jumbo {
        return fine(if seen > 0 { "on" } else { "off, and no packet is over 1500 bytes" })
            .answer();
    }
    advice("off")
        .wanted("1")
        .why(
            "where a router drops packets over 1500 bytes and its message is lost, connections \
              hang; probing finds the size that passes (RFC 4821; ESnet's guide)",
        )
        .set(name, 1)
        .answer()
}

pub(super) fn slow_start_after_idle(host: &HostFacts, target: &Target) -> Answer {
    let name = "net.ipv4.tcp_slow_start_after_idle";
    if host.number(name, 0)? == 0 {
        return fine("off").answer();
    }
    // The window doubles each round trip, starting with ten segments (RFC 6928).
    let rounds = (segments(target) / 10.0).log2().max(0.0).ceil();
    let lost = target.rtt.mul_f64(rounds);
    // An unnoticeable effect needs no advice.
    if lost.as_millis() < 100 {
        return fine("on").answer();
    }
    advice("on")
        .wanted("off")
        .why(format!(
            "a connection that paused begins again: {rounds} round trips, {} from 10 segments to \
             {:.0}",
            format_span(std::time::Duration::from_millis(lost.as_millis() as u64)),
            segments(target)
        ))
        .set(name, 0)
        .answer()
}

pub(super) fn metrics(host: &HostFacts, _: &Target) -> Answer {
    let name = "net.ipv4.tcp_no_metrics_save";
    let saves = host.number(name, 0)? == 0;
    // Since Linux 5.8 the harmful part has a separate setting, which is off by default.
    if !saves || host.number("net.ipv4.tcp_no_ssthresh_metrics_save", 0).is_ok_and(|no| no > 0) {
        return fine("it does not shorten slow start").answer();
    }
    advice("kept")
        .wanted("1")
        .why(
            "a connection that lost packets ends the slow start of the next ones to the same host \
              early",
        )
        .set(name, 1)
        .answer()
}

pub(super) fn default_queueing(host: &HostFacts, _: &Target) -> Answer {
    let name = "net.core.default_qdisc";
    let seen = host.setting(name)?;
    match seen {
        "fq" => fine(seen).why("paces each connection").answer(),
        "fq_codel" => fine(seen).why("keeps connections apart; TCP paces itself").answer(),
        "" => NOTHING,
        _ => advice(seen)
            .wanted("fq (or fq_codel)")
            .why(
                "fq paces each connection, so that bursts do not overrun the queues of the path \
                  (ESnet's guide)",
            )
            .set(name, "fq")
            .answer(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::result::TargetSource;
    use crate::units::Rate;

    #[test]
    fn the_loss_that_cubic_bears_is_that_of_the_standard() {
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
