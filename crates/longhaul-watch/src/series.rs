//! Series of an interface: the change of its counters in consecutive intervals. Pure.

use longhaul_sys::traffic::LinkCounters;

/// Returns the increase of every counter; `None` if any counter went back.
///
/// A counter goes back if the driver reset or wrapped it. The traffic of that interval is unknown, so
/// the interval is a gap.
pub fn change(before: &LinkCounters, after: &LinkCounters) -> Option<LinkCounters> {
    Some(LinkCounters {
        in_bytes: after.in_bytes.checked_sub(before.in_bytes)?,
        out_bytes: after.out_bytes.checked_sub(before.out_bytes)?,
        in_packets: after.in_packets.checked_sub(before.in_packets)?,
        out_packets: after.out_packets.checked_sub(before.out_packets)?,
        in_drops: after.in_drops.checked_sub(before.in_drops)?,
        out_drops: after.out_drops.checked_sub(before.out_drops)?,
        in_errors: after.in_errors.checked_sub(before.in_errors)?,
        out_errors: after.out_errors.checked_sub(before.out_errors)?,
    })
}

/// A quantity of a series. All are rates per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Quantity {
    /// Received bits per second.
    InBits,
    /// Sent bits per second.
    OutBits,
    /// Received packets per second.
    InPackets,
    /// Sent packets per second.
    OutPackets,
    /// Received packets dropped per second.
    InDrops,
    /// Outgoing packets dropped per second.
    OutDrops,
    /// Errors on reception per second.
    InErrors,
    /// Errors on transmission per second.
    OutErrors,
}

impl Quantity {
    /// The number of channels.
    pub const COUNT: usize = 8;

    /// All channels in the order of their indexes.
    pub const ALL: [Quantity; Quantity::COUNT] = [
        Quantity::InBits,
        Quantity::OutBits,
        Quantity::InPackets,
        Quantity::OutPackets,
        Quantity::InDrops,
        Quantity::OutDrops,
        Quantity::InErrors,
        Quantity::OutErrors,
    ];

    /// Returns the name in columns and documents.
    pub const fn name(self) -> &'static str {
        match self {
            Quantity::InBits => "in_bps",
            Quantity::OutBits => "out_bps",
            Quantity::InPackets => "in_packets_per_second",
            Quantity::OutPackets => "out_packets_per_second",
            Quantity::InDrops => "in_drops_per_second",
            Quantity::OutDrops => "out_drops_per_second",
            Quantity::InErrors => "in_errors_per_second",
            Quantity::OutErrors => "out_errors_per_second",
        }
    }

    /// Returns the count of this channel, in bits or packets.
    pub fn count(self, counters: &LinkCounters) -> f64 {
        match self {
            Quantity::InBits => counters.in_bytes as f64 * 8.0,
            Quantity::OutBits => counters.out_bytes as f64 * 8.0,
            Quantity::InPackets => counters.in_packets as f64,
            Quantity::OutPackets => counters.out_packets as f64,
            Quantity::InDrops => counters.in_drops as f64,
            Quantity::OutDrops => counters.out_drops as f64,
            Quantity::InErrors => counters.in_errors as f64,
            Quantity::OutErrors => counters.out_errors as f64,
        }
    }
}

/// The traffic of an interface in one interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrafficInterval {
    /// The end in Unix milliseconds.
    pub end_ms: i64,
    /// The length in milliseconds; above zero.
    pub span_ms: u32,
    /// The increase of the counters.
    pub counts: LinkCounters,
}

/// The longest distance between two intervals that count as contiguous, in ms.
const TOUCH_MS: i64 = 50;

impl TrafficInterval {
    /// Returns the mean rate of a channel per second.
    pub fn rate(&self, channel: Quantity) -> f64 {
        channel.count(&self.counts) * 1000.0 / f64::from(self.span_ms.max(1))
    }

    /// Extends this interval by the one that follows it. Returns false, and changes nothing, if there is
    /// time between the two.
    pub fn append(&mut self, next: &TrafficInterval) -> bool {
        let between =
            next.end_ms.saturating_sub(i64::from(next.span_ms)).saturating_sub(self.end_ms);
        if between.abs() > TOUCH_MS {
            return false;
        }
        self.end_ms = next.end_ms;
        self.span_ms = self.span_ms.saturating_add(next.span_ms);
        let (sum, add) = (&mut self.counts, &next.counts);
        sum.in_bytes = sum.in_bytes.saturating_add(add.in_bytes);
        sum.out_bytes = sum.out_bytes.saturating_add(add.out_bytes);
        sum.in_packets = sum.in_packets.saturating_add(add.in_packets);
        sum.out_packets = sum.out_packets.saturating_add(add.out_packets);
        sum.in_drops = sum.in_drops.saturating_add(add.in_drops);
        sum.out_drops = sum.out_drops.saturating_add(add.out_drops);
        sum.in_errors = sum.in_errors.saturating_add(add.in_errors);
        sum.out_errors = sum.out_errors.saturating_add(add.out_errors);
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert, proptest};

    use super::*;

    fn bytes(in_bytes: u64, out_bytes: u64) -> LinkCounters {
        LinkCounters { in_bytes, out_bytes, ..LinkCounters::default() }
    }

    #[test]
    fn a_reset_or_wrap_is_no_change() {
        assert_eq!(change(&bytes(5, 5), &bytes(8, 5)), Some(bytes(3, 0)));
        assert_eq!(change(&bytes(5_000, 5), &bytes(8, 9)), None, "reset");
        assert_eq!(change(&bytes(u64::MAX, 5), &bytes(3, 9)), None, "wrap");
        assert_eq!(change(&bytes(u64::from(u32::MAX), 5), &bytes(3, 9)), None, "wrap of 32 bits");
    }

    proptest! {
        #[test]
        fn a_change_never_exceeds_the_counter(a in any::<[u64; 2]>(), b in any::<[u64; 2]>()) {
            if let Some(found) = change(&bytes(a[0], a[1]), &bytes(b[0], b[1])) {
                prop_assert!(found.in_bytes <= b[0] && found.out_bytes <= b[1]);
            }
        }
    }

    #[test]
    fn short_intervals_add_up_and_gaps_do_not() {
        let interval =
            |end_ms, count| TrafficInterval { end_ms, span_ms: 100, counts: bytes(count, 0) };
        let mut sum = interval(1000, 10);
        assert!(sum.append(&interval(1101, 30)));
        assert_eq!(sum, TrafficInterval { end_ms: 1101, span_ms: 200, counts: bytes(40, 0) });
        assert_eq!(sum.rate(Quantity::InBits), 1600.0);
        assert!(!sum.append(&interval(1400, 5)), "200 ms are missing");
        assert!(!sum.append(&interval(900, 5)), "the clock went back");
        assert_eq!(sum.span_ms, 200);
    }
}
