//! Queues by priority: the highest one that is not empty is served.

use std::collections::VecDeque;

use super::Waiting;

/// A queue per priority, 0 to 7.
#[derive(Debug, Clone, Default)]
pub(super) struct Bands {
    bands: [VecDeque<Waiting>; 8],
}

impl Bands {
    pub(super) fn push(&mut self, segment: Waiting) {
        self.bands[usize::from(segment.origin.priority.min(7))].push_back(segment);
    }

    /// Removes the first segment of the highest priority.
    pub(super) fn shed_first(&mut self) -> Option<Waiting> {
        self.bands.iter_mut().rev().find_map(VecDeque::pop_front)
    }

    /// Removes the last segment of the lowest priority, so that a full queue of low priority does
    /// not block a higher one.
    pub(super) fn shed(&mut self) -> Option<Waiting> {
        self.bands.iter_mut().find_map(VecDeque::pop_back)
    }
}
