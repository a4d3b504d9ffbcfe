//! The counters of a stream of probes.

use longhaul_core::path::{Bursts, Delays, Reordering};
use longhaul_core::result::{ProbeFigures, Proportion};

use crate::test::SequenceTracker;

/// Counts the packets of a stream of probes.
#[derive(Debug)]
pub(super) struct ProbeTally {
    account: SequenceTracker,
    reordering: Reordering,
    bursts: Bursts,
    delays: Delays,
}

/// The end of the numbers that the [`SequenceTracker`] accepts.
const NUMBERS: u64 = 1 << 63;

impl ProbeTally {
    pub(super) fn new() -> Self {
        ProbeTally {
            account: SequenceTracker::new(),
            reordering: Reordering::default(),
            bursts: Bursts::default(),
            delays: Delays::default(),
        }
    }

    /// Records packet `number`, sent and received at these times in ns of different clocks.
    pub(super) fn take(&mut self, number: u64, sent_ns: u64, received_ns: u64) {
        if number < NUMBERS && self.account.take(number) {
            self.account.arrival(sent_ns, received_ns);
            self.reordering.take(number, received_ns);
            self.bursts.take(number);
            self.delays.take(number, sent_ns, received_ns);
        }
    }

    /// Returns the figures of a stream of `sent` packets, of which the sender's host dropped some,
    /// and this host at most `host_drops`.
    pub(super) fn figures(
        &mut self,
        sent: u64,
        sender_dropped: u64,
        host_drops: u64,
    ) -> ProbeFigures {
        self.account.end(sent.min(NUMBERS));
        let counts = self.account.counts();
        let arrived = counts.datagrams.saturating_add(counts.late);
        let missing = counts.expected.saturating_sub(arrived).saturating_sub(sender_dropped);
        let receiver_dropped = host_drops.min(missing);
        let (reordering_extent, reordering_mean_extent) = self.reordering.extents();
        let count = |count| Proportion { count, ..Proportion::default() };
        ProbeFigures {
            sent: counts.expected,
            received: counts.datagrams,
            lost: count(missing - receiver_dropped),
            // Gaps do not show whether the path or a host lost a packet.
            loss_bursts: (sender_dropped == 0 && receiver_dropped == 0)
                .then(|| self.bursts.count(counts.expected))
                .flatten(),
            duplicated: count(counts.duplicated),
            reordered: count(self.reordering.reordered()),
            reordering_extent,
            reordering_mean_extent,
            three_reordered: self.reordering.three_reordered(),
            reordering_late_ms: self.reordering.max_late_ms(),
            sender_dropped,
            receiver_dropped,
            jitter_ms: counts.jitter_ms,
            delay: self.delays.variation(),
        }
        .checked()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_is_accounted_for() {
        let mut tally = ProbeTally::new();
        // 3 and 9 are missing, 5 arrives after 7, 6 arrives twice.
        for (at, number) in [0, 1, 2, 4, 6, 7, 5, 6, 8].into_iter().enumerate() {
            tally.take(number, number * 1000, 1_000_000 + at as u64 * 1000);
        }
        tally.take(u64::MAX, 0, 0);
        let found = tally.figures(11, 1, 0);
        assert_eq!((found.sent, found.received), (11, 8));
        // Of the three missing one was dropped by the sender's host.
        assert_eq!((found.lost.count, found.lost.of, found.sender_dropped), (2, 10, 1));
        assert_eq!((found.duplicated.count, found.reordered.count), (1, 1));
        assert_eq!((found.reordering_extent, found.three_reordered), (2, 0));
        assert!(found.delay.is_some() && found.lost.low < 0.2 && found.lost.high > 0.2);
        let mut tally = ProbeTally::new();
        tally.take(0, 0, 0);
        let found = tally.figures(10, 0, 100);
        assert_eq!((found.lost.count, found.receiver_dropped), (0, 9));
    }

    #[test]
    fn a_peer_that_makes_numbers_up_does_no_harm() {
        let mut tally = ProbeTally::new();
        for number in [u64::MAX, NUMBERS - 1, 0, NUMBERS] {
            tally.take(number, u64::MAX, 0);
        }
        let found = tally.figures(u64::MAX, u64::MAX, u64::MAX);
        assert!(found.lost.count <= found.lost.of.max(found.sent));
    }
}
