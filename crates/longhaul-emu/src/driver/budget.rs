//! The memory budget of one direction of a link.

use longhaul_core::plan::{LinkPlan, Side};
use longhaul_core::units::{Bytes, Rate};

/// The rate that the budget assumes for a link without a rate; it is more than one thread can
/// forward.
pub(crate) const UNLIMITED: Rate = Rate::from_bps(40_000_000_000);

/// Memory for the unused parts of slots, and for the first packets.
const SPARE: Bytes = Bytes::mib(64);

/// Returns the memory budget for packets that leave from `side`: packets in flight at the link's
/// rate, packets that wait in the queue, and [`SPARE`], limited to [`most_memory`].
pub(crate) fn memory_budget(plan: &LinkPlan, side: Side) -> Bytes {
    let direction = plan.from(side);
    let under_way = direction.peak_rate().unwrap_or(UNLIMITED).bdp(direction.longest_flight());
    let waiting = plan.queue(side).unwrap_or_default();
    let classes = 0..direction.classes.len();
    let own = classes.filter_map(|index| own_queue(&plan.of_class(side, index)?, side));
    let wanted = own.fold(under_way.get().saturating_add(waiting.get()), u64::saturating_add);
    Bytes::new(wanted.saturating_add(SPARE.get()).min(most_memory().get()))
}

/// Returns the bytes in flight and in the queue of a class that has its own queue.
fn own_queue(class: &LinkPlan, side: Side) -> Option<u64> {
    let direction = class.from(side);
    let under_way = direction.peak_rate()?.bdp(direction.longest_flight());
    Some(under_way.get().saturating_add(class.queue(side)?.get()))
}

/// Returns the largest budget of one direction: a quarter of the memory that this process may use,
/// so that both directions together leave half of it free.
pub(crate) fn most_memory() -> Bytes {
    Bytes::new(longhaul_sys::memory::usable_bytes() / 4)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_budget_grows_with_the_delay_and_is_bounded() {
        let budget = |rtt| memory_budget(&LinkPlan::symmetric(rtt), Side::Near);
        assert_eq!(budget(Duration::ZERO), SPARE);
        assert_eq!(budget(Duration::from_millis(20)).get(), 50_000_000 + SPARE.get());
        assert_eq!(budget(Duration::from_secs(59)), most_memory());
    }
}
