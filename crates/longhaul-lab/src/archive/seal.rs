//! Seals: digests of archived documents, stored beside the documents. SQLite detects a page with a
//! broken structure, but not a changed digit in a text.

use std::hash::Hasher;

use longhaul_core::result::RunSample;
use twox_hash::XxHash3_64;

/// Returns the seal of a document.
pub(super) fn of_text(text: &str) -> String {
    of_run(text, &[])
}

/// Returns the seal of a run: a digest of its document in the database and of its samples.
pub(super) fn of_run(json: &str, samples: &[RunSample]) -> String {
    let mut hasher = XxHash3_64::with_seed(0);
    hasher.write(json.as_bytes());
    for sample in samples {
        hasher.write(&sample.seconds.to_bits().to_le_bytes());
        hasher.write(&sample.throughput_bps.bps().to_le_bytes());
    }
    format!("{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use longhaul_core::units::Rate;

    use super::*;

    #[test]
    fn any_change_changes_the_seal() {
        let sample = |bps| RunSample { seconds: 0.5, throughput_bps: Rate::from_bps(bps) };
        let seal = of_run("{\"a\": 1}", &[sample(10)]);
        assert_eq!(seal, of_run("{\"a\": 1}", &[sample(10)]));
        for other in [of_run("{\"a\": 2}", &[sample(10)]), of_run("{\"a\": 1}", &[sample(11)])] {
            assert_ne!(seal, other);
        }
        // Archives store this digest; with another function all archives would appear damaged. The
        // specification of XXH3 gives 2d06800538d394c2 for the empty text.
        assert_eq!(of_text(""), "2d06800538d394c2");
    }
}
