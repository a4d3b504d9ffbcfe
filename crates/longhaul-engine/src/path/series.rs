//! The probes of a recording: matches answers to requests, and attributes losses to a direction.

use std::collections::VecDeque;

use longhaul_core::plan::link::{RecordedProbes, RecordedWindow};

use super::probe_socket::PeerTimes;

/// The number of windows whose fastest round trip gives the offset of the clocks.
const OFFSET_WINDOWS: usize = 10;
/// The longest run of missing answers for which the one-byte counter of requests in the next answer
/// tells lost requests from lost answers.
const RESOLVED: u64 = 200;

/// A request and its answer.
#[derive(Debug, Clone, Copy)]
struct Probe {
    number: u32,
    sent_ns: u64,
    answer: Option<Answer>,
    /// True if the request arrived although the answer is missing.
    lost_back: bool,
    /// True if the fate of a missing answer has been attributed.
    attributed: bool,
}

#[derive(Debug, Clone, Copy)]
struct Answer {
    peer: PeerTimes,
    at_ns: u64,
}

/// The probes that have not been recorded, in the order of sending.
#[derive(Debug)]
pub(super) struct Series {
    probes: VecDeque<Probe>,
    same_clock: bool,
    /// The fastest round trip of each of the last windows in ns, with the offset of the clocks.
    fastest: VecDeque<(i64, i64)>,
    /// The number of requests that the peer had received at the last answer that was recorded.
    requests: Option<u8>,
}

impl Series {
    pub(super) fn new(same_clock: bool) -> Self {
        let (probes, fastest) = Default::default();
        Series { probes, same_clock, fastest, requests: None }
    }

    /// Adds a request.
    pub(super) fn sent(&mut self, number: u32, sent_ns: u64) {
        let (answer, lost_back, attributed) = Default::default();
        self.probes.push_back(Probe { number, sent_ns, answer, lost_back, attributed });
    }

    /// Adds the answer to request `number`. Later answers to the same request are ignored.
    pub(super) fn answered(&mut self, number: u32, peer: PeerTimes, at_ns: u64) {
        let Some(first) = self.probes.front() else { return };
        let index = number.wrapping_sub(first.number) as usize;
        if let Some(probe) = self.probes.get_mut(index) {
            probe.answer.get_or_insert(Answer { peer, at_ns });
        }
    }

    /// Returns the number of requests without a record.
    pub(super) fn len(&self) -> usize {
        self.probes.len()
    }

    /// Removes the first `count` probes, and returns their window, which began at `seconds`.
    pub(super) fn window(&mut self, count: usize, seconds: f64) -> RecordedWindow {
        let count = count.min(self.probes.len());
        self.attribute(count);
        let offset = self.offset(count);
        let (mut up, mut down) = (RecordedProbes::default(), RecordedProbes::default());
        for probe in self.probes.drain(..count) {
            let (there, back) = delays(&probe, offset);
            up.delays_us.push(there);
            down.delays_us.push(back);
        }
        RecordedWindow { seconds, up, down }
    }

    /// Decides for the first `count` probes without an answer whether the request or the answer was
    /// lost. Each answer states how many requests had arrived, so the number of lost requests
    /// between two answers is known. Their order is not; lost requests are assumed to be first.
    fn attribute(&mut self, count: usize) {
        let mut index = 0;
        while index < count {
            if let Some(answer) = self.probes[index].answer {
                self.requests = Some(answer.peer.requests);
                index += 1;
                continue;
            }
            if self.probes[index].attributed {
                index += 1;
                continue;
            }
            let missing =
                self.probes.iter().skip(index).take_while(|probe| probe.answer.is_none()).count();
            let next = self.probes.get(index + missing).and_then(|probe| probe.answer);
            let arrived = next.zip(self.requests).map_or(0, |(next, before)| {
                usize::from(next.peer.requests.wrapping_sub(before)).saturating_sub(1)
            });
            let arrived = if missing as u64 > RESOLVED { 0 } else { arrived.min(missing) };
            for (place, probe) in self.probes.iter_mut().skip(index).take(missing).enumerate() {
                probe.lost_back = place >= missing - arrived;
                probe.attributed = true;
            }
            index += missing;
        }
    }

