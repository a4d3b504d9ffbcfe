//! Counters of a network namespace: the TCP segments, and the drops of the host's queues.

use super::{counter, number, read};

/// The packets that this host dropped since boot. The counts are those of the calling thread's
/// network namespace, except for `cores`, which is for the whole host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Drops {
    /// Dropped by TCP sockets for lack of space: backlog, receive queue, zero window.
    pub tcp: u64,
    /// Received TCP data that were pruned for lack of memory.
    pub tcp_pruned: u64,
    /// Dropped by UDP sockets because their buffers were full.
    pub udp: u64,
    /// Received and outgoing packets dropped by interfaces, including errors.
    pub interfaces: u64,
    /// Dropped by the receive queues of the cores (`net.core.netdev_max_backlog`).
    pub cores: u64,
}

/// Reads the counters.
pub fn drops() -> Drops {
    let netstat = read("/proc/thread-self/net/netstat");
    let tcp = |names: &[&str]| names.iter().map(|name| counter(&netstat, "TcpExt", name)).sum();
    let snmp = read("/proc/thread-self/net/snmp");
    let snmp6 = read("/proc/thread-self/net/snmp6");
    Drops {
        tcp: tcp(&["TCPBacklogDrop", "TCPRcvQDrop", "TCPZeroWindowDrop"]),
        tcp_pruned: tcp(&["RcvPruned", "OfoPruned"]),
        udp: counter(&snmp, "Udp", "RcvbufErrors")
            + counter(&snmp, "Udp", "SndbufErrors")
            + udp6_errors(&snmp6),
        interfaces: interfaces(&read("/proc/thread-self/net/dev")),
        cores: cores(&read("/proc/thread-self/net/softnet_stat")),
    }
}

fn udp6_errors(text: &str) -> u64 {
    let wanted = |line: &&str| {
        matches!(line.split(' ').next(), Some("Udp6RcvbufErrors" | "Udp6SndbufErrors"))
            || line.starts_with("Udp6RcvbufErrors\t")
            || line.starts_with("Udp6SndbufErrors\t")
    };
    text.lines().filter(wanted).map(|line| number(line, 1)).sum()
}

/// Sums errors and drops in `/proc/net/dev`: columns 3 and 4 for receiving, 11 and 12 for sending.
fn interfaces(text: &str) -> u64 {
    let of_line = |line: &str| -> Option<u64> {
        let (_, counts) = line.split_once(':')?;
        Some([2, 3, 10, 11].map(|at| number(counts, at)).iter().sum())
    };
    text.lines().filter_map(of_line).sum()
}

/// Sums the second column of `/proc/net/softnet_stat`, in hexadecimal, one line per core
/// (net/core/net-procfs.c).
fn cores(text: &str) -> u64 {
    let dropped = |line: &str| u64::from_str_radix(line.split_ascii_whitespace().nth(1)?, 16).ok();
    text.lines().filter_map(dropped).sum()
}

/// The TCP segments of the calling thread's network namespace since its creation (`/proc/net/snmp`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TcpCounters {
    /// The segments received, including those with errors.
    pub segments_in: u64,
    /// The segments sent, without retransmissions.
    pub segments_out: u64,
    /// The segments retransmitted.
    pub retransmits: u64,
    /// The number of connections that are established now.
    pub established: u64,
}

/// Reads the counters.
pub fn tcp_counters() -> TcpCounters {
    parse(&read("/proc/thread-self/net/snmp"))
}

fn parse(text: &str) -> TcpCounters {
    let tcp = |name: &str| counter(text, "Tcp", name);
    TcpCounters {
        segments_in: tcp("InSegs"),
        segments_out: tcp("OutSegs"),
        retransmits: tcp("RetransSegs"),
        established: tcp("CurrEstab"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_of_interfaces_and_cores_add_up() {
        let dev = "Inter-|   Receive                |  Transmit\n face |bytes packets errs drop\n\
                   \x20   lo: 10 1 1 2 0 0 0 0 10 1 0 3 0 0 0 0\n\
                   eth0:900 9 4 0 0 0 0 0 10 1 5 0 0 0 0 0\n";
        assert_eq!(interfaces(dev), 15);
        assert_eq!(cores("0000ffff 0000000a 00000001\n00000001 00000010 00000000\n"), 26);
    }

    #[test]
    fn both_families_of_udp_count() {
        let text = "Udp6InDatagrams                 \t5\nUdp6RcvbufErrors                \t7\n\
                    Udp6SndbufErrors \t2\nUdpLite6RcvbufErrors \t9\n";
        assert_eq!(udp6_errors(text), 9);
    }

    #[test]
    fn counters_only_grow() {
        let (before, after) = (drops(), drops());
        assert!(after.interfaces >= before.interfaces && after.tcp >= before.tcp);
    }

    #[test]
    fn counters_are_found_by_their_names() {
        let text =
            "Ip: InReceives\nIp: 9\nTcp: CurrEstab InSegs OutSegs RetransSegs\nTcp: 2 100 90 3\n";
        let expected =
            TcpCounters { segments_in: 100, segments_out: 90, retransmits: 3, established: 2 };
        assert_eq!(parse(text), expected);
        assert_eq!(parse(""), TcpCounters::default());
    }
}
