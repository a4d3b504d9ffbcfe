//! The parts of a copy that fuzz targets drive: the journal, the framing of data connections, and
//! both ends of whole copies with faults between them.
//!
//! The module is compiled only for tests and with the feature `fuzzing`, and is not part of the
//! library's interface. Each entry is a function of arbitrary bytes, and panics when it finds a
//! defect.

mod blocks;
mod journal;
mod machine;
mod relay;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// A function of arbitrary bytes.
pub type FuzzTarget = fn(&[u8]);

/// All entries, by the names of their fuzz targets.
pub const ENTRIES: &[(&str, FuzzTarget)] =
    &[("journal", journal::run), ("blocks", blocks::run), ("machine", machine::run)];

/// Inputs to begin from: written by hand, and kept from fuzzing.
pub fn seeds(entry: &str) -> Vec<Vec<u8>> {
    let mut seeds = written(entry);
    seeds.extend(kept(entry));
    seeds
}

/// Returns the inputs that were written by hand.
fn written(entry: &str) -> Vec<Vec<u8>> {
    match entry {
        "journal" => journal::seeds(),
        "blocks" => blocks::seeds(),
        "machine" => machine::seeds(),
        _ => Vec::new(),
    }
}

/// Returns the shortest inputs that together reach all code that fuzzing reached, by size; each
/// line of the files is one input in Base64.
fn kept(entry: &str) -> Vec<Vec<u8>> {
    let lines = match entry {
        "journal" => include_str!("kept/journal.txt"),
        "blocks" => include_str!("kept/blocks.txt"),
        "machine" => include_str!("kept/machine.txt"),
        _ => "",
    };
    lines.lines().map(|line| STANDARD.decode(line).expect("a line in Base64")).collect()
}

/// Reads decisions from bytes; after the last byte every decision is zero.
struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Script(bytes)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// Returns a number below 2^16.
    fn short(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    fn long(&mut self) -> u64 {
        (0..8).fold(0, |value, _| value << 8 | u64::from(self.byte()))
    }

    fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// Returns a number below `end`, which is at most 256.
    fn below(&mut self, end: usize) -> usize {
        usize::from(self.byte()) % end
    }

    fn choose<T: Copy>(&mut self, among: &[T]) -> T {
        among[self.below(among.len())]
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    /// Returns a fixed sequence of inputs.
    fn noise(count: usize, length: usize) -> impl Iterator<Item = Vec<u8>> {
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        (0..count).map(move |_| {
            (0..length)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (state >> 56) as u8
                })
                .collect()
        })
    }

    fn runs(name: &str, count: usize, length: usize) {
        let (_, entry) = ENTRIES.iter().find(|(entry, _)| *entry == name).unwrap();
        written(name).iter().for_each(|seed| entry(seed));
        noise(count, length).for_each(|input| entry(&input));
    }

    /// Runs every `step`th kept input of an entry.
    fn replays(name: &str, step: usize) {
        let (_, entry) = ENTRIES.iter().find(|(entry, _)| *entry == name).unwrap();
        let kept = kept(name);
        assert!(kept.len() > 300, "{name} has {} kept inputs", kept.len());
        kept.iter().step_by(step).for_each(|input| entry(input));
    }

    #[test]
    fn kept_inputs_run_again() {
        replays("journal", 1);
        replays("blocks", 1);
    }

    #[test]
    fn journals_of_any_bytes_are_read_or_refused() {
        runs("journal", 300, 200);
    }

    #[test]
    fn blocks_are_received_as_they_were_sent_or_refused() {
        runs("blocks", 300, 60);
    }

    /// Runs copies on 16 threads: most of their time is spent waiting.
    fn copies(inputs: impl Iterator<Item = Vec<u8>>) {
        let inputs: Vec<_> = inputs.collect();
        let next = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    while let Some(input) = inputs.get(next.fetch_add(1, Ordering::Relaxed)) {
                        machine::run(input);
                    }
                });
            }
        });
    }

    #[test]
    fn a_few_copies_with_faults_end_and_leave_nothing_wrong() {
        copies(written("machine").into_iter());
    }

    #[test]
    #[ignore = "takes a minute; .ci/run includes it"]
    fn copies_with_faults_end_and_leave_nothing_wrong() {
        copies(noise(30, 60).chain(kept("machine").into_iter().step_by(6)));
    }
}
