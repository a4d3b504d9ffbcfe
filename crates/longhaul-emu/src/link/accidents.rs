//! Marks, damages and duplicates single segments.

use longhaul_core::plan::{LinkPlan, Side};
use longhaul_core::result::Impairments;

use super::chance::Chance;
use super::model::segments_of;
use super::random::{Purpose, Stream};
use super::{Corruption, PacketShape, Piece, Treatment};

/// The impairments of delivered segments: marks, damage and duplicates.
#[derive(Debug, Clone)]
pub(super) struct Accidents {
    mark: Chance,
    corrupt: Chance,
    corrupt_silent: Chance,
    duplicate: Chance,
    /// Selects the bit to damage.
    bits: Stream,
}

impl Accidents {
    /// Creates the impairments of `plan` for the direction from `from`, from segment `number` on;
    /// `None` if the plan has none.
    pub(super) fn new(plan: &LinkPlan, from: Side, number: u64) -> Option<Self> {
        let direction = plan.from(from);
        let stream = |purpose| Stream::new(plan.seed.unwrap_or(0), from, purpose);
        let chance = |purpose, p| Chance::new(stream(purpose), p, number);
        let probabilities =
            [direction.mark_ce, direction.corrupt, direction.corrupt_silent, direction.duplicate];
        let [mark_ce, corrupt, corrupt_silent, duplicate] = probabilities;
        probabilities.iter().any(|p| !p.is_zero()).then(|| Accidents {
            mark: chance(Purpose::Mark, mark_ce),
            corrupt: chance(Purpose::Corrupt, corrupt),
            corrupt_silent: chance(Purpose::CorruptSilent, corrupt_silent),
            duplicate: chance(Purpose::Duplicate, duplicate),
            bits: stream(Purpose::CorruptBit),
        })
    }

    /// Changes the pieces of `packet`, whose first segment has number `first`.
    pub(super) fn apply(
        &mut self,
        packet: &PacketShape,
        first: u64,
        pieces: &mut Vec<Piece>,
        counts: &mut Impairments,
    ) {
        let numbers = first..first + u64::from(packet.segments());
        let segment = |number: u64| (number - first) as u32;
        let size = |number| segments_of(packet, segment(number)..segment(number) + 1);
        while let Some(number) = self.mark.take(&numbers) {
            if !packet.ecn_capable {
                continue;
            }
            let Some(at) = isolate(pieces, segment(number)) else { continue };
            if !std::mem::replace(&mut pieces[at].treatment.mark_ce, true) {
                counts.marked_ce += size(number);
            }
        }
        while let Some(number) = self.corrupt.take(&numbers) {
            if let Some(at) = isolate(pieces, segment(number)) {
                let bit = self.bits.bits(number);
                pieces[at].treatment.corruption = Some(Corruption::Detected { bit });
                counts.corrupted += size(number);
            }
        }
        while let Some(number) = self.corrupt_silent.take(&numbers) {
            let Some(at) = isolate(pieces, segment(number)) else { continue };
            // Detected damage takes precedence over silent damage.
            if pieces[at].treatment.corruption.is_none() {
                let bit = self.bits.bits(number);
                pieces[at].treatment.corruption = Some(Corruption::Silent { bit });
                counts.corrupted_silent += size(number);
            }
        }
        while let Some(number) = self.duplicate.take(&numbers) {
            if let Some(at) = isolate(pieces, segment(number)) {
                // The duplicate is intact.
                let mark_ce = pieces[at].treatment.mark_ce;
                let treatment = Treatment { mark_ce, duplicate: true, ..Treatment::default() };
                pieces.insert(at + 1, Piece { treatment, ..pieces[at].clone() });
                counts.duplicated += size(number);
            }
        }
    }
}

/// Splits `pieces` so that `segment` is a separate piece, and returns its index; `None` if the
/// segment is in no piece. The pieces are in the order of their segments.
pub(super) fn isolate(pieces: &mut Vec<Piece>, segment: u32) -> Option<usize> {
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

/// Joins adjacent pieces that [`isolate`] has split and that have equal treatment.
pub(super) fn join(pieces: &mut Vec<Piece>) {
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
    use super::super::LinkTime;
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
