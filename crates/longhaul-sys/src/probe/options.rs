use std::io;
use std::os::fd::AsFd;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::socket_option::set;

/// Makes `socket` one for probes: what it sends is never fragmented, whatever the kernel believes
/// of the path (`IP_PMTUDISC_PROBE`), so that a packet larger than the interface's MTU fails with
/// `EMSGSIZE`; what routers report is kept for [`receive_report`](super::receive_report)
/// (`IP_RECVERR`); arrivals carry their time and what is left of their hop limit.
///
/// # Errors
/// The kernel refuses an option.
pub fn prepare(socket: impl AsFd, ipv6: bool) -> io::Result<()> {
    let options: &[_] = match ipv6 {
        false => &[
            (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE),
            (libc::IPPROTO_IP, libc::IP_RECVERR, 1),
            (libc::IPPROTO_IP, libc::IP_RECVTTL, 1),
        ],
        true => &[
            (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE),
            // Without it what is larger than the interface's MTU is fragmented at home
            // (__ip6_append_data(), net/ipv6/ip6_output.c).
            (libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, 1),
            (libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1),
            (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, 1),
        ],
    };
    for (level, name, value) in options {
        set(&socket, *level, *name, *value)?;
    }
    set(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
}

/// The time on the clock of arrivals, `CLOCK_REALTIME`, in nanoseconds.
pub fn now_nanos() -> u64 {
    // A clock before 1970 is none; nobody compares with it.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}
