//! Checks that this machine has the memory for the data in flight of a topology.
//!
//! A link with a rate must sustain it. Its data in flight are in memory twice: in the emulator, and
//! in the sender's socket until they are acknowledged. A link without a rate is as fast as the
//! machine permits, and its memory use is not checked.

use longhaul_core::plan::{Side, TopologyPlan};
use longhaul_core::units::Bytes;
use longhaul_sys::memory::usable_bytes;

use super::Routes;
use super::bundle::Bundle;
use crate::EmuError;
use crate::driver::full_link;
use crate::site::memory_pressure;

/// Returns an error if the topology needs more memory than this machine has, or more than TCP may
/// use.
pub(super) fn check_fit(plan: &TopologyPlan) -> Result<(), EmuError> {
    check(plan, Bytes::new(usable_bytes()), memory_pressure())
}

/// Returns an error if the links need more memory than this machine has.
pub(super) fn check_memory(plan: &TopologyPlan) -> Result<(), EmuError> {
    check_links(plan, Bytes::new(usable_bytes()))
}

fn check_links(plan: &TopologyPlan, memory: Bytes) -> Result<(), EmuError> {
    let lanes = plan.links.iter().flat_map(|link| Side::BOTH.map(|side| (link, side)));
    // Half of the memory is for sockets and programs. One direction may use half of the rest, so
    // that memory remains for the opposite direction.
    let [half, quarter] = [2, 4].map(|part| memory.get() / part);
    let mut sum = 0u64;
    for (link, side) in lanes {
        let needed = full_link(&link.plan, side).get();
        sum = sum.saturating_add(needed);
        if needed > quarter || sum > half {
            let (needed, limit) = if needed > quarter { (needed, quarter) } else { (sum, half) };
            return Err(EmuError::Memory {
                link: link.name.clone(),
                needed: Bytes::new(needed),
                limit: Bytes::new(limit),
            });
        }
    }
    Ok(())
}

fn check(plan: &TopologyPlan, memory: Bytes, pressure: Option<Bytes>) -> Result<(), EmuError> {
    check_links(plan, memory)?;
    let Some(limit) = pressure else { return Ok(()) };
    let bundles = Bundle::all(plan);
    let routes = Routes::plan(plan, &bundles, 0, |_| true);
    for from in 0..plan.sites.len() {
        for to in from + 1..plan.sites.len() {
            let Some(need) = routes.need(plan, &bundles, [from, to]) else { continue };
            let needed = need.configured_product();
            if needed > limit {
                let pages = needed.get().div_ceil(rustix::param::page_size() as u64) * 3;
                return Err(EmuError::TcpMemory {
                    from: plan.sites[from].clone(),
                    to: plan.sites[to].clone(),
                    needed,
                    limit,
                    remedy: format!("{} {} {}", pages / 4 * 3, pages, pages / 2 * 3),
                });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use longhaul_core::plan::LinkPlan;
    use longhaul_core::units::Rate;

    use super::*;

    fn refusal(rate_bps: Option<u64>, memory: Bytes, pressure: Bytes) -> Option<String> {
        let mut link = LinkPlan::symmetric(Duration::from_millis(800));
        link.up.rate_bps = rate_bps.map(Rate::from_bps);
        let plan = TopologyPlan::pair(link);
        let error = check(&plan, memory, Some(pressure)).err()?;
        Some(error.to_string())
    }

    #[test]
    fn a_promise_that_memory_cannot_hold_is_refused() {
        // 1 GB per round trip: half of it in flight toward the receiver, and a full product in the
        // queue.
        let rate = Some(10_000_000_000);
        assert_eq!(refusal(rate, Bytes::gib(8), Bytes::gib(1)), None);
        let memory = refusal(rate, Bytes::gib(4), Bytes::gib(1)).unwrap();
        assert!(memory.contains("of the memory of this machine"), "{memory}");
        let tcp = refusal(rate, Bytes::gib(8), Bytes::mib(900)).unwrap();
        assert!(tcp.contains("from near to far keeps"), "{tcp}");
        assert!(tcp.contains("sudo sysctl -w net.ipv4.tcp_mem='"), "{tcp}");
    }

    #[test]
    fn a_link_without_a_rate_promises_nothing() {
        assert_eq!(refusal(None, Bytes::mib(1), Bytes::mib(1)), None);
    }
}
