//! Random numbers by index: Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers:
//! as easy as 1, 2, 3", SC11).
//!
//! A counter-based generator is a function of (key, counter). The key is the link's seed; the
//! counter consists of the impairment, the direction and the number of the segment. A decision
//! therefore does not depend on earlier decisions, streams cannot overlap, and a link that is
//! changed while it runs repeats no number.

use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

use longhaul_core::plan::Side;
use longhaul_core::plan::link::Probability;

/// The purpose of a stream of random numbers. Changing a number changes the decisions of every
/// seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    LossGap = 0,
    LossBurst = 1,
    Jitter = 2,
    Reorder = 3,
    Corrupt = 4,
    CorruptSilent = 5,
    CorruptBit = 6,
    Duplicate = 7,
    Mark = 8,
    CrossGap = 9,
    CrossBurst = 10,
    Pie = 11,
    PieCross = 12,
    LossStay = 13,
    LossChoice = 14,
    LossInState = 15,
    LossCorrelated = 16,
    BitError = 17,
    Slot = 18,
    DualPi2 = 19,
    Replay = 20,
}

/// The random numbers of one purpose in one direction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stream {
    key: [u32; 2],
    id: u32,
}

impl Stream {
    pub(super) fn new(seed: u64, from: Side, purpose: Purpose) -> Self {
        let direction = match from {
            Side::Near => 0,
            Side::Far => 1,
        };
        Stream { key: [seed as u32, (seed >> 32) as u32], id: (purpose as u32) << 1 | direction }
    }

    /// Returns 64 random bits for `index`.
    pub(super) fn bits(&self, index: u64) -> u64 {
        let [a, b, ..] = philox([index as u32, (index >> 32) as u32, self.id, 0], self.key);
        u64::from(b) << 32 | u64::from(a)
    }

    /// Returns a number above 0 and up to 1, uniform over 2^53 values, for `index`.
    pub(super) fn unit(&self, index: u64) -> f64 {
        unit(self.bits(index))
    }

    /// Returns two independent numbers as [`Stream::unit`] returns them, for `index`.
    pub(super) fn units(&self, index: u64) -> (f64, f64) {
        let [a, b, c, d] = philox([index as u32, (index >> 32) as u32, self.id, 0], self.key);
        (unit(u64::from(b) << 32 | u64::from(a)), unit(u64::from(d) << 32 | u64::from(c)))
    }

    /// Returns the number of trials with success probability `p` (above 0) that fail before the
    /// first success: geometric, drawn by inversion.
    pub(super) fn failures(&self, index: u64, p: f64) -> u64 {
        if p >= 1.0 {
            return 0;
        }
        // `as` saturates, so the event does not occur within 2^64 segments.
        (self.unit(index).ln() / (-p).ln_1p()) as u64
    }

    /// Returns an exponentially distributed time with mean 1.
    pub(super) fn exponential(&self, index: u64) -> f64 {
        -self.unit(index).ln()
    }
}

fn unit(bits: u64) -> f64 {
    ((bits >> 11) + 1) as f64 / (1u64 << 53) as f64
}

fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    // The constants of section 3.3 of the paper: multipliers, and Weyl steps from the golden ratio
    // and the square root of 3.
    const MULTIPLY: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
    const STEP: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
    for round in 0..10 {
        if round > 0 {
            key = [key[0].wrapping_add(STEP[0]), key[1].wrapping_add(STEP[1])];
        }
        let first = u64::from(MULTIPLY[0]) * u64::from(counter[0]);
        let second = u64::from(MULTIPLY[1]) * u64::from(counter[2]);
        counter = [
            (second >> 32) as u32 ^ counter[1] ^ key[0],
            second as u32,
            (first >> 32) as u32 ^ counter[3] ^ key[1],
            first as u32,
        ];
    }
    counter
}

/// A random event that affects each segment independently with the same probability.
///
/// The generator draws the number of the next affected segment instead of deciding on each segment,
/// so that a packet without an event costs one comparison.
#[derive(Debug, Clone)]
pub(super) struct Chance {
    stream: Stream,
    p: f64,
    /// The number of the next affected segment.
    next: u64,
}

impl Chance {
    /// Creates an event of `probability` for every segment from number `from` on.
    pub(super) fn new(stream: Stream, probability: Probability, from: u64) -> Self {
        let mut chance = Chance { stream, p: probability.get(), next: u64::MAX };
        if !probability.is_zero() {
            chance.next = from.saturating_add(chance.stream.failures(from, chance.p));
        }
        chance
    }

    /// Returns the first affected segment in `segments` that has not been returned before.
    pub(super) fn take(&mut self, segments: &Range<u64>) -> Option<u64> {
        while self.next < segments.end {
            let hit = self.next;
            let after = hit + 1;
            // The segment's number is the index of the draw, so that a draw does not depend on the
            // number of earlier draws.
            self.next = after.saturating_add(self.stream.failures(after, self.p));
            if hit >= segments.start {
                return Some(hit);
            }
        }
        None
    }
}

/// Returns a random seed below 2^32, which is short enough to type.
pub fn random_seed() -> u64 {
    // The standard library takes the keys of its hashers from the system's random numbers.
    RandomState::new().hash_one(std::process::id()) >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_gives_the_known_answers() {
        // From kat_vectors of the authors' Random123 library, philox4x32 with 10 rounds.
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            philox([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox(
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0]
            ),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn streams_differ() {
        let stream = Stream::new(7, Side::Near, Purpose::Mark);
        let others = [
            Stream::new(8, Side::Near, Purpose::Mark),
            Stream::new(7, Side::Far, Purpose::Mark),
            Stream::new(7, Side::Near, Purpose::Pie),
        ];
        assert_eq!(stream.bits(5), stream.bits(5));
        for other in others {
            assert_ne!(stream.bits(5), other.bits(5));
        }
    }

    #[test]
    fn draws_have_their_means() {
        let stream = Stream::new(1, Side::Near, Purpose::Jitter);
        let n = 200_000;
        let mean = |draw: &dyn Fn(u64) -> f64| (0..n).map(draw).sum::<f64>() / n as f64;
        // Three standard errors each: of 0.29, 1 and 99.5, divided by the square root of n.
        assert!((mean(&|i| stream.unit(i)) - 0.5).abs() < 0.002);
        assert!((mean(&|i| stream.exponential(i)) - 1.0).abs() < 0.007);
        assert!((mean(&|i| stream.failures(i, 0.01) as f64) - 99.0).abs() < 0.67);
        assert_eq!((stream.failures(3, 1.0), stream.failures(3, 1e-300)), (0, u64::MAX));
    }
}
