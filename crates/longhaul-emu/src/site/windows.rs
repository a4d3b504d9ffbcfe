//! TCP windows for the bandwidth-delay products of a site's paths.
//!
//! `tcp_rmem` and `tcp_wmem` belong to each network namespace and start at the kernel's defaults
//! (6 and 4 MiB); `tcp_mem` is the whole host's. Once the sockets of the host together pass its
//! second number, every flow's window stays small until they are closed, so the windows given here
//! leave room for a sender and a receiver that both fill theirs.

use std::fs;
use std::io;
use std::time::Duration;

use longhaul_core::result::LinkWarning;
use longhaul_core::units::{Bytes, Rate};

use crate::driver::UNLIMITED;

/// What a path between two sites asks of TCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PathNeed {
    /// The round trip of a packet that waits nowhere.
    pub(crate) rtt: Duration,
    /// The least rate that a link on the way there, and on the way back, promises.
    pub(crate) rates: [Option<Rate>; 2],
}

impl PathNeed {
    /// The most that a promised rate keeps under way in a round trip; zero without a promise.
    pub(crate) fn promised(&self) -> Bytes {
        let rates = self.rates.iter().flatten();
        rates.map(|rate| rate.bdp(self.rtt)).max_by_key(|bytes| bytes.get()).unwrap_or_default()
    }

    /// What a flow needs to fill the path as long as nothing is lost.
    fn window(&self) -> u64 {
        // A sender keeps what is unacknowledged and as much again to send; a receiver spends up
        // to half of its buffer on bookkeeping (tcp_adv_win_scale).
        self.products(2)
    }

    /// What it makes use of where a promised rate is to be filled in spite of losses: for a round
    /// trip after each, nothing is acknowledged while as much again is sent.
    fn roomy_window(&self) -> u64 {
        if self.is_promised() { self.products(4) } else { self.window() }
    }

    /// So many bandwidth-delay products, and some to start with.
    fn products(&self, count: u64) -> u64 {
        /// The kernel's own default for a receiver, below which nothing is gained.
        const SMALLEST: u64 = 6 << 20;
        /// The window field's 16 bits, scaled by at most 2^14 (RFC 7323), and below an int's range.
        const LARGEST: u64 = 65_535 << 14;
        let [there, back] = self.rates.map(|rate| rate.unwrap_or(UNLIMITED));
        let product = there.max(back).bdp(self.rtt).get();
        (product.saturating_mul(count).saturating_add(4 << 20)).clamp(SMALLEST, LARGEST)
    }

    fn is_promised(&self) -> bool {
        self.rates.iter().any(Option::is_some)
    }
}

/// The most that a single socket may buffer, in each direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Windows {
    /// For the third number of `tcp_rmem` and `tcp_wmem`.
    pub(crate) largest: Bytes,
}

impl Windows {
    /// The warning that these windows are too small for one flow to fill a path of `need`. An
    /// unlimited path promises no rate, so that nothing is clipped on it.
    pub(crate) fn warning(self, need: &PathNeed) -> Option<LinkWarning> {
        let wanted = Bytes::new(need.window());
        (need.is_promised() && self.largest < wanted)
            .then_some(LinkWarning::WindowsClipped { wanted, granted: self.largest })
    }
}

/// The windows for a site with these paths, on a host whose TCP holds back at `pressure`.
pub(crate) fn plan_windows(needs: impl IntoIterator<Item = PathNeed>, pressure: Bytes) -> Windows {
    let wanted = needs.into_iter().map(|need| need.roomy_window()).max().unwrap_or_default();
    // Two sockets at two fifths each stay below the point of pressure. Less than the kernel's own
    // default is never set.
    let largest = wanted.min(pressure.get() / 5 * 2).max(6 << 20);
    Windows { largest: Bytes::new(largest) }
}

/// Where the kernel starts to hold TCP's memory back: the second number of `tcp_mem`, in pages.
pub(crate) fn memory_pressure() -> Option<Bytes> {
    let text = fs::read_to_string("/proc/sys/net/ipv4/tcp_mem").ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(Bytes::new(pages * rustix::param::page_size() as u64))
}

/// Sets the windows of the calling thread's network namespace.
pub(super) fn install(windows: Windows) -> io::Result<()> {
    for file in ["/proc/sys/net/ipv4/tcp_rmem", "/proc/sys/net/ipv4/tcp_wmem"] {
        let now = fs::read_to_string(file)?;
        fs::write(file, with_largest(&now, windows.largest.get()))?;
    }
    Ok(())
}

/// The three numbers of `tcp_rmem` with the last one replaced.
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
        assert_eq!(fast.promised(), Bytes::new(100_000_000));
        assert_eq!(need(2000, None).promised(), Bytes::new(0));
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
