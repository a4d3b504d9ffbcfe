//! The packets in flight, each stored once, and the order of the segments that wait in a queue of the model.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use longhaul_core::units::Bytes;

use super::memory::PacketMemory;
use super::pool::{LARGEST_SLOT, Pool, Slot, no_memory};
use crate::device::{LONGEST_SHARED, MOST_FRAMES, PacketDevice};
use crate::link::PacketShape;

/// Returns the maximum memory into which `queues` queues of a direction read packets, in addition to the
/// budget.
pub(crate) fn landing_memory(queues: u32) -> Bytes {
    Bytes::new((MOST_FRAMES * LARGEST_SLOT) as u64 * u64::from(queues))
}

/// The packets in flight. Each is stored once, and its memory is freed after its last piece has
/// left.
#[derive(Debug)]
pub(super) struct Store {
    pool: Pool,
    /// The slots into which the next packets are read; the length of a packet is known only after the
    /// read.
    landings: Vec<Slot>,
    /// The lengths of the packets in `landings`, of which `read` have been read.
    lengths: [usize; MOST_FRAMES],
    read: usize,
    /// The largest number of packets to read next.
    batch: usize,
    /// The index of the packet taken last.
    taken: usize,
    parcels: Vec<Option<Parcel>>,
    vacant: Vec<u32>,
}

/// A stored packet.
#[derive(Debug)]
struct Parcel {
    slot: Slot,
    length: u32,
    shape: PacketShape,
    /// The number of pieces that have yet to leave.
    left: u32,
    number: u64,
}

/// The id of a stored packet while pieces of it are in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ParcelId(u32);

impl Store {
    /// Creates a store that keeps at most `budget` bytes of packets in `memory`, in addition to the
    /// slots of one read of up to `batch` packets.
    pub(super) fn new(budget: Bytes, batch: usize, memory: Arc<PacketMemory>) -> io::Result<Self> {
        let batch = batch.clamp(1, MOST_FRAMES);
        let mut pool = Pool::new(budget, batch, memory);
        let slots = (0..batch).map(|_| pool.take_largest());
        let landings = slots.collect::<Option<Vec<Slot>>>().ok_or_else(no_memory)?;
        let (parcels, vacant, lengths) = Default::default();
        Ok(Store { pool, landings, lengths, read: 0, batch: 1, taken: 0, parcels, vacant })
    }

    /// Takes the next frame, and returns its length. If none is left, reads frames from `source`.
    pub(super) fn take(&mut self, source: &dyn PacketDevice) -> io::Result<usize> {
        if self.has_more() {
            self.taken += 1;
            return Ok(self.lengths[self.taken]);
        }
        let batch = self.batch;
        (self.read, self.taken) = (0, 0);
        let mut slots = self.landings.iter_mut();
        let mut buffers: [&mut [u8]; MOST_FRAMES] =
            std::array::from_fn(|_| slots.next().map(Slot::bytes_mut).unwrap_or_default());
        self.read = source.read_many(&mut buffers[..batch], &mut self.lengths[..batch])?;
        // Frames of a flow follow each other with similar lengths. A single short frame between
        // super-packets must not cause the read of several of them.
        let are_short = self.lengths[..self.read].iter().all(|length| *length <= LONGEST_SHARED);
        self.batch = if are_short { (batch * 2).min(self.landings.len()) } else { 1 };
        Ok(self.lengths[0])
    }

    /// Returns whether frames have been read that were not taken.
    pub(super) fn has_more(&self) -> bool {
        self.taken + 1 < self.read
    }

    /// Returns the first `length` bytes of the frame taken last.
    pub(super) fn landed(&self, length: usize) -> &[u8] {
        self.landings[self.taken].bytes(length)
    }

    /// Stores the frame taken last until [`Store::leave`] has been called for each of its `pieces`.
    /// Returns `None` if there is no memory for the frame.
    pub(super) fn keep(
        &mut self,
        length: usize,
        shape: PacketShape,
        pieces: u32,
    ) -> Option<ParcelId> {
        let slot = match self.pool.take_smaller(length) {
            Some(mut slot) => {
                slot.bytes_mut()[..length].copy_from_slice(self.landed(length));
                slot
            }
            // The frame stays in place, and the next frame is read into another slot.
            None => {
                let free = self.pool.take_largest()?;
                std::mem::replace(&mut self.landings[self.taken], free)
            }
        };
        let parcel = Some(Parcel { slot, length: length as u32, shape, left: pieces, number: 0 });
        Some(match self.vacant.pop() {
            Some(at) => {
                self.parcels[at as usize] = parcel;
                ParcelId(at)
            }
            None => {
                self.parcels.push(parcel);
                ParcelId(self.parcels.len() as u32 - 1)
            }
        })
    }

    /// Returns the frame of a packet and its shape.
    pub(super) fn packet(&self, id: ParcelId) -> (&[u8], PacketShape) {
        match &self.parcels[id.0 as usize] {
            Some(parcel) => (parcel.slot.bytes(parcel.length as usize), parcel.shape),
            None => (&[], PacketShape::single(0)),
        }
    }

