//! Memory for packets in flight: slots of a few sizes within a byte budget.

use std::io;
use std::sync::Arc;

use longhaul_core::units::Bytes;
use longhaul_sys::arena::ArenaBlock;
use longhaul_sys::tun::MAX_FRAME;

use super::memory::PacketMemory;

/// The slot sizes in bytes: for acknowledgements and small requests, for packets of an MTU of 1500
/// and of 9000, and for the super-packets of slower flows. The last size fits every frame and is a
/// multiple of [`UNIT`].
const SLOTS: [usize; 7] =
    [256, 2 << 10, 9 << 10, 16 << 10, 32 << 10, 48 << 10, MAX_FRAME.next_multiple_of(UNIT)];

/// The slot class that fits any frame.
const LARGEST: usize = SLOTS.len() - 1;

/// The bytes of a slot that fits any frame.
pub(super) const LARGEST_SLOT: usize = SLOTS[LARGEST];

/// The unit of slot sizes: one cache line.
const UNIT: usize = 64;

/// The bytes carved into slots of one size at a time. A larger slot is carved singly.
const CARVING: usize = 128 << 10;

/// The smallest budget in bytes: some dozens of frames of the largest size.
const SMALLEST: usize = 4 << 20;

/// The slots of one direction of a link, within a byte budget.
///
/// The slot freed last is reused first, while it is still in the processor's cache. A ring over the
/// whole capacity would cause two cache misses per packet. With this order a link with a short
/// delay touches only the memory that its packets need.
#[derive(Debug)]
pub(super) struct Pool {
    memory: Arc<PacketMemory>,
    /// The bytes that [`set_budget`](Self::set_budget) adds to its argument.
    extra_bytes: usize,
    budget: usize,
    carved: usize,
    free: [Vec<Slot>; SLOTS.len()],
}

/// Space for one frame. It has one owner, which returns it to the pool.
#[derive(Debug)]
pub(super) struct Slot {
    class: u8,
    block: ArenaBlock,
}

impl Pool {
    /// Creates a pool that uses at most `budget` bytes of `memory` and, in addition, `extra_slots` slots of
    /// the largest size.
    pub(super) fn new(budget: Bytes, extra_slots: usize, memory: Arc<PacketMemory>) -> Self {
        let extra_bytes = extra_slots * LARGEST_SLOT;
        let mut pool = Pool { memory, extra_bytes, budget: 0, carved: 0, free: Default::default() };
        pool.set_budget(budget);
        pool
    }

    /// Changes how much memory may be used. Slots that exist stay.
    pub(super) fn set_budget(&mut self, budget: Bytes) {
        self.budget = (budget.get() as usize).max(SMALLEST) + self.extra_bytes;
    }

    /// Returns a slot that fits any frame, or `None` if the budget is used up.
    pub(super) fn take_largest(&mut self) -> Option<Slot> {
        self.take_class(LARGEST)
    }

    /// Returns a slot that closely fits a frame of `length` bytes, if moving the frame out of its
    /// largest-class slot is worth a copy.
    ///
    /// Small frames are always moved. Large frames cost more to copy, so they are moved only if
    /// memory is short: if half of the budget is carved.
    pub(super) fn take_smaller(&mut self, length: usize) -> Option<Slot> {
        const ALWAYS: usize = 16 << 10;
        let class = SLOTS.iter().position(|size| length <= *size)?;
        let is_short = self.carved > self.budget / 2;
        if class == LARGEST || (SLOTS[class] > ALWAYS && !is_short) {
            return None;
        }
        self.take_class(class)
    }

    fn take_class(&mut self, class: usize) -> Option<Slot> {
        if self.free[class].is_empty() {
            self.carve(class);
        }
        self.free[class].pop()
    }

    /// Returns a slot to the pool.
    pub(super) fn give(&mut self, slot: Slot) {
        self.free[usize::from(slot.class)].push(slot);
    }

