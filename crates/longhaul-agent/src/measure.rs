//! The permanent measurements of an agent: samples of its host, STAMP, and the facts about its host.

mod rows;
mod samples;
mod stamp;

pub(crate) use samples::Samples;
pub(crate) use stamp::measure_peers;

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use longhaul_fleet::protocol::{DeclaredCapacity, InterfaceAddress, MAX_ADDRESSES, MAX_NAME_BYTES};
use serde_json::Value;

use crate::run::{ChildOutcome, run_child};

/// The time between two examinations of the host.
pub(crate) const FACTS_INTERVAL: Duration = Duration::from_secs(6 * 3600);
/// The longest wait for the capacity before the first examination.
pub(crate) const CAPACITY_WAIT: Duration = Duration::from_secs(5);
/// The longest time of an examination.
const LIMIT: Duration = Duration::from_secs(120);

/// Returns the document of `longhaul doctor --json` for a rate and an interface; `None` if it fails.
pub(crate) fn read_facts(
    program: &Path,
    state: &Path,
    capacity: Option<&DeclaredCapacity>,
    stop: &AtomicBool,
) -> Option<Value> {
    let mut command = std::process::Command::new(program);
    command.args(["doctor", "--json", "--disk"]).arg(state);
    if let Some(capacity) = capacity {
        command.arg(format!("--rate={}", capacity.capacity_bps.bps()));
        let own = |name: &&String| host_addresses().iter().any(|one| one.interface == **name);
        if let Some(interface) = capacity.interface.as_ref().filter(own) {
            command.arg(format!("--interface={interface}"));
        }
    }
    let outcome = run_child(command, Instant::now() + LIMIT, &|| {
        stop.load(std::sync::atomic::Ordering::Relaxed)
    });
    match outcome {
        Ok(ChildOutcome::Ended { output, .. }) => serde_json::from_slice(&output).ok(),
        _ => None,
    }
}

/// Returns the addresses of the interfaces, except those of the loopback interface and of links.
pub(crate) fn host_addresses() -> Vec<InterfaceAddress> {
    let far = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local(),
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local(),
    };
    // Without a list the hub knows only the names of the interfaces.
    let all = longhaul_sys::topology::interface_addresses().unwrap_or_default();
    let found = all.into_iter().filter(|(name, ip)| far(ip) && name.len() <= MAX_NAME_BYTES);
    let found = found.map(|(interface, address)| InterfaceAddress { interface, address });
    found.take(MAX_ADDRESSES).collect()
}

/// Returns the free bytes of the file system of `path`, and the resident bytes of this process.
pub(crate) fn host_state(path: &Path) -> (u64, u64) {
    let free = rustix::fs::statvfs(path).map_or(0, |stat| stat.f_bavail * stat.f_frsize);
    let page = rustix::param::page_size() as u64;
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    // The second field is the number of resident pages (proc_pid_statm(5)).
    let pages = statm.split_whitespace().nth(1).and_then(|field| field.parse::<u64>().ok());
    (free, pages.unwrap_or(0) * page)
}
