//! The table of rules, and functions that several areas share.

mod disk;
mod interface;
mod interrupts;
mod measured;
mod path;
mod pcie;
mod processor;
mod system;
mod tcp;
mod windows;

use super::Rule;
use crate::result::Area;

use super::Judge::{Bus, Disk, Host, Interface, Measured, Path};

const fn rule(area: Area, name: &'static str, title: &'static str, judge: super::Judge) -> Rule {
    Rule { name, area, title, judge }
}

/// All rules, in the order of the findings.
pub const RULES: &[Rule] = &[
    rule(Area::Path, "path_route", "the route to the host", Path(path::route)),
    rule(Area::Path, "path_answer", "the round-trip time to the host", Path(path::answer)),
    rule(Area::Path, "path_mtu", "the route's MTU", Path(path::route_mtu)),
    rule(Area::Windows, "tcp_rmem", "receive buffers, autotuned", Host(windows::autotuned_receive)),
    rule(Area::Windows, "tcp_wmem", "send buffers, autotuned", Host(windows::autotuned_send)),
    rule(Area::Windows, "rmem_max", "receive buffers, requested", Host(windows::asked_receive)),
    rule(Area::Windows, "wmem_max", "send buffers, requested", Host(windows::asked_send)),
    rule(
        Area::Windows,
        "tcp_moderate_rcvbuf",
        "autotuning of receive buffers",
        Host(windows::autotuning),
    ),
    rule(Area::Windows, "tcp_window_scaling", "windows over 64 KiB", Host(windows::scaling)),
    rule(Area::Windows, "tcp_mem", "memory for all of TCP", Host(windows::host_wide)),
    rule(Area::Windows, "tcp_memory_now", "TCP's memory in use", Host(windows::pressure)),
    rule(Area::Tcp, "congestion", "congestion control", Host(tcp::congestion)),
    rule(Area::Tcp, "bbr_available", "BBR, for lossy paths", Host(tcp::bbr)),
    rule(Area::Tcp, "tcp_sack", "selective acknowledgements", Host(tcp::sack)),
    rule(Area::Tcp, "tcp_timestamps", "time stamps", Host(tcp::timestamps)),
    rule(Area::Tcp, "tcp_mtu_probing", "path MTU probing", Host(tcp::mtu_probing)),
    rule(
        Area::Tcp,
        "tcp_slow_start_after_idle",
        "slow start after a pause",
        Host(tcp::slow_start_after_idle),
    ),
    rule(Area::Tcp, "tcp_no_metrics_save", "metrics of earlier connections", Host(tcp::metrics)),
    rule(Area::Tcp, "default_qdisc", "queueing of new interfaces", Host(tcp::default_queueing)),
    rule(Area::Interface, "interface_there", "the requested interfaces", Host(interface::there)),
    rule(Area::Interface, "state", "state", Interface(interface::state)),
    rule(Area::Interface, "speed", "rate", Interface(interface::speed)),
    rule(Area::Interface, "mtu", "largest packet", Interface(interface::mtu)),
    rule(Area::Interface, "queueing", "queueing and pacing", Interface(interface::queueing)),
    rule(Area::Interface, "offloads", "offloads", Interface(interface::offloads)),
    rule(Area::Interface, "rings", "rings", Interface(interface::rings)),
    rule(Area::Interface, "missed", "packets lost in this host", Interface(interface::missed)),
    rule(Area::Interface, "coalescing", "interrupt coalescing", Interface(interface::coalescing)),
    rule(Area::Interface, "pause", "flow control with the switch", Interface(interface::pause)),
    rule(Area::Pcie, "pcie_rate", "theoretical maximum", Bus(pcie::rate)),
    rule(Area::Pcie, "pcie_link", "width and generation", Bus(pcie::link)),
    rule(Area::Pcie, "pcie_payload", "MaxPayload", Bus(pcie::payload)),
    rule(Area::Pcie, "pcie_read_request", "MaxReadReq", Bus(pcie::read_request)),
    rule(Area::Pcie, "iommu", "address translation", Bus(pcie::translation)),
    rule(Area::Interrupts, "interrupt_spread", "CPUs of the queues", Interface(interrupts::spread)),
    rule(
        Area::Interrupts,
        "interrupt_node",
        "NUMA node of the queues",
        Interface(interrupts::node),
    ),
    rule(Area::Interrupts, "irqbalance", "interrupt placement", Host(interrupts::irqbalance)),
    rule(Area::Interrupts, "core_drops", "queues of the cores", Host(interrupts::core_drops)),
    rule(Area::Processor, "governor", "frequency governor", Host(processor::governor)),
    rule(Area::Processor, "turbo", "turbo frequencies", Host(processor::turbo)),
    rule(Area::Processor, "idle_states", "idle states", Host(processor::idle_states)),
    rule(Area::Processor, "threads_of_cores", "two threads per core", Host(processor::threads)),
    rule(Area::Processor, "frequency", "highest frequency", Host(processor::frequency)),
    rule(Area::Processor, "stolen", "time taken by the hypervisor", Host(processor::stolen)),
    rule(Area::Disk, "file_system", "file system", Disk(disk::file_system)),
    rule(Area::Disk, "room", "room", Disk(disk::room)),
    rule(Area::Disk, "direct_io", "direct I/O", Disk(disk::direct_io)),
    rule(Area::Disk, "scheduler", "I/O scheduler", Disk(disk::scheduler)),
    rule(Area::Disk, "read_ahead", "read-ahead", Disk(disk::read_ahead)),
    rule(Area::Disk, "disk_node", "NUMA node", Disk(disk::node)),
    rule(Area::System, "clock", "clock", Host(system::clock)),
    rule(Area::System, "clock_source", "clock source", Host(system::clock_source)),
    rule(Area::System, "open_files", "open files", Host(system::open_files)),
    rule(Area::System, "locked_memory", "locked memory", Host(system::locked_memory)),
    rule(Area::System, "firewall", "firewall", Host(system::firewall)),
    rule(Area::System, "firewall_old", "firewall, older iptables", Host(system::old_firewall)),
    rule(Area::System, "tracked_connections", "tracked connections", Host(system::tracked)),
    rule(Area::Processor, "memory_copy", "memory, measured", Measured(measured::core)),
    rule(Area::Processor, "blake3", "digests, measured", Measured(measured::core)),
    rule(Area::Processor, "xxh3", "verification, measured", Measured(measured::core)),
    rule(Area::Processor, "aes_256_gcm", "encryption, measured", Measured(measured::core)),
    rule(Area::Disk, "disk_write", "writing, measured", Measured(measured::disk)),
    rule(Area::Disk, "disk_read", "reading, measured", Measured(measured::disk)),
    rule(Area::Tcp, "loopback_tcp", "TCP in this host, measured", Measured(measured::loopback)),
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

/// Formats `part` of `whole` in percent with significant digits.
fn percent(part: u64, whole: u64) -> String {
    let share = part as f64 / whole.max(1) as f64 * 100.0;
    if share >= 0.1 { format!("{share:.1} %") } else { format!("{share:.1e} %") }
}
