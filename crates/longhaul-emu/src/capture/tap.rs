//! The ends of a capture in the lanes: copies the beginnings of packets.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use longhaul_core::plan::Side;
use longhaul_sys::tun::VNET_HEADER;

use crate::link::{Corruption, DropReason, LinkTime, Piece, Treatment};
use crate::packet::{self, Framing};

/// The maximum number of bytes of a packet that are captured: all headers of usual packets, and
/// some payload.
const SNAPLEN: usize = 192;

/// The reason why segments did not leave the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The link dropped them as planned.
    Link(DropReason),
    /// The emulator had no memory.
    Memory,
    /// The receiver's interface did not accept them.
    Refused,
}

/// The point of the link at which a packet was captured. Each is an interface of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    Arrived,
    Left,
    Dropped(Cause),
}

/// A direction of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CapturedDirection {
    /// The index of the link.
    pub(super) link: u32,
    pub(super) from: Side,
}

/// One record of the file.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) direction: CapturedDirection,
    pub(super) event: Event,
    /// The time since 1970.
    pub(super) at: Duration,
    /// The number that all records of a packet share.
    pub(super) number: u64,
    /// The segments that left or were dropped, if the packet has several.
    pub(super) segments: Option<Range<u32>>,
    pub(super) treatment: Treatment,
    /// The beginning of the packet.
    pub(super) bytes: Vec<u8>,
    /// The length of the packet.
    pub(super) length: u32,
}

/// The end of a capture in a lane.
#[derive(Debug)]
pub(crate) struct Tap {
    direction: CapturedDirection,
    framing: Framing,
    /// The index of the queue and the number of queues.
    numbers: (u64, u64),
    records: Option<SyncSender<Record>>,
    missed: Arc<AtomicU64>,
    /// The time since 1970 of the origin of the lane's clock.
    origin: Duration,
}

impl Tap {
    pub(super) fn new(
        direction: CapturedDirection,
        records: SyncSender<Record>,
        missed: Arc<AtomicU64>,
    ) -> Self {
        let framing = Framing::Ip;
        let records = Some(records);
        Tap { direction, framing, numbers: (0, 1), records, missed, origin: Duration::ZERO }
    }

    /// Makes the numbers of the packets different from those of the other queues of the link.
    pub(crate) fn of_queue(self, queue: u64, queues: u64) -> Self {
        Tap { numbers: (queue, queues), ..self }
    }

    /// Relates the clock of the lane, which is at `now` and whose frames have `framing`, to the time
    /// of day.
    pub(crate) fn beginning(mut self, now: LinkTime, framing: Framing) -> Self {
        self.framing = framing;
        let today = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.origin = today.saturating_sub(Duration::from_nanos(now.as_nanos()));
        self
    }

    /// Captures a packet that enters the link.
    pub(crate) fn arrived(&mut self, observed: &PacketAtPoint<'_>) {
        let packet = observed.frame.get(VNET_HEADER..).unwrap_or_default();
        let bytes = packet[..packet.len().min(SNAPLEN)].to_vec();
        let length = packet.len() as u32;
        self.send(Record { bytes, length, ..self.record(Event::Arrived, observed) });
    }

    /// Captures a piece of a packet that left the link.
    pub(crate) fn left(&mut self, observed: &PacketAtPoint<'_>, piece: &Piece) {
        let (bytes, length) = self.cut(observed.frame, piece);
        let record = self.record(Event::Left, observed);
        let (segments, treatment) = (self.segments(observed.frame, piece), piece.treatment);
        self.send(Record { bytes, length, segments, treatment, ..record });
    }

    /// Captures segments of a packet that the link dropped.
    pub(crate) fn dropped(
        &mut self,
        observed: &PacketAtPoint<'_>,
        segments: &Range<u32>,
        cause: Cause,
    ) {
        let piece = Piece::of(segments.clone(), observed.at);
        let (bytes, length) = self.cut(observed.frame, &piece);
        let record = self.record(Event::Dropped(cause), observed);
        self.send(Record {
            bytes,
            length,
            segments: self.segments(observed.frame, &piece),
            ..record
        });
    }

    /// Returns a record without the packet.
    fn record(&self, event: Event, observed: &PacketAtPoint<'_>) -> Record {
        Record {
            direction: self.direction,
            event,
            at: self.origin + Duration::from_nanos(observed.at.as_nanos()),
            number: observed.number * self.numbers.1 + self.numbers.0,
            segments: None,
            treatment: Treatment::default(),
            bytes: Vec::new(),
            length: 0,
        }
    }

    /// Returns the segments of a piece, if the packet has more.
    fn segments(&self, frame: &[u8], piece: &Piece) -> Option<Range<u32>> {
        let count = packet::shape(frame, self.framing).segments();
        (count > 1).then(|| piece.segments.clone())
    }

    /// Returns the beginning of a piece of a frame as it is written, and its length.
    fn cut(&self, frame: &[u8], piece: &Piece) -> (Vec<u8>, u32) {
        let part = packet::cut(frame, self.framing, &piece.segments, &piece.treatment);
        let slices = part.slices();
        let length: usize = slices.iter().map(|slice| slice.len()).sum();
        let bytes = slices.iter().flat_map(|slice: &IoSlice<'_>| slice.iter().copied());
        let bytes = bytes.skip(VNET_HEADER).take(SNAPLEN).collect();
        (bytes, length.saturating_sub(VNET_HEADER) as u32)
    }

    fn send(&mut self, record: Record) {
        let Some(records) = &self.records else { return };
        match records.try_send(record) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                self.missed.fetch_add(1, Ordering::Relaxed);
            }
            // The file could not be written.
            Err(TrySendError::Disconnected(_)) => self.records = None,
        }
    }
}

/// A packet at a point of the link.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PacketAtPoint<'a> {
    /// The number that all records of the packet share.
    pub(crate) number: u64,
    pub(crate) at: LinkTime,
    pub(crate) frame: &'a [u8],
}

impl Record {
    /// Returns the comment of the record; empty for an unchanged whole packet.
    pub(super) fn comment(&self) -> String {
        let mut notes = Vec::new();
        match self.event {
            Event::Arrived | Event::Left => {}
            Event::Dropped(cause) => notes.push(format!("dropped: {}", reason(cause))),
        }
        if self.treatment.mark_ce {
            notes.push("marked with congestion experienced".to_owned());
        }
        match self.treatment.corruption {
            Some(Corruption::Detected { .. }) => {
                notes.push("damaged, with a wrong checksum".to_owned());
            }
            Some(Corruption::Silent { .. }) => {
                notes.push("damaged, with a matching checksum".to_owned());
            }
            None => {}
        }
        if self.treatment.duplicate {
            notes.push("duplicate".to_owned());
        }
        if let Some(segments) = &self.segments {
            notes.push(match segments.end - segments.start {
                1 => format!("segment {} of the super-packet", segments.start + 1),
                _ => {
                    format!("segments {}-{} of the super-packet", segments.start + 1, segments.end)
                }
            });
        }
        notes.join("; ")
    }
}

fn reason(cause: Cause) -> &'static str {
    match cause {
        Cause::Link(DropReason::Lost) => "lost by the link",
        Cause::Link(DropReason::Outage) => "the link was down",
        Cause::Link(DropReason::Policed) => "the policer had no tokens",
        Cause::Link(DropReason::BitError) => "a bit was wrong on the wire",
        Cause::Link(DropReason::QueueFull) => "the queue was full",
        Cause::Link(DropReason::Managed) => "the queue management dropped it",
        Cause::Memory => "the emulator had no memory",
        Cause::Refused => "the receiver's interface did not accept it",
    }
}
