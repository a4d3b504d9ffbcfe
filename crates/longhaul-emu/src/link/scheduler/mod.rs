//! The queue stage for bottlenecks with several queues: FQ-CoDel, DualPI2 and priorities.
//!
//! The departure of a segment depends on segments that arrive later, so segments wait here. The
//! bottleneck takes the next segment when the previous one has been sent, with the segments that
//! have arrived by then.

mod dualpi2;
mod fq_codel;

use std::collections::VecDeque;
use std::time::Duration;

use longhaul_core::plan::link::{Aqm, QueueLimit};
use longhaul_core::plan::{LinkDirection, LinkPlan, Side};
use longhaul_core::units::Bytes;

use self::dualpi2::DualPi2;
use self::fq_codel::FqCodel;
use super::backlog::{Backlog, Phase};
use super::batch::{Batch, Origin};
use super::capacity::{Capacity, units_of};
use super::random::{Purpose, Stream};
use super::{DropReason, LinkTime, PacketShape, Piece, Treatment};

/// A segment that waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueuedSegment {
    /// The properties of the segment; the ticket is its own.
    pub(super) origin: Origin,
    pub(super) shape: PacketShape,
    /// The bytes as the rate counts them.
    bytes: u64,
    arrived: LinkTime,
}

/// A segment that waits no more.
#[derive(Debug, Clone, Copy)]
pub(super) struct DequeuedSegment {
    pub(super) segment: QueuedSegment,
    pub(super) outcome: Outcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Sent { at: LinkTime, mark: bool },
    Dropped(DropReason),
}

/// The time at which the bottleneck takes a segment.
#[derive(Debug, Clone, Copy)]
struct ServiceTurn {
    now: LinkTime,
    /// The transmission time of a packet of the MTU.
    packet_time: Duration,
    /// The bytes of such a packet.
    packet_bytes: u64,
}

/// The queues and the order in which they are served.
#[derive(Debug, Clone)]
enum Discipline {
    FqCodel(FqCodel),
    DualPi2(DualPi2),
    Bands(Bands),
}

/// A bottleneck with several queues.
#[derive(Debug, Clone)]
pub(super) struct Scheduler {
    /// The capacity, and the segments that have been taken.
    phase: Phase,
    /// The bytes that were accepted under earlier plans.
    earlier: Backlog,
    limit: QueueLimit,
    overhead: u32,
    mtu: u32,
    discipline: Discipline,
    /// The number of waiting segments and their bytes.
    segments: u64,
    bytes: u64,
    /// The time at which a segment arrived while no other waited.
    ready_at: LinkTime,
    gone: Vec<DequeuedSegment>,
    /// The end of the last outage. The classes that share the queues report it in turn.
    emptied_at: LinkTime,
}

impl Scheduler {
    /// Creates the empty queues of `plan` in the direction from `from` at `now`, if it has several
    /// queues.
    pub(super) fn new(plan: &LinkPlan, from: Side, now: LinkTime) -> Option<Self> {
        let direction = plan.from(from);
        let capacity = Capacity::of(direction).filter(|_| direction.is_scheduled())?;
        let random = Stream::new(plan.seed.unwrap_or(0), from, Purpose::DualPi2);
        let discipline = match direction.aqm {
            Some(Aqm::FqCodel { target, interval }) => {
                let packet = u64::from(plan.mtu + direction.overhead_bytes);
                Discipline::FqCodel(FqCodel::new(target, interval, packet))
            }
            Some(Aqm::DualPi2 { target }) => {
                Discipline::DualPi2(DualPi2::new(target, plan.rtt(), random, now))
            }
            _ => Discipline::Bands(Bands::default()),
        };
        Some(Scheduler {
            phase: Phase::starting(capacity, now),
            earlier: Backlog::default(),
            limit: plan.queue_limit(from)?,
            overhead: direction.overhead_bytes,
            mtu: plan.mtu,
            discipline,
            segments: 0,
            bytes: 0,
            ready_at: now,
            gone: Vec::new(),
            emptied_at: now,
        })
    }

    /// Returns whether two plans have the same queues, so that segments can continue to wait.
    pub(super) fn is_same(one: &LinkDirection, other: &LinkDirection) -> bool {
        let queue = |plan: &LinkDirection| {
            (
                plan.rate_bps,
                plan.rate_schedule().cloned(),
                plan.queue,
                plan.aqm,
                plan.overhead_bytes,
            )
        };
        let priorities = |plan: &LinkDirection| {
            let classes = plan.classes.iter().map(|class| class.link.priority);
            std::iter::once(plan.priority).chain(classes).collect::<Vec<_>>()
        };
        queue(one) == queue(other)
            && priorities(one) == priorities(other)
            && one.outages == other.outages
            && one.is_scheduled()
            && other.is_scheduled()
    }

