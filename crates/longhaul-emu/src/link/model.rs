//! The model of one direction of a link.

use std::time::Duration;

use longhaul_core::plan::link::{ClassMatch, Headers, LinkClass};
use longhaul_core::plan::{LinkPlan, Side};
use longhaul_core::result::Impairments;
use longhaul_core::units::Bytes;

use super::batch::{Batch, Carrier, Origin};
use super::pipe::Pipe;
use super::scheduler::{DequeuedSegment, Outcome};
use super::{Dropped, LinkTime, PacketShape, Piece, QueueOutcome, Treatment};

/// The model of one direction of a link.
#[derive(Debug, Clone)]
pub struct LinkModel {
    from: Side,
    /// The stages of packets of no class.
    base: Pipe,
    classes: Vec<Class>,
    priority: u8,
    /// The number of the next segment among all segments, from 0.
    offered: u64,
    /// True if the queue distinguishes flows.
    distinguishes_flows: bool,
    counts: Impairments,
    /// The segments dropped since the last call of [`LinkModel::take_dropped`], if they are
    /// reported.
    dropped: Option<Vec<Dropped>>,
    /// The outcomes that [`LinkModel::serve`] has not returned.
    served: Vec<QueueOutcome>,
    /// Empty buffers for the pieces of the packet in progress.
    buffers: [Vec<Piece>; 2],
}

/// The stages of a class of traffic.
#[derive(Debug, Clone)]
struct Class {
    matches: ClassMatch,
    priority: u8,
    /// True if the class shares the queue of other traffic.
    shares: bool,
    pipe: Pipe,
}

impl LinkModel {
    /// Creates the model of the direction from `from` of `plan`, which must be valid and have its
    /// files loaded. A plan without a seed has seed 0.
    pub fn new(plan: &LinkPlan, from: Side) -> Self {
        let class = |(index, class): (usize, &LinkClass)| {
            Some(Class {
                matches: class.matches.clone(),
                priority: class.link.priority,
                shares: !class.has_own_queue(),
                pipe: Pipe::new(&plan.of_class(from, index)?, from),
            })
        };
        let mut model = LinkModel {
            from,
            base: Pipe::new(plan, from),
            classes: plan.from(from).classes.iter().enumerate().filter_map(class).collect(),
            priority: 0,
            offered: 0,
            distinguishes_flows: false,
            counts: Impairments::default(),
            dropped: None,
            served: Vec::new(),
            buffers: Default::default(),
        };
        model.set(LinkTime::default(), plan);
        model
    }

    /// Applies `plan` to packets offered from `now` on. The seed and the classes, except for their
    /// properties, must be the same.
    ///
    /// Packets offered before keep their departure times, and later packets do not leave before
    /// them. The bytes that wait for the old rate are sent first, at the old rate. Stages that are
    /// equal in both plans keep their state, and no random number is used twice.
    pub fn set(&mut self, now: LinkTime, plan: &LinkPlan) {
        let direction = plan.from(self.from);
        self.distinguishes_flows = direction.is_scheduled();
        self.priority = direction.priority;
        self.advance(now);
        let from = self.from;
        let classes: Vec<LinkPlan> =
            (0..self.classes.len()).filter_map(|index| plan.of_class(from, index)).collect();
        self.base.end(now, direction, &mut self.counts);
        for (class, plan) in self.classes.iter_mut().zip(&classes) {
            class.pipe.end(now, plan.from(from), &mut self.counts);
        }
        // The segments that were sent pass the stages of the present plan.
        self.settle(now);
        self.base.set(now, plan, from);
        for (class, plan) in self.classes.iter_mut().zip(&classes) {
            class.priority = plan.from(from).priority;
            class.pipe.set(now, plan, from);
        }
    }

    /// Returns whether the treatment of a packet depends on its headers.
    pub fn needs_headers(&self) -> bool {
        self.distinguishes_flows || !self.classes.is_empty()
    }

    /// Offers a packet of no class, as [`LinkModel::offer_with`] does.
    pub fn offer(&mut self, now: LinkTime, packet: &PacketShape, pieces: &mut Vec<Piece>) {
        self.offer_with(now, packet, None, pieces);
    }

