//! Rules for the processors.

use crate::doctor::rule::{NOTHING, RuleAnswer, advice, fine, problem};
use crate::doctor::{Cause, HostFacts, Target};

/// The exit latency of an idle state in microseconds above which it delays packets: at 10 Gb/s a
/// ring of 1024 packets of 1500 bytes fills in 1200.
const SLOW_EXIT_US: u64 = 50;
/// The core frequency in kHz that one connection of 30 Gb/s needs (ESnet's guide for 100G).
const FAST_KHZ: u64 = 3_000_000;

pub(super) fn governor(host: &HostFacts, target: &Target) -> RuleAnswer {
    let governors = match &host.processors.governors {
        Ok(governors) => governors,
        // The host of a virtual machine controls its processors' frequency.
        Err(unseen) if unseen.cause == Cause::Absent && is_guest(host) => return NOTHING,
        Err(unseen) => return Err(unseen.clone()),
    };
    let named = |(name, count): (&String, &u32)| format!("{name} ({count})");
    let present = governors.iter().map(named).collect::<Vec<_>>().join(", ");
    // With these two drivers the hardware chooses the frequency, and powersave does not mean the
    // lowest one.
    let driver = host.processors.frequency_driver.as_deref().unwrap_or("");
    let scales = matches!(driver, "intel_pstate" | "amd-pstate-epp");
    let slow = governors.contains_key("powersave") && !scales && target.is_at_least(10);
    let judgement = if governors.keys().all(|name| name == "performance") {
        fine("performance")
    } else if slow {
        problem("other")
    } else {
        advice("other")
    };
    judgement.with("governors", present).answer()
}

fn is_guest(host: &HostFacts) -> bool {
    host.processors.virtual_machine == Ok(true)
}

pub(super) fn turbo(host: &HostFacts, _: &Target) -> RuleAnswer {
    // Only some drivers have this setting.
    let Ok(off) = host.processors.turbo_off else { return NOTHING };
    if off { advice("off") } else { fine("on") }.answer()
}

pub(super) fn idle_states(host: &HostFacts, target: &Target) -> RuleAnswer {
    let states = match &host.processors.idle_states {
        Ok(states) => states,
        Err(unseen) if unseen.cause == Cause::Absent && is_guest(host) => return NOTHING,
        Err(unseen) => return Err(unseen.clone()),
    };
    let Some(deepest) = states.iter().filter(|state| !state.disabled).max_by_key(|s| s.exit_us)
    else {
        return fine("all_off").answer();
    };
    let quick = deepest.exit_us <= SLOW_EXIT_US || !target.is_at_least(10);
    let packets = target.rate.bps() as f64 / 12_000.0 * deepest.exit_us as f64 / 1e6;
    if quick { fine("quick") } else { advice("slow") }
        .with("deepest", deepest.name.as_str())
        .with("exit_us", deepest.exit_us)
        .with("wanted_us", SLOW_EXIT_US)
        .with("packets", packets.round())
        .with("target_bps", target.rate)
        .answer()
}

pub(super) fn threads(host: &HostFacts, target: &Target) -> RuleAnswer {
    if is_guest(host) || !target.is_at_least(40) {
        return NOTHING;
    }
    let on = host.processors.simultaneous_threads.clone()?;
    if on { advice("on") } else { fine("off") }.answer()
}

pub(super) fn frequency(host: &HostFacts, target: &Target) -> RuleAnswer {
    let khz = match &host.processors.highest_khz {
        Ok(khz) => *khz,
        Err(unseen) if unseen.cause == Cause::Absent => return NOTHING,
        Err(unseen) => return Err(unseen.clone()),
    };
    let enough = khz >= FAST_KHZ || !target.is_at_least(40);
    if enough { fine("enough") } else { advice("low") }
        .with("gigahertz", khz as f64 / 1e6)
        .with("connections", target.rate.bps().div_ceil(20_000_000_000))
        .answer()
}

pub(super) fn stolen(host: &HostFacts, _: &Target) -> RuleAnswer {
    if !is_guest(host) {
        return NOTHING;
    }
    let share = host.processors.stolen.clone()?;
    match share {
        s if s >= 0.1 => problem("share"),
        s if s >= 0.01 => advice("share"),
        _ => fine("share"),
    }
    .with("stolen_percent", share * 100.0)
    .answer()
}
