//! The memory of links: the budget of one direction, and the memory of all links of a topology.

use std::io;
use std::sync::Arc;

use longhaul_core::plan::{LinkPlan, Side};
use longhaul_core::units::{Bytes, Rate};
use longhaul_sys::arena::{Arena, ArenaBlock};

use super::page_toucher::{PageToucher, Reserve};

/// The rate that the budget assumes for a link without a rate; it is more than one thread can
/// forward.
pub(crate) const UNLIMITED: Rate = Rate::from_bps(40_000_000_000);

/// Memory for the first packets.
const SPARE: Bytes = Bytes::mib(64);
/// The bytes of slots per byte of packets. A packet of 36 KB, usual for BBR with an MTU of 9000, needs a
/// slot of 48 or 64 KiB, and slots of one size cannot become slots of another. With one byte per byte
/// and [`SPARE`], slow start at 5 Gb/s and 138 ms, which fills the queue, exceeded the budget.
const SLOTS_PER_BYTE: u64 = 2;

/// Returns the memory budget for packets that leave from `side`: slots for the packets in flight at the
/// link's rate and for those in the queue, and [`SPARE`], limited to [`most_memory`].
pub(crate) fn memory_budget(plan: &LinkPlan, side: Side) -> Bytes {
    let direction = plan.from(side);
    let under_way = direction.peak_rate().unwrap_or(UNLIMITED).bdp(direction.longest_flight());
    let waiting = plan.queue(side).unwrap_or_default();
    let classes = 0..direction.classes.len();
    let own = classes.filter_map(|index| own_queue(&plan.of_class(side, index)?, side));
    let wanted = own.fold(under_way.get().saturating_add(waiting.get()), u64::saturating_add);
    let slots = wanted.saturating_mul(SLOTS_PER_BYTE);
    Bytes::new(slots.saturating_add(SPARE.get()).min(most_memory().get()))
}

/// Returns the bytes in flight and in the queue of a direction at its rate; zero without a rate.
pub(crate) fn full_link(plan: &LinkPlan, side: Side) -> Bytes {
    let direction = plan.from(side);
    let under_way = direction.peak_rate().map(|rate| rate.bdp(direction.longest_flight()).get());
    let waiting = plan.queue(side).unwrap_or_default().get();
    Bytes::new(under_way.map_or(0, |under_way| under_way.saturating_add(waiting)))
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

/// The bytes touched at the start: two huge pages, so that the first packets do not wait until the
/// kernel has cleared pages.
const WARM: usize = 4 << 20;

/// The limits of the memory that is touched ahead of use, which is half as much as the memory in
/// use. Both together stay far below 32 MiB, the most that a link without delay may touch.
const AHEAD: std::ops::RangeInclusive<usize> = (6 << 20)..=(48 << 20);

/// The most memory that is touched before packets arrive, for the first flow that fills a link.
const MOST_PREPARED: Bytes = Bytes::mib(256);

/// The memory for packets of all links of a topology: one arena, and one thread that touches it
/// ahead of use.
///
/// The links share the memory that is touched ahead, so that many links with little traffic need
/// little memory. Each direction of a link has its own budget.
#[derive(Debug)]
pub(crate) struct PacketMemory {
    arena: Arena,
    reserve: Arc<Reserve>,
    _toucher: PageToucher,
}

impl PacketMemory {
    /// Reserves address space for packets of `most` bytes, or of `needed` bytes if the host refuses
    /// more, and starts the thread that touches it.
    ///
    /// # Errors
    /// The host has no address space or no thread.
    pub(crate) fn start(most: Bytes, needed: Bytes) -> io::Result<Arc<Self>> {
        let size = |bytes: Bytes| (bytes.get() as usize).clamp(WARM, 1 << 40);
        // Under strict overcommit the mapping of `most` bytes may fail.
        let arena = Arena::reserve(size(most)).or_else(|_| Arena::reserve(size(needed)))?;
        // Kernels before 5.14 do not support the call, and then the first packets wait.
        let _ = arena.prefault().touch(0..WARM);
        let reserve = Reserve::new(arena.prefault(), WARM);
        let toucher = PageToucher::start(reserve.clone())?;
        Ok(Arc::new(PacketMemory { arena, reserve, _toucher: toucher }))
    }

    /// Touches memory for `bytes` of packets in the background, up to [`MOST_PREPARED`].
    ///
    /// TCP's slow start needs new memory faster than the thread can touch it: the thread took 4 ms per
    /// huge page on a virtual machine, which is 0.5 GB/s, and a link of 10 Gb/s takes 1.25 GB/s.
    pub(crate) fn prepare(&self, bytes: Bytes) {
        let bytes = bytes.get().min(MOST_PREPARED.get()) as usize;
        self.reserve.want(bytes.min(self.arena.length()));
    }

    /// Takes a block that is never returned.
    pub(super) fn take(&self, bytes: usize) -> Option<ArenaBlock> {
        let block = self.arena.take(bytes)?;
        let used = self.arena.used();
        let ahead = (used / 2).clamp(*AHEAD.start(), *AHEAD.end());
        self.reserve.want((used + ahead).min(self.arena.length()));
        Some(block)
    }
}

#[cfg(test)]
impl PacketMemory {
    /// Returns memory for tests.
    pub(super) fn of(most: Bytes) -> Arc<Self> {
        Self::start(most, most).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn many_small_users_share_what_is_touched_ahead() {
        let memory = PacketMemory::of(Bytes::gib(1));
        let blocks: Vec<ArenaBlock> = (0..80).map(|_| memory.take(64 << 10).unwrap()).collect();
        let wanted = memory.reserve.wanted();
        assert_eq!(blocks.len(), 80);
        assert!((11 << 20..14 << 20).contains(&wanted), "{wanted}");
    }

    #[test]
    fn memory_for_the_largest_link_is_prepared() {
        let memory = PacketMemory::of(Bytes::gib(1));
        memory.prepare(Bytes::mib(40));
        assert_eq!(memory.reserve.wanted(), 40 << 20);
        memory.prepare(Bytes::default());
        memory.prepare(Bytes::gib(9));
        assert_eq!(memory.reserve.wanted() as u64, MOST_PREPARED.get());
        let mut plan = LinkPlan::symmetric(Duration::from_millis(90));
        assert_eq!(full_link(&plan, Side::Near), Bytes::default());
        plan.up.rate_bps = Some(Rate::from_bps(10_000_000_000));
        let queue = plan.queue(Side::Near).unwrap_or_default().get();
        assert_eq!(full_link(&plan, Side::Near).get(), 56_250_000 + queue);
        assert_eq!(full_link(&plan, Side::Far), Bytes::default());
    }

    #[test]
    fn the_budget_grows_with_the_delay_and_is_bounded() {
        let budget = |rtt| memory_budget(&LinkPlan::symmetric(rtt), Side::Near);
        assert_eq!(budget(Duration::ZERO), SPARE);
        assert_eq!(budget(Duration::from_millis(20)).get(), 100_000_000 + SPARE.get());
        assert_eq!(budget(Duration::from_secs(59)), most_memory());
    }
}
