//! The times at which the probes of a recording entered its path, from which a replay finds the probe
//! nearest to a segment.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// The times at which the probes of one direction were sent, in order of time.
///
/// A segment has the fate of the probe that was sent nearest to it. The recorder sends a request
/// per slot, so the nearest request is at most half an interval away. The answers leave when the
/// requests arrive: at irregular times, and in another order if requests overtook each other.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Moments {
    interval_ns: u64,
    slots: u64,
    /// The probes in order of time; empty if probe i was sent at i intervals.
    sent: Vec<Moment>,
}

/// The probe at position p: it has slot p + `shift`, and was sent `offset_us` after p intervals. A
/// recording has millions of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Moment {
    offset_us: i32,
    shift: i32,
}

impl Moments {
    /// Returns the times of probes that were sent once per interval.
    pub(super) fn regular(interval: Duration, slots: usize) -> Self {
        let interval_ns = (interval.as_nanos() as u64).max(1);
        Moments { interval_ns, slots: slots as u64, sent: Vec::new() }
    }

    /// Returns the times of answers, of which the one to the request of slot i left `delays_us[i]`
    /// after that request was sent.
    pub(super) fn of_answers(interval: Duration, delays_us: &[u32]) -> Self {
        let mut moments = Moments::regular(interval, delays_us.len());
        let mut sent: Vec<Moment> = Vec::with_capacity(delays_us.len());
        let delays = delays_us.iter().copied().enumerate();
        in_order(interval, delays, |sent_us, slot| {
            let place = sent.len();
            sent.push(Moment {
                offset_us: (sent_us as i64 - moments.start_us(place) as i64) as i32,
                shift: (slot as i64 - place as i64) as i32,
            });
        });
        moments.sent = sent;
        moments
    }

    /// Returns the slot of the probe nearest to `time` since the start; the recording repeats.
    pub(super) fn slot(&self, time: Duration) -> usize {
        let (time, total) = (time.as_nanos() as u64, self.slots * self.interval_ns);
        let within = time % total.max(1);
        let Some(first) = self.sent.first() else {
            let place = (within + self.interval_ns / 2) / self.interval_ns;
            return (place % self.slots.max(1)) as usize;
        };
        let mut within = within / 1000;
        // The answers of the last slots leave after the end of the last interval.
        if time >= total && within < first.offset_us.max(0) as u64 {
            within += total / 1000;
        }
        let later = self.later(within);
        let place = match (later.checked_sub(1), later < self.sent.len()) {
            (None, _) => 0,
            (Some(before), false) => before,
            (Some(before), true) => {
                let nearer = within - self.at(before) <= self.at(later) - within;
                if nearer { before } else { later }
            }
        };
        (place as i64 + i64::from(self.sent[place].shift)) as usize
    }

    /// Returns the position of the first probe that was sent after `time_us`.
    fn later(&self, time_us: u64) -> usize {
        let (mut low, mut high) = (0, self.sent.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.at(middle) <= time_us {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    fn at(&self, place: usize) -> u64 {
        (self.start_us(place) as i64 + i64::from(self.sent[place].offset_us)) as u64
    }

    /// Returns the time after `place` intervals.
    fn start_us(&self, place: usize) -> u64 {
        place as u64 * self.interval_ns / 1000
    }
}

/// Passes the arrivals of probes to `take` in order of time, and probes that arrive together in the
/// order of their slots. Each probe has its slot, at whose time it was sent, and its delay in us.
///
/// Only the probes on the way are kept, because a recording has millions of probes.
pub(super) fn in_order(
    interval: Duration,
    probes: impl Iterator<Item = (usize, u32)>,
    mut take: impl FnMut(u64, usize),
) {
    let slots = Moments::regular(interval, 0);
    let mut on_way: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    for (slot, delay) in probes {
        let sent = slots.start_us(slot);
        while let Some(Reverse((at, earlier))) =
            on_way.peek().copied().filter(|next| next.0.0 < sent)
        {
            on_way.pop();
            take(at, earlier);
        }
        on_way.push(Reverse((sent + u64::from(delay), slot)));
    }
    while let Some(Reverse((at, slot))) = on_way.pop() {
        take(at, slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_millis(10);
    const US: fn(u64) -> Duration = Duration::from_micros;

    #[test]
    fn a_segment_belongs_to_the_nearest_request() {
        let moments = Moments::regular(INTERVAL, 5);
        let slots = [0, 4_999, 5_000, 14_999, 44_999, 45_000, 50_000, 61_000];
        assert_eq!(slots.map(|us| moments.slot(US(us))), [0, 0, 1, 1, 4, 0, 0, 1]);
    }

    #[test]
    fn a_segment_belongs_to_the_nearest_answer() {
        // Slot 1 left at 26 ms, slot 2 at 25 ms, slots 3 and 4 together at 45 ms.
        let moments = Moments::of_answers(INTERVAL, &[5_000, 16_000, 5_000, 15_000, 5_000]);
        let slots = [0, 5_000, 14_900, 15_100, 25_000, 25_600, 35_000, 36_000, 44_900, 48_000];
        assert_eq!(slots.map(|us| moments.slot(US(us))), [0, 0, 0, 2, 2, 1, 1, 3, 3, 4]);
        assert_eq!(moments.slot(US(52_000)), 4, "the recording repeats at 55 ms");
        assert_eq!(moments.slot(US(55_000)), 0);
    }

    #[test]
    fn answers_at_their_own_times_meet_their_own_slots() {
        let delays: Vec<u32> = (0..10_000_u32)
            .map(|slot| 20_000 + slot.wrapping_mul(2_654_435_761) % 30_000)
            .collect();
        let moments = Moments::of_answers(INTERVAL, &delays);
        let found = |slot: usize| moments.slot(INTERVAL * slot as u32 + US(delays[slot].into()));
        // Answers that leave in the same microsecond cannot be distinguished.
        let wrong = (10..9_990).filter(|slot| found(*slot) != *slot).count();
        assert!(wrong < 10, "{wrong}");
    }
}
