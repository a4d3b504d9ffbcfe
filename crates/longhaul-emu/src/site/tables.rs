//! Reads a site's tables in `/proc/net`: packets dropped by interfaces, and listening sockets.

use std::fs::File;
use std::io;

/// The tables of the namespace. They are opened before `/proc` shows another PID namespace, in
/// which the site's thread has no entry.
#[derive(Debug)]
pub(super) struct Tables {
    devices: File,
    sockets: Vec<File>,
}

impl Tables {
    /// Opens the tables of the calling thread's network namespace.
    pub(super) fn open() -> io::Result<Tables> {
        let open = |name| File::open(format!("/proc/thread-self/net/{name}"));
        let sockets = ["tcp", "tcp6", "udp", "udp6"].into_iter().filter_map(|name| open(name).ok());
        Ok(Tables { devices: open("dev")?, sockets: sockets.collect() })
    }

    /// Returns the packets that interface `name` dropped because its ring was full.
    ///
    /// # Errors
    /// The table cannot be read.
    pub(super) fn device_drops(&self, name: &str) -> io::Result<u64> {
        // If a program in the site deleted the interface, its counters no longer exist.
        Ok(device_drops(&reread(&self.devices)?, name).unwrap_or(0))
    }

    /// Returns whether any socket of the site listens for connections or is bound for datagrams.
    pub(super) fn has_listener(&self) -> bool {
        self.sockets.iter().any(|table| reread(table).is_ok_and(|text| has_listener(&text)))
    }
}

/// Returns the transmit-drop column of an interface's row in `/proc/net/dev`.
fn device_drops(table: &str, name: &str) -> Option<u64> {
    let row =
        table.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'))?;
    // The columns are eight for receiving, then bytes, packets, errs and drop for sending.
    row.split_whitespace().nth(11)?.parse().ok()
}

/// Returns whether a table like `/proc/net/tcp` or `/proc/net/udp` has a socket that waits for a
/// peer.
fn has_listener(table: &str) -> bool {
    // include/net/tcp_states.h: TCP_LISTEN, and TCP_CLOSE for an unconnected UDP socket. A closed
    // TCP socket is in no table.
    table.lines().skip(1).any(|row| matches!(row.split_whitespace().nth(3), Some("0A" | "07")))
}

/// Returns the current content of an open table.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_drops_of_the_link() {
        let table = "Inter-|   Receive  |  Transmit\n\
             face |bytes packets errs drop fifo frame compressed multicast|bytes packets ...\n\
             \x20   lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n\
             \x20wan10: 1 2 3 4 5 6 7 8 9 10 11 77 13 14 15 16\n\
             \x20 wan1: 1 2 3 4 5 6 7 8 9 10 11 99 13 14 15 16\n";
        assert_eq!(device_drops(table, "wan1"), Some(99));
        assert_eq!(device_drops(table, "wan10"), Some(77));
        assert_eq!(device_drops("no such row", "wan1"), None);
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
