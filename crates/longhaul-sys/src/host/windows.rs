use std::path::Path;

use super::text::{number, read};

/// TCP's memory, which all of the host's namespaces share (`tcp_mem` in tcp(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TcpMemory {
    /// In use.
    pub used_bytes: u64,
    /// From here on the kernel makes every connection smaller; 0 when it is not told here, as in
    /// any network namespace but the first.
    pub pressure_bytes: u64,
    /// It does so at present.
    pub pressure: bool,
}

/// Reads how much of TCP's memory is in use.
pub fn tcp_memory() -> TcpMemory {
    let protocols = read("/proc/thread-self/net/protocols");
    parse_memory(&protocols, &read("/proc/sys/net/ipv4/tcp_mem"), rustix::param::page_size())
}

/// `/proc/net/protocols`: name, size, sockets, memory in pages, pressure
/// (proto_seq_printf in net/core/sock.c).
pub(crate) fn parse_memory(protocols: &str, limits: &str, page_bytes: usize) -> TcpMemory {
    let page = page_bytes as u64;
    let line = protocols.lines().find(|line| line.starts_with("TCP ")).unwrap_or_default();
    TcpMemory {
        used_bytes: number(line, 3) * page,
        pressure_bytes: number(limits, 1).saturating_mul(page),
        pressure: line.split_ascii_whitespace().nth(4) == Some("yes"),
    }
}

/// How large the kernel lets socket buffers grow, in bytes of `SO_RCVBUF` and `SO_SNDBUF`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WindowLimits {
    /// By autotuning, to receive: the third number of `net.ipv4.tcp_rmem`.
    pub receive_autotuned_bytes: u64,
    /// By autotuning, to send: the third number of `net.ipv4.tcp_wmem`.
    pub send_autotuned_bytes: u64,
    /// When a program asks, to receive: `net.core.rmem_max`; 0 when it cannot be read here.
    pub receive_asked_bytes: u64,
    /// When a program asks, to send: `net.core.wmem_max`; 0 when it cannot be read here.
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

/// The rate of the fastest hardware interface that is up, in bit/s, by its driver. Virtual
/// interfaces do not count: their drivers make a number up.
pub fn fastest_interface_bps() -> Option<u64> {
    let interfaces = std::fs::read_dir("/sys/class/net").ok()?;
    interfaces.filter_map(|entry| interface_bps(&entry.ok()?.path())).max()
}

fn interface_bps(directory: &Path) -> Option<u64> {
    directory.join("device").exists().then_some(())?;
    let megabits: i64 = read(directory.join("speed").to_str()?).trim().parse().ok()?;
    // -1 for a link that is down (Documentation/ABI/testing/sysfs-class-net).
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
