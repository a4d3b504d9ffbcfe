//! Waits until a server listens.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::process::Process;
use crate::network::NetPath;

/// The time limit for a server to start listening.
const LIMIT: Duration = Duration::from_secs(15);

/// The result of waiting for a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Readiness {
    /// The server listens.
    Listening,
    /// The server ended.
    Ended,
    /// The time limit was reached.
    Late,
    /// The stop flag was set.
    Stopped,
}

/// Waits until a socket in the network namespace of `server` listens on TCP `port`.
///
/// The function reads the kernel's socket table of that namespace. Some servers would count a
/// connection attempt as a client.
pub(super) fn wait(
    server: &Process,
    port: u16,
    path: &mut dyn NetPath,
    stop: &AtomicBool,
) -> Readiness {
    let begun = Instant::now();
    let tables = ["tcp", "tcp6"].map(|table| format!("/proc/{}/net/{table}", server.id()));
    while begun.elapsed() < LIMIT {
        if stop.load(Ordering::Relaxed) {
            return Readiness::Stopped;
        }
        let mut here = tables.iter().filter_map(|table| fs::read_to_string(table).ok());
        if path.far_listens(port).unwrap_or_else(|| here.any(|table| has_listener(&table, port))) {
            return Readiness::Listening;
        }
        if server.has_ended() {
            return Readiness::Ended;
        }
        thread::sleep(Duration::from_millis(5));
    }
    Readiness::Late
}

/// Returns whether tables in the format of proc_pid_net(5) have a TCP listener on `port`.
pub fn has_listener(table: &str, port: u16) -> bool {
    // TCP_LISTEN of include/net/tcp_states.h.
    const LISTEN: &str = "0A";
    table.lines().any(|line| {
        let mut words = line.split_whitespace().skip(1);
        let local = words.next().and_then(|address| address.rsplit(':').next());
        let state = words.nth(1);
        let number = local.and_then(|hex| u16::from_str_radix(hex, 16).ok());
        number == Some(port) && state == Some(LISTEN)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_found_and_a_connection_is_not_one() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n\
               0: 00000000:1451 00000000:0000 0A 00000000:00000000 00:00000000\n\
               1: 0100007F:1452 0100007F:D431 01 00000000:00000000 00:00000000\n";
        assert!(has_listener(table, 0x1451));
        assert!(!has_listener(table, 0x1452));
        let six = " sl local remote st\n 0: 00000000000000000000000000000000:0016 \
                   00000000000000000000000000000000:0000 0A 0\n";
        assert!(has_listener(six, 22));
    }
}
