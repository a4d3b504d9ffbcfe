//! Rules for the processors.

use crate::doctor::rule::{Answer, NOTHING, advice, fine, problem};
use crate::doctor::{Cause, HostFacts, Target};
use crate::result::Verdict;

/// The exit latency of an idle state in microseconds above which it delays packets: at 10 Gb/s a
/// ring of 1024 packets of 1500 bytes fills in 1200.
const SLOW_EXIT_US: u64 = 50;
/// The core frequency in kHz that one connection of 30 Gb/s needs (ESnet's guide for 100G).
const FAST_KHZ: u64 = 3_000_000;

pub(super) fn governor(host: &HostFacts, target: &Target) -> Answer {
    let governors = match &host.processors.governors {
        Ok(governors) => governors,
        // The host of a virtual machine controls its processors' frequency.
        Err(unseen) if unseen.cause == Cause::Absent && is_guest(host) => return NOTHING,
        Err(unseen) => return Err(unseen.clone()),
    };
    let named = |(name, count): (&String, &u32)| format!("{name} ({count})");
    let seen = governors.iter().map(named).collect::<Vec<_>>().join(", ");
    if governors.keys().all(|name| name == "performance") {
        return fine(seen).answer();
    }
    // With these two drivers the hardware chooses the frequency, and powersave does not mean the
    // lowest one.
    let driver = host.processors.frequency_driver.as_deref().unwrap_or("");
    let scales = matches!(driver, "intel_pstate" | "amd-pstate-epp");
    let held = governors.contains_key("powersave") && !scales && target.is_at_least(10);
    fine(seen)
        .judged(if held { Verdict::Problem } else { Verdict::Advice })
        .wanted("performance")
        .why(
            "a core that sleeps between packets wakes at a low frequency; ESnet's guide for 100G \
              names this first",
        )
        .run("sudo cpupower frequency-set -g performance")
        .answer()
}

fn is_guest(host: &HostFacts) -> bool {
    host.processors.virtual_machine == Ok(true)
}

pub(super) fn turbo(host: &HostFacts, _: &Target) -> Answer {
    // Only some drivers have this setting.
    let Ok(off) = host.processors.turbo_off else { return NOTHING };
    if !off {
        return fine("on").answer();
    }
    advice("off")
        .wanted("on")
        .why("one connection is as fast as one core (ESnet's guide for data-transfer nodes)")
        .run("echo 0 | sudo tee /sys/devices/system/cpu/intel_pstate/no_turbo")
        .answer()
}

pub(super) fn idle_states(host: &HostFacts, target: &Target) -> Answer {
    let states = match &host.processors.idle_states {
        Ok(states) => states,
        Err(unseen) if unseen.cause == Cause::Absent && is_guest(host) => return NOTHING,
        Err(unseen) => return Err(unseen.clone()),
    };
    let Some(deepest) = states.iter().filter(|state| !state.disabled).max_by_key(|s| s.exit_us)
    else {
        return fine("all off").answer();
    };
    let seen = format!("down to {}, left in {} us", deepest.name, deepest.exit_us);
    if deepest.exit_us <= SLOW_EXIT_US || !target.is_at_least(10) {
        return fine(seen).answer();
    }
    let packets = target.rate.bps() as f64 / 12_000.0 * deepest.exit_us as f64 / 1e6;
    advice(seen)
        .wanted(format!("none that takes over {SLOW_EXIT_US} us to leave"))
        .why(format!(
            "{packets:.0} packets of 1500 bytes come at {} while a core wakes; every pause of a \
             transfer ends with that",
            target.rate
        ))
        .run(format!("sudo cpupower idle-set -D {SLOW_EXIT_US}"))
        .answer()
}

pub(super) fn threads(host: &HostFacts, target: &Target) -> Answer {
    if is_guest(host) || !target.is_at_least(40) {
        return NOTHING;
    }
    if !host.processors.simultaneous_threads.clone()? {
        return fine("off").answer();
    }
    advice("on")
        .wanted("off, in the firmware")
        .why(
            "two busy threads share one core, and which ones do changes from run to run (ESnet's \
              guide for 100G)",
        )
        .run("echo off | sudo tee /sys/devices/system/cpu/smt/control    # to try it")
        .answer()
}

pub(super) fn frequency(host: &HostFacts, target: &Target) -> Answer {
    let khz = match &host.processors.highest_khz {
        Ok(khz) => *khz,
        Err(unseen) if unseen.cause == Cause::Absent => return NOTHING,
        Err(unseen) => return Err(unseen.clone()),
    };
    let seen = format!("{:.1} GHz", khz as f64 / 1e6);
    if khz >= FAST_KHZ || !target.is_at_least(40) {
        return fine(seen).answer();
    }
    let streams = target.rate.bps().div_ceil(20_000_000_000);
    advice(seen)
        .wanted("3 GHz for 30 Gb/s in one connection")
        .why(
            "one connection is as fast as one core (ESnet's guide for 100G); several share the \
              work",
        )
        .run(format!("longhaul test HOST -P {streams}"))
        .answer()
}

pub(super) fn stolen(host: &HostFacts, _: &Target) -> Answer {
    if !is_guest(host) {
        return NOTHING;
    }
    let share = host.processors.stolen.clone()?;
    let seen = format!("{:.1} % of the time since boot", share * 100.0);
    match share {
        s if s >= 0.1 => problem(seen),
        s if s >= 0.01 => advice(seen),
        _ => fine(seen),
    }
    .wanted("under 1 %")
    .why(
        "while the hypervisor runs somebody else, packets wait or are lost; more or reserved \
          processors are its operator's to give",
    )
    .run("vmstat 1 5    # column st")
    .answer()
}
