//! Datagram counters.

use serde::{Deserialize, Serialize};

/// One end's datagram counters of one stream, for an interval or a whole test.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct UdpCounts {
    /// The number of datagrams. At the sender those that the kernel accepted; at the receiver those
    /// that arrived in time and for the first time.
    pub datagrams: u64,
    /// The number of datagrams by their sequence numbers; the sender includes those that its host
    /// dropped.
    pub expected: u64,
    /// The datagrams that arrived too late; they count neither as received nor as lost.
    pub late: u64,
    /// The duplicates.
    pub duplicated: u64,
    /// The datagrams that arrived after one with a higher number; they count as received.
    pub reordered: u64,
    /// The datagrams that this host dropped: at the sender because the interface's queue was full,
    /// at the receiver because the socket's buffer was full.
    pub host_dropped: u64,
    /// The final interarrival jitter in ms (RFC 3550, section 6.4.1), at the receiver only.
    pub jitter_ms: f64,
}

impl UdpCounts {
    /// Returns the counters since `earlier`. The jitter is a moving average and is not changed.
    #[must_use]
    pub fn since(&self, earlier: &UdpCounts) -> Self {
        UdpCounts {
            datagrams: self.datagrams.saturating_sub(earlier.datagrams),
            expected: self.expected.saturating_sub(earlier.expected),
            late: self.late.saturating_sub(earlier.late),
            duplicated: self.duplicated.saturating_sub(earlier.duplicated),
            reordered: self.reordered.saturating_sub(earlier.reordered),
            host_dropped: self.host_dropped.saturating_sub(earlier.host_dropped),
            jitter_ms: self.jitter_ms,
        }
    }
}

/// The datagrams of one stream or of all streams, combined from both ends.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct UdpResult {
    /// The datagrams that the sender numbered.
    pub sent: u64,
    /// The datagrams that arrived in time, each counted once.
    pub received: u64,
    /// The datagrams lost between the two hosts.
    pub lost: u64,
    /// The lost datagrams in percent of those that left the sender.
    pub lost_percent: f64,
    /// The datagrams that arrived too late to count.
    pub late: u64,
    /// The duplicates.
    pub duplicated: u64,
    /// The datagrams that arrived after one with a higher number.
    pub reordered: u64,
    /// The datagrams that the sender's host dropped before the path.
    pub sender_dropped: u64,
    /// The datagrams that the receiver's host dropped after the path.
    pub receiver_dropped: u64,
    /// The interarrival jitter in ms (RFC 3550); for several streams the mean.
    pub jitter_ms: f64,
}

impl UdpResult {
    /// Combines the counters of both ends. If the sender's are missing, its drops count as lost.
    pub fn join(sender: Option<&UdpCounts>, receiver: &UdpCounts) -> Self {
        let sender_dropped = sender.map_or(0, |s| s.host_dropped);
        let arrived = receiver.datagrams.saturating_add(receiver.late);
        let missing = receiver.expected.saturating_sub(arrived);
        // A drop is counted when it happens, so it may belong to datagram numbers of the previous
        // interval.
        let lost = missing.saturating_sub(sender_dropped).saturating_sub(receiver.host_dropped);
        UdpResult {
            sent: receiver.expected,
            received: receiver.datagrams,
            lost,
            lost_percent: 0.0,
            late: receiver.late,
            duplicated: receiver.duplicated,
            reordered: receiver.reordered,
            sender_dropped,
            receiver_dropped: receiver.host_dropped,
            jitter_ms: receiver.jitter_ms,
        }
        .with_percent()
    }

    /// Returns the sum of all streams; `None` if there are none.
    pub fn sum(streams: impl Iterator<Item = UdpResult>) -> Option<Self> {
        let (mut sum, mut count) = (UdpResult::default(), 0);
        for stream in streams {
            count += 1;
            sum.sent = sum.sent.saturating_add(stream.sent);
            sum.received = sum.received.saturating_add(stream.received);
            sum.lost = sum.lost.saturating_add(stream.lost);
            sum.late = sum.late.saturating_add(stream.late);
            sum.duplicated = sum.duplicated.saturating_add(stream.duplicated);
            sum.reordered = sum.reordered.saturating_add(stream.reordered);
            sum.sender_dropped = sum.sender_dropped.saturating_add(stream.sender_dropped);
            sum.receiver_dropped = sum.receiver_dropped.saturating_add(stream.receiver_dropped);
            sum.jitter_ms += stream.jitter_ms;
        }
        sum.jitter_ms /= f64::from(count.max(1));
        (count > 0).then(|| sum.with_percent())
    }

    fn with_percent(self) -> Self {
        let left = self.sent.saturating_sub(self.sender_dropped);
        let lost_percent = if left > 0 { 100.0 * self.lost as f64 / left as f64 } else { 0.0 };
        UdpResult { lost_percent, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_datagrams_are_distinguished_by_place() {
        let sender =
            UdpCounts { datagrams: 990, expected: 1000, host_dropped: 10, ..UdpCounts::default() };
        let receiver = UdpCounts {
            datagrams: 900,
            expected: 1000,
            late: 5,
            duplicated: 3,
            reordered: 7,
            host_dropped: 25,
            jitter_ms: 0.5,
        };
        let joined = UdpResult::join(Some(&sender), &receiver);
        assert_eq!((joined.sent, joined.received, joined.late), (1000, 900, 5));
        assert_eq!((joined.lost, joined.sender_dropped, joined.receiver_dropped), (60, 10, 25));
        assert!((joined.lost_percent - 100.0 * 60.0 / 990.0).abs() < 1e-9);
        assert_eq!(UdpResult::join(None, &receiver).lost, 70);
        let sum = UdpResult::sum([joined, joined].into_iter()).unwrap();
        assert_eq!((sum.sent, sum.lost, sum.jitter_ms), (2000, 120, 0.5));
        assert_eq!(UdpResult::sum(std::iter::empty()), None);
    }
}
