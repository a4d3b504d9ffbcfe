//! The settings that a network driver reports: rings, offloads, interrupts, flow control.
//!
//! The module uses the ioctl of `include/uapi/linux/ethtool.h` instead of the netlink family:
//! reading needs no privilege, and every kernel has it.

use std::io;
use std::os::fd::AsRawFd;

use socket2::{Domain, Socket, Type};

use crate::interface::request;

// include/uapi/linux/ethtool.h
const GSET: u32 = 0x01;
const GCOALESCE: u32 = 0x0e;
const GRINGPARAM: u32 = 0x10;
const GPAUSEPARAM: u32 = 0x12;
const GRXCSUM: u32 = 0x14;
const GTXCSUM: u32 = 0x16;
const GSG: u32 = 0x18;
const GTSO: u32 = 0x1e;
const GGSO: u32 = 0x23;
const GFLAGS: u32 = 0x25;
const SFLAGS: u32 = 0x26;
const GGRO: u32 = 0x2b;
const GET_TS_INFO: u32 = 0x41;
/// `ETH_FLAG_LRO`.
const FLAG_LRO: u32 = 1 << 15;

/// Returns 1 or 0 for the state of TSO, GSO, GRO, LRO, receive checksums, send checksums and
/// scatter-gather.
///
/// # Errors
/// The interface does not exist, or its driver does not report the state.
pub fn offloads(name: &str) -> io::Result<[u64; 7]> {
    let ask = |command| Ok::<_, io::Error>(u64::from(value(name, command)? != 0));
    let lro = u64::from(value(name, GFLAGS)? & FLAG_LRO != 0);
    Ok([ask(GTSO)?, ask(GGSO)?, ask(GGRO)?, lro, ask(GRXCSUM)?, ask(GTXCSUM)?, ask(GSG)?])
}

/// Returns the rate of the link in Mb/s; `None` if the driver does not know it.
///
/// # Errors
/// As for [`offloads`].
pub fn speed_megabits(name: &str) -> io::Result<Option<u32>> {
    // struct ethtool_cmd has ten numbers after the command. The low half of the speed is the first half
    // of the third number, the high half that of the seventh.
    let numbers = ask::<10>(name, GSET)?;
    let half = |at: usize| {
        let [low, high, ..] = numbers[at].to_ne_bytes();
        u32::from(u16::from_ne_bytes([low, high]))
    };
    // SPEED_UNKNOWN is -1; old drivers report its low half.
    let speed = half(2) | half(6) << 16;
    Ok(Some(speed).filter(|speed| !matches!(*speed, 0 | 0xffff | u32::MAX)))
}

/// Returns the ring sizes in packets: receive, receive maximum, send, send maximum.
///
/// # Errors
/// As for [`offloads`].
pub fn rings(name: &str) -> io::Result<[u64; 4]> {
    // struct ethtool_ringparam: the maxima for rx, mini, jumbo and tx, then the current sizes.
    let [rx_max, _, _, tx_max, rx, _, _, tx] = ask::<8>(name, GRINGPARAM)?;
    Ok([rx, rx_max, tx, tx_max].map(u64::from))
}

/// Returns whether interrupt coalescing is adaptive (1 or 0), and the delay of a receive interrupt
/// in microseconds.
///
/// # Errors
/// As for [`offloads`].
pub fn coalescing(name: &str) -> io::Result<[u64; 2]> {
    // struct ethtool_coalesce has 22 numbers after the command; rx_coalesce_usecs is the first,
    // use_adaptive_rx_coalesce the tenth.
    let numbers = ask::<22>(name, GCOALESCE)?;
    Ok([numbers[9], numbers[0]].map(u64::from))
}

/// Returns the state of flow control: 1 if the interface obeys pause frames, and 1 if it sends
/// them.
///
/// # Errors
/// As for [`offloads`].
pub fn pause(name: &str) -> io::Result<[u64; 2]> {
    // struct ethtool_pauseparam: autoneg, rx_pause, tx_pause.
    let [_, receive, send] = ask::<3>(name, GPAUSEPARAM)?;
    Ok([receive, send].map(u64::from))
}

/// Returns the fields of `struct ethtool_ts_info` after the command: the flags of `SO_TIMESTAMPING`, the
/// number of the hardware clock, the modes of departures, 3 reserved numbers, the filters of
/// arrivals, 3 reserved numbers.
///
/// # Errors
/// As for [`offloads`].
pub(crate) fn timestamps(name: &str) -> io::Result<[u32; 10]> {
    ask(name, GET_TS_INFO)
}

/// Lets the driver merge received segments without keeping their sizes (LRO), or not.
///
/// # Errors
/// As for [`offloads`], or the driver rejects the change, or `CAP_NET_ADMIN` is missing.
pub fn set_merging(name: &str, on: bool) -> io::Result<()> {
    let flags = value(name, GFLAGS)?;
    let flags = if on { flags | FLAG_LRO } else { flags & !FLAG_LRO };
    send(name, SFLAGS, [flags]).map(|_| ())
}

fn value(name: &str, command: u32) -> io::Result<u32> {
    ask::<1>(name, command).map(|[value]| value)
}

/// The command, followed by the numbers that the driver fills in.
#[repr(C)]
struct Question<const N: usize> {
    command: u32,
    numbers: [u32; N],
}

fn ask<const N: usize>(name: &str, command: u32) -> io::Result<[u32; N]> {
    send(name, command, [0; N])
}

fn send<const N: usize>(name: &str, command: u32, numbers: [u32; N]) -> io::Result<[u32; N]> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    let mut question = Question { command, numbers };
    let mut request = request(name)?;
    request.ifr_ifru.ifru_data = (&raw mut question).cast();
    // The type of a request differs between the C libraries of GNU and musl.
    #[allow(clippy::unnecessary_cast)]
    // SAFETY: the kernel reads `request` and reads or writes the structure of `command`, which has the size
    // of `question` by definition. Both live across the call.
    let code = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    if code < 0 { Err(io::Error::last_os_error()) } else { Ok(question.numbers) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_offloads_and_no_rings() {
        let [tso, gso, ..] = offloads("lo").unwrap();
        assert_eq!((tso, gso), (1, 1));
        assert_eq!(rings("lo").unwrap_err().raw_os_error(), Some(libc::EOPNOTSUPP));
        let [modes, clock, ..] = timestamps("lo").unwrap();
        assert_ne!(modes & libc::SOF_TIMESTAMPING_RX_SOFTWARE, 0);
        assert_eq!((modes & libc::SOF_TIMESTAMPING_RAW_HARDWARE, clock as i32), (0, -1));
        let missing = offloads("no-such-if").unwrap_err();
        assert_eq!(missing.raw_os_error(), Some(libc::ENODEV));
    }
}
