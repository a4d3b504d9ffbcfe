//! The capacity of a path from trains of packets.

use serde::{Deserialize, Serialize};

use crate::result::{CapacityFigures, Certainty};
use crate::stats::{median, median_interval, quantile};
use crate::units::Rate;

/// The minimum number of packets in sequence that make a train usable.
const LEAST_PACKETS: usize = 5;
/// The minimum number of usable trains.
const LEAST_TRAINS: usize = 3;
/// The effective number of gaps below which arrivals were coalesced.
const LEAST_GAPS: f64 = 4.0;
/// The factor by which the sender must be faster than the arrivals; otherwise the sender itself may
/// be the limit.
const FASTER: f64 = 1.25;
/// The distance of the quartiles, relative to the median, from which an estimate is rough.
const ROUGH: f64 = 0.2;
/// The distance from which there is no estimate.
const SCATTERED: f64 = 0.5;

/// One packet of a train.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrainPacket {
    /// The number in the train, from 0.
    pub number: u32,
    /// The time of arrival in ns on any clock.
    pub at_ns: u64,
}

/// A train as it was sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Train {
    /// The bytes of each packet, with its IP header.
    pub packet_bytes: u32,
    /// The number of packets that the kernel accepted.
    pub packets: u32,
    /// The seconds that the kernel took to accept them.
    pub seconds: f64,
}

impl Train {
    /// Returns the rate at which the train left.
    fn rate_bps(&self) -> f64 {
        let bits = f64::from(self.packet_bytes) * 8.0 * f64::from(self.packets.saturating_sub(1));
        bits / self.seconds.max(1e-9)
    }
}

/// The evaluation of one train: packets that were sent back to back arrive with the spacing of the
/// slowest link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dispersion {
    /// The number of packets in sequence from the first on.
    pub packets: usize,
    /// Seconds from the first to the last of them.
    pub seconds: f64,
    /// The resulting rate in bit/s of IP packets.
    pub rate_bps: f64,
    /// The effective number of gaps that share the time: the packets minus one if they arrived
    /// evenly, and few if they were coalesced. `(sum)^2 / sum of squares`.
    pub gaps: f64,
}

impl Dispersion {
    /// Evaluates the packets of one train in order of arrival. Packets after the first gap or
    /// reordering are ignored, because the time that a missing packet took on the slowest link is
    /// unknown. Returns `None` if too few packets remain.
    pub fn of(arrivals: &[TrainPacket], packet_bytes: u32) -> Option<Self> {
        let mut times: Vec<u64> = Vec::with_capacity(arrivals.len());
        for arrival in arrivals {
            match (arrival.number as usize).cmp(&times.len()) {
                // All earlier packets have arrived, so this one is a duplicate.
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Equal => times.push(arrival.at_ns),
                std::cmp::Ordering::Greater => break,
            }
        }
        let gaps: Vec<f64> =
            times.windows(2).map(|pair| pair[1].saturating_sub(pair[0]) as f64).collect();
        let total: f64 = gaps.iter().sum();
        if times.len() < LEAST_PACKETS || total <= 0.0 {
            return None;
        }
        // Packets that the host delivered together with the first one arrived before the measured
        // time began.
        let together = total / gaps.len() as f64 / 2.0;
        let first = gaps.iter().take_while(|gap| **gap < together).count();
        let time: f64 = gaps[first..].iter().sum();
        let bits = (gaps.len() - first) as f64 * f64::from(packet_bytes) * 8.0;
        let squares: f64 = gaps.iter().map(|gap| gap * gap).sum();
        Some(Dispersion {
            packets: times.len(),
            seconds: total / 1e9,
            rate_bps: bits / (time / 1e9),
            gaps: total * total / squares,
        })
    }
}

