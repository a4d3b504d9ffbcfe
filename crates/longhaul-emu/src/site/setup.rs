//! Turns the calling thread into a site, step by step.

use std::fs::{self, File};
use std::io;

use longhaul_core::plan::Side;
use longhaul_sys::interface::Interface;
use longhaul_sys::namespace::{self, Init};
use longhaul_sys::tun::Tun;
use rustix::mount::MountFlags;

use super::thread::SiteSpec;
use super::{names, windows};
use crate::EmuError;
use crate::privilege::{namespaces_error, tun_error};

/// The name of the link's device at each site.
const INTERFACE: &str = "wan0";

/// Super-packets that wait for the emulator before the device drops. The default of 500 is half a
/// millisecond of acknowledgements; a place costs eight bytes.
const RING: u32 = 8192;

/// What a site consists of while its thread lives.
#[derive(Debug)]
pub(super) struct Furnished {
    pub(super) tun: Tun,
    pub(super) init: Init,
    pub(super) tables: Tables,
    pub(super) windows_set: bool,
}

/// The namespace's tables, opened before `/proc` shows another PID namespace, in which this
/// thread has no entry of its own.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) devices: File,
    pub(super) sockets: Vec<File>,
}

/// Moves the calling thread into new namespaces and furnishes them.
///
/// # Errors
/// The step that failed; what was made until then goes with the thread.
pub(super) fn furnish(spec: &SiteSpec) -> Result<Furnished, EmuError> {
    let step = |operation| move |source| EmuError::Site { operation, side: spec.side, source };
    namespace::enter_site_namespaces().map_err(namespaces_error)?;
    let tables = open_tables().map_err(step("open the network tables"))?;
    let tun = Tun::create(INTERFACE).map_err(tun_error)?;
    let init = Init::start().map_err(step("start the first process"))?;
    // Best effort, as for /proc: containers may forbid it, and few tools look there.
    let no_programs = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let _ = rustix::mount::mount("sysfs", "/sys", "sysfs", no_programs, None);
    quiet_ipv6();
    configure(spec).map_err(step("configure the network"))?;
    names::install(&spec.addresses).map_err(step("install /etc/hosts"))?;
    open_ping();
    // A figure must not depend on what an earlier connection learnt of the path.
    let _ = fs::write("/proc/sys/net/ipv4/tcp_no_metrics_save", "1");
    let windows_set = windows::install(spec.windows).is_ok();
    Ok(Furnished { tun, init, tables, windows_set })
}

fn open_tables() -> io::Result<Tables> {
    let open = |name| File::open(format!("/proc/thread-self/net/{name}"));
    let sockets = ["tcp", "tcp6", "udp", "udp6"].into_iter().filter_map(|name| open(name).ok());
    Ok(Tables { devices: open("dev")?, sockets: sockets.collect() })
}

fn configure(spec: &SiteSpec) -> io::Result<()> {
    let loopback = Interface::named("lo")?;
    loopback.up()?;
    let link = Interface::named(INTERFACE)?;
    link.set_mtu(spec.mtu)?;
    link.set_queue_length(RING)?;
    for (side, address) in spec.addresses {
        if side == spec.side {
            link.set_address(address, SiteSpec::PREFIX)?;
        }
    }
    link.up()
}

/// The link speaks IPv4; without addresses, IPv6 would only send its discovery packets.
fn quiet_ipv6() {
    for scope in ["all", "default"] {
        let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6"), "1");
    }
}

/// Lets `ping` work without privilege. In a user namespace only mapped groups may be named.
fn open_ping() {
    const FILE: &str = "/proc/sys/net/ipv4/ping_group_range";
    let own = rustix::process::getegid().as_raw();
    if fs::write(FILE, "0 2147483647").is_err() {
        let _ = fs::write(FILE, format!("{own} {own}"));
    }
}

impl Tables {
    /// Packets the link's device dropped because its ring was full.
    pub(super) fn device_drops(&self) -> io::Result<u64> {
        let text = reread(&self.devices)?;
        device_drops(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Whether any socket of the site listens for connections or is bound for datagrams.
    pub(super) fn has_listener(&self) -> bool {
        self.sockets.iter().any(|table| reread(table).is_ok_and(|text| has_listener(&text)))
    }
}

/// The transmit-drop column of the link's row in `/proc/net/dev`.
fn device_drops(table: &str) -> Option<u64> {
    let row = table.lines().find_map(|line| line.trim_start().strip_prefix(INTERFACE))?;
    let row = row.strip_prefix(':')?;
    // Eight columns of receiving, then bytes, packets, errs and drop of sending.
    row.split_whitespace().nth(11)?.parse().ok()
}

/// Whether a table like `/proc/net/tcp` or `/proc/net/udp` has a socket that waits for a peer.
fn has_listener(table: &str) -> bool {
    // include/net/tcp_states.h: TCP_LISTEN, and TCP_CLOSE for an unconnected UDP socket; a closed
    // TCP socket is in no table.
    table.lines().skip(1).any(|row| matches!(row.split_whitespace().nth(3), Some("0A" | "07")))
}

/// The present content of a table that stays open.
fn reread(table: &File) -> io::Result<String> {
    use std::os::unix::fs::FileExt;
    let mut text = Vec::new();
    let mut part = [0; 4096];
    loop {
        match table.read_at(&mut part, text.len() as u64)? {
            0 => return Ok(String::from_utf8_lossy(&text).into_owned()),
            length => text.extend_from_slice(&part[..length]),
        }
    }
}

/// The environment that tells a command where the sites are.
pub(super) fn environment(spec: &SiteSpec) -> impl Iterator<Item = (&'static str, String)> {
    spec.addresses.iter().map(|(side, address)| {
        let name = match side {
            Side::Near => "LONGHAUL_NEAR",
            Side::Far => "LONGHAUL_FAR",
        };
        (name, address.to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_drops_of_the_link() {
        let table = "Inter-|   Receive  |  Transmit\n\
             face |bytes packets errs drop fifo frame compressed multicast|bytes packets ...\n\
             \x20   lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n\
             \x20 wan0: 1 2 3 4 5 6 7 8 9 10 11 99 13 14 15 16\n";
        assert_eq!(device_drops(table), Some(99));
        assert_eq!(device_drops("no such row"), None);
    }

    #[test]
    fn tells_a_listener_from_a_connection() {
        let row =
            |state| format!("  sl  local rem st\n   0: 00000000:1451 00000000:0000 {state}\n");
        assert!(has_listener(&row("0A")));
        assert!(has_listener(&row("07")));
        assert!(!has_listener(&row("01")));
        assert!(!has_listener("  sl  local rem st\n"));
    }
}
