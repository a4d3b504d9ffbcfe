//! The trial of direct I/O and of the page cache with the first blocks of a long file.

use std::time::Duration;

/// A way between memory and disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::copy) enum IoMode {
    /// Past the page cache.
    Direct,
    /// Through the page cache.
    Cached,
}

/// Blocks that go one way before the other has its turn: one for each reader or writer.
const TURN: u32 = 4;
/// Blocks each way that decide: two turns.
const ENOUGH: u32 = 2 * TURN;
/// The factor by which the cache must be faster, or as fast and cheaper, to be chosen. A smaller
/// gain does not justify taking the cache from other programs.
const WORTH: f64 = 1.3;
/// A rate that is as good as another: disks vary by more from one block to the next.
const AS_FAST: f64 = 0.9;

/// The cost of a block.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cost {
    pub(super) bytes: u64,
    /// The time from the call until the bytes have arrived.
    pub(super) time: Duration,
    /// The calling thread's processor time.
    pub(super) cpu: Duration,
}

/// A trial of both ways on one file system.
#[derive(Debug, Default)]
pub(super) struct Trial {
    issued: u32,
    direct: Tally,
    cached: Tally,
    decided: Option<IoMode>,
}

#[derive(Debug, Default)]
struct Tally {
    blocks: u32,
    cost: Cost,
}

impl Tally {
    fn count(&mut self, cost: Cost) {
        self.blocks += 1;
        self.cost.bytes += cost.bytes;
        self.cost.time += cost.time;
        self.cost.cpu += cost.cpu;
    }

    /// Returns the rate of one thread in bytes per second.
    fn rate(&self) -> f64 {
        self.cost.bytes as f64 / self.cost.time.as_secs_f64().max(1e-9)
    }

    /// Returns the CPU seconds per byte.
    fn cpu(&self) -> f64 {
        self.cost.cpu.as_secs_f64() / self.cost.bytes.max(1) as f64
    }
}

impl Trial {
    /// Returns the outcome; `None` while the trial runs.
    pub(super) fn decided(&self) -> Option<IoMode> {
        self.decided
    }

    /// Returns the I/O mode of the next block.
    pub(super) fn next(&mut self) -> IoMode {
        let turn = self.issued / TURN;
        self.issued += 1;
        if turn.is_multiple_of(2) { IoMode::Direct } else { IoMode::Cached }
    }

    /// Counts a block that went its `way`.
    pub(super) fn count(&mut self, way: IoMode, cost: Cost) {
        match way {
            IoMode::Direct => self.direct.count(cost),
            IoMode::Cached => self.cached.count(cost),
        }
        if self.direct.blocks >= ENOUGH && self.cached.blocks >= ENOUGH {
            self.decided.get_or_insert(self.better());
        }
    }

    fn better(&self) -> IoMode {
        let (direct, cached) = (&self.direct, &self.cached);
        let faster = cached.rate() >= WORTH * direct.rate();
        let cheaper =
            cached.rate() >= AS_FAST * direct.rate() && cached.cpu() * WORTH <= direct.cpu();
        if faster || cheaper { IoMode::Cached } else { IoMode::Direct }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the outcome for blocks that take this time and this CPU time in ms in each mode.
    fn outcome(direct: (u64, u64), cached: (u64, u64)) -> IoMode {
        let mut trial = Trial::default();
        for block in 0..100 {
            if let Some(way) = trial.decided() {
                assert_eq!(block, 4 * TURN, "as many as it needs");
                return way;
            }
            let way = trial.next();
            let (time, cpu) = if way == IoMode::Direct { direct } else { cached };
            let ms = Duration::from_millis;
            trial.count(way, Cost { bytes: 4 << 20, time: ms(time), cpu: ms(cpu) });
        }
        panic!("undecided");
    }

    #[test]
    fn the_cache_must_pay() {
        assert_eq!(outcome((5, 1), (5, 2)), IoMode::Direct, "as fast, and dearer");
        assert_eq!(outcome((5, 1), (5, 1)), IoMode::Direct, "no difference");
        assert_eq!(outcome((5, 1), (4, 3)), IoMode::Direct, "a little faster is not worth it");
        assert_eq!(outcome((20, 1), (5, 3)), IoMode::Cached, "much faster");
        assert_eq!(outcome((5, 3), (5, 2)), IoMode::Cached, "as fast, and cheaper");
        assert_eq!(outcome((5, 3), (9, 2)), IoMode::Direct, "cheaper, but slower");
    }

    #[test]
    fn ways_take_turns_of_a_block_for_each_thread() {
        let mut trial = Trial::default();
        let ways: Vec<_> = (0..12).map(|_| trial.next()).collect();
        assert!(ways[..4].iter().chain(&ways[8..]).all(|way| *way == IoMode::Direct));
        assert!(ways[4..8].iter().all(|way| *way == IoMode::Cached));
        assert_eq!(trial.decided(), None, "nothing has come back yet");
    }
}
