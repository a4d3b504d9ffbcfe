//! The readers of nuttcp's lines on random and mutated input; the fuzz target `nuttcp` runs the
//! same entry for longer.

#[expect(unreachable_pub, reason = "the fuzz crate uses the same file")]
#[path = "../../../fuzz/src/nuttcp.rs"]
mod entry;

use std::time::{Duration, Instant};

/// Characters of lines and reports.
const INSERTED: &[u8] = b"0129.-= ,\n/%MB";

/// A small generator of numbers, so that every run is the same.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, most: usize) -> usize {
        (self.next() % most.max(1) as u64) as usize
    }
}

#[test]
fn hostile_bytes_are_no_panic() {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let seeds = entry::seeds();
    seeds.iter().for_each(|seed| entry::nuttcp(seed));
    let until = Instant::now() + Duration::from_secs(2);
    let mut runs = 0;
    while Instant::now() < until {
        let mut bytes = seeds[dice.below(seeds.len())].clone();
        for _ in 0..=dice.below(8) {
            let at = dice.below(bytes.len());
            match dice.below(3) {
                0 => bytes[at] = dice.next() as u8,
                1 => bytes.truncate(at.max(1)),
                _ => bytes.insert(at, INSERTED[dice.below(INSERTED.len())]),
            }
        }
        entry::nuttcp(&bytes);
        runs += 1;
    }
    assert!(runs > 100, "{runs}");
}
