use serde::{Deserialize, Serialize};

use crate::stats::proportion_interval;
use crate::units::Rate;

/// So many of so many, and what that says of the probability.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Proportion {
    /// How many.
    pub count: u64,
    /// Of how many.
    pub of: u64,
    /// The one by the other.
    pub ratio: f64,
    /// The probability is no less than this, with 95 % confidence.
    pub low: f64,
    /// And no more than this.
    pub high: f64,
}

impl Proportion {
    /// `count` of `of`. The interval is that of Clopper and Pearson; where none, or all, were seen it
    /// is one-sided, by which "none of n" is "below 3/n" (the rule of three).
    pub fn of(count: u64, of: u64) -> Self {
        let count = count.min(of);
        let confidence = if count == 0 || count == of { 0.9 } else { 0.95 };
        let (low, high) = proportion_interval(count, of, confidence);
        Proportion { count, of, ratio: count as f64 / of.max(1) as f64, low, high }
    }
}

/// How the one-way delay varies, by two clocks that need not agree.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct DelayVariation {
    /// Half of the packets took no longer than this over the fastest (RFC 5481's PDV).
    pub p50_ms: f64,
    /// Ninety-nine of a hundred.
    pub p99_ms: f64,
    /// The slowest, over the fastest.
    pub max_ms: f64,
    /// Half of the packets took no longer, or shorter, than this against the one before (RFC 3393's
    /// IPDV without its sign).
    pub next_p50_ms: Option<f64>,
    /// Ninety-nine of a hundred.
    pub next_p99_ms: Option<f64>,
}

/// What the sender of a stream of probes says.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct SentProbes {
    /// Datagrams, those included that its host dropped.
    pub datagrams: u64,
    /// What its host dropped: its interface's queue was full.
    pub dropped: u64,
    /// How long it took.
    pub seconds: f64,
}

/// What came of a stream of probes in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ProbeFigures {
    /// Sent, those included that the sender's host dropped.
    pub sent: u64,
    /// Arrived, each counted once.
    pub received: u64,
    /// Lost between the hosts, of those that left the sender's.
    pub lost: Proportion,
    /// Came again, of those that left the sender's host.
    pub duplicated: Proportion,
    /// Came after one of a higher number (RFC 4737), of those received.
    pub reordered: Proportion,
    /// The largest extent: packets that came since the first of a higher number.
    pub reordering_extent: u64,
    /// The mean extent of those reordered.
    pub reordering_mean_extent: f64,
    /// Those reordered so far that TCP would take them for lost (3-reordered).
    pub three_reordered: u64,
    /// The longest time by which one came behind the first of a higher number.
    pub reordering_late_ms: f64,
    /// Dropped by the sender's host.
    pub sender_dropped: u64,
    /// Dropped by the receiver's host.
    pub receiver_dropped: u64,
    /// Interarrival jitter (RFC 3550, section 6.4.1) at the end.
    pub jitter_ms: f64,
    /// The variation of the delay; `None` when nothing came.
    pub delay: Option<DelayVariation>,
}

impl ProbeFigures {
    /// Figures that agree with each other, whatever a peer says: proportions are made again.
    #[must_use]
    pub fn checked(self) -> Self {
        let left = self.sent.saturating_sub(self.sender_dropped);
        ProbeFigures {
            lost: Proportion::of(self.lost.count, left),
            // One packet may come many times.
            duplicated: Proportion::of(self.duplicated.count, left.max(self.duplicated.count)),
            reordered: Proportion::of(self.reordered.count, self.received),
            ..self
        }
    }
}

/// How certain an estimate of the capacity is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Certainty {
    /// The trains agree.
    Good,
    /// They differ: others use the link, or a host hands packets over late.
    Rough,
    /// They differ so much that they say nothing.
    Scattered,
    /// The sender was no faster: the path carries this at least.
    AtLeast,
    /// The receiver's interface or host hands packets over in heaps: nothing can be said.
    Coalesced,
    /// Too few trains arrived whole enough.
    TooFew,
}

/// The rate of the slowest link, by how far apart packets arrive that were sent one behind the
/// other; in IP packets, and beside whatever else the link carried then.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CapacityFigures {
    /// How certain it is.
    pub certainty: Certainty,
    /// The median of the trains; `None` when nothing can be said.
    pub estimate_bps: Option<Rate>,
    /// The median lies here with 95 % confidence; `None` for fewer than six trains.
    pub interval_bps: Option<[Rate; 2]>,
    /// Half of the trains lie here.
    pub quartiles_bps: Option<[Rate; 2]>,
    /// How fast the trains left the sender.
    pub sender_bps: Rate,
    /// Trains sent.
    pub trains: u64,
    /// Those of which enough arrived in sequence.
    pub trains_used: u64,
    /// Packets in all trains together.
    pub packets: u64,
    /// Of each packet, with its IP header.
    pub packet_bytes: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_of_many_is_the_rule_of_three() {
        let none = Proportion::of(0, 2_100_000);
        assert_eq!((none.low, none.ratio), (0.0, 0.0));
        assert!((none.high - 1.4265e-6).abs() < 1e-9, "{none:?}");
        let some = Proportion::of(3, 20);
        assert!((some.low - 0.032_071).abs() < 1e-5 && (some.high - 0.378_927).abs() < 1e-5);
        assert_eq!(Proportion::of(9, 3).count, 3);
        assert_eq!(Proportion::of(0, 0).high, 1.0);
    }
}
