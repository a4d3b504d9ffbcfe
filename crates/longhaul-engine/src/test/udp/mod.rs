//! UDP flows: sending, receiving and accounting for datagrams.
//!
//! The sender numbers datagrams in 64 bits and passes many at a time to the kernel, which splits
//! them (GSO). The receiver reads merged datagrams (GRO) and [accounts](SequenceTracker) for each
//! number. At the end of its data the sender repeats an end mark until the receiver reports it. The
//! receiver reports four times a second from the start: a sender whose receiver is silent stops
//! (RFC 7675), and does not flood the path.
//!
//! Drops at hosts and on the path are distinguished: `ENOBUFS` at the sender comes from the
//! interface's queue, and at the receiver the kernel reports the drops at the socket's buffer with
//! each datagram.

mod flow;
mod receive;
mod send;

use longhaul_core::result::UdpCounts;

pub(super) use flow::{UdpFlow, receive_buffer_bytes};
pub(super) use receive::{BUFFER_BYTES as USER_BUFFER_BYTES, receive};
pub(super) use send::send;

/// The number of sequence numbers in the window.
const WINDOW: u64 = 1 << 20;
/// The largest distance behind the highest number at which a datagram still counts as received: the
/// reordering of 120 ms at 100 Gb/s of 1472-byte datagrams. Later ones count as late. The window is
/// one word shorter than the bitmap, because entering a new word clears its previous contents.
const REACH: u64 = WINDOW - WORD_BITS;
const WORD_BITS: u64 = u64::BITS as u64;
const WORDS: usize = (WINDOW / WORD_BITS) as usize;

/// Accounts for every number of a flow: received, duplicate, late or missing.
#[derive(Debug)]
pub(crate) struct SequenceTracker {
    /// The highest number seen or announced by an end mark, plus one.
    next: u64,
    /// One bit per number of the last [`REACH`] numbers below `next`: set if it was received.
    arrived: Box<[u64]>,
    counts: UdpCounts,
    /// The jitter in ns, and the last transit time between two clocks.
    jitter_ns: f64,
    transit_ns: Option<i64>,
}

impl SequenceTracker {
    pub(crate) fn new() -> Self {
        SequenceTracker {
            next: 0,
            arrived: vec![0; WORDS].into(),
            counts: UdpCounts::default(),
            jitter_ns: 0.0,
            transit_ns: None,
        }
    }

    /// Records datagram `number`. Returns whether it counts as received.
    #[inline]
    pub(crate) fn take(&mut self, number: u64) -> bool {
        if number >= self.next {
            self.skip_to(number);
            self.next = number + 1;
        } else if self.next - number > REACH {
            self.counts.late += 1;
            return false;
        } else if self.arrived[word(number)] & bit(number) != 0 {
            self.counts.duplicated += 1;
            return false;
        } else {
            self.counts.reordered += 1;
        }
        self.arrived[word(number)] |= bit(number);
        self.counts.datagrams += 1;
        true
    }

    /// Returns the number after the highest one seen or announced.
    fn next(&self) -> u64 {
        self.next
    }

    /// Returns how many numbers before `number` were not seen.
    fn gap_before(&self, number: u64) -> u64 {
        number.saturating_sub(self.next)
    }

    /// Records the end mark: the flow has `total` numbers.
    pub(crate) fn end(&mut self, total: u64) {
        if total > self.next {
            self.skip_to(total);
            self.next = total;
        }
    }

    /// Records that this host dropped `datagrams`.
    fn dropped_here(&mut self, datagrams: u64) {
        self.counts.host_dropped += datagrams;
    }

    /// Records the times of one arrival as a sample of the jitter of RFC 3550. Datagrams that were
    /// sent and received in one piece share their times and are one arrival.
    pub(crate) fn arrival(&mut self, sent_ns: u64, received_ns: u64) {
        let transit = received_ns.wrapping_sub(sent_ns) as i64;
        if let Some(last) = self.transit_ns.replace(transit) {
            let difference = transit.wrapping_sub(last).unsigned_abs() as f64;
            self.jitter_ns += (difference - self.jitter_ns) / 16.0;
        }
    }

    pub(crate) fn counts(&self) -> UdpCounts {
        UdpCounts { expected: self.next, jitter_ms: self.jitter_ns / 1e6, ..self.counts }
    }

