//! The kinds of series: the rows that agents upload, and the values that graphs show.

use longhaul_fleet::protocol::{HostRow, InterfaceRow, QueueRow, StampSummary};

/// The absence of a number in a row.
const NONE: i64 = i64::MIN;

/// The kind of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The traffic of an interface of a host.
    Interface,
    /// The queue of an interface of a host.
    Queue,
    /// The TCP connections and cores of a host. A host has one series, whose name is empty.
    Host,
    /// The STAMP measurements from a host to a peer.
    Stamp,
}

/// The metrics of [`Kind::Interface`]: bit/s, packets/s, drops/s and errors/s, in and out.
pub const INTERFACE_METRICS: &[&str] = &[
    "in_bps",
    "out_bps",
    "in_pps",
    "out_pps",
    "in_drops_ps",
    "out_drops_ps",
    "in_errors_ps",
    "out_errors_ps",
];

/// The metrics of [`Kind::Queue`]: bytes and packets in the queue, and drops/s.
pub const QUEUE_METRICS: &[&str] = &["queue_bytes", "queue_packets", "queue_drops_ps"];

/// The positions of metrics in [`QUEUE_METRICS`].
pub mod queue_metric {
    /// The bytes in the queue.
    pub const BYTES: usize = 0;
    /// The packets that the queue dropped, per second.
    pub const DROPS: usize = 2;
}

/// The metrics of [`Kind::Host`]: TCP segments/s, retransmitted segments/s, established connections, and
/// shares of time of the cores: the mean of all, or the largest share of one core.
pub const HOST_METRICS: &[&str] = &[
    "tcp_segments_ps",
    "tcp_retransmits_ps",
    "tcp_connections",
    "busy_share",
    "max_busy_share",
    "softirq_share",
    "max_softirq_share",
    "steal_share",
];

/// The positions of metrics in [`HOST_METRICS`].
pub mod host_metric {
    /// TCP segments sent, per second.
    pub const SEGMENTS: usize = 0;
    /// TCP segments retransmitted, per second.
    pub const RETRANSMITS: usize = 1;
    /// The mean share of time in which the cores were busy.
    pub const BUSY: usize = 3;
    /// The share of time in which the busiest core was busy.
    pub const MAX_BUSY: usize = 4;
    /// The mean share of softirq time of the cores.
    pub const SOFTIRQ: usize = 5;
    /// The largest share of softirq time of one core.
    pub const MAX_SOFTIRQ: usize = 6;
    /// The mean share of stolen time of the cores.
    pub const STEAL: usize = 7;
}

/// The metrics of [`Kind::Stamp`]: the share of lost packets, and delays in ms.
pub const STAMP_METRICS: &[&str] = &[
    "loss",
    "loss_forward",
    "loss_reverse",
    "rtt_min_ms",
    "rtt_p50_ms",
    "rtt_p99_ms",
    "rtt_max_ms",
    "forward_p50_ms",
    "reverse_p50_ms",
    "clock_error_ms",
];

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 4] = [Kind::Interface, Kind::Queue, Kind::Host, Kind::Stamp];

    /// Returns the name in the store and in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Interface => "interface",
            Kind::Queue => "queue",
            Kind::Host => "host",
            Kind::Stamp => "stamp",
        }
    }

    /// Returns the kind with a name.
    pub fn named(name: &str) -> Option<Self> {
        Kind::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// Returns the names of the metrics.
    pub fn metrics(self) -> &'static [&'static str] {
        match self {
            Kind::Interface => INTERFACE_METRICS,
            Kind::Queue => QUEUE_METRICS,
            Kind::Host => HOST_METRICS,
            Kind::Stamp => STAMP_METRICS,
        }
    }

    /// Returns the number of integers of a row.
    pub fn width(self) -> usize {
        match self {
            Kind::Interface | Kind::Host => 10,
            Kind::Queue => 5,
            Kind::Stamp => 15,
        }
    }
}

/// The values of a series in one interval.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// The start of the interval in ms since 1970.
    pub start_ms: i64,
    /// The end of the interval.
    pub end_ms: i64,
    /// The values in the order of [`Kind::metrics`]; `None` if one was not measured.
    pub values: Vec<Option<f64>>,
}

/// Returns the row of an interval of an interface: times first, then counts.
pub fn interface_row(row: InterfaceRow) -> Vec<i64> {
    <[i64; 10]>::from(row).to_vec()
}

/// Returns the row of an interval of a queue.
pub fn queue_row(row: QueueRow) -> Vec<i64> {
    <[Option<i64>; 5]>::from(row).map(|value| value.unwrap_or(NONE)).to_vec()
}

/// Returns the row of an interval of a host.
pub fn host_row(row: HostRow) -> Vec<i64> {
    <[Option<i64>; 10]>::from(row).map(|value| value.unwrap_or(NONE)).to_vec()
}

/// Returns the row of a period of STAMP; delays are in ns.
pub fn stamp_row(summary: &StampSummary) -> Vec<i64> {
    let count = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let counted = |value: Option<u64>| value.map_or(NONE, count);
    #[allow(clippy::cast_possible_truncation)]
    let delay = |value: Option<f64>| value.map_or(NONE, |ms| (ms * 1e6) as i64);
    vec![
        summary.start_ms.saturating_add(summary.span_ms.into()),
        summary.span_ms.into(),
        count(summary.sent),
        count(summary.lost),
        counted(summary.lost_forward),
        counted(summary.lost_reverse),
        delay(summary.rtt_min_ms),
        delay(summary.rtt_p50_ms),
        delay(summary.rtt_p99_ms),
        delay(summary.rtt_max_ms),
        delay(summary.forward_p50_ms),
        delay(summary.reverse_p50_ms),
        delay(summary.clock_error_ms),
        count(summary.duplicates),
        count(summary.reordered),
    ]
}

