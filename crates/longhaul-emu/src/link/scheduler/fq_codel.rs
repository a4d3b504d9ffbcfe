//! FQ-CoDel (RFC 8290): a queue with CoDel per flow, served in turn.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::super::aqm::Management;
use super::super::aqm::codel::Codel;
use super::{QueuedSegment, ServiceTurn};

/// The number of queues, to which flows are hashed (RFC 8290, section 5.2.3).
const QUEUES: u32 = 1024;

/// The queues of FQ-CoDel: deficit round robin, with precedence for queues that were empty (RFC
/// 8290, section 4).
#[derive(Debug, Clone)]
pub(super) struct FqCodel {
    target: Duration,
    interval: Duration,
    /// The bytes that a queue sends in its turn: a packet of the MTU.
    quantum: i64,
    queues: BTreeMap<u32, Flow>,
    fresh: VecDeque<u32>,
    old: VecDeque<u32>,
}

#[derive(Debug, Clone)]
struct Flow {
    codel: Codel,
    waiting: VecDeque<QueuedSegment>,
    bytes: u64,
    /// The bytes that the queue may still send in its turn.
    deficit: i64,
    /// True while the queue is in one of the two lists.
    listed: bool,
}

impl FqCodel {
    pub(super) fn new(target: Duration, interval: Duration, packet_bytes: u64) -> Self {
        let (queues, fresh, old) = Default::default();
        FqCodel { target, interval, quantum: packet_bytes as i64, queues, fresh, old }
    }

    pub(super) fn push(&mut self, segment: QueuedSegment) {
        let index = segment.origin.flow % QUEUES;
        let (target, interval) = (self.target, self.interval);
        let flow = self.queues.entry(index).or_insert_with(|| Flow {
            codel: Codel::new(target, interval),
            waiting: VecDeque::new(),
            bytes: 0,
            deficit: 0,
            listed: false,
        });
        flow.bytes += segment.bytes;
        flow.waiting.push_back(segment);
        if !flow.listed {
            (flow.listed, flow.deficit) = (true, self.quantum);
            self.fresh.push_back(index);
        }
    }

    /// Takes the next segment by the turns of the queues and the decisions of their CoDel.
    pub(super) fn pop(
        &mut self,
        turn: ServiceTurn,
        dropped: &mut Vec<QueuedSegment>,
    ) -> Option<(QueuedSegment, bool)> {
        loop {
            let is_fresh = !self.fresh.is_empty();
            let list = if is_fresh { &mut self.fresh } else { &mut self.old };
            let index = *list.front()?;
            let flow = self.queues.get_mut(&index)?;
            if flow.deficit <= 0 {
                flow.deficit += self.quantum;
                list.pop_front();
                self.old.push_back(index);
                continue;
            }
            if let Some(found) = flow.take(turn, self.target, dropped) {
                flow.deficit -= found.0.bytes as i64;
                return Some(found);
            }
            list.pop_front();
            // An emptied new queue waits for its turn among the old ones, so that it does not take
            // precedence again at once.
            if is_fresh && !self.old.is_empty() {
                self.old.push_back(index);
            } else {
                flow.listed = false;
            }
        }
    }

    /// Removes the first segment of the queue with the most bytes.
    pub(super) fn shed(&mut self) -> Option<QueuedSegment> {
        self.queues.values_mut().max_by_key(|flow| flow.bytes)?.remove_first()
    }

    /// Takes the next segment in the order of arrival.
    pub(super) fn shed_first(&mut self) -> Option<QueuedSegment> {
        let first = |flow: &Flow| flow.waiting.front().map(|segment| segment.origin.ticket);
        let waiting = self.queues.values_mut().filter(|flow| !flow.waiting.is_empty());
        waiting.min_by_key(|flow| first(flow))?.remove_first()
    }
}

impl Flow {
    fn remove_first(&mut self) -> Option<QueuedSegment> {
        let segment = self.waiting.pop_front()?;
        self.bytes -= segment.bytes;
        Some(segment)
    }

    /// Takes the first segment that CoDel passes. Returns it, and true if the link marks it.
    fn take(
        &mut self,
        turn: ServiceTurn,
        target: Duration,
        dropped: &mut Vec<QueuedSegment>,
    ) -> Option<(QueuedSegment, bool)> {
        loop {
            let segment = self.remove_first()?;
            // A queue of less than a packet is never too long (RFC 8289, section 5.4).
            let is_short = self.bytes < turn.packet_bytes;
            let sojourn = if is_short { Duration::ZERO } else { turn.now.since(segment.arrived) };
            let target = target.max(turn.packet_time);
            match self.codel.decide(turn.now, sojourn, target, segment.shape.ecn_capable) {
                Management::Pass => return Some((segment, false)),
                Management::Mark => return Some((segment, true)),
                Management::Drop => dropped.push(segment),
            }
        }
    }
}