    /// Makes these queues send after the bytes that earlier plans have accepted.
    pub(super) fn wait_for(&mut self, earlier: Backlog, now: LinkTime) {
        self.phase.restart(earlier.end().max(now));
        self.earlier = earlier;
    }

    /// Replaces the arriving pieces by waiting segments.
    pub(super) fn apply(&mut self, batch: &mut Batch) {
        if let Some(up_at) = batch.carrier.up_at.filter(|up_at| *up_at > self.emptied_at) {
            self.restart(up_at);
        }
        if batch.carrier.is_down {
            return;
        }
        batch.replace_pieces(|batch, piece| {
            for segment in piece.segments.clone() {
                let ticket = batch.origin.ticket + u64::from(segment);
                let shape = batch.packet.single_of(segment);
                self.push(QueuedSegment {
                    origin: Origin { ticket, ..batch.origin },
                    bytes: shape.bytes() + u64::from(self.overhead),
                    shape,
                    arrived: batch.now,
                });
                // The result is the same as of segments in separate packets.
                self.advance(batch.now, batch.carrier.down_at);
            }
            let treatment = Treatment { parked: true, ..Treatment::default() };
            batch.pieces.push(Piece { treatment, at: batch.now, ..piece });
        });
    }

    fn push(&mut self, segment: QueuedSegment) {
        let now = segment.arrived;
        if self.segments == 0 {
            self.ready_at = now;
        }
        self.segments += 1;
        self.bytes += segment.bytes;
        self.discipline.push(segment);
        // An idle bottleneck accepts a segment of any size.
        let is_idle = |own: &Self| own.segments == 1 && own.phase.progress.free_at <= now;
        while !is_idle(self) && !self.fits(now) {
            let Some(segment) = self.discipline.shed() else { break };
            self.leave(segment, Outcome::Dropped(DropReason::QueueFull));
        }
    }

    fn fits(&self, now: LinkTime) -> bool {
        match self.limit {
            QueueLimit::Bytes(limit) => {
                self.earlier.waiting(now) + self.phase.waiting(now) + units_of(self.bytes)
                    <= units_of(limit.get())
            }
            QueueLimit::Time(limit) => self.last_sent(now).since(now) <= limit,
            QueueLimit::Segments(limit) => {
                let taken = self.earlier.waiting_segments(now) + self.phase.waiting_segments(now);
                taken + self.segments <= u64::from(limit)
            }
        }
    }

    /// Returns the time by which all waiting segments would have been sent.
    fn last_sent(&self, now: LinkTime) -> LinkTime {
        let Phase { capacity, progress, .. } = &self.phase;
        let from = if progress.free_at < now { capacity.begin(now) } else { *progress };
        capacity.after(from, self.bytes).free_at
    }

    fn leave(&mut self, segment: QueuedSegment, outcome: Outcome) {
        self.segments -= 1;
        self.bytes -= segment.bytes;
        self.gone.push(DequeuedSegment { segment, outcome });
    }

    /// Returns the time at which the bottleneck takes the next segment, or at which an outage that
    /// starts at `cut_at` discards it, if one waits.
    pub(super) fn next(&self, cut_at: Option<LinkTime>) -> Option<LinkTime> {
        let turn = self.phase.progress.free_at.max(self.ready_at);
        (self.segments > 0).then(|| cut_at.map_or(turn, |cut| turn.min(cut)))
    }

    /// Takes all segments that are due at `now`. The next outage starts at `cut_at`.
    pub(super) fn advance(&mut self, now: LinkTime, cut_at: Option<LinkTime>) {
        while let Some(turn) = self.next(cut_at).filter(|turn| *turn <= now) {
            if cut_at == Some(turn) {
                self.discard();
                return;
            }
            let turn = ServiceTurn {
                now: turn,
                packet_bytes: u64::from(self.mtu + self.overhead),
                packet_time: self
                    .phase
                    .capacity
                    .time_for(u64::from(self.mtu + self.overhead), turn),
            };
            let mut dropped = Vec::new();
            let taken = self.discipline.pop(turn, &mut dropped);
            for segment in dropped {
                self.leave(segment, Outcome::Dropped(DropReason::Managed));
            }
            let Some((segment, mark)) = taken else { return };
            self.send(turn.now, segment, mark, cut_at);
        }
    }

