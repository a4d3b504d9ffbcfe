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
    /// The datagrams that arrived too late to count. This field and the following ones are `None`
    /// if the end that counts them is a program that does not report them.
    pub late: Option<u64>,
    /// The duplicates.
    pub duplicated: Option<u64>,
    /// The datagrams that arrived after one with a higher number.
    pub reordered: Option<u64>,
    /// The datagrams that the sender's host dropped before the path.
    pub sender_dropped: Option<u64>,
    /// The datagrams that the receiver's host dropped after the path.
    pub receiver_dropped: Option<u64>,
    /// The interarrival jitter in ms (RFC 3550); for several streams the mean.
    pub jitter_ms: Option<f64>,
}

/// The datagram counters of one end, as far as they are known. The fields are those of
/// [`UdpCounts`].
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct DatagramReport {
    /// See [`UdpCounts::datagrams`].
    pub datagrams: u64,
    /// See [`UdpCounts::expected`].
    pub expected: Option<u64>,
    /// See [`UdpCounts::late`].
    pub late: Option<u64>,
    /// See [`UdpCounts::duplicated`].
    pub duplicated: Option<u64>,
    /// See [`UdpCounts::reordered`].
    pub reordered: Option<u64>,
    /// See [`UdpCounts::host_dropped`].
    pub host_dropped: Option<u64>,
    /// See [`UdpCounts::jitter_ms`].
    pub jitter_ms: Option<f64>,
}

impl From<UdpCounts> for DatagramReport {
    fn from(counts: UdpCounts) -> Self {
        DatagramReport {
            datagrams: counts.datagrams,
            expected: Some(counts.expected),
            late: Some(counts.late),
            duplicated: Some(counts.duplicated),
            reordered: Some(counts.reordered),
            host_dropped: Some(counts.host_dropped),
            jitter_ms: Some(counts.jitter_ms),
        }
    }
}

impl UdpResult {
    /// No datagrams, with all counters known.
    const NONE: Self = UdpResult {
        sent: 0,
        received: 0,
        lost: 0,
        lost_percent: 0.0,
        late: Some(0),
        duplicated: Some(0),
        reordered: Some(0),
        sender_dropped: Some(0),
        receiver_dropped: Some(0),
        jitter_ms: Some(0.0),
    };

    /// Combines the counters of both ends. If the sender's are missing, its drops count as lost.
    pub fn join(sender: Option<&UdpCounts>, receiver: &UdpCounts) -> Self {
        let sender = sender.map(|counts| DatagramReport::from(*counts));
        Self::join_reports(sender.as_ref(), &DatagramReport::from(*receiver))
    }

    /// Combines the known counters of both ends. The sender's count of datagrams is used if the
    /// receiver's is missing.
    pub fn join_reports(sender: Option<&DatagramReport>, receiver: &DatagramReport) -> Self {
        let sender_dropped = sender.map_or(Some(0), |s| s.host_dropped);
        let sent = receiver.expected.or(sender.and_then(|s| s.expected));
        let sent = sent.unwrap_or(receiver.datagrams);
        let arrived = receiver.datagrams.saturating_add(receiver.late.unwrap_or(0));
        let dropped = [sender_dropped, receiver.host_dropped].into_iter().flatten();
        // A drop is counted when it happens, so it may belong to datagram numbers of the previous
        // interval.
        let lost = dropped.fold(sent.saturating_sub(arrived), u64::saturating_sub);
        UdpResult {
            sent,
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
        let add = |sum: Option<u64>, one: Option<u64>| Some(sum?.saturating_add(one?));
        let (mut sum, mut count) = (UdpResult::NONE, 0);
        for stream in streams {
            count += 1;
            sum.sent = sum.sent.saturating_add(stream.sent);
            sum.received = sum.received.saturating_add(stream.received);
            sum.lost = sum.lost.saturating_add(stream.lost);
            sum.late = add(sum.late, stream.late);
            sum.duplicated = add(sum.duplicated, stream.duplicated);
            sum.reordered = add(sum.reordered, stream.reordered);
            sum.sender_dropped = add(sum.sender_dropped, stream.sender_dropped);
            sum.receiver_dropped = add(sum.receiver_dropped, stream.receiver_dropped);
            sum.jitter_ms = sum.jitter_ms.zip(stream.jitter_ms).map(|(sum, one)| sum + one);
        }
        sum.jitter_ms = sum.jitter_ms.map(|sum| sum / f64::from(count.max(1)));
        (count > 0).then(|| sum.with_percent())
    }

    fn with_percent(self) -> Self {
        let left = self.sent.saturating_sub(self.sender_dropped.unwrap_or(0));
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
        assert_eq!((joined.sent, joined.received, joined.late), (1000, 900, Some(5)));
        assert_eq!(
            (joined.lost, joined.sender_dropped, joined.receiver_dropped),
            (60, Some(10), Some(25))
        );
        assert!((joined.lost_percent - 100.0 * 60.0 / 990.0).abs() < 1e-9);
        assert_eq!(UdpResult::join(None, &receiver).lost, 70);
        let sum = UdpResult::sum([joined, joined].into_iter()).unwrap();
        assert_eq!((sum.sent, sum.lost, sum.jitter_ms), (2000, 120, Some(0.5)));
        assert_eq!(UdpResult::sum(std::iter::empty()), None);
    }
}