/// Returns the values of a row, or `None` if its interval is empty.
#[allow(clippy::cast_precision_loss)]
pub fn point(kind: Kind, row: &[i64]) -> Option<Point> {
    let [end_ms, span_ms, rest @ ..] = row else { return None };
    if *span_ms <= 0 {
        return None;
    }
    let known = |value: i64| (value != NONE).then_some(value as f64);
    let values = match kind {
        Kind::Interface => {
            let scale = |at: usize| if at < 2 { 8000.0 } else { 1000.0 } / *span_ms as f64;
            rest.iter().enumerate().map(|(at, count)| Some(*count as f64 * scale(at))).collect()
        }
        Kind::Queue => {
            let scale = |at: usize| if at < 2 { 1.0 } else { 1000.0 / *span_ms as f64 };
            rest.iter().enumerate().map(|(at, value)| Some(known(*value)? * scale(at))).collect()
        }
        Kind::Host => {
            let value = |(at, value): (usize, &i64)| match at {
                0 | 1 => Some(known(*value)? * 1000.0 / *span_ms as f64),
                2 => known(*value),
                // A share is in millionths.
                _ => Some((known(*value)? / 1e6).min(1.0)),
            };
            rest.iter().enumerate().map(value).collect()
        }
        Kind::Stamp => {
            let (sent, counts) = rest.split_first()?;
            let share = |count: i64| Some(known(count)? / (*sent as f64).max(1.0));
            let losses = counts.iter().take(3).map(|count| share(*count));
            let delays = counts.iter().skip(3).take(7).map(|ns| Some(known(*ns)? / 1e6));
            losses.chain(delays).collect()
        }
    };
    Some(Point { start_ms: end_ms.saturating_sub(*span_ms), end_ms: *end_ms, values })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_an_interface_has_rates() {
        let row = InterfaceRow {
            end_ms: 10_000,
            span_ms: 500,
            in_bytes: 1000,
            out_packets: 3,
            ..InterfaceRow::default()
        };
        let found = point(Kind::Interface, &interface_row(row)).unwrap();
        assert_eq!((found.start_ms, found.end_ms), (9_500, 10_000));
        assert_eq!(found.values.len(), INTERFACE_METRICS.len());
        assert_eq!(found.values[0], Some(16_000.0));
        assert_eq!(found.values[3], Some(6.0));
        assert_eq!(point(Kind::Interface, &interface_row(InterfaceRow::default())), None);
    }

    #[test]
    fn a_row_of_a_queue_has_its_level_and_the_rate_of_drops() {
        let row =
            QueueRow { end_ms: 10_000, span_ms: 500, bytes: 3000, packets: 2, drops: Some(7) };
        let values = point(Kind::Queue, &queue_row(row)).unwrap().values;
        assert_eq!(values, [Some(3000.0), Some(2.0), Some(14.0)]);
        let values = point(Kind::Queue, &queue_row(QueueRow { drops: None, ..row })).unwrap();
        assert_eq!((values.values.len(), values.values[2]), (QUEUE_METRICS.len(), None));
    }

    #[test]
    fn the_positions_of_metrics_are_those_of_their_names() {
        let name = |at: usize| HOST_METRICS[at];
        assert_eq!(name(host_metric::SEGMENTS), "tcp_segments_ps");
        assert_eq!(name(host_metric::RETRANSMITS), "tcp_retransmits_ps");
        assert_eq!(name(host_metric::BUSY), "busy_share");
        assert_eq!(name(host_metric::MAX_BUSY), "max_busy_share");
        assert_eq!(name(host_metric::SOFTIRQ), "softirq_share");
        assert_eq!(name(host_metric::MAX_SOFTIRQ), "max_softirq_share");
        assert_eq!(name(host_metric::STEAL), "steal_share");
        assert_eq!(QUEUE_METRICS[queue_metric::BYTES], "queue_bytes");
        assert_eq!(QUEUE_METRICS[queue_metric::DROPS], "queue_drops_ps");
    }

    #[test]
    fn a_row_of_a_host_has_rates_and_shares() {
        let row = HostRow {
            end_ms: 10_000,
            span_ms: 2000,
            segments: Some(4000),
            connections: Some(12),
            max_busy_ppm: Some(250_000),
            steal_ppm: Some(u64::MAX),
            ..HostRow::default()
        };
        let row = host_row(row);
        assert_eq!(row.len(), Kind::Host.width());
        let values = point(Kind::Host, &row).unwrap().values;
        let expected = [2000.0, f64::NAN, 12.0, f64::NAN, 0.25, f64::NAN, f64::NAN, 1.0];
        let expected = expected.map(|value| Some(value).filter(|value| !value.is_nan()));
        assert_eq!((values.len(), values), (HOST_METRICS.len(), expected.to_vec()));
    }

    #[test]
    fn a_row_of_stamp_keeps_the_unmeasured() {
        let summary = StampSummary {
            span_ms: 60_000,
            sent: 600,
            lost: 6,
            rtt_p50_ms: Some(12.5),
            ..StampSummary::default()
        };
        let row = stamp_row(&summary);
        assert_eq!(row.len(), Kind::Stamp.width());
        let found = point(Kind::Stamp, &row).unwrap();
        assert_eq!(found.values.len(), STAMP_METRICS.len());
        assert_eq!(found.values[0], Some(0.01));
        assert_eq!(found.values[1], None);
        assert_eq!(found.values[4], Some(12.5));
    }
}
