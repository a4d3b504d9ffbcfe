//! The parts of a copy that fuzz targets drive: the journal, the framing of data connections, and
//! both ends of whole copies with faults between them.
//!
//! Compiled for tests and under the feature `fuzzing` only. Each entry is a function of arbitrary
//! bytes and panics when it finds a defect. Not part of the library's interface.

mod blocks;
mod journal;
mod machine;
mod relay;
mod script;

/// A function of arbitrary bytes.
pub type FuzzTarget = fn(&[u8]);

/// All entries, by the names of their fuzz targets.
pub const ENTRIES: &[(&str, FuzzTarget)] =
    &[("journal", journal::run), ("blocks", blocks::run), ("machine", machine::run)];

/// Inputs to begin from.
pub fn seeds(entry: &str) -> Vec<Vec<u8>> {
    match entry {
        "journal" => journal::seeds(),
        "blocks" => blocks::seeds(),
        "machine" => machine::seeds(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fixed sequence of inputs.
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
        seeds(name).iter().for_each(|seed| entry(seed));
        noise(count, length).for_each(|input| entry(&input));
    }

    #[test]
    fn journals_of_any_bytes_are_read_or_refused() {
        runs("journal", 300, 200);
    }

    #[test]
    fn blocks_are_received_as_they_were_sent_or_refused() {
        runs("blocks", 300, 60);
    }

    #[test]
    fn a_few_copies_with_faults_end_and_leave_nothing_wrong() {
        noise(4, 60).for_each(|input| machine::run(&input));
        seeds("machine").iter().step_by(6).for_each(|seed| machine::run(seed));
    }

    #[test]
    #[ignore = "takes half a minute; .ci/run includes it"]
    fn copies_with_faults_end_and_leave_nothing_wrong() {
        runs("machine", 30, 60);
    }
}