    /// Records that another piece of the packet has yet to leave.
    pub(super) fn share(&mut self, id: ParcelId) {
        if let Some(parcel) = &mut self.parcels[id.0 as usize] {
            parcel.left += 1;
        }
    }

    /// Sets the number by which a capture refers to the packet.
    pub(super) fn set_number(&mut self, id: ParcelId, number: u64) {
        if let Some(parcel) = &mut self.parcels[id.0 as usize] {
            parcel.number = number;
        }
    }

    /// Returns the number that [`Store::set_number`] has set.
    pub(super) fn number(&self, id: ParcelId) -> u64 {
        self.parcels[id.0 as usize].as_ref().map_or(0, |parcel| parcel.number)
    }

    /// Records that one piece of the packet has left.
    pub(super) fn leave(&mut self, id: ParcelId) {
        let place = &mut self.parcels[id.0 as usize];
        if let Some(parcel) = place {
            parcel.left -= 1;
            if parcel.left == 0 {
                self.vacant.push(id.0);
                if let Some(parcel) = place.take() {
                    self.pool.give(parcel.slot);
                }
            }
        }
    }

    /// Changes how many bytes may be kept from now on.
    pub(super) fn set_budget(&mut self, budget: Bytes) {
        self.pool.set_budget(budget);
    }

    /// Exchanges the frames taken last of two stores in the same memory.
    pub(super) fn swap_landing(&mut self, other: &mut Store) {
        std::mem::swap(&mut self.landings[self.taken], &mut other.landings[other.taken]);
    }

    /// Returns the largest amount of memory that packets have used so far.
    pub(super) fn touched(&self) -> Bytes {
        self.pool.touched()
    }
}

/// The places of the waiting segments, by ticket: the number of a segment among all segments that
/// entered the lane.
#[derive(Debug, Default)]
pub(super) struct WaitingSegments {
    places: HashMap<u64, (ParcelId, u32)>,
}

impl WaitingSegments {
    /// Adds segments of a packet, of which segment 0 has ticket `first`.
    pub(super) fn add(&mut self, first: u64, parcel: ParcelId, segments: Range<u32>) {
        self.places.extend(segments.map(|segment| (first + u64::from(segment), (parcel, segment))));
    }

    /// Removes and returns the segment with this ticket. There is none if its packet could not be
    /// stored.
    pub(super) fn take(&mut self, ticket: u64) -> Option<(ParcelId, u32)> {
        self.places.remove(&ticket)
    }

    /// Returns the segment with this ticket.
    pub(super) fn get(&self, ticket: u64) -> Option<(ParcelId, u32)> {
        self.places.get(&ticket).copied()
    }

    /// Iterates over the waiting segments in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ParcelId, u32)> {
        self.places.values().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(store: &mut Store, length: usize, mark: u8) {
        let taken = store.taken;
        store.landings[taken].bytes_mut()[..length].fill(mark);
    }

    #[test]
    fn a_packet_is_kept_until_its_last_piece_has_left() {
        let mut store = Store::new(Bytes::mib(8), 1, PacketMemory::of(Bytes::mib(8))).unwrap();
        let shape = PacketShape::single(60_000);
        read(&mut store, 60_000, 1);
        let first = store.keep(60_000, shape, 3).unwrap();
        let touched = store.touched();
        for mark in 2..200 {
            read(&mut store, 60_000, mark);
            let other = store.keep(60_000, shape, 1).unwrap();
            assert_eq!(store.packet(other).0, [mark; 60_000]);
            store.leave(other);
            if mark == 20 || mark == 40 {
                store.leave(first);
            }
            assert_eq!(store.packet(first).0, [1; 60_000]);
        }
        store.leave(first);
        assert!(store.touched().get() <= touched.get() + 2 * 65_600, "memory is used again");
    }

    #[test]
    fn the_slots_for_reading_are_beside_the_budget() {
        let most = |batch| {
            let mut store = Store::new(Bytes::mib(4), batch, PacketMemory::of(Bytes::mib(8)));
            let store = store.as_mut().unwrap();
            let keep = || store.keep(60_000, PacketShape::single(60_000), 1);
            std::iter::from_fn(keep).count()
        };
        assert_eq!(most(1), most(MOST_FRAMES));
    }

    #[test]
    fn a_packet_that_does_not_fit_is_refused_and_later_ones_are_stored() {
        let mut store = Store::new(Bytes::mib(4), 1, PacketMemory::of(Bytes::mib(8))).unwrap();
        let shape = PacketShape::single(60_000);
        let kept: Vec<ParcelId> = std::iter::from_fn(|| store.keep(60_000, shape, 1)).collect();
        assert!(kept.len() >= 50);
        read(&mut store, 60_000, 9);
        assert_eq!(store.keep(60_000, shape, 1), None);
        store.leave(kept[7]);
        read(&mut store, 60_000, 9);
        let again = store.keep(60_000, shape, 1).unwrap();
        assert_eq!(store.packet(again).0, [9; 60_000]);
    }
}
