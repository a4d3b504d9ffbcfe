//! The reordering stage: holds single segments until later ones have left.

use std::collections::VecDeque;
use std::time::Duration;

use longhaul_core::plan::link::{Extent, Reorder};

use super::batch::Batch;
use super::random::{Chance, Stream};
use super::{LinkTime, Piece};

/// Holds single segments until later ones have left.
#[derive(Debug, Clone)]
pub(super) struct Reordering {
    chance: Chance,
    extent: Extent,
    /// The number of segments that have passed in order.
    passed: u64,
    /// The held segments in order, as pairs: the value of `passed` at which the segment leaves, and
    /// its latest time.
    held: VecDeque<(u64, LinkTime)>,
}

/// The longest time that a segment waits for later segments. It is shorter than TCP's shortest
/// timeout (200 ms, `TCP_RTO_MIN` in include/net/tcp.h), so that the last segments of a transfer
/// are late but cause no timeout.
const PATIENCE: Duration = Duration::from_millis(100);

impl Reordering {
    /// Creates the reordering of `plan` from segment `number` on.
    pub(super) fn new(plan: &Reorder, stream: Stream, number: u64) -> Self {
        Reordering {
            chance: Chance::new(stream, plan.rate, number),
            extent: plan.extent,
            passed: 0,
            held: VecDeque::new(),
        }
    }

    /// Changes the departure times of single segments, or holds them.
    pub(super) fn apply(&mut self, batch: &mut Batch) {
        let numbers = batch.numbers.clone();
        while let Some(number) = self.chance.take(&numbers) {
            let Some(at) = batch.isolate(number) else { continue };
            let segment = batch.segment(number);
            batch.counts.reordered += batch.packet.count_of(segment..segment + 1);
            let piece = &mut batch.pieces[at];
            match self.extent {
                Extent::Time(time) => piece.at = piece.at + time,
                Extent::Segments(_) => piece.treatment.held = true,
            }
        }
        if let Extent::Segments(extent) = self.extent {
            self.hold(u64::from(extent), batch);
        }
    }

    fn hold(&mut self, extent: u64, batch: &mut Batch) {
        let pieces = &*batch.pieces;
        if self.held.is_empty() && !pieces.iter().any(|piece| piece.treatment.held) {
            let own = pieces.iter().filter(|piece| !piece.treatment.duplicate);
            self.passed += own.map(|piece| u64::from(piece.count())).sum::<u64>();
            return;
        }
        batch.replace_pieces(|batch, mut piece| {
            if piece.treatment.held {
                piece.at = piece.at + PATIENCE;
                self.held.push_back((self.passed + extent, piece.at));
            } else if !piece.treatment.duplicate {
                self.release(&mut piece, batch.pieces);
            }
            if !piece.segments.is_empty() {
                batch.pieces.push(piece);
            }
        });
    }

    /// Passes the first segments of `piece` to `pieces`, up to the next release of a held segment,
    /// and adds the release. Leaves the rest in `piece`.
    fn release(&mut self, piece: &mut Piece, pieces: &mut Vec<Piece>) {
        while let Some((turn, latest)) = self.held.front().copied() {
            // A held segment leaves at its latest time without a release.
            if latest > piece.at {
                let before = turn - self.passed;
                if before > u64::from(piece.count()) {
                    break;
                }
                let end = piece.segments.start + before as u32;
                // Two segments held for the same number of segments leave here together.
                if before > 0 {
                    let segments = piece.segments.start..end;
                    pieces.push(Piece { segments, ..piece.clone() });
                }
                pieces.push(Piece::release(piece.at));
                piece.segments.start = end;
                self.passed = turn;
            }
            self.held.pop_front();
        }
        self.passed += u64::from(piece.count());
    }
}
