//! One direction of a link: takes packets from one device and writes them to the other when they
//! are due.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::plan::Side;
use longhaul_core::result::{DirectionReport, DropCounts, Traffic};
use longhaul_core::units::Bytes;

use super::memory::PacketMemory;
use super::punctuality::Punctuality;
use super::schedule::{Departure, Schedule};
use super::store::{Store, WaitingSegments};
use super::timeline::{Step, Timeline};
use crate::capture::{Cause, PacketAtPoint, Tap};
use crate::device::{LONGEST_SHARED, MOST_FRAMES, PacketDevice};
use crate::link::{Dropped, LinkModel, LinkTime, PacketShape, Piece, QueueOutcome};
use crate::packet::{self, Framing};

/// One direction of a link, from one device to the other.
#[derive(Debug)]
pub(crate) struct Lane {
    from: Side,
    framing: Framing,
    source: Arc<dyn PacketDevice>,
    sink: Arc<dyn PacketDevice>,
    model: LinkModel,
    store: Store,
    schedule: Schedule,
    parking: WaitingSegments,
    served: Vec<QueueOutcome>,
    /// The pieces that are due, while they are written.
    leaving: Vec<Departure>,
    tap: Option<Tap>,
    /// The pieces of the packet read last, as the model returned them.
    pieces: Vec<Piece>,
    entered: Traffic,
    delivered: Traffic,
    dropped: DropCounts,
    /// The time at which the packet read last entered.
    entered_at: LinkTime,
    /// The expected duration of a departure.
    departure_cost: Duration,
    punctuality: Punctuality,
    /// True once the source no longer exists because its interface was deleted.
    closed: bool,
}

/// A packet that was read and has not entered a lane.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    length: usize,
    /// The time at which it entered the link.
    pub(super) at: LinkTime,
}

impl Lane {
    /// Creates the direction that starts at `from`, from the first of `devices` to the second, and
    /// holds at most `budget` bytes of packets in `memory`.
    pub(crate) fn new(
        from: Side,
        devices: [Arc<dyn PacketDevice>; 2],
        model: LinkModel,
        budget: Bytes,
        memory: &Arc<PacketMemory>,
    ) -> io::Result<Self> {
        let [source, sink] = devices;
        let batch = source.batch();
        Ok(Lane {
            from,
            framing: source.framing(),
            source,
            sink,
            model,
            store: Store::new(budget, batch, memory.clone())?,
            leaving: Vec::new(),
            schedule: Schedule::default(),
            parking: WaitingSegments::default(),
            served: Vec::new(),
            tap: None,
            pieces: Vec::new(),
            entered: Traffic::default(),
            delivered: Traffic::default(),
            dropped: DropCounts::default(),
            entered_at: LinkTime::default(),
            departure_cost: Duration::ZERO,
            punctuality: Punctuality::new()?,
            closed: false,
        })
    }

