//! The packet in progress: a batch of segments that the stages change in turn.

use std::mem;
use std::ops::Range;

use longhaul_core::result::Impairments;

use super::{DropReason, Dropped, LinkTime, PacketShape, Piece, Treatment};

/// A packet between two stages.
#[derive(Debug)]
pub(super) struct Batch<'a> {
    /// The time at which the packet enters the link.
    pub(super) now: LinkTime,
    pub(super) packet: &'a PacketShape,
    /// The numbers of the packet's segments.
    pub(super) numbers: Range<u64>,
    /// The segments that have not been dropped, in order.
    pub(super) pieces: &'a mut Vec<Piece>,
    /// An empty buffer for stages that replace all pieces.
    pub(super) spare: &'a mut Vec<Piece>,
    pub(super) counts: &'a mut Impairments,
    pub(super) carrier: Carrier,
    pub(super) origin: Origin,
    /// The dropped segments with their reasons, if the link reports them.
    pub(super) dropped: Option<&'a mut Vec<Dropped>>,
}

/// The properties of a packet by which a queue shared by classes distinguishes it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Origin {
    /// The number of the first segment among all segments offered to the link.
    pub(super) ticket: u64,
    /// The class, from 1; 0 for a packet of no class.
    pub(super) class: usize,
    pub(super) priority: u8,
    /// A hash of the addresses, the protocol and the ports.
    pub(super) flow: u32,
    /// True for a packet of an L4S sender (RFC 9331): ECT(1) or CE.
    pub(super) l4s: bool,
}

/// The state of the sender's interface, as the outage stage reports it to the queue.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Carrier {
    pub(super) is_down: bool,
    /// The end of an outage that ended since the previous packet.
    pub(super) up_at: Option<LinkTime>,
    /// The start of the next outage.
    pub(super) down_at: Option<LinkTime>,
}

impl Batch<'_> {
    /// Adds the whole packet as the only piece.
    pub(super) fn enter(&mut self) {
        let segments = 0..self.segment(self.numbers.end);
        self.pieces.push(Piece { segments, at: self.now, treatment: Treatment::default() });
    }

    /// Counts and reports dropped segments.
    pub(super) fn lose(&mut self, reason: DropReason, segments: Range<u32>) {
        *reason.counter(self.counts) += self.packet.count_of(segments.clone());
        if let Some(dropped) = &mut self.dropped {
            let ticket = self.origin.ticket + u64::from(segments.start);
            dropped.push(Dropped { ticket, segments: segments.end - segments.start, reason });
        }
    }

    /// Returns the index of the random numbers of a segment in a stage that classes share.
    pub(super) fn shared_index(&self, segment: u32) -> u64 {
        (self.origin.class as u64) << 48 | self.number(segment)
    }

    /// Returns whether the segments wait in a queue.
    pub(super) fn is_parked(&self) -> bool {
        self.pieces.iter().any(|piece| piece.treatment.parked)
    }

    /// Returns the number of a segment of the packet.
    pub(super) fn number(&self, segment: u32) -> u64 {
        self.numbers.start + u64::from(segment)
    }

    /// Returns the position in the packet of the segment with this number.
    pub(super) fn segment(&self, number: u64) -> u32 {
        (number - self.numbers.start) as u32
    }

    /// Removes `segments` from the last piece.
    pub(super) fn remove_last(&mut self, segments: &Range<u32>) {
        let Some(piece) = self.pieces.pop() else { return };
        let (before, after) =
            (piece.segments.start..segments.start, segments.end..piece.segments.end);
        for segments in [before, after] {
            if !segments.is_empty() {
                self.pieces.push(Piece { segments, ..piece.clone() });
            }
        }
    }

    /// Removes every piece and passes it to `replace`, which adds pieces again.
    pub(super) fn replace_pieces(&mut self, mut replace: impl FnMut(&mut Self, Piece)) {
        let mut before = mem::take(self.spare);
        mem::swap(&mut before, self.pieces);
        for piece in before.drain(..) {
            replace(self, piece);
        }
        *self.spare = before;
    }

    /// Keeps only the segments for which `keep` returns true. It is called once per segment, in
    /// order.
    pub(super) fn retain_segments(&mut self, mut keep: impl FnMut(&mut Self, u32) -> bool) {
        self.replace_pieces(|batch, piece| {
            let mut kept = piece.segments.start..piece.segments.start;
            for segment in piece.segments.clone() {
                if keep(batch, segment) {
                    kept.end = segment + 1;
                    continue;
                }
                if !kept.is_empty() {
                    batch.pieces.push(Piece { segments: kept, ..piece.clone() });
                }
                kept = segment + 1..segment + 1;
            }
            if !kept.is_empty() {
                batch.pieces.push(Piece { segments: kept, ..piece });
            }
        });
    }

    /// Splits the pieces so that the segment with this number is a separate piece, and returns the
    /// index of that piece; `None` if the segment was dropped.
    pub(super) fn isolate(&mut self, number: u64) -> Option<usize> {
        isolate(self.pieces, self.segment(number))
    }

    /// Joins adjacent pieces that [`Batch::isolate`] has split and that have equal treatment.
    pub(super) fn join(&mut self) {
        if self.pieces.len() > 1 {
            join(self.pieces);
        }
    }
}

fn isolate(pieces: &mut Vec<Piece>, segment: u32) -> Option<usize> {
    let at = pieces.partition_point(|piece| piece.segments.end <= segment);
    let piece = pieces.get(at).filter(|piece| piece.segments.start <= segment)?.clone();
    let (before, after) = (piece.segments.start..segment, segment + 1..piece.segments.end);
    let mut place = at;
    pieces[at].segments = segment..segment + 1;
    if !after.is_empty() {
        pieces.insert(at + 1, Piece { segments: after, ..piece.clone() });
    }
    if !before.is_empty() {
        pieces.insert(at, Piece { segments: before, ..piece });
        place += 1;
    }
    Some(place)
}

fn join(pieces: &mut Vec<Piece>) {
    pieces.dedup_by(|next, last| {
        let alike = next.segments.start == last.segments.end
            && next.at == last.at
            && next.treatment == last.treatment
            && next.treatment.corruption.is_none()
            && !next.treatment.held
            && !last.is_release()
            && !next.is_release();
        if alike {
            last.segments.end = next.segments.end;
        }
        alike
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_isolated_and_joined_again() {
        let whole =
            Piece { segments: 3..9, at: LinkTime::from_nanos(5), treatment: Treatment::default() };
        for (segment, place, parts) in [(3, 0, 2), (5, 1, 3), (8, 1, 2)] {
            let mut pieces = vec![whole.clone()];
            assert_eq!(isolate(&mut pieces, segment), Some(place));
            assert_eq!(
                (pieces[place].segments.clone(), pieces.len()),
                (segment..segment + 1, parts)
            );
            assert_eq!(isolate(&mut pieces, segment), Some(place), "it stays as it is");
            join(&mut pieces);
            assert_eq!(pieces, std::slice::from_ref(&whole));
        }
        assert_eq!(isolate(&mut vec![whole], 9), None);
    }
}