    /// Offers a packet that enters the link at `now`. Appends the pieces that leave to `pieces`, in
    /// the order of their segments. The link drops every segment that no piece contains. Parked
    /// pieces leave later, as [`LinkModel::serve`] returns. `headers` are those of an IP packet;
    /// they are only needed if [`LinkModel::needs_headers`] is true.
    pub fn offer_with(
        &mut self,
        now: LinkTime,
        packet: &PacketShape,
        headers: Option<&Headers>,
        pieces: &mut Vec<Piece>,
    ) {
        let count = packet.segments();
        let ticket = self.offered;
        self.offered += u64::from(count);
        if self.classes.is_empty()
            && let Some(at) = self.base.delay_only(now, count)
        {
            pieces.push(Piece { segments: 0..count, at, treatment: Treatment::default() });
            return;
        }
        self.advance(now);
        let index = headers.and_then(|headers| {
            self.classes.iter().position(|class| class.matches.contains(headers))
        });
        let priority = index.map_or(self.priority, |index| self.classes[index].priority);
        let origin = Origin {
            ticket,
            class: index.map_or(0, |index| index + 1),
            priority,
            flow: headers.map_or(0, flow_of),
            l4s: headers.is_some_and(|headers| headers.ecn & 1 == 1),
        };
        let [own, spare] = &mut self.buffers;
        let mut batch = Batch {
            now,
            packet,
            numbers: 0..u64::from(count),
            pieces: own,
            spare,
            counts: &mut self.counts,
            carrier: Carrier::default(),
            origin,
            dropped: self.dropped.as_mut(),
        };
        match index.and_then(|index| self.classes.get_mut(index)) {
            None => self.base.apply(&mut batch),
            Some(class) if class.shares => class.pipe.apply_sharing(&mut self.base, &mut batch),
            Some(class) => class.pipe.apply(&mut batch),
        }
        pieces.append(own);
        self.advance(now);
    }

    /// Takes the waiting segments that are due at `now`.
    fn advance(&mut self, now: LinkTime) {
        self.base.advance(now);
        for class in &mut self.classes {
            class.pipe.advance(now);
        }
    }

    /// Returns the next time at which [`LinkModel::serve`] has segments, if it is known.
    pub fn next_turn(&self) -> Option<LinkTime> {
        let classes = self.classes.iter().map(|class| &class.pipe);
        std::iter::once(&self.base).chain(classes).filter_map(Pipe::next_turn).min()
    }

    /// Appends the outcomes of the parked segments that are due at `now` to `served`, in the
    /// order of their service.
    pub fn serve(&mut self, now: LinkTime, served: &mut Vec<QueueOutcome>) {
        self.advance(now);
        self.settle(now);
        served.append(&mut self.served);
    }

    /// Passes the segments that wait no more through the stages behind the queue.
    fn settle(&mut self, now: LinkTime) {
        let mut gone = self.base.take_gone();
        for class in &mut self.classes {
            gone.append(&mut class.pipe.take_gone());
        }
        for DequeuedSegment { segment, outcome } in gone {
            let ticket = segment.origin.ticket;
            let [own, spare] = &mut self.buffers;
            let mut batch = Batch {
                now,
                packet: &segment.shape,
                numbers: 0..1,
                pieces: own,
                spare,
                counts: &mut self.counts,
                carrier: Carrier::default(),
                origin: segment.origin,
                dropped: self.dropped.as_mut(),
            };
            let pipe = match segment.origin.class.checked_sub(1) {
                None => Some(&mut self.base),
                Some(index) => self.classes.get_mut(index).map(|class| &mut class.pipe),
            };
            match (outcome, pipe) {
                (Outcome::Sent { at, mark }, Some(pipe)) => pipe.leave(&mut batch, at, mark),
                (Outcome::Dropped(reason), _) => batch.lose(reason, 0..1),
                (Outcome::Sent { .. }, None) => {}
            }
            self.served.push(QueueOutcome { ticket, pieces: std::mem::take(own) });
        }
    }

    /// Reports dropped segments from now on.
    pub fn report_dropped(&mut self) {
        self.dropped.get_or_insert_default();
    }

    /// Returns and removes the segments that were dropped since the last call.
    pub fn take_dropped(&mut self) -> Vec<Dropped> {
        self.dropped.as_mut().map_or_else(Vec::new, std::mem::take)
    }

    /// Returns the counters of the impairments so far.
    pub fn counts(&self) -> &Impairments {
        &self.counts
    }

    /// Returns the bytes that wait for the rate or are being sent at `now`, in the layer of the
    /// rate, and the time until the last of them leaves the queue. Cross traffic and the decisions
    /// of FQ-CoDel and DualPI2 are included up to the last call of another function.
    pub fn queue(&self, now: LinkTime) -> (Bytes, Duration) {
        let classes = self.classes.iter().map(|class| &class.pipe);
        std::iter::once(&self.base).chain(classes).map(|pipe| pipe.depth(now)).fold(
            (Bytes::default(), Duration::ZERO),
            |(bytes, time), (more, until)| {
                (Bytes::new(bytes.get().saturating_add(more.get())), time.max(until))
            },
        )
    }
}

/// Returns a hash of the fields that distinguish flows (RFC 8290, section 4.1).
fn flow_of(headers: &Headers) -> u32 {
    let ports = headers.ports.unwrap_or_default();
    // FNV-1a: the value must be the same in every run.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    };
    for address in [headers.source, headers.destination] {
        match address {
            std::net::IpAddr::V4(address) => add(&address.octets()),
            std::net::IpAddr::V6(address) => add(&address.octets()),
        }
    }
    add(&[headers.protocol]);
    add(&ports.0.to_be_bytes());
    add(&ports.1.to_be_bytes());
    (hash >> 32) as u32 ^ hash as u32
}
