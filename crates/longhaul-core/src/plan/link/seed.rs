//! Derived seeds.

/// Returns a seed for an identity: equal for equal identities, independent otherwise.
///
/// An experiment passes its own seed as `root` and, for example, its name, the cell and the number
/// of the repeat as `identity`. The result is below 2^53, so that every JSON parser keeps it.
pub fn derive_seed(root: u64, identity: &[&str]) -> u64 {
    let mut bytes = Vec::new();
    for part in identity {
        // The length distinguishes ["a", "bc"] from ["ab", "c"].
        bytes.extend((part.len() as u64).to_le_bytes());
        bytes.extend(part.as_bytes());
    }
    twox_hash::XxHash3_64::oneshot_with_seed(root, &bytes) >> 11
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_follow_the_identity() {
        let seed = derive_seed(7, &["sc10", "90ms", "1"]);
        assert_eq!(seed, derive_seed(7, &["sc10", "90ms", "1"]));
        assert!(seed < 1 << 53);
        for other in [["sc10", "90ms", "2"], ["sc1", "090ms", "1"], ["sc10", "90ms1", ""]] {
            assert_ne!(seed, derive_seed(7, &other));
        }
        assert_ne!(seed, derive_seed(8, &["sc10", "90ms", "1"]));
    }
}
