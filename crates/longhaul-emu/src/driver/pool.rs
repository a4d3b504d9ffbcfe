use std::io;

use longhaul_core::units::Bytes;
use longhaul_sys::memory::Mapping;
use longhaul_sys::tun::MAX_FRAME;

/// What is carved at a time: a huge page, so that a short delay touches few of them.
const CHUNK: usize = 2 << 20;

/// Sizes of slots. Acknowledgements and small requests fit the first, packets of an MTU of 9000
/// the second, every frame the third (in whole cache lines).
const SLOTS: [usize; 3] = [2 << 10, 16 << 10, MAX_FRAME.next_multiple_of(64)];

/// The class of slot that takes any frame.
pub(super) const LARGEST: usize = SLOTS.len() - 1;

/// Memory for packets under way: slots of a few sizes within a byte budget.
///
/// The slot freed last is handed out first, while it is still in the processor's cache. A ring
/// that walked its whole capacity would make every packet a cache miss twice over; here a short
/// delay never touches more than its own packets need.
#[derive(Debug)]
pub(super) struct Pool {
    memory: Mapping,
    carved: usize,
    free: [Vec<u32>; SLOTS.len()],
}

/// A place for one frame. Not `Copy`: whoever holds it gives it back once.
#[derive(Debug)]
pub(super) struct Slot {
    class: u8,
    /// Start of the slot in units of 64 bytes, which every slot size is a multiple of.
    place: u32,
}

const UNIT: usize = 64;

impl Pool {
    /// A pool that will touch at most `budget`, rounded up to a whole chunk for each slot size.
    pub(super) fn new(budget: Bytes) -> io::Result<Self> {
        let chunks = (budget.get() as usize).div_ceil(CHUNK).max(SLOTS.len());
        // Places are 32 bits of 64 bytes: 256 GiB.
        let chunks = chunks.min((1 << 38) / CHUNK);
        let memory = Mapping::reserve(chunks * CHUNK)?;
        let mut pool = Pool { memory, carved: 0, free: Default::default() };
        // One chunk of each size is touched now: the first packets must not wait for the kernel
        // to clear a huge page.
        for class in 0..SLOTS.len() {
            pool.memory[pool.carved * CHUNK..][..CHUNK].fill(0);
            pool.carve(class);
        }
        Ok(pool)
    }

    /// A slot for a frame of `length` bytes, or `None` when the budget is spent.
    pub(super) fn take(&mut self, length: usize) -> Option<Slot> {
        let fitting = SLOTS.iter().position(|size| length <= *size)?;
        if self.free[fitting].is_empty() {
            self.carve(fitting);
        }
        // With every chunk carved, a larger slot serves as well.
        let class = (fitting..SLOTS.len()).find(|class| !self.free[*class].is_empty())?;
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
        Bytes::new((self.carved * CHUNK) as u64)
    }

    fn carve(&mut self, class: usize) {
        let start = self.carved * CHUNK;
        if start + CHUNK > self.memory.len() {
            return;
        }
        self.carved += 1;
        let size = SLOTS[class];
        // The first slot of the chunk is handed out first.
        let places = (0..CHUNK / size).rev().map(|i| ((start + i * size) / UNIT) as u32);
        self.free[class].extend(places);
    }
}

impl Slot {
    pub(super) fn is_largest(&self) -> bool {
        usize::from(self.class) == LARGEST
    }

    fn span(&self) -> (usize, usize) {
        (self.place as usize * UNIT, SLOTS[usize::from(self.class)])
    }
}

/// The class of slot that a frame of `length` bytes is kept in.
pub(super) fn is_large(length: usize) -> bool {
    length > SLOTS[LARGEST - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slot_freed_last_is_used_first() {
        let mut pool = Pool::new(Bytes::mib(64)).unwrap();
        let (a, b) = (pool.take(100).unwrap(), pool.take(100).unwrap());
        let (place_a, place_b) = (a.place, b.place);
        pool.give(b);
        pool.give(a);
        assert_eq!(pool.take(100).unwrap().place, place_a);
        assert_eq!(pool.take(100).unwrap().place, place_b);
    }

    #[test]
    fn slots_do_not_overlap_and_fit_their_frame() {
        let mut pool = Pool::new(Bytes::mib(8)).unwrap();
        let lengths = [60, 2048, 2049, 9010, 16_384, 16_385, MAX_FRAME];
        let slots: Vec<Slot> =
            lengths.iter().cycle().take(70).map(|l| pool.take(*l).unwrap()).collect();
        for (mark, slot) in slots.iter().enumerate() {
            pool.bytes_mut(slot).fill(mark as u8);
        }
        for (mark, (slot, length)) in slots.iter().zip(lengths.iter().cycle()).enumerate() {
            assert!(pool.bytes(slot, *length).iter().all(|byte| *byte == mark as u8));
        }
    }

    #[test]
    fn the_budget_holds_and_is_reused() {
        let mut pool = Pool::new(Bytes::mib(8)).unwrap();
        let slots: Vec<Slot> = std::iter::from_fn(|| pool.take(MAX_FRAME)).collect();
        assert_eq!(slots.len(), 2 * (CHUNK / SLOTS[LARGEST]));
        assert_eq!(pool.touched(), Bytes::mib(8));
        let small: Vec<Slot> = std::iter::from_fn(|| pool.take(60)).collect();
        assert_eq!(small.len(), CHUNK / SLOTS[0] + CHUNK / SLOTS[1]);
        for slot in slots {
            pool.give(slot);
        }
        assert!(pool.take(60).unwrap().is_largest(), "a larger slot serves");
        assert_eq!(pool.touched(), Bytes::mib(8));
    }
}
