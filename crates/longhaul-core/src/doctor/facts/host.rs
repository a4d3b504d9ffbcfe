//! Facts about a host.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use super::{DiskFacts, FactResult, InterfaceFacts, UnknownFact};
use crate::units::Bytes;

/// The facts of a host.
#[derive(Debug, Clone)]
pub struct HostFacts {
    /// The release of the kernel.
    pub kernel: FactResult<String>,
    /// The size of main memory.
    pub memory: FactResult<Bytes>,
    /// The size of a memory page in bytes.
    pub page_bytes: u64,
    /// The online NUMA nodes with their CPUs; one if the kernel reports none.
    pub nodes: BTreeMap<u32, Vec<u32>>,
    /// Kernel settings by their sysctl(8) names.
    pub settings: BTreeMap<&'static str, FactResult<String>>,
    /// The memory of TCP, host-wide.
    pub tcp_memory: FactResult<TcpMemoryFacts>,
    /// The processors.
    pub processors: ProcessorFacts,
    /// The number of packets that the cores' receive queues dropped since boot, and of all packets.
    pub core_drops: FactResult<(u64, u64)>,
    /// True if irqbalance, which moves interrupts, is running.
    pub irqbalance: FactResult<bool>,
    /// The path to the host that the user named.
    pub path: Option<PathFacts>,
    /// The examined interfaces: those on the path or those requested.
    pub interfaces: Vec<InterfaceFacts>,
    /// Requested interfaces that do not exist.
    pub missing_interfaces: Vec<String>,
    /// The examined directories.
    pub disks: Vec<DiskFacts>,
    /// The clock.
    pub clock: FactResult<ClockFacts>,
    /// The kernel's clock source.
    pub clock_source: FactResult<String>,
    /// The limit of open files per process.
    pub open_files: FactResult<ResourceLimit>,
    /// The limit of locked memory per process, in bytes.
    pub locked_memory: FactResult<ResourceLimit>,
    /// The packet filters for incoming packets.
    pub firewall: FirewallFacts,
    /// The number of tracked connections and its maximum.
    pub tracked_connections: FactResult<(u64, u64)>,
}

impl HostFacts {
    /// Returns the text of a kernel setting.
    ///
    /// # Errors
    /// The setting could not be read.
    pub fn setting(&self, name: &str) -> FactResult<&str> {
        match self.settings.get(name) {
            Some(Ok(text)) => Ok(text),
            Some(Err(unseen)) => Err(unseen.clone()),
            None => Err(UnknownFact::absent(name)),
        }
    }

    /// Returns number `at` of a kernel setting.
    ///
    /// # Errors
    /// The setting could not be read or is not a number.
    pub fn number(&self, name: &str, at: usize) -> FactResult<u64> {
        let text = self.setting(name)?;
        let number = text.split_whitespace().nth(at).and_then(|word| word.parse().ok());
        number.ok_or_else(|| UnknownFact::not_understood(name, text))
    }
}

/// TCP's memory, shared by all connections of a host (`tcp_mem` in tcp(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpMemoryFacts {
    /// The memory in use.
    pub used: Bytes,
    /// True while the kernel limits the buffers of all connections.
    pub pressure: bool,
}

/// Facts about the processors.
#[derive(Debug, Clone)]
pub struct ProcessorFacts {
    /// The name of the model.
    pub model: FactResult<String>,
    /// The number of online processors.
    pub online: FactResult<u32>,
    /// True if the host is a virtual machine.
    pub virtual_machine: FactResult<bool>,
    /// The number of processors per frequency governor.
    pub governors: FactResult<BTreeMap<String, u32>>,
    /// The frequency driver.
    pub frequency_driver: FactResult<String>,
    /// The highest frequency in kHz.
    pub highest_khz: FactResult<u64>,
    /// True if frequencies above the nominal one are disabled.
    pub turbo_off: FactResult<bool>,
    /// The idle states of the first processor.
    pub idle_states: FactResult<Vec<IdleState>>,
    /// True if two threads share each core.
    pub simultaneous_threads: FactResult<bool>,
    /// The share of time since boot that the hypervisor took, 0 to 1.
    pub stolen: FactResult<f64>,
}

/// A state in which an idle processor saves energy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdleState {
    /// The name of the state.
    pub name: String,
    /// The exit latency in microseconds.
    pub exit_us: u64,
    /// True if the state is disabled.
    pub disabled: bool,
}

/// Facts about the path to a host.
#[derive(Debug, Clone)]
pub struct PathFacts {
    /// The host as the user named it.
    pub host: String,
    /// The first address of the host.
    pub address: FactResult<IpAddr>,
    /// The outgoing interface.
    pub interface: FactResult<String>,
    /// The MTU of the route, if the route has one.
    pub route_mtu: FactResult<Option<u32>>,
    /// The time until a connection opened or was refused, and whether the port of `longhaul serve`
    /// was open.
    pub answer: FactResult<(Duration, bool)>,
}

/// The state of the kernel's clock (adjtimex(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockFacts {
    /// True if a program synchronizes the clock.
    pub synchronised: bool,
    /// The largest error of the clock, as that program states it.
    pub max_error: Duration,
}

/// A resource limit of a process (getrlimit(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceLimit {
    /// The current limit; `None` means unlimited.
    pub soft: Option<u64>,
    /// The value to which a process may raise the limit; `None` means unlimited.
    pub hard: Option<u64>,
}

/// The filters of incoming packets.
#[derive(Debug, Clone)]
pub struct FirewallFacts {
    /// The nftables chains for incoming packets; they usually include those of iptables.
    pub chains: FactResult<Vec<Chain>>,
    /// The tables of legacy iptables in use.
    pub old_tables: FactResult<Vec<String>>,
}

/// A chain of firewall rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// `inet`, `ip` or `ip6`.
    pub family: String,
    /// The table of the chain.
    pub table: String,
    /// The name of the chain.
    pub name: String,
    /// True if the policy of the chain is to drop.
    pub drops: bool,
    /// The number of rules.
    pub rules: u32,
}
