//! TCP memory and limits of socket buffers.

use std::path::Path;

use super::{number, read};

/// TCP's memory, shared by all namespaces of the host (`tcp_mem` in tcp(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TcpMemory {
    /// The bytes in use.
    pub used_bytes: u64,
    /// The threshold from which the kernel reduces every connection's buffers; 0 if unreadable, as
    /// in every network namespace except the first.
    pub pressure_bytes: u64,
    /// True while the kernel reduces buffers.
    pub pressure: bool,
}

/// Reads the use of TCP's memory.
pub fn tcp_memory() -> TcpMemory {
    let protocols = read("/proc/thread-self/net/protocols");
    parse_memory(&protocols, &read("/proc/sys/net/ipv4/tcp_mem"), rustix::param::page_size())
}

/// Parses `/proc/net/protocols`: name, size, sockets, memory in pages, pressure (proto_seq_printf
/// in net/core/sock.c).
pub(crate) fn parse_memory(protocols: &str, limits: &str, page_bytes: usize) -> TcpMemory {
    let page = page_bytes as u64;
    let line = protocols.lines().find(|line| line.starts_with("TCP ")).unwrap_or_default();
    TcpMemory {
        used_bytes: number(line, 3) * page,
        pressure_bytes: number(limits, 1).saturating_mul(page),
        pressure: line.split_ascii_whitespace().nth(4) == Some("yes"),
    }
}

/// The limits of socket buffers, in bytes of `SO_RCVBUF` and `SO_SNDBUF`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WindowLimits {
    /// The limit of autotuned receive buffers: the third number of `net.ipv4.tcp_rmem`.
    pub receive_autotuned_bytes: u64,
    /// The limit of autotuned send buffers: the third number of `net.ipv4.tcp_wmem`.
    pub send_autotuned_bytes: u64,
    /// The limit of requested receive buffers: `net.core.rmem_max`; 0 if unreadable.
    pub receive_asked_bytes: u64,
    /// The limit of requested send buffers: `net.core.wmem_max`; 0 if unreadable.
    pub send_asked_bytes: u64,
}

/// Reads the limits of the calling thread's network namespace.
pub fn window_limits() -> WindowLimits {
    let setting = |name: &str, at| number(&read(&format!("/proc/sys/net/{name}")), at);
    WindowLimits {
        receive_autotuned_bytes: setting("ipv4/tcp_rmem", 2),
        send_autotuned_bytes: setting("ipv4/tcp_wmem", 2),
        receive_asked_bytes: setting("core/rmem_max", 0),
        send_asked_bytes: setting("core/wmem_max", 0),
    }
}

/// Returns the rate of the fastest hardware interface that is up, in bit/s, as its driver reports
/// it. Virtual interfaces do not count, because their drivers report arbitrary rates.
pub fn fastest_interface_bps() -> Option<u64> {
    let interfaces = std::fs::read_dir("/sys/class/net").ok()?;
    interfaces.filter_map(|entry| interface_bps(&entry.ok()?.path())).max()
}

fn interface_bps(directory: &Path) -> Option<u64> {
    directory.join("device").exists().then_some(())?;
    let megabits: i64 = read(directory.join("speed").to_str()?).trim().parse().ok()?;
    // -1 means that the link is down (Documentation/ABI/testing/sysfs-class-net).
    u64::try_from(megabits).ok().filter(|rate| *rate > 0).map(|rate| rate * 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_is_read_as_the_kernel_prints_it() {
        let text = "protocol  size sockets  memory press maxhdr  slab\n\
                    TCPv6     2496      0    4000   no     208   yes\n\
                    TCP       2304      1    3000   yes    192   yes\n";
        let found = parse_memory(text, "1000\t2000\t4000\n", 4096);
        let expected =
            TcpMemory { used_bytes: 3000 * 4096, pressure_bytes: 2000 * 4096, pressure: true };
        assert_eq!(found, expected);
        assert_eq!(parse_memory("", "", 4096), TcpMemory::default());
    }

    #[test]
    fn this_host_answers() {
        assert!(tcp_memory().pressure_bytes > 0);
        assert!(window_limits().receive_autotuned_bytes > 0);
    }

    #[test]
    fn only_hardware_has_a_rate() {
        let dir = std::env::temp_dir().join(format!("longhaul-interface-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("speed"), "25000\n").unwrap();
        assert_eq!(interface_bps(&dir), None);
        std::fs::create_dir_all(dir.join("device")).unwrap();
        assert_eq!(interface_bps(&dir), Some(25_000_000_000));
        std::fs::write(dir.join("speed"), "-1\n").unwrap();
        assert_eq!(interface_bps(&dir), None);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
