//! Waits until a server listens.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::process::Process;
use crate::drivers::ServerCommand;
use crate::network::NetPath;

/// The time limit for a server to start listening. The grace period of NFS takes 10 s, and on
/// an emulated processor a start over ssh took more than 15 s.
const LIMIT: Duration = Duration::from_secs(60);

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

/// The signs of a ready server.
#[derive(Debug)]
pub(super) struct ReadySigns {
    port: u16,
    udp: bool,
    file: Option<PathBuf>,
}

impl ReadySigns {
    pub(super) fn of(server: &ServerCommand) -> Self {
        ReadySigns { port: server.port, udp: server.udp, file: server.ready.clone() }
    }

    /// Returns the sign of a server that only has to listen on a TCP port.
    pub(super) fn port(port: u16) -> Self {
        ReadySigns { port, udp: false, file: None }
    }

    fn is_met(&self, server: &Process, path: &mut dyn NetPath) -> bool {
        if self.file.as_ref().is_some_and(|file| !file.exists()) {
            return false;
        }
        if !self.udp
            && let Some(listens) = path.far_listens(self.port)
        {
            return listens;
        }
        let names = if self.udp { ["udp", "udp6"] } else { ["tcp", "tcp6"] };
        let tables = names.map(|name| format!("/proc/{}/net/{name}", server.id()));
        let state = if self.udp { UDP_BOUND } else { TCP_LISTEN };
        let mut here = tables.iter().filter_map(|table| fs::read_to_string(table).ok());
        here.any(|table| has_socket(&table, self.port, state))
    }
}

/// Waits until a socket in the network namespace of `server` listens on its port, and until its
/// file exists.
///
/// The function reads the kernel's socket table of that namespace. Some servers would count a
/// connection attempt as a client.
pub(super) fn wait(
    server: &Process,
    awaited: &ReadySigns,
    path: &mut dyn NetPath,
    stop: &AtomicBool,
) -> Readiness {
    let begun = Instant::now();
    while begun.elapsed() < LIMIT {
        if stop.load(Ordering::Relaxed) {
            return Readiness::Stopped;
        }
        let asked = Instant::now();
        if awaited.is_met(server, path) {
            return Readiness::Listening;
        }
        if server.has_ended() {
            return Readiness::Ended;
        }
        // A question over ssh takes time from a server that starts on the same processor.
        thread::sleep(asked.elapsed().max(Duration::from_millis(5)));
    }
    Readiness::Late
}

/// TCP_LISTEN of include/net/tcp_states.h.
const TCP_LISTEN: &str = "0A";
/// TCP_CLOSE, the state of a UDP socket without a peer.
const UDP_BOUND: &str = "07";

/// Returns whether tables in the format of proc_pid_net(5) have a TCP listener on `port`.
pub fn has_listener(table: &str, port: u16) -> bool {
    has_socket(table, port, TCP_LISTEN)
}

/// Returns whether tables have a socket on `port` in this state.
fn has_socket(table: &str, port: u16, wanted: &str) -> bool {
    table.lines().any(|line| {
        let mut words = line.split_whitespace().skip(1);
        let local = words.next().and_then(|address| address.rsplit(':').next());
        let state = words.nth(1);
        let number = local.and_then(|hex| u16::from_str_radix(hex, 16).ok());
        number == Some(port) && state == Some(wanted)
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
        let udp = "  sl  local_address rem_address   st\n 1: 00000000:1452 00000000:0000 07 0\n";
        assert!(has_socket(udp, 0x1452, UDP_BOUND) && !has_listener(udp, 0x1452));
        let six = " sl local remote st\n 0: 00000000000000000000000000000000:0016 \
                   00000000000000000000000000000000:0000 0A 0\n";
        assert!(has_listener(six, 22));
    }
}
