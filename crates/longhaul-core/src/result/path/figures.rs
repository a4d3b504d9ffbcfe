//! The figures of a path measurement.

use serde::{Deserialize, Serialize};

use crate::stats::{fraction_interval, proportion_interval};
use crate::units::Rate;

/// A count with its total, and the confidence interval of the probability.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Proportion {
    /// The number of events.
    pub count: u64,
    /// The total.
    pub of: u64,
    /// The count divided by the total.
    pub ratio: f64,
    /// The lower bound of the probability with 95 % confidence.
    pub low: f64,
    /// The upper bound.
    pub high: f64,
}

impl Proportion {
    /// Computes the figures for `count` of `of` with the interval of Clopper and Pearson. For a
    /// count of zero or of all, the interval is one-sided, so that "none of n" means "below 3/n"
    /// (the rule of three).
    pub fn of(count: u64, of: u64) -> Self {
        let count = count.min(of);
        let confidence = if count == 0 || count == of { 0.9 } else { 0.95 };
        let (low, high) = proportion_interval(count, of, confidence);
        Proportion { count, of, ratio: count as f64 / of.max(1) as f64, low, high }
    }

    /// Computes the figures for `count` of `of` packets that were lost in this many bursts.
    ///
    /// The interval of Clopper and Pearson assumes that losses are independent. Losses in bursts
    /// carry less information, so the interval is that of a sample smaller by the factor (1 + r) /
    /// (1 - r), in which r is the correlation of consecutive losses: the variance of the mean of a
    /// two-state Markov chain (Gilbert's model). It is never narrower than that of independent
    /// losses.
    pub fn of_bursts(count: u64, of: u64, bursts: u64) -> Self {
        let independent = Proportion::of(count, of);
        let Proportion { count, of, .. } = independent;
        let bursts = bursts.min(count);
        if bursts == 0 || count == of {
            return independent;
        }
        let stays = 1.0 - bursts as f64 / count as f64;
        let begins = (bursts as f64 / (of - count) as f64).min(1.0);
        let correlation = (stays - begins).clamp(0.0, 0.999_999);
        let factor = (1.0 + correlation) / (1.0 - correlation);
        let (low, high) = fraction_interval(count as f64 / factor, of as f64 / factor, 0.95);
        let (low, high) = (low.min(independent.low), high.max(independent.high));
        Proportion { low, high, ..independent }
    }
}

/// The variation of the one-way delay. It is independent of the offset of the two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct DelayVariation {
    /// The median of the delay minus the lowest delay, in ms (RFC 5481's PDV).
    pub p50_ms: f64,
    /// The 99th percentile in ms.
    pub p99_ms: f64,
    /// The largest in ms.
    pub max_ms: f64,
    /// The median of the absolute difference between consecutive packets, in ms (RFC 3393's IPDV
    /// without sign).
    pub next_p50_ms: Option<f64>,
    /// The 99th percentile of that difference in ms.
    pub next_p99_ms: Option<f64>,
}

/// The report of the sender of a stream of probes.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct SentProbes {
    /// The number of datagrams, including those that its host dropped.
    pub datagrams: u64,
    /// The number of datagrams that the sender's host dropped because its interface's queue was
    /// full.
    pub dropped: u64,
    /// The duration in seconds.
    pub seconds: f64,
}

