//! The pieces in flight, in order of departure.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::store::ParcelId;
use crate::link::{LinkTime, Piece};

/// A piece of a packet in flight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Departure {
    pub(super) parcel: ParcelId,
    /// The segments, their departure time and their treatment.
    pub(super) piece: Piece,
}

/// The pieces in flight in order of departure. Pieces due at the same time keep the order of
/// arrival.
///
/// Adding a piece that is due last takes constant time. Without jitter and reordering every piece
/// is due last. Only a piece that overtakes others is stored in a heap.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    in_order: VecDeque<Departure>,
    overtaking: BinaryHeap<Reverse<Overtaker>>,
    /// The number of overtaking pieces so far, which orders those due at the same time.
    overtakers: u64,
    /// The held pieces in the order of their release. Each also has a latest departure time, and
    /// these times increase.
    held: VecDeque<Departure>,
}

#[derive(Debug)]
struct Overtaker {
    number: u64,
    departure: Departure,
}

impl Schedule {
    pub(super) fn add(&mut self, departure: Departure) {
        if departure.piece.treatment.held {
            self.held.push_back(departure);
        } else {
            self.place(departure);
        }
    }

    /// Makes the piece that was held first leave at `at`, unless it is due by then.
    pub(super) fn release(&mut self, at: LinkTime) {
        self.place_held_until(at);
        if let Some(mut departure) = self.held.pop_front() {
            departure.piece.at = at;
            self.place(departure);
        }
    }

    /// Moves the held pieces that are due by `at` to the other pieces.
    fn place_held_until(&mut self, at: LinkTime) {
        while self.held.front().is_some_and(|held| held.piece.at <= at) {
            if let Some(departure) = self.held.pop_front() {
                self.place(departure);
            }
        }
    }

    fn place(&mut self, departure: Departure) {
        match self.in_order.back() {
            Some(last) if last.piece.at > departure.piece.at => {
                self.overtakers += 1;
                self.overtaking.push(Reverse(Overtaker { number: self.overtakers, departure }));
            }
            _ => self.in_order.push_back(departure),
        }
    }

    /// Returns the time at which the next piece is due.
    pub(super) fn next(&self) -> Option<LinkTime> {
        let first = self.in_order.front().map(|departure| departure.piece.at);
        if self.overtaking.is_empty() && self.held.is_empty() {
            return first;
        }
        let overtaker = self.overtaking.peek().map(|Reverse(other)| other.departure.piece.at);
        let held = self.held.front().map(|departure| departure.piece.at);
        [first, overtaker, held].into_iter().flatten().min()
    }

    /// Removes and returns the next piece, if it is due at `now`.
    pub(super) fn take_due(&mut self, now: LinkTime) -> Option<Departure> {
        let next = self.next().filter(|next| *next <= now)?;
        self.place_held_until(next);
        // At equal times the in-order piece comes first: it was already in the queue when the
        // overtaking piece was added, because a piece at the end of the queue was later.
        if self.in_order.front().is_some_and(|departure| departure.piece.at == next) {
            return self.in_order.pop_front();
        }
        self.overtaking.pop().map(|Reverse(overtaker)| overtaker.departure)
    }

    /// Iterates over all pieces in flight in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Departure> {
        let overtaking = self.overtaking.iter().map(|Reverse(overtaker)| &overtaker.departure);
        self.in_order.iter().chain(overtaking).chain(&self.held)
    }
}

impl Overtaker {
    fn key(&self) -> (LinkTime, u64) {
        (self.departure.piece.at, self.number)
    }
}

impl PartialEq for Overtaker {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Overtaker {}

impl PartialOrd for Overtaker {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Overtaker {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::units::Bytes;
    use proptest::prelude::*;

    use super::super::memory::PacketMemory;
    use super::super::store::Store;
    use super::*;
    use crate::link::{PacketShape, Treatment};

    /// Returns a departure at `at`, identified by its first segment, `mark`.
    fn departure(parcel: ParcelId, at: u64, mark: u32) -> Departure {
        let at = LinkTime::from_nanos(at);
        let piece = Piece { segments: mark..mark + 1, at, treatment: Treatment::default() };
        Departure { parcel, piece }
    }

    fn some_parcel() -> ParcelId {
        let mut store = Store::new(Bytes::mib(4), 1, PacketMemory::of(Bytes::mib(4))).unwrap();
        store.keep(60, PacketShape::single(60), 1).unwrap()
    }

    #[test]
    fn leaves_by_time_and_then_by_arrival() {
        let parcel = some_parcel();
        let mut schedule = Schedule::default();
        for (at, mark) in [(10, 0), (30, 1), (20, 2), (20, 3), (30, 4), (5, 5)] {
            schedule.add(departure(parcel, at, mark));
        }
        assert_eq!(schedule.next(), Some(LinkTime::from_nanos(5)));
        let now = LinkTime::from_nanos(29);
        let order: Vec<u32> =
            std::iter::from_fn(|| schedule.take_due(now)).map(|d| d.piece.segments.start).collect();
        assert_eq!(order, [5, 0, 2, 3]);
        let left: Vec<u32> = schedule.iter().map(|d| d.piece.segments.start).collect();
        assert_eq!(left, [1, 4]);
    }

    #[test]
    fn a_held_piece_leaves_on_release_or_at_its_latest_time() {
        let parcel = some_parcel();
        let mut schedule = Schedule::default();
        let held = |at, mark| {
            let mut held = departure(parcel, at, mark);
            held.piece.treatment.held = true;
            held
        };
        schedule.add(held(100, 0));
        schedule.add(held(110, 1));
        schedule.add(departure(parcel, 20, 2));
        schedule.release(LinkTime::from_nanos(20));
        schedule.add(departure(parcel, 20, 3));
        assert_eq!(schedule.next(), Some(LinkTime::from_nanos(20)));
        assert_eq!(schedule.iter().count(), 4);
        let order = |schedule: &mut Schedule| -> Vec<u32> {
            let now = LinkTime::from_nanos(200);
            std::iter::from_fn(|| schedule.take_due(now)).map(|d| d.piece.segments.start).collect()
        };
        assert_eq!(order(&mut schedule), [2, 0, 3, 1]);
        schedule.add(held(300, 0));
        schedule.add(held(320, 1));
        schedule.add(departure(parcel, 310, 2));
        schedule.release(LinkTime::from_nanos(310));
        assert_eq!(schedule.next(), Some(LinkTime::from_nanos(300)), "the first was too late");
    }

    proptest! {
        #[test]
        fn the_order_is_that_of_a_stable_sort(
            steps in prop::collection::vec((0..50u64, any::<bool>()), 1..200),
        ) {
            let parcel = some_parcel();
            let mut schedule = Schedule::default();
            let mut expected: Vec<Departure> = Vec::new();
            for (mark, (at, take)) in steps.into_iter().enumerate() {
                let departure = departure(parcel, at, mark as u32);
                schedule.add(departure.clone());
                let place = expected.partition_point(|other| other.piece.at <= departure.piece.at);
                expected.insert(place, departure);
                if take {
                    let now = LinkTime::from_nanos(25);
                    let next = (expected[0].piece.at <= now).then(|| expected.remove(0));
                    prop_assert_eq!(schedule.take_due(now), next);
                }
            }
            let end = LinkTime::from_nanos(50);
            let rest: Vec<Departure> = std::iter::from_fn(|| schedule.take_due(end)).collect();
            prop_assert_eq!(rest, expected);
        }
    }
}
