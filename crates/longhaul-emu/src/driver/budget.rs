use longhaul_core::plan::{LinkPlan, Side};
use longhaul_core::units::{Bytes, Rate};

/// The rate that an unlimited link is given memory for: above what one thread forwards.
pub(crate) const UNLIMITED: Rate = Rate::from_bps(40_000_000_000);

/// The memory for packets that leave from `side`: those under way at the link's rate, those that
/// wait for it, as many again for slots that are not full, and a little to start with; at most a
/// quarter of what the machine has, so that both directions leave half of it alone.
pub(crate) fn memory_budget(plan: &LinkPlan, side: Side) -> Bytes {
    let direction = plan.from(side);
    let under_way = direction.peak_rate().unwrap_or(UNLIMITED).bdp(direction.longest_flight());
    let waiting = plan.queue(side).unwrap_or_default();
    let wanted = (under_way.get() + waiting.get()) * 2 + Bytes::mib(64).get();
    let info = rustix::system::sysinfo();
    let memory = info.totalram as u64 * u64::from(info.mem_unit);
    Bytes::new(wanted.min(memory / 4))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_budget_grows_with_the_delay_and_is_bounded() {
        let budget = |rtt| memory_budget(&LinkPlan::symmetric(rtt), Side::Near);
        assert_eq!(budget(Duration::ZERO), Bytes::mib(64));
        assert!(budget(Duration::from_millis(10)) > Bytes::mib(64));
        assert_eq!(budget(Duration::from_secs(59)), budget(Duration::from_secs(60)));
    }
}
