//! The table of rules, and functions that several areas share.

mod disk;
mod interface;
mod interrupts;
mod measured;
mod pcie;
mod processor;
mod system;
mod tcp;
mod windows;

use super::rule::{RuleJudgement, fine, problem};
use super::{FactResult, HostFacts, Rule};
use crate::result::Area;

use super::Judge::{Bus, Disk, Host, Interface, Measured, Path};

const fn rule(
    area: Area,
    name: &'static str,
    cases: &'static [&'static str],
    judge: super::Judge,
) -> Rule {
    Rule { name, area, cases, judge }
}

/// The cases of a limit of the process.
const LIMITS: &[&str] = &["unlimited", "limited", "raisable", "raisable_freely"];

/// All rules, in the order of the findings.
pub const RULES: &[Rule] = &[
    rule(Area::Path, "path_route", &["no_address", "no_route", "routed"], Path(interface::route)),
    rule(Area::Path, "path_answer", &["open", "closed", "silent"], Path(interface::answer)),
    rule(Area::Path, "path_mtu", &["same", "smaller"], Path(interface::route_mtu)),
    rule(Area::Windows, "tcp_rmem", &["size"], Host(windows::autotuned_receive)),
    rule(Area::Windows, "tcp_wmem", &["size"], Host(windows::autotuned_send)),
    rule(Area::Windows, "rmem_max", &["size"], Host(windows::asked_receive)),
    rule(Area::Windows, "wmem_max", &["size"], Host(windows::asked_send)),
    rule(Area::Windows, "tcp_moderate_rcvbuf", &["on", "off"], Host(windows::autotuning)),
    rule(Area::Windows, "tcp_window_scaling", &["on", "off"], Host(windows::scaling)),
    rule(Area::Windows, "tcp_mem", &["size", "little_memory"], Host(windows::host_wide)),
    rule(Area::Windows, "tcp_memory_now", &["no_pressure", "pressure"], Host(windows::pressure)),
    rule(Area::Tcp, "congestion", &["bbr", "cubic", "htcp", "other"], Host(tcp::congestion)),
    rule(Area::Tcp, "bbr_available", &["not_loaded", "root_only", "allowed"], Host(tcp::bbr)),
    rule(Area::Tcp, "tcp_sack", &["on", "off"], Host(tcp::sack)),
    rule(Area::Tcp, "tcp_timestamps", &["on", "off"], Host(tcp::timestamps)),
    rule(Area::Tcp, "tcp_mtu_probing", &["on", "off_small_packets", "off"], Host(tcp::mtu_probing)),
    rule(
        Area::Tcp,
        "tcp_slow_start_after_idle",
        &["off", "on_short_path", "on"],
        Host(tcp::slow_start_after_idle),
    ),
    rule(Area::Tcp, "tcp_no_metrics_save", &["harmless", "kept"], Host(tcp::metrics)),
    rule(Area::Tcp, "default_qdisc", &["fq", "fq_codel", "other"], Host(tcp::default_queueing)),
    rule(Area::Interface, "interface_there", &["missing"], Host(interface::exists)),
    rule(
        Area::Interface,
        "state",
        &["up", "no_carrier_state", "down"],
        Interface(interface::state),
    ),
    rule(
        Area::Interface,
        "speed",
        &["wireless", "unreported", "rate"],
        Interface(interface::speed),
    ),
    rule(Area::Interface, "mtu", &["enough", "small"], Interface(interface::mtu)),
    rule(
        Area::Interface,
        "queueing",
        &["paced", "not_paced_per_queue", "not_paced"],
        Interface(interface::queueing),
    ),
    rule(Area::Interface, "offloads", &["on", "off"], Interface(interface::offloads)),
    rule(Area::Interface, "rings", &["enough", "small"], Interface(interface::rings)),
    rule(Area::Interface, "missed", &["none", "lost"], Interface(interface::missed)),
    rule(
        Area::Interface,
        "coalescing",
        &["adaptive", "fixed", "off"],
        Interface(interface::coalescing),
    ),
    rule(Area::Interface, "pause", &["on", "off"], Interface(interface::pause)),
    rule(Area::Pcie, "pcie_rate", &["maximum"], Bus(pcie::rate)),
    rule(Area::Pcie, "pcie_link", &["full", "fast_enough", "reduced"], Bus(pcie::link)),
    rule(Area::Pcie, "pcie_payload", &["enough", "small"], Bus(pcie::payload)),
    rule(Area::Pcie, "pcie_read_request", &["enough", "small"], Bus(pcie::read_request)),
    rule(Area::Pcie, "iommu", &["harmless", "translated"], Bus(pcie::translation)),
    rule(
        Area::Interrupts,
        "interrupt_spread",
        &["enough", "few_queues", "few_cpus"],
        Interface(interrupts::spread),
    ),
    rule(
        Area::Interrupts,
        "interrupt_node",
        &["no_node", "near", "away"],
        Interface(interrupts::node),
    ),
    rule(Area::Interrupts, "irqbalance", &["harmful", "runs", "off"], Host(interrupts::irqbalance)),
    rule(Area::Interrupts, "core_drops", &["none", "dropped"], Host(interrupts::core_drops)),
    rule(Area::Processor, "governor", &["performance", "other"], Host(processor::governor)),
    rule(Area::Processor, "turbo", &["on", "off"], Host(processor::turbo)),
    rule(
        Area::Processor,
        "idle_states",
        &["all_off", "quick", "slow"],
        Host(processor::idle_states),
    ),
    rule(Area::Processor, "threads_of_cores", &["on", "off"], Host(processor::threads)),
    rule(Area::Processor, "frequency", &["enough", "low"], Host(processor::frequency)),
    rule(Area::Processor, "stolen", &["share"], Host(processor::stolen)),
    rule(
        Area::Disk,
        "file_system",
        &[
            "local",
            "read_only",
            "sync",
            "data_journal",
            "strictatime",
            "memory",
            "overlay",
            "remote",
        ],
        Disk(disk::file_system),
    ),
    rule(Area::Disk, "room", &["enough", "low"], Disk(disk::room)),
    rule(Area::Disk, "direct_io", &["works", "refused"], Disk(disk::direct_io)),
    rule(Area::Disk, "scheduler", &["good", "other_rotational", "other"], Disk(disk::scheduler)),
    rule(Area::Disk, "read_ahead", &["enough", "small"], Disk(disk::read_ahead)),
    rule(Area::Disk, "disk_node", &["same", "other"], Disk(disk::node)),
    rule(Area::System, "clock", &["synchronised", "free_running"], Host(system::clock)),
    rule(Area::System, "clock_source", &["quick", "slow"], Host(system::clock_source)),
    rule(Area::System, "open_files", LIMITS, Host(system::open_files)),
    rule(Area::System, "locked_memory", LIMITS, Host(system::locked_memory)),
    rule(Area::System, "firewall", &["empty", "filtering"], Host(system::firewall)),
    rule(Area::System, "firewall_old", &["empty", "filtering"], Host(system::old_firewall)),
    rule(Area::System, "tracked_connections", &["enough", "full"], Host(system::tracked)),
    rule(Area::Processor, "memory_copy", &["rate"], Measured(measured::core)),
    rule(Area::Processor, "blake3", &["rate"], Measured(measured::core)),
    rule(Area::Processor, "xxh3", &["rate"], Measured(measured::core)),
    rule(Area::Processor, "aes_256_gcm", &["rate"], Measured(measured::core)),
    rule(Area::Disk, "disk_write", &["rate"], Measured(measured::disk)),
    rule(Area::Disk, "disk_read", &["rate"], Measured(measured::disk)),
    rule(Area::Tcp, "loopback_tcp", &["enough", "slow"], Measured(measured::loopback)),
];

/// The kernel settings that the rules need.
pub const SETTINGS: &[&str] = &[
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.core.default_qdisc",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_mem",
    "net.ipv4.tcp_moderate_rcvbuf",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_available_congestion_control",
    "net.ipv4.tcp_allowed_congestion_control",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_no_metrics_save",
    "net.ipv4.tcp_no_ssthresh_metrics_save",
];

/// Returns `part` of `whole` in percent.
fn percent(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64 * 100.0
}

/// Judges a kernel setting that should be on.
fn switch(host: &HostFacts, name: &str) -> FactResult<RuleJudgement> {
    Ok(if host.number(name, 0)? == 0 { problem("off") } else { fine("on") })
}
