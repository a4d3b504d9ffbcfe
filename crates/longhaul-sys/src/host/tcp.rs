//! Counters of all TCP connections of a network namespace.

use super::text::{counter, read};

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
    fn counters_are_found_by_their_names() {
        let text =
            "Ip: InReceives\nIp: 9\nTcp: CurrEstab InSegs OutSegs RetransSegs\nTcp: 2 100 90 3\n";
        let expected =
            TcpCounters { segments_in: 100, segments_out: 90, retransmits: 3, established: 2 };
        assert_eq!(parse(text), expected);
        assert_eq!(parse(""), TcpCounters::default());
    }
}
