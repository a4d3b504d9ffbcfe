use std::hash::{BuildHasher, RandomState};

/// A seed that nobody chose, below 2^32 so that it is quickly typed again.
pub fn random_seed() -> u64 {
    // The standard library's hashers are keyed by the system's random numbers.
    RandomState::new().hash_one(std::process::id()) >> 32
}
