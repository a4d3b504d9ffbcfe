use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use super::{DiskFacts, InterfaceFacts, Seen, Unseen};
use crate::units::Bytes;

/// What was seen of a host.
#[derive(Debug, Clone)]
pub struct HostFacts {
    /// Release of the kernel.
    pub kernel: Seen<String>,
    /// Main memory.
    pub memory: Seen<Bytes>,
    /// A page of memory, in bytes.
    pub page_bytes: u64,
    /// The NUMA nodes that are online, with their CPUs; one where the kernel knows of none.
    pub nodes: BTreeMap<u32, Vec<u32>>,
    /// Kernel settings by their names in sysctl(8).
    pub settings: BTreeMap<&'static str, Seen<String>>,
    /// TCP's memory, host-wide.
    pub tcp_memory: Seen<TcpMemoryFacts>,
    /// The processors.
    pub processors: ProcessorFacts,
    /// Packets that the cores' queues dropped since the start, of all they took.
    pub core_drops: Seen<(u64, u64)>,
    /// A program that spreads interrupts by itself (`irqbalance`) runs.
    pub irqbalance: Seen<bool>,
    /// The way to the host named.
    pub path: Option<PathFacts>,
    /// The interfaces examined: those on the way, or those that were asked for.
    pub interfaces: Vec<InterfaceFacts>,
    /// Interfaces that were asked for and are not there.
    pub missing_interfaces: Vec<String>,
    /// The directories examined.
    pub disks: Vec<DiskFacts>,
    /// The clock.
    pub clock: Seen<ClockFacts>,
    /// What the kernel counts time with.
    pub clock_source: Seen<String>,
    /// How many files a process may have open.
    pub open_files: Seen<Limit>,
    /// How much memory a process may lock, in bytes.
    pub locked_memory: Seen<Limit>,
    /// What filters the packets that come in.
    pub firewall: FirewallFacts,
    /// Connections that are tracked, and how many may be.
    pub tracked_connections: Seen<(u64, u64)>,
}

impl HostFacts {
    /// A kernel setting's text.
    ///
    /// # Errors
    /// It could not be read.
    pub fn setting(&self, name: &str) -> Seen<&str> {
        match self.settings.get(name) {
            Some(Ok(text)) => Ok(text),
            Some(Err(unseen)) => Err(unseen.clone()),
            None => Err(Unseen::absent(name)),
        }
    }

    /// Number `at` of a kernel setting.
    ///
    /// # Errors
    /// It could not be read, or holds something else.
    pub fn number(&self, name: &str, at: usize) -> Seen<u64> {
        let text = self.setting(name)?;
        let number = text.split_whitespace().nth(at).and_then(|word| word.parse().ok());
        number.ok_or_else(|| Unseen::odd(name, text))
    }
}

/// TCP's memory, which all connections of a host share (`tcp_mem` in tcp(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpMemoryFacts {
    /// In use.
    pub used: Bytes,
    /// The kernel keeps every connection small at present.
    pub pressure: bool,
}

/// The processors.
#[derive(Debug, Clone)]
pub struct ProcessorFacts {
    /// The model's name.
    pub model: Seen<String>,
    /// How many are online.
    pub online: Seen<u32>,
    /// A hypervisor is beneath.
    pub virtual_machine: Seen<bool>,
    /// How many processors each frequency governor has, and the frequency driver.
    pub governors: Seen<BTreeMap<String, u32>>,
    /// The frequency driver.
    pub frequency_driver: Seen<String>,
    /// The highest frequency in kHz.
    pub highest_khz: Seen<u64>,
    /// Frequencies above the nominal one are switched off.
    pub turbo_off: Seen<bool>,
    /// The idle states of the first processor.
    pub idle_states: Seen<Vec<IdleState>>,
    /// Two threads of a core run at once.
    pub simultaneous_threads: Seen<bool>,
    /// The share of all time since the start that the hypervisor gave to others, 0 to 1.
    pub stolen: Seen<f64>,
}

/// A state in which an idle processor saves energy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdleState {
    /// Its name.
    pub name: String,
    /// How long it takes to leave it, in microseconds.
    pub exit_us: u64,
    /// It is switched off.
    pub disabled: bool,
}

/// The way to a host.
#[derive(Debug, Clone)]
pub struct PathFacts {
    /// The host as it was named.
    pub host: String,
    /// The first of its addresses.
    pub address: Seen<IpAddr>,
    /// The interface that packets to it leave by.
    pub interface: Seen<String>,
    /// The largest packet by the route, where it has a limit of its own.
    pub route_mtu: Seen<Option<u32>>,
    /// The time a connection took to open or to be refused, and whether `longhaul serve`'s port
    /// was open.
    pub answer: Seen<(Duration, bool)>,
}

/// The clock, as the kernel keeps it (adjtimex(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockFacts {
    /// Something keeps it in step with the world's.
    pub synchronised: bool,
    /// How far it may be off at most, by that.
    pub max_error: Duration,
}

/// A limit of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// In force; `None` is no limit.
    pub soft: Option<u64>,
    /// What a process may raise it to.
    pub hard: Option<u64>,
}

/// What filters the packets that come in.
#[derive(Debug, Clone)]
pub struct FirewallFacts {
    /// The chains of nftables that see packets for this host; iptables is mostly among them.
    pub chains: Seen<Vec<Chain>>,
    /// The tables of the older iptables in use.
    pub old_tables: Seen<Vec<String>>,
}

/// A chain of a firewall's rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// `inet`, `ip` or `ip6`.
    pub family: String,
    /// The table it is in.
    pub table: String,
    /// Its name.
    pub name: String,
    /// What no rule decides is dropped.
    pub drops: bool,
    /// How many rules it has.
    pub rules: u32,
}
