use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;
use longhaul_core::plan::Side;
use longhaul_core::result::{DirectionReport, DropCounts, Lateness, Traffic};
use longhaul_core::units::Bytes;
use longhaul_sys::tun::{MAX_FRAME, Tun};
use rustix::io::Errno;

use super::pool::{Pool, Slot, is_large};
use super::schedule::{Departure, Schedule};
use crate::link::{LinkModel, LinkTime, PacketShape, Piece};
use crate::packet;

/// One direction of a link, from one TUN device to the other.
#[derive(Debug)]
pub(crate) struct Lane {
    from: Side,
    source: Arc<Tun>,
    sink: Arc<Tun>,
    model: LinkModel,
    /// What the model made of the packet just read; kept for its memory.
    pieces: Vec<Piece>,
    pool: Pool,
    /// Where the next packet is read to: its length is known only afterwards.
    landing: Slot,
    schedule: Schedule,
    entered: Traffic,
    delivered: Traffic,
    dropped: DropCounts,
    /// What the next departure will likely take.
    departure_cost: Duration,
    /// In nanoseconds.
    lateness: Histogram<u64>,
    /// The source is gone: someone deleted the interface.
    closed: bool,
}

impl Lane {
    /// The direction that leaves from `from`, holding at most `budget` bytes of packets.
    pub(crate) fn new(
        from: Side,
        source: Arc<Tun>,
        sink: Arc<Tun>,
        model: LinkModel,
        budget: Bytes,
    ) -> io::Result<Self> {
        let mut pool = Pool::new(budget)?;
        let landing = pool.take(MAX_FRAME).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Lane {
            from,
            source,
            sink,
            model,
            pieces: Vec::new(),
            pool,
            landing,
            schedule: Schedule::default(),
            entered: Traffic::default(),
            delivered: Traffic::default(),
            dropped: DropCounts::default(),
            departure_cost: Duration::ZERO,
            // Two digits are plenty for a tail; 10 s is later than anything worth telling apart.
            lateness: Histogram::new_with_bounds(1, 10_000_000_000, 2)
                .map_err(|_| io::ErrorKind::InvalidInput)?,
            closed: false,
        })
    }

    /// The device that packets are read from, to wait on; `None` when it is gone.
    pub(super) fn source(&self) -> Option<BorrowedFd<'_>> {
        (!self.closed).then(|| self.source.as_fd())
    }

    /// When the next packet is due.
    pub(super) fn next_due(&self) -> Option<LinkTime> {
        self.schedule.next()
    }

    /// Reads one packet, if one waits, and decides what becomes of it. Returns the time that its
    /// departure will likely take.
    pub(super) fn admit(&mut self, clock: impl Fn() -> LinkTime) -> Option<Duration> {
        if self.closed {
            return None;
        }
        let length = match rustix::io::read(&*self.source, self.pool.bytes_mut(&self.landing)) {
            Ok(length) => length,
            Err(Errno::AGAIN | Errno::INTR) => return None,
            Err(_) => {
                self.closed = true;
                return None;
            }
        };
        let now = clock();
        let shape = packet::shape(self.pool.bytes(&self.landing, length));
        self.entered += traffic(shape);
        self.pieces.clear();
        self.model.offer(now, &shape, &mut self.pieces);
        match self.pieces[..] {
            [Piece { ref segments, at, .. }] if *segments == (0..shape.segments()) => {
                match self.keep(length) {
                    None => self.dropped.memory_full += traffic(shape),
                    Some(slot) => {
                        self.schedule.add(Departure { at, slot, length: length as u32, shape });
                    }
                }
            }
            _ => self.dropped.queue_full += traffic(shape),
        }
        Some(self.departure_cost)
    }

    /// Writes one packet, if one is due.
    pub(super) fn release(&mut self, clock: impl Fn() -> LinkTime) -> bool {
        let now = clock();
        let Some(due) = self.schedule.take_due(now) else { return false };
        self.lateness.saturating_record(now.since(due.at).as_nanos() as u64);
        let frame = self.pool.bytes(&due.slot, due.length as usize);
        match rustix::io::write(&*self.sink, frame) {
            Ok(_) => self.delivered += traffic(due.shape),
            Err(_) => self.dropped.refused += traffic(due.shape),
        }
        self.pool.give(due.slot);
        self.learn_cost(clock().since(now));
        true
    }

    /// A moving mean over some dozens of departures. One that was interrupted says nothing of
    /// the next.
    fn learn_cost(&mut self, took: Duration) {
        const WEIGHT: u32 = 32;
        const LONGEST: Duration = Duration::from_micros(100);
        self.departure_cost = (self.departure_cost * (WEIGHT - 1) + took.min(LONGEST)) / WEIGHT;
    }

    /// The landing slot itself for a large frame, a copy in a smaller slot for the rest.
    fn keep(&mut self, length: usize) -> Option<Slot> {
        let slot = self.pool.take(if is_large(length) { MAX_FRAME } else { length })?;
        if slot.is_largest() {
            return Some(std::mem::replace(&mut self.landing, slot));
        }
        self.pool.copy(&self.landing, &slot, length);
        Some(slot)
    }

    /// What passed, given what the sender's interface dropped by itself.
    pub(crate) fn report(&self, interface_drops: u64) -> DirectionReport {
        let mut queued = Traffic::default();
        for departure in self.schedule.iter() {
            queued += traffic(departure.shape);
        }
        let late_ms = |quantile| self.lateness.value_at_quantile(quantile) as f64 / 1e6;
        DirectionReport {
            from: self.from,
            entered: self.entered,
            delivered: self.delivered,
            dropped: self.dropped,
            queued,
            interface_drops,
            lateness: Lateness {
                p50_ms: late_ms(0.5),
                p99_ms: late_ms(0.99),
                p999_ms: late_ms(0.999),
                max_ms: late_ms(1.0),
            },
            peak_memory_bytes: self.pool.touched(),
        }
    }
}

fn traffic(shape: PacketShape) -> Traffic {
    Traffic { packets: 1, segments: u64::from(shape.segments()), bytes: shape.bytes() }
}
