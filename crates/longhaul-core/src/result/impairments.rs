use serde::{Deserialize, Serialize};

/// Segments, and their IP bytes with a header for each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segments {
    /// How many.
    pub segments: u64,
    /// Their bytes.
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

/// What one direction of a link did to segments because its plan says so.
///
/// Every segment offered is either in one of the drops or delivered; marks, damage and changes of
/// order befall delivered ones, and a duplicate is one more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Impairments {
    /// Dropped: lost by chance, by the pattern or by the trace.
    pub lost: Segments,
    /// Dropped: offered, or still waiting for the rate, while the link was down.
    pub outage: Segments,
    /// Dropped: the queue was full.
    pub queue_full: Segments,
    /// Dropped by the queue's management.
    pub aqm_dropped: Segments,
    /// Marked as having met congestion, by chance or by the queue's management.
    pub marked_ce: Segments,
    /// Damaged so that the checksum tells.
    pub corrupted: Segments,
    /// Damaged so that the checksum fits.
    pub corrupted_silent: Segments,
    /// Delivered once more.
    pub duplicated: Segments,
    /// Held back, or overtaken by a segment that was offered after it (a segment counts once,
    /// when it is the later one: RFC 4737, section 3).
    pub reordered: Segments,
    /// Cross traffic that passed the queue: packets of the link's MTU.
    pub cross_sent: Segments,
    /// Cross traffic that the queue dropped.
    pub cross_dropped: Segments,
}

impl Impairments {
    /// What was offered and is not delivered.
    pub fn dropped(&self) -> Segments {
        self.lost + self.outage + self.queue_full + self.aqm_dropped
    }
}
