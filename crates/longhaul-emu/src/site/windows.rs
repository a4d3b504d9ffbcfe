//! TCP windows for a link's bandwidth-delay product.
//!
//! `tcp_rmem` and `tcp_wmem` belong to each network namespace and start at the kernel's defaults
//! (6 and 4 MiB); `tcp_mem` is the whole host's. Once the sockets of the host together pass its
//! second number, every flow's window stays small until they are closed, so the windows given here
//! leave room for a sender and a receiver that both fill theirs.

use std::fs;
use std::io;

use longhaul_core::plan::{LinkPlan, Side};
use longhaul_core::result::LinkWarning;
use longhaul_core::units::Bytes;

use crate::driver::UNLIMITED;

/// The most that a single socket may buffer, in each direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Windows {
    /// For the third number of `tcp_rmem` and `tcp_wmem`.
    pub(crate) largest: Bytes,
    /// What a flow that fills the link needs, where `largest` had to be less than that.
    pub(crate) clipped_below: Option<Bytes>,
}

impl Windows {
    /// The warning that the windows are too small for the plan's rate.
    pub(crate) fn warning(&self) -> Option<LinkWarning> {
        let wanted = self.clipped_below?;
        Some(LinkWarning::WindowsClipped { wanted, granted: self.largest })
    }
}

/// The windows for `plan` on this host.
pub(crate) fn plan_windows(plan: &LinkPlan) -> Windows {
    windows_for(plan, pressure().unwrap_or(Bytes::gib(1)))
}

fn windows_for(plan: &LinkPlan, pressure: Bytes) -> Windows {
    /// The kernel's own default for a receiver, below which nothing is gained.
    const SMALLEST: u64 = 6 << 20;
    /// The window field's 16 bits, scaled by at most 2^14 (RFC 7323), and below an int's range.
    const LARGEST: u64 = 65_535 << 14;
    let need = |rate| {
        let in_flight = Side::BOTH.map(|side| plan.from(side).peak_rate().unwrap_or(rate));
        // A sender keeps what is unacknowledged and as much again to send; a receiver spends up
        // to half of its buffer on bookkeeping (tcp_adv_win_scale).
        in_flight[0].max(in_flight[1]).bdp(plan.rtt()).get() * 2 + (4 << 20)
    };
    let wanted = need(UNLIMITED).clamp(SMALLEST, LARGEST);
    // Two sockets at two fifths each stay below the point of pressure.
    let largest = wanted.min(pressure.get() / 5 * 2).max(SMALLEST);
    // An unlimited link promises no rate, so that nothing is clipped on it.
    let promised = Side::BOTH.iter().any(|side| plan.from(*side).has_rate());
    let clipped_below = (promised && largest < wanted).then_some(Bytes::new(wanted));
    Windows { largest: Bytes::new(largest), clipped_below }
}

/// Where the kernel starts to hold TCP's memory back: the second number of `tcp_mem`, in pages.
fn pressure() -> Option<Bytes> {
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
    use std::time::Duration;

    use longhaul_core::units::Rate;

    use super::*;

    fn plan(rtt_ms: u64, rate_bps: Option<u64>) -> LinkPlan {
        let mut plan = LinkPlan::symmetric(Duration::from_millis(rtt_ms));
        plan.up.rate_bps = rate_bps.map(Rate::from_bps);
        plan.down.rate_bps = plan.up.rate_bps;
        plan
    }

    #[test]
    fn windows_follow_the_product_of_rate_and_round_trip() {
        let largest = |plan| windows_for(&plan, Bytes::gib(8)).largest.get();
        assert_eq!(largest(plan(100, Some(8_000_000_000))), 200_000_000 + (4 << 20));
        assert_eq!(largest(plan(0, None)), 6 << 20);
        assert_eq!(largest(plan(2000, None)), 65_535 << 14);
    }

    #[test]
    fn windows_stay_clear_of_memory_pressure() {
        let pressure = Bytes::mib(100);
        let limited = windows_for(&plan(100, Some(10_000_000_000)), pressure);
        assert_eq!(limited.largest.get(), pressure.get() / 5 * 2);
        assert!(limited.warning().unwrap().to_string().contains("net.ipv4.tcp_mem"));
        assert_eq!(windows_for(&plan(100, None), pressure).warning(), None);
        assert_eq!(windows_for(&plan(1, Some(1_000_000_000)), pressure).warning(), None);
    }

    #[test]
    fn only_the_last_number_changes() {
        assert_eq!(with_largest("4096\t131072\t6291456\n", 99), "4096 131072 99");
    }
}
