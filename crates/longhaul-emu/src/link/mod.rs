//! The link model: computes whether and when each segment of a packet leaves the link.
//!
//! A [`LinkModel`] is one direction of a link. [`LinkModel::offer`] takes the time at which a
//! packet enters and its shape, and returns the segments that leave, their departure times and
//! their treatment. The answer depends only on the plan and the sequence of offers: equal offers
//! produce equal pieces.
//!
//! Times are [`LinkTime`], nanoseconds since an origin that the caller chooses: a clock in the
//! driver, a number in a test. The times of successive offers must not decrease.

mod aqm;
mod backlog;
mod batch;
mod capacity;
mod chain;
mod cross;
mod damage;
mod delay;
mod loss;
mod model;
mod pipe;
mod policer;
mod queue;
mod random;
mod reorder;
mod scheduler;
mod slots;
mod stages;

#[cfg(test)]
mod tests;

use std::ops::{Add, Range};
use std::time::Duration;

use longhaul_core::result::{Impairments, Segments};

pub use model::LinkModel;
pub use random::random_seed;

/// A point in time: nanoseconds since the link's origin. The range is 584 years.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct LinkTime(u64);

impl LinkTime {
    /// Returns the point `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        LinkTime(nanos)
    }

    /// Returns the nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time from `earlier` to this point; zero if `earlier` is later.
    pub const fn since(self, earlier: LinkTime) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns the point `span` before this one, but not before the origin.
    pub const fn before(self, span: Duration) -> LinkTime {
        LinkTime(self.0.saturating_sub(span.as_nanos() as u64))
    }
}

impl Add<Duration> for LinkTime {
    type Output = LinkTime;

    fn add(self, span: Duration) -> LinkTime {
        LinkTime(self.0.saturating_add(span.as_nanos() as u64))
    }
}

/// The properties of a packet that the model needs: its division into segments on a wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketShape {
    /// The bytes of IP and transport headers, which every segment repeats.
    pub header_bytes: u32,
    /// The payload bytes of all segments together.
    pub payload_bytes: u32,
    /// The payload bytes of each segment except the last, which has the remaining bytes; 0 only if
    /// the payload is empty.
    pub segment_bytes: u32,
    /// True if the sender supports congestion marks (RFC 3168: ECT(0), ECT(1) or CE).
    pub ecn_capable: bool,
}

impl PacketShape {
    /// Creates the shape of a packet of `bytes` with one segment.
    pub const fn single(bytes: u32) -> Self {
        PacketShape {
            header_bytes: 0,
            payload_bytes: bytes,
            segment_bytes: bytes,
            ecn_capable: false,
        }
    }

    /// Returns the number of segments; 1 unless the packet is a super-packet.
    pub fn segments(&self) -> u32 {
        match self.segment_bytes {
            0 => 1,
            size => self.payload_bytes.div_ceil(size).max(1),
        }
    }

    /// Returns the IP bytes of all segments, each with its headers.
    pub fn bytes(&self) -> u64 {
        self.bytes_of(0..self.segments())
    }

    /// Returns the IP bytes of some segments, each with its headers.
    pub fn bytes_of(&self, segments: Range<u32>) -> u64 {
        let count = u64::from(segments.end.saturating_sub(segments.start));
        let start = u64::from(segments.start) * u64::from(self.segment_bytes);
        let end = u64::from(segments.end) * u64::from(self.segment_bytes);
        let payload = end.min(u64::from(self.payload_bytes)).saturating_sub(start);
        count * u64::from(self.header_bytes) + payload
    }

    /// Returns the shape of one segment.
    fn single_of(&self, segment: u32) -> PacketShape {
        let payload_bytes = (self.bytes_of(segment..segment + 1) as u32) - self.header_bytes;
        PacketShape { payload_bytes, segment_bytes: payload_bytes, ..*self }
    }

    /// Returns the number and the IP bytes of some segments, for counters.
    fn count_of(&self, segments: Range<u32>) -> Segments {
        let count = u64::from(segments.end - segments.start);
        Segments { segments: count, bytes: self.bytes_of(segments) }
    }
}

/// Adjacent segments of a packet that leave the link together with the same treatment.
///
/// The pieces of one offer overlap only if one of them is a duplicate. The link drops every segment
/// that no piece contains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The segments of the packet, counted from 0; empty only for [`Piece::release`].
    pub segments: Range<u32>,
    /// The departure time; for held segments the latest departure time.
    pub at: LinkTime,
    /// The changes to each of the segments.
    pub treatment: Treatment,
}