/// Estimates the capacity from the trains `sent` and the dispersion of those that `arrived`.
pub fn capacity(sent: &[Train], arrived: &[Dispersion]) -> CapacityFigures {
    let rates: Vec<f64> = arrived.iter().map(|train| train.rate_bps).collect();
    let gaps: Vec<f64> = arrived.iter().map(|train| train.gaps).collect();
    let paces: Vec<f64> = sent.iter().map(Train::rate_bps).collect();
    let packets: u64 = sent.iter().map(|train| u64::from(train.packets)).sum();
    let rate = |bps: f64| Rate::from_bps(bps.clamp(0.0, 1e15).round() as u64);
    let estimate = median(&rates).unwrap_or(0.0);
    let pace = median(&paces).unwrap_or(0.0);
    let spread = quantile(&rates, 0.75).zip(quantile(&rates, 0.25)).map_or(0.0, |(q3, q1)| q3 - q1);
    let certainty = if arrived.len() < LEAST_TRAINS || estimate <= 0.0 {
        Certainty::TooFew
    } else if median(&gaps).unwrap_or(0.0) < LEAST_GAPS {
        Certainty::Coalesced
    } else if pace < FASTER * estimate {
        Certainty::AtLeast
    } else if spread > SCATTERED * estimate {
        Certainty::Scattered
    } else if spread > ROUGH * estimate {
        Certainty::Rough
    } else {
        Certainty::Good
    };
    let known = matches!(certainty, Certainty::Good | Certainty::Rough | Certainty::AtLeast);
    CapacityFigures {
        certainty,
        estimate_bps: known.then(|| rate(estimate)),
        interval_bps: median_interval(&rates, 0.95)
            .filter(|_| known)
            .map(|(low, high)| [rate(low), rate(high)]),
        quartiles_bps: known
            .then(|| [0.25, 0.75].map(|q| rate(quantile(&rates, q).unwrap_or(0.0)))),
        sender_bps: rate(pace),
        trains: sent.len() as u64,
        trains_used: arrived.len() as u64,
        packets,
        packet_bytes: sent.first().map_or(0, |train| train.packet_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns `count` packets of 1250 bytes with gaps of `gap_ns`: 10 us mean 1 Gb/s.
    fn even(count: u32, gap_ns: u64) -> Vec<TrainPacket> {
        (0..count).map(|number| TrainPacket { number, at_ns: u64::from(number) * gap_ns }).collect()
    }

    fn dispersion(arrivals: &[TrainPacket]) -> Dispersion {
        Dispersion::of(arrivals, 1250).unwrap()
    }

    fn close(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 1e-9, "{found} {expected}");
    }

    #[test]
    fn packets_are_as_far_apart_as_the_slowest_link_makes_them() {
        let found = dispersion(&even(101, 10_000));
        assert_eq!(found.packets, 101);
        close(found.rate_bps, 1e9);
        close(found.gaps, 100.0);
        close(found.seconds, 1e-3);
    }

    #[test]
    fn coalesced_packets_are_counted_per_group() {
        // The interface coalesces ten packets: the rate is right, and few gaps share the time.
        let mut train = even(100, 10_000);
        for arrival in &mut train {
            let group = u64::from(arrival.number) / 10;
            arrival.at_ns = (group * 10 + 9) * 10_000 + u64::from(arrival.number) % 10 * 50;
        }
        let found = dispersion(&train);
        assert!((found.rate_bps / 1e9 - 1.0).abs() < 0.01, "{found:?}");
        assert!((8.5..10.0).contains(&found.gaps), "{found:?}");
    }

    #[test]
    fn packets_after_a_missing_packet_do_not_count() {
        let mut train = even(50, 10_000);
        train.remove(20);
        train.insert(5, train[4]);
        let found = dispersion(&train);
        assert_eq!(found.packets, 20);
        close(found.rate_bps, 1e9);
        train.remove(0);
        assert_eq!(Dispersion::of(&train, 1250), None, "the first is missing");
        assert_eq!(Dispersion::of(&even(4, 10_000), 1250), None);
        assert_eq!(Dispersion::of(&even(100, 0), 1250), None, "all at once says nothing");
        assert_eq!(Dispersion::of(&[], 1250), None);
        // Clocks that go backwards, and numbers that a peer invents.
        let back = even(10, 1).into_iter().map(|a| TrainPacket { at_ns: 9 - a.at_ns, ..a });
        assert_eq!(Dispersion::of(&back.collect::<Vec<_>>(), 1250), None);
    }

    fn sent(pace_bps: f64) -> Train {
        Train { packet_bytes: 1250, packets: 101, seconds: 100.0 * 1e4 / pace_bps }
    }

    fn figures(pace_bps: f64, gaps_ns: &[u64]) -> CapacityFigures {
        let arrived: Vec<_> = gaps_ns.iter().map(|gap| dispersion(&even(101, *gap))).collect();
        capacity(&vec![sent(pace_bps); gaps_ns.len()], &arrived)
    }

    #[test]
    fn the_median_has_a_confidence_interval() {
        let gaps = [9_900, 10_000, 10_000, 10_100, 10_000, 10_000, 30_000, 10_000, 10_000, 10_000];
        let good = figures(5e9, &gaps);
        assert_eq!(
            (good.certainty, good.estimate_bps),
            (Certainty::Good, Some(Rate::from_bps(1_000_000_000)))
        );
        let [low, high] = good.interval_bps.unwrap();
        assert!(low < high && low.bps() > 900_000_000 && high.bps() < 1_100_000_000);
        let rough = figures(5e9, &[7_000, 8_500, 10_000, 10_000, 11_000, 14_000]);
        assert_eq!(rough.certainty, Certainty::Rough);
        let wild = figures(5e9, &[3_000, 5_000, 10_000, 14_000, 20_000, 25_000]);
        assert_eq!((wild.certainty, wild.estimate_bps), (Certainty::Scattered, None));
        // The sender was no faster than the arrivals.
        assert_eq!(figures(1.1e9, &gaps).certainty, Certainty::AtLeast);
        let few = figures(5e9, &[10_000, 10_000]);
        assert_eq!((few.certainty, few.estimate_bps), (Certainty::TooFew, None));
        assert_eq!(capacity(&[], &[]).certainty, Certainty::TooFew);
    }

    #[test]
    fn a_host_that_coalesces_yields_no_figure() {
        let groups: Vec<_> = (0..100u32)
            .map(|number| TrainPacket { number, at_ns: u64::from(number / 50) * 1_000_000 })
            .collect();
        let arrived = vec![dispersion(&groups); 8];
        let found = capacity(&[sent(5e9); 8], &arrived);
        assert_eq!((found.certainty, found.estimate_bps), (Certainty::Coalesced, None));
        assert_eq!((found.trains, found.trains_used), (8, 8));
    }
}
