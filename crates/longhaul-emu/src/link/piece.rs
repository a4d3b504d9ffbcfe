use std::ops::Range;

use super::LinkTime;

/// Adjacent segments of a packet that leave the link together and are treated alike.
///
/// The pieces of one offer may overlap only where one is a duplicate; a segment in no piece was
/// dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Which segments of the packet, counted from 0; empty only as [`Piece::release`] says.
    pub segments: Range<u32>,
    /// When they leave; when they do at the latest, if they are held.
    pub at: LinkTime,
    /// What happens to each of them on the way.
    pub treatment: Treatment,
}

impl Piece {
    /// Not segments, but word that the one held for longest of those that are to leave after `at`
    /// leaves at `at` already, in its turn among the pieces.
    pub fn release(at: LinkTime) -> Self {
        Piece { segments: 0..0, at, treatment: Treatment::default() }
    }

    /// Whether it is the word of [`Piece::release`].
    pub fn is_release(&self) -> bool {
        self.segments.is_empty()
    }

    /// How many segments it has.
    pub fn count(&self) -> u32 {
        self.segments.end - self.segments.start
    }
}

/// What the link does to segments that it delivers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Treatment {
    /// Mark congestion experienced (RFC 3168); only where the packet is ECN-capable.
    pub mark_ce: bool,
    /// Change a bit.
    pub corruption: Option<Corruption>,
    /// A second copy of segments that another piece delivers.
    pub duplicate: bool,
    /// A segment held back until enough later ones have left, which a later offer tells by
    /// [`Piece::release`]: in the order in which they were held.
    pub held: bool,
}

impl Treatment {
    /// Whether the segments leave as they came.
    pub fn is_none(&self) -> bool {
        !self.mark_ce && self.corruption.is_none()
    }
}

/// Damage to one segment, so a piece that has it is one segment long. `bit` is uniform over 64
/// bits; the driver reduces it to a bit of the segment's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Corruption {
    /// The segment's checksum no longer fits: TCP and UDP drop it.
    Detected {
        /// Which bit.
        bit: u64,
    },
    /// The segment's checksum fits the changed payload: only the application can notice.
    Silent {
        /// Which bit.
        bit: u64,
    },
}