    /// Returns the largest amount of memory in use so far.
    pub(super) fn touched(&self) -> Bytes {
        Bytes::new(self.carved as u64)
    }

    fn carve(&mut self, class: usize) {
        let size = SLOTS[class];
        let room = self.budget.saturating_sub(self.carved);
        let count = (CARVING / size).max(1).min(room / size);
        if count == 0 {
            return;
        }
        let Some(block) = self.memory.take(count * size) else { return };
        self.carved += count * size;
        let free = &mut self.free[class];
        free.extend(block.split(size).map(|block| Slot { class: class as u8, block }));
        // The first slot is used first.
        free.reverse();
    }
}

impl Slot {
    /// Returns the whole slot for writing.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.block
    }

    /// Returns the first `length` bytes.
    pub(super) fn bytes(&self, length: usize) -> &[u8] {
        &self.block[..length]
    }
}

/// Returns the error of a pool that cannot hold a single frame.
pub(super) fn no_memory() -> io::Error {
    io::ErrorKind::OutOfMemory.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(budget: Bytes) -> Pool {
        Pool::new(budget, 0, PacketMemory::of(Bytes::mib(256)))
    }

    fn place(slot: &Slot) -> *const u8 {
        slot.block.as_ptr()
    }

    #[test]
    fn the_slot_freed_last_is_used_first() {
        let mut pool = pool(Bytes::mib(64));
        let (a, b) = (pool.take_smaller(100).unwrap(), pool.take_smaller(100).unwrap());
        let (place_a, place_b) = (place(&a), place(&b));
        pool.give(b);
        pool.give(a);
        assert_eq!(place(&pool.take_smaller(100).unwrap()), place_a);
        assert_eq!(place(&pool.take_smaller(100).unwrap()), place_b);
    }

    #[test]
    fn slots_do_not_overlap_and_fit_their_frame() {
        let mut pool = pool(Bytes::mib(16));
        let lengths = [60, 256, 2048, 2049, 9010, 16_384, 16_385, MAX_FRAME];
        let mut slots: Vec<Slot> = (lengths.iter().cycle().take(160))
            .map(|l| pool.take_smaller(*l).or_else(|| pool.take_largest()).unwrap())
            .collect();
        for (mark, slot) in slots.iter_mut().enumerate() {
            slot.bytes_mut().fill(mark as u8);
        }
        for (mark, (slot, length)) in slots.iter().zip(lengths.iter().cycle()).enumerate() {
            assert!(slot.bytes(*length).iter().all(|byte| *byte == mark as u8));
        }
    }

    #[test]
    fn the_budget_holds_is_reused_and_can_be_raised() {
        let mut pool = pool(Bytes::mib(8));
        let slots: Vec<Slot> = std::iter::from_fn(|| pool.take_largest()).collect();
        assert_eq!(slots.len(), (8 << 20) / SLOTS[LARGEST]);
        assert!(pool.touched() <= Bytes::mib(8));
        for slot in slots {
            pool.give(slot);
        }
        assert!(pool.take_largest().is_some());
        pool.set_budget(Bytes::mib(16));
        let slots: Vec<Slot> = std::iter::from_fn(|| pool.take_largest()).collect();
        assert_eq!(slots.len(), (16 << 20) / SLOTS[LARGEST] - 1);
        pool.set_budget(Bytes::mib(8));
        assert!(pool.take_smaller(60).is_none(), "nothing more is touched");
    }

    #[test]
    fn a_large_frame_is_packed_only_when_memory_is_short() {
        let mut pool = pool(Bytes::mib(8));
        assert!(pool.take_smaller(20_000).is_none());
        assert!(pool.take_smaller(9010).is_some());
        let half: Vec<Slot> = (0..70).map(|_| pool.take_largest().unwrap()).collect();
        assert_eq!(pool.take_smaller(20_000).map(|slot| slot.block.len()), Some(32 << 10));
        assert!(pool.take_smaller(60_000).is_none());
        drop(half);
    }
}
