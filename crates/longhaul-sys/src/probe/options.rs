//! Socket options of path probes.

use std::io;
use std::os::fd::AsFd;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::socket_option::set;

/// Prepares `socket` for probes. Its packets are never fragmented, whatever path MTU the kernel
/// assumes (`IP_PMTUDISC_PROBE`), so a packet larger than the interface's MTU fails with
/// `EMSGSIZE`. ICMP errors are kept for [`receive_report`](super::receive_report) (`IP_RECVERR`).
/// Arrivals have a time stamp and their remaining hop limit.
///
/// # Errors
/// The kernel refuses an option.
pub fn prepare(socket: impl AsFd, ipv6: bool) -> io::Result<()> {
    let options: &[_] = if ipv6 {
        &[
            (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE),
            // Otherwise this host fragments packets larger than the interface's MTU
            // (__ip6_append_data(), net/ipv6/ip6_output.c).
            (libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, 1),
            (libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1),
            (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, 1),
        ]
    } else {
        &[
            (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE),
            (libc::IPPROTO_IP, libc::IP_RECVERR, 1),
            (libc::IPPROTO_IP, libc::IP_RECVTTL, 1),
        ]
    };
    for (level, name, value) in options {
        set(&socket, *level, *name, *value)?;
    }
    set(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
}

/// Returns the time of `CLOCK_REALTIME`, the clock of arrivals, in nanoseconds.
pub fn now_nanos() -> u64 {
    // A clock before 1970 is invalid; nobody compares with it.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}
