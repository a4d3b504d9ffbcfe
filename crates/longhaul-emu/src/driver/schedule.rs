use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::store::ParcelId;
use crate::link::{LinkTime, Piece};

/// A piece of a packet, under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Departure {
    pub(super) parcel: ParcelId,
    /// What is to leave, when and how.
    pub(super) piece: Piece,
}

/// Pieces under way, in the order of departure; those due at one time in the order of arrival.
///
/// A piece due last, as every one is on a link that keeps order, is added in constant time. Only
/// one that overtakes goes to a heap.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    in_order: VecDeque<Departure>,
    overtaking: BinaryHeap<Reverse<Overtaker>>,
    /// How many ever overtook, which tells those due at one time apart.
    overtakers: u64,
}

#[derive(Debug)]
struct Overtaker {
    number: u64,
    departure: Departure,
}

impl Schedule {
    pub(super) fn add(&mut self, departure: Departure) {
        match self.in_order.back() {
            Some(last) if last.piece.at > departure.piece.at => {
                self.overtakers += 1;
                self.overtaking.push(Reverse(Overtaker { number: self.overtakers, departure }));
            }
            _ => self.in_order.push_back(departure),
        }
    }

    /// When the next piece is due.
    pub(super) fn next(&self) -> Option<LinkTime> {
        let first = self.in_order.front().map(|departure| departure.piece.at);
        match self.overtaking.peek() {
            None => first,
            Some(Reverse(overtaker)) => {
                let other = overtaker.departure.piece.at;
                Some(first.map_or(other, |first| first.min(other)))
            }
        }
    }

    /// The next piece, if it is due at `now`.
    pub(super) fn take_due(&mut self, now: LinkTime) -> Option<Departure> {
        let next = self.next().filter(|next| *next <= now)?;
        // One in order that is due at the same time came first: the overtaker found a later one
        // at the end, before which the former had been added.
        if self.in_order.front().is_some_and(|departure| departure.piece.at == next) {
            return self.in_order.pop_front();
        }
        self.overtaking.pop().map(|Reverse(overtaker)| overtaker.departure)
    }

    /// All pieces under way, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Departure> {
        let overtaking = self.overtaking.iter().map(|Reverse(overtaker)| &overtaker.departure);
        self.in_order.iter().chain(overtaking)
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

    use super::super::store::Store;
    use super::*;
    use crate::link::{PacketShape, Treatment};

    /// A departure at `at`, marked by the first of its segments.
    fn departure(parcel: ParcelId, at: u64, mark: u32) -> Departure {
        let at = LinkTime::from_nanos(at);
        let piece = Piece { segments: mark..mark + 1, at, treatment: Treatment::default() };
        Departure { parcel, piece }
    }

    fn some_parcel() -> ParcelId {
        let mut store = Store::new(Bytes::mib(4), Bytes::mib(4)).unwrap();
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
