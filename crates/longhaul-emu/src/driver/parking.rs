//! The segments that wait in a queue of the model, because their order depends on later arrivals.

use std::collections::HashMap;
use std::ops::Range;

use super::store::ParcelId;

/// The places of the waiting segments, by ticket: the number of a segment among all segments that
/// entered the lane.
#[derive(Debug, Default)]
pub(super) struct Parking {
    places: HashMap<u64, (ParcelId, u32)>,
}

impl Parking {
    /// Adds segments of a packet, of which segment 0 has ticket `first`.
    pub(super) fn add(&mut self, first: u64, parcel: ParcelId, segments: Range<u32>) {
        self.places.extend(segments.map(|segment| (first + u64::from(segment), (parcel, segment))));
    }

    /// Removes and returns the segment with this ticket. There is none if its packet could not be
    /// stored.
    pub(super) fn take(&mut self, ticket: u64) -> Option<(ParcelId, u32)> {
        self.places.remove(&ticket)
    }

    /// Returns the segment with this ticket.
    pub(super) fn get(&self, ticket: u64) -> Option<(ParcelId, u32)> {
        self.places.get(&ticket).copied()
    }

    /// Iterates over the waiting segments in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ParcelId, u32)> {
        self.places.values().copied()
    }
}
