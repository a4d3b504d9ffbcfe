//! Reads facts about processors.

use std::collections::BTreeMap;

use longhaul_core::doctor::{FactResult, IdleState, ProcessorFacts, UnknownFact};

use super::FactSource;
use crate::cpu::HostTimes;

const CPU: &str = "sys/devices/system/cpu";

/// Reads the facts about processors.
pub(super) fn read(source: &FactSource) -> ProcessorFacts {
    let info = source.head("proc/cpuinfo");
    ProcessorFacts {
        model: model(&info),
        online: source.list(&format!("{CPU}/online")).map(|cpus| cpus.len() as u32),
        virtual_machine: virtual_machine(&info, source),
        governors: governors(source),
        frequency_driver: source.text(&format!("{CPU}/cpu0/cpufreq/scaling_driver")),
        highest_khz: source.number(&format!("{CPU}/cpu0/cpufreq/cpuinfo_max_freq")),
        turbo_off: source.text(&format!("{CPU}/intel_pstate/no_turbo")).map(|text| text == "1"),
        idle_states: idle_states(source),
        simultaneous_threads: source.text(&format!("{CPU}/smt/active")).map(|text| text == "1"),
        stolen: stolen(source),
    }
}

fn model(info: &FactResult<String>) -> FactResult<String> {
    let info = info.as_ref().map_err(Clone::clone)?;
    // On Arm, /proc/cpuinfo has part numbers instead of names.
    let name = field(info, "model name").or_else(|| field(info, "CPU part"));
    name.ok_or_else(|| UnknownFact::absent("/proc/cpuinfo: model name"))
}

/// Returns whether the host is a virtual machine, from the flag that x86 processors have under a
/// hypervisor, or from the firmware's product name.
fn virtual_machine(info: &FactResult<String>, source: &FactSource) -> FactResult<bool> {
    let info = info.as_ref().map_err(Clone::clone)?;
    if let Some(flags) = field(info, "flags") {
        return Ok(flags.split(' ').any(|flag| flag == "hypervisor"));
    }
    const GUESTS: [&str; 6] = ["KVM", "QEMU", "VMware", "Virtual Machine", "Amazon EC2", "Google"];
    let product = source.text("sys/class/dmi/id/product_name")?;
    Ok(GUESTS.iter().any(|name| product.contains(name)))
}

fn field(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

fn governors(source: &FactSource) -> FactResult<BTreeMap<String, u32>> {
    let mut found = BTreeMap::new();
    for cpu in source.list(&format!("{CPU}/online"))? {
        match source.text(&format!("{CPU}/cpu{cpu}/cpufreq/scaling_governor")) {
            Ok(governor) => *found.entry(governor).or_insert(0) += 1,
            // If the first processor has no governor, none has. A processor that was added or
            // removed meanwhile is ignored.
            Err(unseen) if found.is_empty() => return Err(unseen),
            Err(_) => {}
        }
    }
    Ok(found)
}

fn idle_states(source: &FactSource) -> FactResult<Vec<IdleState>> {
    let directory = format!("{CPU}/cpu0/cpuidle");
    let state = |name: &String| {
        Ok(IdleState {
            name: source.text(&format!("{directory}/{name}/name"))?,
            exit_us: source.number(&format!("{directory}/{name}/latency"))?,
            disabled: source.text(&format!("{directory}/{name}/disable"))? == "1",
        })
    };
    source.names(&directory)?.iter().filter(|name| name.starts_with("state")).map(state).collect()
}

fn stolen(source: &FactSource) -> FactResult<f64> {
    let text = source.head("proc/stat")?;
    let times =
        HostTimes::parse(&text).ok_or_else(|| UnknownFact::not_understood("/proc/stat", &text))?;
    Ok(times.stolen_share())
}
