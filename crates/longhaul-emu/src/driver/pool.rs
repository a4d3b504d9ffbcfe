use std::io;
use std::sync::Arc;

use longhaul_core::units::Bytes;
use longhaul_sys::memory::Mapping;
use longhaul_sys::tun::MAX_FRAME;

use super::warmer::Reserve;

/// Sizes of slots: acknowledgements and small requests, packets of an MTU of 1500, of 9000, and
/// what slower flows send as super-packets; the last takes every frame, in whole units.
const SLOTS: [usize; 7] =
    [256, 2 << 10, 9 << 10, 16 << 10, 32 << 10, 48 << 10, MAX_FRAME.next_multiple_of(UNIT)];

/// The class of slot that takes any frame.
const LARGEST: usize = SLOTS.len() - 1;

/// Slot sizes are multiples of it: a cache line.
const UNIT: usize = 64;

/// What is carved into slots of one size at a time, or one slot if that is more.
const CARVING: usize = 128 << 10;

/// Touched at the start, two huge pages: the first packets must not wait for the kernel to clear
/// them.
const WARM: usize = 4 << 20;

/// How far ahead of what is carved memory is touched: half as much again, and within these. Two
/// pools of the least stay far below the 32 MiB that a link without delay may touch.
const AHEAD: std::ops::RangeInclusive<usize> = (6 << 20)..=(48 << 20);

/// Memory for packets under way: slots of a few sizes within a byte budget.
///
/// The slot freed last is handed out first, while it is still in the processor's cache. A ring
/// that walked its whole capacity would make every packet a cache miss twice over; here a short
/// delay never touches more than its own packets need.
#[derive(Debug)]
pub(super) struct Pool {
    memory: Mapping,
    reserve: Arc<Reserve>,
    budget: usize,
    carved: usize,
    free: [Vec<u32>; SLOTS.len()],
}

/// A place for one frame. Not `Copy`: whoever holds it gives it back once.
#[derive(Debug)]
pub(super) struct Slot {
    class: u8,
    /// Start of the slot in units, which 32 bits can count in 256 GiB.
    place: u32,
}

impl Pool {
    /// A pool that will touch at most `budget`, which may be raised to `most` later.
    pub(super) fn new(budget: Bytes, most: Bytes) -> io::Result<Self> {
        // Where the system promises no more than it has, the budget alone must do.
        let size = |bytes: Bytes| (bytes.get() as usize).clamp(WARM, 1 << 38);
        let memory = Mapping::reserve(size(most)).or_else(|_| Mapping::reserve(size(budget)))?;
        let reserve = Reserve::new(memory.prefault(), WARM);
        let mut pool = Pool { memory, reserve, budget: 0, carved: 0, free: Default::default() };
        pool.set_budget(budget);
        pool.memory[..WARM].fill(0);
        Ok(pool)
    }

    /// Where it says what memory it will need soon.
    pub(super) fn reserve(&self) -> Arc<Reserve> {
        self.reserve.clone()
    }

    /// Changes how much may be touched from now on; what has been stays.
    pub(super) fn set_budget(&mut self, budget: Bytes) {
        self.budget = (budget.get() as usize).clamp(WARM, self.memory.len());
    }

    /// A slot that takes any frame, or `None` when the budget is spent.
    pub(super) fn take_largest(&mut self) -> Option<Slot> {
        self.take_class(LARGEST)
    }

    /// A slot that takes a frame of `length` bytes and not much more, if that is worth a copy
    /// from the slot of any size that it has been read to.
    ///
    /// Small frames always are. Large ones, which cost more to copy, are when memory is short:
    /// half of the budget is carved.
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
        let place = self.free[class].pop()?;
        Some(Slot { class: class as u8, place })
    }

    /// Takes a slot back.
    pub(super) fn give(&mut self, slot: Slot) {
        self.free[usize::from(slot.class)].push(slot.place);
    }

    /// The whole slot, to write into.
    pub(super) fn bytes_mut(&mut self, slot: &Slot) -> &mut [u8] {
        let (start, size) = slot.span();
        &mut self.memory[start..start + size]
    }

    /// The first `length` bytes of the slot.
    pub(super) fn bytes(&self, slot: &Slot, length: usize) -> &[u8] {
        let (start, _) = slot.span();
        &self.memory[start..start + length]
    }

    /// Copies the first `length` bytes of one slot to another.
    pub(super) fn copy(&mut self, from: &Slot, to: &Slot, length: usize) {
        let start = from.span().0;
        self.memory.copy_within(start..start + length, to.span().0);
    }

    /// The memory handed out at any time so far.
    pub(super) fn touched(&self) -> Bytes {
        Bytes::new(self.carved as u64)
    }

    fn carve(&mut self, class: usize) {
        let size = SLOTS[class];
        let room = self.budget.saturating_sub(self.carved);
        let count = (CARVING / size).max(1).min(room / size);
        // The first slot of the carving is handed out first.
        let start = self.carved;
        let places = (0..count).rev().map(|i| ((start + i * size) / UNIT) as u32);
        self.free[class].extend(places);
        self.carved += count * size;
        let ahead = (self.carved / 2).clamp(*AHEAD.start(), *AHEAD.end());
        self.reserve.want((self.carved + ahead).min(self.budget));
    }
}

impl Slot {
    fn span(&self) -> (usize, usize) {
        (self.place as usize * UNIT, SLOTS[usize::from(self.class)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(budget: Bytes) -> Pool {
        Pool::new(budget, Bytes::mib(256)).unwrap()
    }

    #[test]
    fn the_slot_freed_last_is_used_first() {
        let mut pool = pool(Bytes::mib(64));
        let (a, b) = (pool.take_smaller(100).unwrap(), pool.take_smaller(100).unwrap());
        let (place_a, place_b) = (a.place, b.place);
        pool.give(b);
        pool.give(a);
        assert_eq!(pool.take_smaller(100).unwrap().place, place_a);
        assert_eq!(pool.take_smaller(100).unwrap().place, place_b);
    }

    #[test]
    fn slots_do_not_overlap_and_fit_their_frame() {
        let mut pool = pool(Bytes::mib(16));
        let lengths = [60, 256, 2048, 2049, 9010, 16_384, 16_385, MAX_FRAME];
        let slots: Vec<Slot> = (lengths.iter().cycle().take(160))
            .map(|l| pool.take_smaller(*l).or_else(|| pool.take_largest()).unwrap())
            .collect();
        for (mark, slot) in slots.iter().enumerate() {
            pool.bytes_mut(slot).fill(mark as u8);
        }
        for (mark, (slot, length)) in slots.iter().zip(lengths.iter().cycle()).enumerate() {
            assert!(pool.bytes(slot, *length).iter().all(|byte| *byte == mark as u8));
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
        assert_eq!(pool.take_smaller(20_000).map(|slot| slot.span().1), Some(32 << 10));
        assert!(pool.take_smaller(60_000).is_none());
        drop(half);
    }
}