impl Piece {
    /// Creates a marker without segments: the piece that was held first, of those due after `at`,
    /// leaves at `at`. The position of the marker among the pieces determines the order.
    pub fn release(at: LinkTime) -> Self {
        Piece { segments: 0..0, at, treatment: Treatment::default() }
    }

    /// Creates a piece with some segments and no treatment.
    pub fn of(segments: Range<u32>, at: LinkTime) -> Self {
        Piece { segments, at, treatment: Treatment::default() }
    }

    /// Returns whether this is the marker of [`Piece::release`].
    pub fn is_release(&self) -> bool {
        self.segments.is_empty()
    }

    /// Returns the number of segments.
    pub fn count(&self) -> u32 {
        self.segments.end - self.segments.start
    }
}

/// The changes that the link makes to segments that it delivers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Treatment {
    /// Mark congestion experienced (RFC 3168); set only for ECN-capable packets.
    pub mark_ce: bool,
    /// The bit to change, if any.
    pub corruption: Option<Corruption>,
    /// True for a duplicate of segments that another piece delivers.
    pub duplicate: bool,
    /// True for a segment that is held until enough later segments have left. Later offers release
    /// held segments with [`Piece::release`], in the order of their arrival.
    pub held: bool,
    /// True for segments that wait in a queue whose order depends on later arrivals.
    /// [`LinkModel::serve`](LinkModel::serve) returns their departures.
    pub parked: bool,
}

/// The reason why the link dropped segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DropReason {
    /// Lost at random, by pattern or by trace.
    Lost,
    /// The link was down.
    Outage,
    /// The policer had no tokens.
    Policed,
    /// A bit was wrong on the wire.
    BitError,
    /// The queue was full.
    QueueFull,
    /// The queue management dropped the segment.
    Managed,
}

impl DropReason {
    /// All reasons.
    pub const ALL: [DropReason; 6] = [
        DropReason::Lost,
        DropReason::Outage,
        DropReason::Policed,
        DropReason::BitError,
        DropReason::QueueFull,
        DropReason::Managed,
    ];

    /// Returns the counter of the reason.
    fn counter(self, counts: &mut Impairments) -> &mut Segments {
        match self {
            DropReason::Lost => &mut counts.lost,
            DropReason::Outage => &mut counts.outage,
            DropReason::Policed => &mut counts.policed,
            DropReason::BitError => &mut counts.bit_errors,
            DropReason::QueueFull => &mut counts.queue_full,
            DropReason::Managed => &mut counts.aqm_dropped,
        }
    }
}

/// Adjacent segments that the link dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dropped {
    /// The number of the first one among all segments offered to the link, from 0.
    pub ticket: u64,
    /// The number of segments.
    pub segments: u32,
    /// The reason.
    pub reason: DropReason,
}

/// The outcome for a segment that [`Treatment::parked`] marked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueOutcome {
    /// The number of the segment among all segments offered to the link, from 0.
    pub ticket: u64,
    /// The pieces that leave, each with segment 0, and markers of [`Piece::release`]; empty if the
    /// link dropped the segment.
    pub pieces: Vec<Piece>,
}

impl Treatment {
    /// Returns whether the segments leave unchanged.
    pub fn is_none(&self) -> bool {
        !self.mark_ce && self.corruption.is_none()
    }
}

/// Damage to one segment; a damaged piece has one segment. `bit` is uniform over 64 bits; the
/// driver reduces it to a bit of the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Corruption {
    /// The checksum of the segment is wrong, so TCP and UDP drop it.
    Detected {
        /// The bit to change.
        bit: u64,
    },
    /// The checksum of the segment matches the changed payload, so only the application can notice.
    Silent {
        /// The bit to change.
        bit: u64,
    },
}

#[cfg(test)]
mod shape_tests {
    use super::*;

    #[test]
    fn parts_add_up_to_the_whole() {
        let shape = PacketShape {
            header_bytes: 52,
            payload_bytes: 3 * 1448 + 1,
            segment_bytes: 1448,
            ecn_capable: false,
        };
        assert_eq!((shape.segments(), shape.bytes()), (4, 4345 + 4 * 52));
        assert_eq!(shape.bytes_of(0..2), 2 * 1500);
        assert_eq!(shape.bytes_of(2..4), 1500 + 53);
        let whole: u64 = (0..4).map(|i| shape.bytes_of(i..i + 1)).sum();
        assert_eq!(whole, shape.bytes());
        let empty = PacketShape { payload_bytes: 0, segment_bytes: 0, ..shape };
        assert_eq!((empty.segments(), empty.bytes()), (1, 52));
    }
}
