//! The answer of the link model: pieces of a packet with their departure time and treatment.

use std::ops::Range;

use super::LinkTime;

/// Adjacent segments of a packet that leave the link together with the same treatment.
///
/// The pieces of one offer overlap only if one of them is a duplicate. A segment in no piece was
/// dropped.
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
    /// Creates a marker without segments: of the held pieces that are due after `at`, the one held
    /// longest leaves at `at`, in its turn among the pieces.
    pub fn release(at: LinkTime) -> Self {
        Piece { segments: 0..0, at, treatment: Treatment::default() }
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
    /// True for a second copy of segments that another piece delivers.
    pub duplicate: bool,
    /// True for a segment that is held until enough later segments have left. Later offers release
    /// held segments with [`Piece::release`], in the order in which they were held.
    pub held: bool,
}

impl Treatment {
    /// Returns whether the segments leave unchanged.
    pub fn is_none(&self) -> bool {
        !self.mark_ce && self.corruption.is_none()
    }
}

/// Damage to one segment; a piece with damage has one segment. `bit` is uniform over 64 bits; the
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