    fn send(
        &mut self,
        now: LinkTime,
        segment: QueuedSegment,
        mark: bool,
        cut_at: Option<LinkTime>,
    ) {
        let Phase { capacity, progress, .. } = &self.phase;
        let from = if progress.free_at < now { capacity.begin(now) } else { *progress };
        let sent = capacity.after(from, segment.bytes);
        self.phase.accept(now, sent, 1);
        let outcome = if cut_at.is_some_and(|cut| cut <= sent.free_at) {
            Outcome::Dropped(DropReason::Outage)
        } else {
            Outcome::Sent { at: sent.free_at, mark }
        };
        self.leave(segment, outcome);
    }

    /// Drops all waiting segments, because the link is down.
    fn discard(&mut self) {
        while let Some(segment) = self.discipline.shed() {
            self.leave(segment, Outcome::Dropped(DropReason::Outage));
        }
    }

    /// Empties the bottleneck at the end of an outage.
    fn restart(&mut self, up_at: LinkTime) {
        self.emptied_at = up_at;
        self.discard();
        self.phase.restart(self.earlier.end().max(up_at));
    }

    /// Sends all waiting segments at `now` as if no others followed, when the plan ends. Returns
    /// the bytes that wait.
    pub(super) fn end(&mut self, now: LinkTime, cut_at: Option<LinkTime>) -> Backlog {
        while let Some(segment) = self.discipline.shed_first() {
            let turn = self.phase.progress.free_at.max(self.ready_at);
            self.send(turn, segment, false, cut_at);
        }
        let mut backlog = self.earlier.clone();
        backlog.push(self.phase.clone(), cut_at, now);
        backlog
    }

    /// Returns the bytes that wait at `now` or are being sent, and the time until the last of them
    /// leaves the queue.
    pub(super) fn depth(&self, now: LinkTime, cut_at: Option<LinkTime>) -> (Bytes, Duration) {
        self.clone().end(now, cut_at).depth(now)
    }

    /// Returns and removes the segments that wait no more, in the order of their ends.
    pub(super) fn take_gone(&mut self) -> Vec<DequeuedSegment> {
        std::mem::take(&mut self.gone)
    }
}

impl Discipline {
    fn push(&mut self, segment: QueuedSegment) {
        match self {
            Discipline::FqCodel(queues) => queues.push(segment),
            Discipline::DualPi2(queues) => queues.push(segment),
            Discipline::Bands(bands) => bands.push(segment),
        }
    }

    /// Takes the next segment, and whether to mark it. Adds the segments that the queue management
    /// drops to `dropped`.
    fn pop(
        &mut self,
        turn: ServiceTurn,
        dropped: &mut Vec<QueuedSegment>,
    ) -> Option<(QueuedSegment, bool)> {
        match self {
            Discipline::FqCodel(queues) => queues.pop(turn, dropped),
            Discipline::DualPi2(queues) => queues.pop(turn, dropped),
            Discipline::Bands(bands) => bands.shed_first().map(|segment| (segment, false)),
        }
    }

    /// Removes the segment that a full queue drops.
    fn shed(&mut self) -> Option<QueuedSegment> {
        match self {
            Discipline::FqCodel(queues) => queues.shed(),
            Discipline::DualPi2(queues) => queues.shed(),
            Discipline::Bands(bands) => bands.shed(),
        }
    }

    /// Takes the next segment without queue management.
    fn shed_first(&mut self) -> Option<QueuedSegment> {
        match self {
            Discipline::FqCodel(queues) => queues.shed_first(),
            Discipline::DualPi2(queues) => queues.shed_first(),
            Discipline::Bands(bands) => bands.shed_first(),
        }
    }
}

/// A queue per priority, 0 to 7.
#[derive(Debug, Clone, Default)]
struct Bands {
    bands: [VecDeque<QueuedSegment>; 8],
}

impl Bands {
    fn push(&mut self, segment: QueuedSegment) {
        self.bands[usize::from(segment.origin.priority.min(7))].push_back(segment);
    }

    /// Removes the first segment of the highest priority.
    fn shed_first(&mut self) -> Option<QueuedSegment> {
        self.bands.iter_mut().rev().find_map(VecDeque::pop_front)
    }

    /// Removes the last segment of the lowest priority, so that a full queue of low priority does
    /// not block a higher one.
    fn shed(&mut self) -> Option<QueuedSegment> {
        self.bands.iter_mut().find_map(VecDeque::pop_back)
    }
}
