//! Reordering: holds single segments until later ones have left.

use std::collections::VecDeque;
use std::time::Duration;

use longhaul_core::plan::link::{Extent, Reorder};
use longhaul_core::result::Impairments;

use super::accidents::isolate;
use super::chance::Chance;
use super::model::segments_of;
use super::random::Stream;
use super::{LinkTime, PacketShape, Piece};

/// Holds single segments until later ones have left.
#[derive(Debug, Clone)]
pub(super) struct Reordering {
    chance: Chance,
    extent: Extent,
    /// The number of segments that have passed in order.
    passed: u64,
    /// The held segments in order: the value of `passed` at which each leaves, and its latest time.
    held: VecDeque<(u64, LinkTime)>,
    spare: Vec<Piece>,
}

/// The longest time that a segment waits for later segments. It is shorter than TCP's shortest
/// timeout (200 ms, `TCP_RTO_MIN` in include/net/tcp.h), so that the end of a transfer is late but
/// is not taken for lost.
const PATIENCE: Duration = Duration::from_millis(100);

impl Reordering {
    /// Creates the reordering of `plan` from segment `number` on.
    pub(super) fn new(plan: &Reorder, stream: Stream, number: u64) -> Self {
        Reordering {
            chance: Chance::new(stream, plan.rate, number),
            extent: plan.extent,
            passed: 0,
            held: VecDeque::new(),
            spare: Vec::new(),
        }
    }

    /// Changes the departure times of `pieces`, which are in the order of their segments.
    pub(super) fn apply(
        &mut self,
        packet: &PacketShape,
        first: u64,
        pieces: &mut Vec<Piece>,
        counts: &mut Impairments,
    ) {
        let numbers = first..first + u64::from(packet.segments());
        while let Some(number) = self.chance.take(&numbers) {
            let segment = (number - first) as u32;
            let Some(at) = isolate(pieces, segment) else { continue };
            counts.reordered += segments_of(packet, segment..segment + 1);
            match self.extent {
                Extent::Time(time) => pieces[at].at = pieces[at].at + time,
                Extent::Segments(_) => pieces[at].treatment.held = true,
            }
        }
        if let Extent::Segments(extent) = self.extent {
            self.hold(u64::from(extent), pieces);
        }
    }

    fn hold(&mut self, extent: u64, pieces: &mut Vec<Piece>) {
        if self.held.is_empty() && !pieces.iter().any(|piece| piece.treatment.held) {
            let own = pieces.iter().filter(|piece| !piece.treatment.duplicate);
            self.passed += own.map(|piece| u64::from(piece.count())).sum::<u64>();
            return;
        }
        self.spare.clear();
        self.spare.append(pieces);
        for mut piece in self.spare.drain(..) {
            if piece.treatment.held {
                piece.at = piece.at + PATIENCE;
                self.held.push_back((self.passed + extent, piece.at));
            } else if !piece.treatment.duplicate {
                while let Some((turn, latest)) = self.held.front().copied() {
                    // A held segment whose time has run out leaves without a release.
                    if latest > piece.at {
                        let before = turn - self.passed;
                        if before > u64::from(piece.count()) {
                            break;
                        }
                        let end = piece.segments.start + before as u32;
                        // Two segments held at the same place both leave here.
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
            if !piece.segments.is_empty() {
                pieces.push(piece);
            }
        }
    }
}
