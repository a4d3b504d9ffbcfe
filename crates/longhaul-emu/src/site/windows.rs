//! TCP windows for the bandwidth-delay products of a site's paths.
//!
//! `tcp_rmem` and `tcp_wmem` belong to a network namespace and start at the kernel's defaults (6
//! and 4 MiB). `tcp_mem` belongs to the whole host: once all sockets of the host together exceed
//! its second number, every flow's window stays small until they are closed. The windows set here
//! leave memory for a sender and a receiver that both fill theirs.

use std::fs;
use std::io;
use std::time::Duration;

use longhaul_core::result::LinkWarning;
use longhaul_core::units::{Bytes, Rate};

use crate::driver::UNLIMITED;

/// The requirements of a path between two sites.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PathNeed {
    /// The round-trip time without queueing.
    pub(crate) rtt: Duration,
    /// The lowest configured rate of a link in each direction of the path.
    pub(crate) rates: [Option<Rate>; 2],
}

impl PathNeed {
    /// Returns the bandwidth-delay product at the configured rate; zero without a rate.
    pub(crate) fn configured_product(&self) -> Bytes {
        let rates = self.rates.iter().flatten();
        rates.map(|rate| rate.bdp(self.rtt)).max_by_key(|bytes| bytes.get()).unwrap_or_default()
    }

    /// Returns the window that fills the path without losses.
    fn window(&self) -> u64 {
        // A sender buffers the unacknowledged data and as much again to send. A receiver uses up to
        // half of its buffer for overhead (tcp_adv_win_scale).
        self.products(2)
    }

    /// Returns the window that fills a path with a rate even with losses: for a round trip after a
    /// loss no data are acknowledged, while as much again is sent.
    fn roomy_window(&self) -> u64 {
        if self.has_rate() { self.products(4) } else { self.window() }
    }

    /// Returns `count` bandwidth-delay products plus a minimum.
    fn products(&self, count: u64) -> u64 {
        /// The kernel's default for a receiver. A smaller window would save no memory.
        const SMALLEST: u64 = 6 << 20;
        /// The largest window: 16 bits, scaled by at most 2^14 (RFC 7323). It fits an int.
        const LARGEST: u64 = 65_535 << 14;
        let [there, back] = self.rates.map(|rate| rate.unwrap_or(UNLIMITED));
        let product = there.max(back).bdp(self.rtt).get();
        (product.saturating_mul(count).saturating_add(4 << 20)).clamp(SMALLEST, LARGEST)
    }

    fn has_rate(&self) -> bool {
        self.rates.iter().any(Option::is_some)
    }
}

/// The maximum number of bytes that a single socket may buffer in each direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Windows {
    /// The third number of `tcp_rmem` and `tcp_wmem`.
    pub(crate) largest: Bytes,
}

impl Windows {
    /// Returns a warning if a single flow with these windows cannot fill a path of `need`. A path
    /// without a rate causes no warning.
    pub(crate) fn warning(self, need: &PathNeed) -> Option<LinkWarning> {
        let wanted = Bytes::new(need.window());
        (need.has_rate() && self.largest < wanted)
            .then_some(LinkWarning::WindowsClipped { wanted, granted: self.largest })
    }
}

/// Returns the windows for a site with these paths, on a host on which TCP limits windows from
/// `pressure` on.
pub(crate) fn plan_windows(needs: impl IntoIterator<Item = PathNeed>, pressure: Bytes) -> Windows {
    let wanted = needs.into_iter().map(|need| need.roomy_window()).max().unwrap_or_default();
    // Two sockets with two fifths each stay below the pressure limit. The windows are never below
    // the kernel's default.
    let largest = wanted.min(pressure.get() / 5 * 2).max(6 << 20);
    Windows { largest: Bytes::new(largest) }
}

/// Returns the second number of `tcp_mem`, at which the kernel starts to limit TCP's memory.
pub(crate) fn memory_pressure() -> Option<Bytes> {
    let text = fs::read_to_string("/proc/sys/net/ipv4/tcp_mem").ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(Bytes::new(pages * rustix::param::page_size() as u64))
}

/// Sets the windows in the calling thread's network namespace.
pub(super) fn install(windows: Windows) -> io::Result<()> {
    for file in ["/proc/sys/net/ipv4/tcp_rmem", "/proc/sys/net/ipv4/tcp_wmem"] {
        let now = fs::read_to_string(file)?;
        fs::write(file, with_largest(&now, windows.largest.get()))?;
    }
    Ok(())
}

/// Returns the three numbers of `tcp_rmem` with the last one replaced.
fn with_largest(three: &str, largest: u64) -> String {
    let mut numbers: Vec<&str> = three.split_whitespace().collect();
    let largest = largest.to_string();
    numbers.truncate(2);
    numbers.push(&largest);
    numbers.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(rtt_ms: u64, rate_bps: Option<u64>) -> PathNeed {
        let rate = rate_bps.map(Rate::from_bps);
        PathNeed { rtt: Duration::from_millis(rtt_ms), rates: [rate, rate] }
    }

    #[test]
    fn windows_follow_the_product_of_rate_and_round_trip() {
        let largest =
            |needs: &[PathNeed]| plan_windows(needs.iter().copied(), Bytes::gib(8)).largest.get();
        let fast = need(100, Some(8_000_000_000));
        assert_eq!(largest(&[fast]), 400_000_000 + (4 << 20));
        assert_eq!(largest(&[need(10, None)]), 100_000_000 + (4 << 20));
        assert_eq!(largest(&[need(0, None)]), 6 << 20);
        assert_eq!(largest(&[need(2000, None)]), 65_535 << 14);
        assert_eq!(largest(&[need(0, None), fast]), largest(&[fast]), "the longest path decides");
        assert_eq!(fast.configured_product(), Bytes::new(100_000_000));
        assert_eq!(need(2000, None).configured_product(), Bytes::new(0));
    }

    #[test]
    fn a_window_is_clipped_when_it_cannot_fill_a_clean_path() {
        let long = need(100, Some(8_000_000_000));
        let windows = |mib| Windows { largest: Bytes::mib(mib) };
        assert_eq!(windows(200).warning(&long), None);
        assert!(windows(190).warning(&long).is_some());
    }

    #[test]
    fn windows_stay_clear_of_memory_pressure() {
        let pressure = Bytes::mib(100);
        let long = need(100, Some(10_000_000_000));
        let limited = plan_windows([long], pressure);
        assert_eq!(limited.largest.get(), pressure.get() / 5 * 2);
        assert!(limited.warning(&long).unwrap().to_string().contains("net.ipv4.tcp_mem"));
        for enough in [need(100, None), need(1, Some(1_000_000_000))] {
            assert_eq!(plan_windows([enough], pressure).warning(&enough), None);
        }
    }

    #[test]
    fn only_the_last_number_changes() {
        assert_eq!(with_largest("4096\t131072\t6291456\n", 99), "4096 131072 99");
    }
}
