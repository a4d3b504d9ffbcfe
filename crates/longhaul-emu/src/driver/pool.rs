//! Memory for packets in flight: slots of a few sizes within a byte budget.

use std::io;
use std::sync::Arc;

use longhaul_core::units::Bytes;
use longhaul_sys::memory::Mapping;
use longhaul_sys::tun::MAX_FRAME;

use super::warmer::Reserve;

/// The slot sizes in bytes: for acknowledgements and small requests, for packets of an MTU of 1500
/// and of 9000, and for the super-packets of slower flows. The last size fits every frame and is a
/// multiple of [`UNIT`].
const SLOTS: [usize; 7] =
    [256, 2 << 10, 9 << 10, 16 << 10, 32 << 10, 48 << 10, MAX_FRAME.next_multiple_of(UNIT)];

/// The slot class that fits any frame.
const LARGEST: usize = SLOTS.len() - 1;

/// The unit of slot sizes: one cache line.
const UNIT: usize = 64;

/// The bytes carved into slots of one size at a time. A larger slot is carved singly.
const CARVING: usize = 128 << 10;

/// The bytes touched at the start: two huge pages, so that the first packets do not wait until the
/// kernel has cleared pages.
const WARM: usize = 4 << 20;

/// The limits of the memory that is touched ahead of use, which is half as much as the memory in
/// use. Two pools at the lower limit stay far below 32 MiB, the most that a link without delay may
/// touch.
const AHEAD: std::ops::RangeInclusive<usize> = (6 << 20)..=(48 << 20);

/// Memory for packets in flight: slots of a few sizes within a byte budget.
///
/// The slot freed last is reused first, while it is still in the processor's cache. A ring over the
/// whole capacity would cause two cache misses per packet. With this order a link with a short
/// delay touches only the memory that its packets need.
#[derive(Debug)]
pub(super) struct Pool {
    memory: Mapping,
    reserve: Arc<Reserve>,
    budget: usize,
    carved: usize,
    free: [Vec<u32>; SLOTS.len()],
}

/// Space for one frame. It is not `Copy`, so its owner returns it exactly once.
#[derive(Debug)]
pub(super) struct Slot {
    class: u8,
    /// The start of the slot in units. 32 bits cover 256 GiB.
    place: u32,
}

impl Pool {
    /// Creates a pool that touches at most `budget`, which [`Pool::set_budget`] can raise to
    /// `most`.
    pub(super) fn new(budget: Bytes, most: Bytes) -> io::Result<Self> {
        // Under strict overcommit the mapping of `most` bytes may fail. Then the pool maps only
        // `budget` bytes.
        let size = |bytes: Bytes| (bytes.get() as usize).clamp(WARM, 1 << 38);
        let memory = Mapping::reserve(size(most)).or_else(|_| Mapping::reserve(size(budget)))?;
        let reserve = Reserve::new(memory.prefault(), WARM);
        let mut pool = Pool { memory, reserve, budget: 0, carved: 0, free: Default::default() };
        pool.set_budget(budget);
        pool.memory[..WARM].fill(0);
        Ok(pool)
    }

    /// Returns the record of the memory that the pool needs soon.
    pub(super) fn reserve(&self) -> Arc<Reserve> {
        self.reserve.clone()
    }

    /// Changes how much memory may be touched. Memory already touched stays.
    pub(super) fn set_budget(&mut self, budget: Bytes) {
        self.budget = (budget.get() as usize).clamp(WARM, self.memory.len());
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
        let place = self.free[class].pop()?;
        Some(Slot { class: class as u8, place })
    }

    /// Returns a slot to the pool.
    pub(super) fn give(&mut self, slot: Slot) {
        self.free[usize::from(slot.class)].push(slot.place);
    }

    /// Returns the whole slot for writing.
    pub(super) fn bytes_mut(&mut self, slot: &Slot) -> &mut [u8] {
        let (start, size) = slot.span();
        &mut self.memory[start..start + size]
    }

    /// Returns the first `length` bytes of the slot.
    pub(super) fn bytes(&self, slot: &Slot, length: usize) -> &[u8] {
        let (start, _) = slot.span();
        &self.memory[start..start + length]
    }

    /// Copies the first `length` bytes of one slot to another.
    pub(super) fn copy(&mut self, from: &Slot, to: &Slot, length: usize) {
        let start = from.span().0;
        self.memory.copy_within(start..start + length, to.span().0);
    }

    /// Returns the largest amount of memory in use so far.
    pub(super) fn touched(&self) -> Bytes {
        Bytes::new(self.carved as u64)
    }

    fn carve(&mut self, class: usize) {
        let size = SLOTS[class];
        let room = self.budget.saturating_sub(self.carved);
        let count = (CARVING / size).max(1).min(room / size);
        // The slots are pushed in reverse order, so that the first one is used first.
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
