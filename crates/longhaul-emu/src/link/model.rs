//! The model of one direction of a link.

use std::time::Duration;

use longhaul_core::plan::link::{ClassMatch, Headers, LinkClass};
use longhaul_core::plan::{LinkPlan, Side};
use longhaul_core::result::Impairments;
use longhaul_core::units::Bytes;

use super::batch::{Batch, Carrier, Origin};
use super::pipe::Pipe;
use super::scheduler::{Gone, Outcome};
use super::{Dropped, LinkTime, PacketShape, Piece, Served, Treatment};

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
    looks_at_flows: bool,
    counts: Impairments,
    /// The segments dropped since the last call of [`LinkModel::take_dropped`], if they are
    /// reported.
    dropped: Option<Vec<Dropped>>,
    /// The outcomes that [`LinkModel::serve`] has not returned.
    served: Vec<Served>,
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
            looks_at_flows: false,
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
        self.looks_at_flows = direction.is_scheduled();
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
        self.looks_at_flows || !self.classes.is_empty()
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
    pub fn serve(&mut self, now: LinkTime, served: &mut Vec<Served>) {
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
        for Gone { segment, outcome } in gone {
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
            self.served.push(Served { ticket, pieces: std::mem::take(own) });
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

#[cfg(test)]
mod tests {
    use longhaul_core::plan::LinkDirection;
    use longhaul_core::plan::link::{Loss, QueueLimit};
    use longhaul_core::result::Segments;
    use longhaul_core::units::Rate;

    use super::*;

    const MS: u64 = 1_000_000;

    fn model(delay_ms: u64, rate_bps: Option<u64>, queue: Option<u64>) -> LinkModel {
        let up = LinkDirection {
            rate_bps: rate_bps.map(Rate::from_bps),
            queue: rate_bps.map(|_| QueueLimit::Bytes(queue.map_or(Bytes::gib(1), Bytes::new))),
            ..LinkDirection::delayed(Duration::from_millis(delay_ms))
        };
        let plan = LinkPlan { up, ..LinkPlan::symmetric(Duration::ZERO) };
        plan.validate().unwrap();
        LinkModel::new(&plan, Side::Near)
    }

    /// Returns the departure times of single-segment packets, offered as (time, bytes).
    fn arrivals(model: &mut LinkModel, offers: &[(u64, u64)]) -> Vec<Option<u64>> {
        let arrival = |(nanos, bytes): &(u64, u64)| {
            let mut pieces = Vec::new();
            let packet = PacketShape::single(*bytes as u32);
            model.offer(LinkTime::from_nanos(*nanos), &packet, &mut pieces);
            assert!(pieces.len() < 2);
            pieces.first().map(|piece| piece.at.as_nanos())
        };
        offers.iter().map(arrival).collect()
    }

    #[test]
    fn departures_follow_the_plan() {
        type Case = (&'static str, LinkModel, &'static [(u64, u64)], &'static [Option<u64>]);
        // At 8 Mb/s a byte takes 1 us, so 1000 bytes take 1 ms.
        let cases: [Case; 7] = [
            ("no delay, no rate", model(0, None, None), &[(5, 1500)], &[Some(5)]),
            (
                "a delay moves every packet alike",
                model(45, None, None),
                &[(0, 64), (7, 65_535), (7, 64)],
                &[Some(45 * MS), Some(45 * MS + 7), Some(45 * MS + 7)],
            ),
            (
                "a rate spaces packets that enter together",
                model(0, Some(8_000_000), None),
                &[(0, 1000), (0, 1000), (0, 500)],
                &[Some(MS), Some(2 * MS), Some(2 * MS + MS / 2)],
            ),
            (
                "the delay comes after the rate",
                model(10, Some(8_000_000), None),
                &[(0, 1000), (0, 1000)],
                &[Some(11 * MS), Some(12 * MS)],
            ),
            (
                "an idle link saves no credit",
                model(0, Some(8_000_000), None),
                &[(0, 1000), (100 * MS, 1000), (100 * MS, 1000)],
                &[Some(MS), Some(101 * MS), Some(102 * MS)],
            ),
            (
                "the tail is dropped when the queue is full, and a drop takes no room",
                model(0, Some(8_000_000), Some(2000)),
                &[(0, 1000), (0, 1000), (0, 1000), (MS, 1000)],
                &[Some(MS), Some(2 * MS), None, Some(3 * MS)],
            ),
            (
                "a packet larger than the queue passes an idle link",
                model(0, Some(8_000_000), Some(2000)),
                &[(0, 9000), (0, 1)],
                &[Some(9 * MS), None],
            ),
        ];
        for (what, mut model, offers, expected) in cases {
            assert_eq!(arrivals(&mut model, offers), expected, "{what}");
        }
    }

    /// Returns offers at irregular times and of irregular sizes; the same offers on every call.
    fn uneven_offers(count: u64) -> Vec<(u64, u64)> {
        let mut now = 0;
        (0..count)
            .map(|i| {
                let scrambled = i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
                now += scrambled % 20_000;
                (now, 40 + scrambled % 65_000)
            })
            .collect()
    }

    #[test]
    fn order_is_kept() {
        for rate in [None, Some(1_000_000_000), Some(100_000_000_000)] {
            let mut model = model(7, rate, Some(1 << 20));
            let times: Vec<u64> =
                arrivals(&mut model, &uneven_offers(10_000)).into_iter().flatten().collect();
            assert!(times.is_sorted(), "at {rate:?}");
        }
    }

    #[test]
    fn the_mean_rate_is_exact_over_many_packets() {
        // At 3 Gb/s no packet of 1499 bytes takes a whole number of nanoseconds.
        let mut model = model(0, Some(3_000_000_000), None);
        let offers = vec![(0, 1499); 100_000];
        let last = arrivals(&mut model, &offers)[99_999].unwrap();
        assert_eq!(last, 1499 * 8 * 100_000 / 3);
    }

    #[test]
    fn the_queue_never_holds_more_than_its_budget() {
        let (rate, queue) = (1_000_000_000, 300_000);
        let mut model = model(0, Some(rate), Some(queue));
        let offers = uneven_offers(10_000);
        let mut dropped = 0;
        for ((now, bytes), arrival) in offers.iter().zip(arrivals(&mut model, &offers)) {
            match arrival {
                // The delay is the wait plus the transmission time of the packet.
                Some(at) => {
                    assert!((at - now) * rate / 8_000_000_000 <= queue.max(*bytes));
                }
                None => dropped += 1,
            }
        }
        assert!(dropped > 0, "the load was meant to exceed the rate");
    }

    #[test]
    fn loss_takes_single_segments_out_of_a_super_packet() {
        let mut plan = LinkPlan::symmetric(Duration::ZERO);
        plan.up.loss = Some(Loss::Pattern { segments: "1,44,45,50-52".parse().unwrap() });
        let mut model = LinkModel::new(&plan, Side::Near);
        let packet = PacketShape {
            header_bytes: 52,
            payload_bytes: 44 * 1448,
            segment_bytes: 1448,
            ecn_capable: false,
        };
        let mut pieces = Vec::new();
        model.offer(LinkTime::from_nanos(1), &packet, &mut pieces);
        model.offer(LinkTime::from_nanos(2), &packet, &mut pieces);
        let segments: Vec<_> = pieces.iter().map(|piece| piece.segments.clone()).collect();
        assert_eq!(segments, [1..43, 1..5, 8..44]);
        assert_eq!(model.counts().lost, Segments { segments: 6, bytes: 9000 });
    }
}
