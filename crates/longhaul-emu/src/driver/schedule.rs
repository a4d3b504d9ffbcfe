use std::collections::VecDeque;

use super::pool::Slot;
use crate::link::{LinkTime, PacketShape};

/// A packet under way.
#[derive(Debug)]
pub(super) struct Departure {
    /// When it is due.
    pub(super) at: LinkTime,
    /// Where its frame is.
    pub(super) slot: Slot,
    /// The frame's bytes.
    pub(super) length: u32,
    /// What it stands for.
    pub(super) shape: PacketShape,
}

/// Packets under way, in the order of departure; those due at one time in the order of arrival.
///
/// A packet due last, as on every link that keeps order, is added in constant time.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    departures: VecDeque<Departure>,
}

impl Schedule {
    pub(super) fn add(&mut self, departure: Departure) {
        match self.departures.back() {
            Some(last) if last.at > departure.at => {
                let at = self.departures.partition_point(|other| other.at <= departure.at);
                self.departures.insert(at, departure);
            }
            _ => self.departures.push_back(departure),
        }
    }

    /// When the next packet is due.
    pub(super) fn next(&self) -> Option<LinkTime> {
        self.departures.front().map(|departure| departure.at)
    }

    /// The next packet, if it is due at `now`.
    pub(super) fn take_due(&mut self, now: LinkTime) -> Option<Departure> {
        if self.next()? > now {
            return None;
        }
        self.departures.pop_front()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Departure> {
        self.departures.iter()
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::units::Bytes;

    use super::super::pool::Pool;
    use super::*;

    #[test]
    fn leaves_by_time_and_then_by_arrival() {
        let mut pool = Pool::new(Bytes::mib(8)).unwrap();
        let mut schedule = Schedule::default();
        for (at, mark) in [(10, 0), (30, 1), (20, 2), (20, 3), (30, 4), (5, 5)] {
            schedule.add(Departure {
                at: LinkTime::from_nanos(at),
                slot: pool.take(60).unwrap(),
                length: mark,
                shape: PacketShape::single(60),
            });
        }
        assert_eq!(schedule.next(), Some(LinkTime::from_nanos(5)));
        let now = LinkTime::from_nanos(29);
        let order: Vec<u32> =
            std::iter::from_fn(|| schedule.take_due(now)).map(|d| d.length).collect();
        assert_eq!(order, [5, 0, 2, 3]);
        assert_eq!(schedule.iter().map(|d| d.length).collect::<Vec<_>>(), [1, 4]);
    }
}