    /// Returns the device to wait on for packets, or `None` if the device no longer exists.
    pub(super) fn source(&self) -> Option<BorrowedFd<'_>> {
        (!self.closed).then(|| self.source.readiness())
    }

    /// Returns the time at which the next write must start. The receiver gets a packet during its
    /// write, which takes 5 us, or 50 us if the processor was idle. The departure time is therefore
    /// the middle of the write.
    pub(super) fn next_due(&self) -> Option<LinkTime> {
        let leaves = self.schedule.next().map(|at| at.before(self.departure_cost / 2));
        [leaves, self.model.next_turn()].into_iter().flatten().min()
    }

    /// Reads a waiting packet, if there is one, for [`Lane::accept`] of this lane or of the lane
    /// that [`Lane::hand_over`] passes it to. The packet is assumed to have entered `waited` ago.
    /// `now` is the time, which becomes that of the read.
    pub(super) fn read(
        &mut self,
        (now, waited): (&mut LinkTime, Duration),
        clock: impl Fn() -> LinkTime,
        timeline: &mut Timeline,
    ) -> Option<Arrival> {
        if self.closed {
            return None;
        }
        let begun = *now;
        timeline.begin_step(begun);
        let length = match self.store.take(&*self.source) {
            Ok(length) => length,
            Err(error) => {
                use io::ErrorKind::{Interrupted, WouldBlock};
                self.closed = !matches!(error.kind(), Interrupted | WouldBlock);
                return None;
            }
        };
        *now = clock();
        timeline.end_step(Step::Read, begun, *now);
        Some(Arrival { length, at: now.before(waited) })
    }

    /// Returns whether packets have been read from the device that [`Lane::read`] has not returned.
    pub(super) fn has_more(&self) -> bool {
        self.store.has_more()
    }

    /// Returns the frame read last.
    pub(super) fn landed(&self, arrival: &Arrival) -> &[u8] {
        self.store.landed(arrival.length)
    }

    /// Passes the frame read last to another lane.
    pub(super) fn hand_over(&mut self, other: &mut Lane) {
        self.store.swap_landing(&mut other.store);
    }

    /// Schedules or drops the frame read last. Returns the expected duration of its departure.
    pub(super) fn accept(&mut self, arrival: &Arrival) -> Duration {
        self.entered_at = arrival.at.max(self.entered_at);
        let frame = self.store.landed(arrival.length);
        let shape = packet::shape(frame, self.framing);
        let ticket = self.entered.segments;
        self.entered += traffic(&shape);
        if let Some(tap) = &mut self.tap {
            tap.arrived(&PacketAtPoint { number: ticket, at: self.entered_at, frame });
        }
        let headers =
            self.model.needs_headers().then(|| packet::headers(frame, self.framing)).flatten();
        self.pieces.clear();
        self.model.offer_with(self.entered_at, &shape, headers.as_ref(), &mut self.pieces);
        self.enter(ticket, arrival.length, shape);
        self.departure_cost * self.pieces.len() as u32
    }

    /// Keeps the packet that was read last, and schedules its pieces.
    fn enter(&mut self, ticket: u64, length: usize, shape: PacketShape) {
        self.report_dropped(Some((ticket, length)));
        if self.pieces.is_empty() {
            return;
        }
        let places = |piece: &Piece| {
            if piece.treatment.parked { piece.count() } else { u32::from(!piece.is_release()) }
        };
        let own = self.pieces.iter().map(places).sum();
        let parcel = if own > 0 { self.store.keep(length, shape, own) } else { None };
        if let Some(parcel) = parcel {
            self.store.set_number(parcel, ticket);
        }
        for piece in &self.pieces {
            if piece.is_release() {
                self.schedule.release(piece.at);
            } else if let Some(parcel) = parcel {
                if piece.treatment.parked {
                    self.parking.add(ticket, parcel, piece.segments.clone());
                } else {
                    self.schedule.add(Departure { parcel, piece: piece.clone() });
                }
            } else {
                self.dropped.memory_full += part(&shape, piece);
                if let Some(tap) = &mut self.tap {
                    let frame = self.store.landed(length);
                    let observed = PacketAtPoint { number: ticket, at: self.entered_at, frame };
                    tap.dropped(&observed, &piece.segments, Cause::Memory);
                }
            }
        }
        self.serve(self.entered_at);
    }

    /// Schedules the waiting segments that are due at `now`.
    fn serve(&mut self, now: LinkTime) {
        if !self.model.needs_headers() {
            return;
        }
        let mut served = std::mem::take(&mut self.served);
        self.model.serve(now, &mut served);
        self.report_dropped(None);
        for QueueOutcome { ticket, pieces } in served.drain(..) {
            let place = self.parking.take(ticket);
            for mut piece in pieces {
                if piece.is_release() {
                    self.schedule.release(piece.at);
                } else if let Some((parcel, segment)) = place {
                    piece.segments = segment..segment + 1;
                    self.store.share(parcel);
                    self.schedule.add(Departure { parcel, piece });
                }
            }
            if let Some((parcel, _)) = place {
                self.store.leave(parcel);
            }
        }
        self.served = served;
    }

    /// Captures the segments that the model has dropped. `landed` is the ticket and the length of
    /// the packet that was read last, if it is not stored yet.
    fn report_dropped(&mut self, landed: Option<(u64, usize)>) {
        let Some(tap) = &mut self.tap else { return };
        for Dropped { ticket, segments, reason } in self.model.take_dropped() {
            let cause = Cause::Link(reason);
            match (landed, self.parking.get(ticket)) {
                (Some((first, length)), _) if ticket >= first => {
                    let start = (ticket - first) as u32;
                    let frame = self.store.landed(length);
                    let observed = PacketAtPoint { number: first, at: self.entered_at, frame };
                    tap.dropped(&observed, &(start..start + segments), cause);
                }
                (_, Some((parcel, segment))) => {
                    let (frame, _) = self.store.packet(parcel);
                    let number = self.store.number(parcel);
                    let segments = segment..segment + segments;
                    tap.dropped(
                        &PacketAtPoint { number, at: self.entered_at, frame },
                        &segments,
                        cause,
                    );
                }
                _ => {}
            }
        }
    }

    /// Captures the packets of this lane from `now` on.
    pub(super) fn capture(&mut self, now: LinkTime, tap: Tap) {
        self.model.report_dropped();
        self.tap = Some(tap.beginning(now, self.framing));
    }

    /// Writes the pieces that are due `now`, at most [`MOST_FRAMES`], and several at once if the receiver's
    /// device takes them. Returns whether there was one. `now` becomes the end of the last write.
    pub(super) fn release(
        &mut self,
        now: &mut LinkTime,
        clock: impl Fn() -> LinkTime,
        timeline: &mut Timeline,
    ) -> bool {
        self.serve(*now);
        let due = *now + self.departure_cost / 2;
        let mut leaving = std::mem::take(&mut self.leaving);
        leaving.extend((0..MOST_FRAMES).map_while(|_| self.schedule.take_due(due)));
        let most = self.sink.batch();
        let mut rest = &leaving[..];
        while !rest.is_empty() {
            let begun = *now;
            timeline.begin_step(begun);
            let is_short =
                |piece: &Departure| self.store.packet(piece.parcel).0.len() <= LONGEST_SHARED;
            let shared =
                rest.iter().take(most).take_while(|piece| self.is_whole(piece) && is_short(piece));
            let (count, accepted) = self.write(&rest[..shared.count().max(1)]);
            *now = clock();
            timeline.end_step(Step::Write, begun, *now);
            for departure in &rest[..count] {
                self.left(departure, accepted, [begun, *now]);
                let middle = begun + now.since(begun) / 2;
                self.punctuality.record(departure.piece.at, middle, timeline);
            }
            self.learn_cost(now.since(begun) / count as u32);
            rest = &rest[count..];
        }
        let some = !leaving.is_empty();
        leaving.clear();
        self.leaving = leaving;
        some
    }

    /// Returns whether a piece is a whole packet without changes.
    fn is_whole(&self, Departure { parcel, piece }: &Departure) -> bool {
        let (_, shape) = self.store.packet(*parcel);
        piece.segments == (0..shape.segments()) && piece.treatment.is_none()
    }

    /// Writes the first of some pieces, and those behind it that the device takes at once; several
    /// pieces are whole packets. Returns their number, and whether the device accepted them.
    fn write(&self, pieces: &[Departure]) -> (usize, bool) {
        let [Departure { parcel, piece }, others @ ..] = pieces else { return (0, true) };
        let (first, _) = self.store.packet(*parcel);
        if !others.is_empty() {
            let mut frames = [first; MOST_FRAMES];
            for (frame, other) in frames[1..].iter_mut().zip(others) {
                *frame = self.store.packet(other.parcel).0;
            }
            let written = self.sink.write_many(&frames[..pieces.len().min(MOST_FRAMES)]);
            return (written.as_ref().map_or(1, |count| (*count).max(1)), written.is_ok());
        }
        let written = if self.is_whole(&pieces[0]) {
            self.sink.write(&[IoSlice::new(first)])
        } else {
            let part = packet::cut(first, self.framing, &piece.segments, &piece.treatment);
            self.sink.write(&part.slices())
        };
        (1, written.is_ok())
    }

    /// Counts a piece that a write took from `begun` to `ended`, and frees its memory.
    fn left(
        &mut self,
        Departure { parcel, piece }: &Departure,
        accepted: bool,
        [begun, ended]: [LinkTime; 2],
    ) {
        let (frame, shape) = self.store.packet(*parcel);
        if accepted {
            self.delivered += part(&shape, piece);
        } else {
            self.dropped.refused += part(&shape, piece);
        }
        let at = begun + ended.since(begun) / 2;
        if let Some(tap) = &mut self.tap {
            let number = self.store.number(*parcel);
            if accepted {
                tap.left(&PacketAtPoint { number, at, frame }, piece);
            } else {
                tap.dropped(&PacketAtPoint { number, at, frame }, &piece.segments, Cause::Refused);
            }
        }
        self.store.leave(*parcel);
    }

    /// Updates the expected duration of a departure, a moving mean over some dozens of departures.
    /// An interrupted departure is ignored, because it does not predict later ones.
    fn learn_cost(&mut self, took: Duration) {
        const WEIGHT: u32 = 32;
        const LONGEST: Duration = Duration::from_micros(100);
        self.departure_cost = (self.departure_cost * (WEIGHT - 1) + took.min(LONGEST)) / WEIGHT;
    }

    /// Changes the model and the memory budget from now on. Packets in flight keep their departure
    /// times.
    pub(super) fn set(&mut self, budget: Bytes, change: impl FnOnce(&mut LinkModel)) {
        self.store.set_budget(budget);
        change(&mut self.model);
    }

    /// Returns the counters so far. They exclude packets that the sender's interface dropped.
    pub(super) fn report(&self, now: LinkTime) -> DirectionReport {
        let mut queued = Traffic::default();
        for departure in self.schedule.iter() {
            queued += part(&self.store.packet(departure.parcel).1, &departure.piece);
        }
        for (parcel, segment) in self.parking.iter() {
            queued += part(&self.store.packet(parcel).1, &Piece::of(segment..segment + 1, now));
        }
        DirectionReport {
            from: self.from,
            entered: self.entered,
            delivered: self.delivered,
            impairments: *self.model.counts(),
            dropped: self.dropped,
            queued,
            waiting_bytes: self.model.queue(now).0,
            interface_drops: self.source.dropped(),
            lateness: self.punctuality.report(),
            peak_memory_bytes: self.store.touched(),
        }
    }
}

fn traffic(shape: &PacketShape) -> Traffic {
    Traffic { packets: 1, segments: u64::from(shape.segments()), bytes: shape.bytes() }
}

fn part(shape: &PacketShape, piece: &Piece) -> Traffic {
    let segments = piece.segments.clone();
    Traffic {
        packets: 1,
        segments: u64::from(segments.end - segments.start),
        bytes: shape.bytes_of(segments),
    }
}