    /// Returns the offset of the peer's clock in ns, from the fastest of the last round trips: it is
    /// assumed to have taken the same time in both directions (as in NTP, RFC 5905).
    fn offset(&mut self, count: usize) -> i64 {
        if self.same_clock {
            return 0;
        }
        let trips = self.probes.iter().take(count).filter_map(|probe| {
            let answer = probe.answer?;
            let there = difference(answer.peer.arrived_ns, probe.sent_ns);
            let back = difference(answer.at_ns, answer.peer.answered_ns);
            Some((there.saturating_add(back), (there - back) / 2))
        });
        self.fastest.extend(trips.min());
        while self.fastest.len() > OFFSET_WINDOWS {
            self.fastest.pop_front();
        }
        self.fastest.iter().min().map_or(0, |(_, offset)| *offset)
    }
}

/// Returns `later` minus `earlier`, bounded to half a century.
fn difference(later: u64, earlier: u64) -> i64 {
    const MOST: i64 = i64::MAX / 4;
    (later.wrapping_sub(earlier) as i64).clamp(-MOST, MOST)
}

/// Returns the delays of a probe in us, in both directions.
fn delays(probe: &Probe, offset: i64) -> (Option<i64>, Option<i64>) {
    /// The longest delay of the format.
    const MOST_US: i64 = 30_000_000;
    let Some(Answer { peer, at_ns }) = probe.answer else {
        return if probe.lost_back { (None, Some(-1)) } else { (Some(-1), None) };
    };
    let there = difference(peer.arrived_ns, probe.sent_ns) - offset;
    let back = difference(at_ns, peer.answered_ns) + offset;
    let micros = |nanos: i64| Some((nanos / 1000).clamp(0, MOST_US));
    (micros(there), micros(back))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Returns a series of ten requests per 10 ms, answered by a peer whose clock is ahead by
    /// `ahead`, except those for which `answers` is false.
    fn series(ahead: u64, answers: impl Fn(u32) -> Option<u8>) -> Series {
        let mut series = Series::new(false);
        for number in 0..10_u32 {
            let sent = 1_000 * MS + u64::from(number) * 10 * MS;
            series.sent(number + 5, sent);
            if let Some(requests) = answers(number) {
                let extra = if number == 3 { 7 * MS } else { 0 };
                let arrived_ns = (sent + 20 * MS + extra).wrapping_add(ahead);
                let peer = PeerTimes { arrived_ns, answered_ns: arrived_ns + MS, requests };
                series.answered(number + 5, peer, sent + 41 * MS + extra);
            }
        }
        series
    }

    #[test]
    fn delays_are_independent_of_the_clocks() {
        for ahead in [0, 5_000_000 * MS, 0_u64.wrapping_sub(3 * MS)] {
            let mut series = series(ahead, |number| Some(number as u8 + 1));
            let window = series.window(10, 4.0);
            assert_eq!(window.up.delays_us[..4], [20_000, 20_000, 20_000, 27_000].map(Some));
            assert_eq!(window.down.delays_us, [Some(20_000); 10]);
            assert_eq!((window.seconds, series.len()), (4.0, 0));
        }
    }

    #[test]
    fn a_loss_belongs_to_the_direction_in_which_the_count_shows_it() {
        // The requests 2 and 3 are lost; the answers to 6 and 7 are lost.
        let answers = |number: u32| match number {
            0 | 1 => Some(number as u8 + 1),
            2 | 3 | 6 | 7 => None,
            _ => Some(number as u8 - 1),
        };
        let mut series = series(0, answers);
        // A run may span two windows.
        let (first, second) = (series.window(7, 0.0), series.window(3, 0.07));
        let up: Vec<_> = [first.up.delays_us, second.up.delays_us].concat();
        let down: Vec<_> = [first.down.delays_us, second.down.delays_us].concat();
        assert_eq!((up[2], up[3], up[6], up[7]), (Some(-1), Some(-1), None, None));
        assert_eq!((down[2], down[3], down[6], down[7]), (None, None, Some(-1), Some(-1)));
        assert!(up[8].is_some_and(|delay| delay > 0));
    }

    #[test]
    fn made_up_answers_do_no_harm() {
        let mut series = Series::new(false);
        series.answered(3, PeerTimes { arrived_ns: 0, answered_ns: 0, requests: 9 }, 0);
        for number in 0..5 {
            series.sent(number, u64::MAX);
            let peer = PeerTimes { arrived_ns: u64::MAX / 2, answered_ns: 0, requests: 255 };
            series.answered(number.wrapping_sub(1), peer, 1);
            series.answered(u32::MAX, peer, 1);
        }
        let window = series.window(100, 0.0);
        assert_eq!(window.up.delays_us.len(), 5);
        let all = window.up.delays_us.iter().chain(&window.down.delays_us);
        assert!(all.flatten().all(|delay| (-1..=30_000_000).contains(delay)));
    }
}