    /// Clears the bits from `next` up to and including `number`; the bitmap is a ring.
    #[inline]
    fn skip_to(&mut self, number: u64) {
        let from = self.next;
        if number - from >= WINDOW {
            self.arrived.fill(0);
            return;
        }
        // A datagram in sequence enters a new word every 64 numbers and clears all of it: the other
        // bits belong to numbers 2^20 back, which leave the window with this word.
        let mut at = from;
        while at <= number {
            if at.is_multiple_of(WORD_BITS) {
                self.arrived[word(at)] = 0;
                at += WORD_BITS;
            } else {
                at = at.next_multiple_of(WORD_BITS);
            }
        }
    }
}

fn word(number: u64) -> usize {
    (number % WINDOW / WORD_BITS) as usize
}

fn bit(number: u64) -> u64 {
    1 << (number % WORD_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(numbers: impl IntoIterator<Item = u64>) -> SequenceTracker {
        let mut account = SequenceTracker::new();
        numbers.into_iter().for_each(|number| {
            account.take(number);
        });
        account
    }

    fn missing(counts: UdpCounts) -> u64 {
        counts.expected - counts.datagrams - counts.late
    }

    #[test]
    fn in_sequence_nothing_is_amiss() {
        let counts = after(0..3 * WINDOW + 7).counts();
        let all = 3 * WINDOW + 7;
        assert_eq!(counts, UdpCounts { datagrams: all, expected: all, ..UdpCounts::default() });
    }

    #[test]
    fn lost_reordered_and_duplicated_datagrams_are_counted_separately() {
        // 2 and 5 are lost, 3 comes after 4, 1 and 3 come twice.
        let mut account = after([0, 1, 1, 4, 3, 3, 6]);
        let counts = account.counts();
        assert_eq!((counts.datagrams, counts.expected), (5, 7));
        assert_eq!((counts.reordered, counts.duplicated, counts.late), (1, 2, 0));
        assert_eq!(missing(counts), 2);
        // The last one was lost, too; the end mark shows it.
        account.end(8);
        assert_eq!(missing(account.counts()), 3);
        // It arrives late.
        assert!(account.take(7));
        assert_eq!(missing(account.counts()), 2);
    }

    #[test]
    fn every_place_of_the_window_is_exact() {
        // Odd numbers first, over several windows, then the even ones that are still within the
        // window.
        let top = 2 * WINDOW + 64;
        let mut account = after((0..top).filter(|n| n % 2 == 1));
        assert_eq!(account.counts().reordered, 0);
        let in_reach = (top - REACH..top).filter(|n| n % 2 == 0);
        let wanted = in_reach.clone().count() as u64;
        in_reach.for_each(|n| assert!(account.take(n), "{n}"));
        let counts = account.counts();
        assert_eq!((counts.reordered, counts.duplicated), (wanted, 0));
        (top - REACH..top).for_each(|n| assert!(!account.take(n), "{n}"));
        assert_eq!(account.counts().duplicated, REACH);
    }

    #[test]
    fn a_datagram_older_than_the_window_is_late() {
        let mut account = after([0, 2, WINDOW + 3]);
        assert!(!account.take(1));
        let counts = account.counts();
        assert_eq!((counts.late, counts.datagrams, counts.reordered), (1, 3, 0));
        assert!(account.take(100));
        // A jump over the whole window discards all earlier numbers.
        account.take(10 * WINDOW);
        assert!(account.take(10 * WINDOW - 1));
        assert_eq!(account.counts().duplicated, 0);
    }

    #[test]
    fn monstrous_numbers_do_no_harm() {
        let mut account = after([0, (1 << 63) - 1]);
        account.end((1 << 63) - 1);
        assert_eq!(account.counts().expected, 1 << 63);
        assert_eq!(account.gap_before(5), 0);
    }

    #[test]
    fn jitter_is_that_of_the_rfc() {
        let mut account = SequenceTracker::new();
        // Transit times of 100, 116 and 100 units on clocks that differ: differences of 16.
        for (sent, received) in [(0, 1_000_100), (1000, 1_001_116), (2000, 1_002_100)] {
            account.arrival(sent * 1000, received * 1000);
        }
        let expected = (16.0 / 16.0 + (16.0 - 1.0) / 16.0) * 1000.0;
        assert!((account.jitter_ns - expected).abs() < 1e-6, "{}", account.jitter_ns);
        // A receiver's clock that is behind the sender's is not a problem.
        account.arrival(5_000_000_000, 0);
        assert!(account.counts().jitter_ms > 0.0);
    }
}
