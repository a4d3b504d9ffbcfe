//! Counters of a link's impairments.

use serde::{Deserialize, Serialize};

/// A number of segments and their IP bytes, with headers for each segment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segments {
    /// The number of segments.
    pub segments: u64,
    /// The IP bytes.
    pub bytes: u64,
}

impl std::ops::AddAssign for Segments {
    fn add_assign(&mut self, other: Segments) {
        self.segments += other.segments;
        self.bytes += other.bytes;
    }
}

impl std::ops::Add for Segments {
    type Output = Segments;

    fn add(mut self, other: Segments) -> Segments {
        self += other;
        self
    }
}

/// The planned effects of one direction of a link on segments.
///
/// Every offered segment is either delivered or dropped for one of the reasons. Marks, damage and
/// reordering apply to delivered segments; a duplicate is an additional segment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Impairments {
    /// Dropped: lost at random, by pattern or by trace.
    pub lost: Segments,
    /// Dropped: offered, or still queued, while the link was down.
    pub outage: Segments,
    /// Dropped by the policer.
    pub policed: Segments,
    /// Dropped: a bit was wrong on the wire.
    pub bit_errors: Segments,
    /// Dropped: the queue was full.
    pub queue_full: Segments,
    /// Dropped by the queue management.
    pub aqm_dropped: Segments,
    /// Marked with congestion experienced, at random or by the queue management.
    pub marked_ce: Segments,
    /// Damaged detectably by the checksum.
    pub corrupted: Segments,
    /// Damaged with a matching checksum.
    pub corrupted_silent: Segments,
    /// Delivered a second time.
    pub duplicated: Segments,
    /// Delivered out of order: a segment with a lower number than one that arrived before (RFC
    /// 4737, section 3).
    pub reordered: Segments,
    /// Cross traffic that passed the queue: packets of the link's MTU.
    pub cross_sent: Segments,
    /// Cross traffic that the queue dropped.
    pub cross_dropped: Segments,
}

impl Impairments {
    /// Returns the segments that were offered and not delivered.
    pub fn dropped(&self) -> Segments {
        self.lost
            + self.outage
            + self.policed
            + self.bit_errors
            + self.queue_full
            + self.aqm_dropped
    }
}