/// The result of a stream of probes in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ProbeFigures {
    /// The probes sent, including those that the sender's host dropped.
    pub sent: u64,
    /// The probes that arrived, each counted once.
    pub received: u64,
    /// The share of probes lost between the hosts, of those that left the sender's host.
    pub lost: Proportion,
    /// The number of bursts in which the probes were lost, which widen the interval of `lost`;
    /// `None` if it is unknown or a host dropped probes. Losses are then assumed to be independent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_bursts: Option<u64>,
    /// The share of duplicates, of the probes that left the sender's host.
    pub duplicated: Proportion,
    /// The share of probes that arrived after one with a higher number (RFC 4737), of those
    /// received.
    pub reordered: Proportion,
    /// The largest reordering extent: packets that arrived since the first with a higher number.
    pub reordering_extent: u64,
    /// The mean extent of the reordered packets.
    pub reordering_mean_extent: f64,
    /// The packets that arrived so late that TCP would consider them lost (3-reordered).
    pub three_reordered: u64,
    /// The longest time in ms by which a packet arrived after the first with a higher number.
    pub reordering_late_ms: f64,
    /// The probes that the sender's host dropped.
    pub sender_dropped: u64,
    /// The probes that the receiver's host dropped.
    pub receiver_dropped: u64,
    /// The final interarrival jitter in ms (RFC 3550, section 6.4.1).
    pub jitter_ms: f64,
    /// The variation of the delay; `None` if nothing arrived.
    pub delay: Option<DelayVariation>,
}

impl ProbeFigures {
    /// Returns consistent figures for any input from a peer: proportions are recomputed.
    #[must_use]
    pub fn checked(self) -> Self {
        let left = self.sent.saturating_sub(self.sender_dropped);
        ProbeFigures {
            lost: match self.loss_bursts {
                Some(bursts) => Proportion::of_bursts(self.lost.count, left, bursts),
                None => Proportion::of(self.lost.count, left),
            },
            // One packet may arrive many times.
            duplicated: Proportion::of(self.duplicated.count, left.max(self.duplicated.count)),
            reordered: Proportion::of(self.reordered.count, self.received),
            ..self
        }
    }
}

/// The certainty of an estimate of the capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Certainty {
    /// The trains agree.
    Good,
    /// The trains differ: the link has other traffic, or a host delivers packets late.
    Rough,
    /// The trains differ too much for an estimate.
    Scattered,
    /// The trains arrived as fast as the sender sent them: the path carries at least this rate.
    AtLeast,
    /// The receiver's interface or host coalesces packets, which prevents an estimate.
    Coalesced,
    /// Too few trains arrived complete enough.
    TooFew,
}

/// The rate of the slowest link in IP packets, estimated from the spacing of packets that were sent
/// back to back, in the presence of other traffic.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CapacityFigures {
    /// The certainty of the estimate.
    pub certainty: Certainty,
    /// The median of the trains; `None` without an estimate.
    pub estimate_bps: Option<Rate>,
    /// The 95 % confidence interval of the median; `None` for fewer than six trains.
    pub interval_bps: Option<[Rate; 2]>,
    /// The quartiles of the trains.
    pub quartiles_bps: Option<[Rate; 2]>,
    /// The rate at which the trains left the sender.
    pub sender_bps: Rate,
    /// The number of trains sent.
    pub trains: u64,
    /// The number of trains of which enough packets arrived in sequence.
    pub trains_used: u64,
    /// The number of packets in all trains.
    pub packets: u64,
    /// The bytes of each packet, with its IP header.
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

    #[test]
    fn bursts_widen_the_interval() {
        let width = |found: Proportion| found.high - found.low;
        let independent = Proportion::of(100, 10_000);
        let single = Proportion::of_bursts(100, 10_000, 100);
        assert!((width(single) / width(independent) - 1.0).abs() < 0.02, "{single:?}");
        // In bursts of ten the correlation is 0.9 and the variance 19 times as large.
        let bursts = Proportion::of_bursts(100, 10_000, 10);
        let ratio = width(bursts) / width(independent);
        assert!((3.5..6.0).contains(&ratio), "{ratio}");
        assert_eq!(bursts.ratio, independent.ratio);
        for (count, of, bursts) in [(0, 10, 0), (0, 0, 5), (10, 10, 1), (5, 10, 99), (1, 2, 1)] {
            let found = Proportion::of_bursts(count, of, bursts);
            assert!(found.low <= found.ratio && found.ratio <= found.high, "{found:?}");
        }
    }
}
