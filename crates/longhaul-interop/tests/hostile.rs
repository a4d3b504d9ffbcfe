//! The readers of the messages of iperf3, nuttcp and STAMP on random and mutated input; the fuzz targets of
//! the same names run the entries for longer.

// The items of the entries are public for the fuzz targets.
#[allow(unreachable_pub)]
#[path = "../../../fuzz/src/iperf3.rs"]
mod iperf3;
#[allow(unreachable_pub)]
#[path = "../../../fuzz/src/nuttcp.rs"]
mod nuttcp;
#[allow(unreachable_pub)]
#[path = "../../../fuzz/src/stamp.rs"]
mod stamp;

use std::time::{Duration, Instant};

use proptest::prelude::*;

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

/// Runs `entry` on `seeds`, and for two seconds on mutated seeds with some of the characters
/// `inserted`.
fn survives(entry: fn(&[u8]), seeds: &[Vec<u8>], inserted: &[u8]) {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    seeds.iter().for_each(|seed| entry(seed));
    let until = Instant::now() + Duration::from_secs(2);
    let mut runs = 0;
    while Instant::now() < until {
        let mut bytes = seeds[dice.below(seeds.len())].clone();
        for _ in 0..=dice.below(8) {
            let at = dice.below(bytes.len());
            match dice.below(3) {
                0 => bytes[at] = dice.next() as u8,
                1 => bytes.truncate(at.max(1)),
                _ => bytes.insert(at, inserted[dice.below(inserted.len())]),
            }
        }
        entry(&bytes);
        runs += 1;
    }
    assert!(runs > 100, "{runs}");
}

#[test]
fn hostile_bytes_of_iperf3_are_no_panic() {
    survives(iperf3::iperf3, &iperf3::seeds(), b"0129.-e\"{}[],:");
}

#[test]
fn hostile_bytes_of_nuttcp_are_no_panic() {
    survives(nuttcp::nuttcp, &nuttcp::seeds(), b"0129.-= ,\n/%MB");
}

proptest! {
    #[test]
    fn noise_is_no_reply(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        stamp::stamp(&bytes);
    }

    #[test]
    fn changed_packets_are_counted_or_refused(
        which in 0..4usize,
        changes in prop::collection::vec((any::<usize>(), any::<u8>()), 0..20),
        cut in any::<usize>(),
    ) {
        let mut bytes = stamp::seeds()[which].clone();
        for (at, byte) in changes {
            if !bytes.is_empty() {
                let at = at % bytes.len();
                bytes[at] = byte;
            }
        }
        bytes.truncate(cut % (bytes.len() + 1));
        stamp::stamp(&bytes);
    }
}

#[test]
fn the_packets_to_begin_from_are_read() {
    stamp::seeds().iter().for_each(|seed| stamp::stamp(seed));
}
