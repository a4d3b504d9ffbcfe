//! Random seeds for plans without a seed.

use std::hash::{BuildHasher, RandomState};

/// Returns a random seed below 2^32, which is short enough to type.
pub fn random_seed() -> u64 {
    // The standard library keys its hashers with random numbers of the system.
    RandomState::new().hash_one(std::process::id()) >> 32
}
