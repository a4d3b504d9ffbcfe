//! File sizes of mixed trees.

use serde::{Deserialize, Serialize};

use crate::plan::link::derive_seed;
use crate::units::Bytes;

/// The file sizes of a mixed tree: log-normal, as in real file systems (Downey, "The structural
/// cause of file size distributions", 2001), limited at both ends.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Mixed {
    /// The median size: half of the files are smaller.
    #[serde(rename = "median_bytes", alias = "median")]
    pub median: Bytes,
    /// The standard deviation of the natural logarithm of the size; 0 to 6. With 2, two of three
    /// files are within a factor of 7 of the median.
    pub sigma: f64,
    /// The smallest size; only the last file, which completes the volume, may be smaller.
    #[serde(rename = "smallest_bytes", alias = "smallest", default = "Mixed::default_smallest")]
    pub smallest: Bytes,
    /// The largest size.
    #[serde(rename = "largest_bytes", alias = "largest", default = "Mixed::default_largest")]
    pub largest: Bytes,
    /// The seed of the sizes.
    #[serde(default)]
    pub seed: u64,
}

impl Mixed {
    /// The maximum number of files, independent of the volume.
    pub const MOST: usize = 1_000_000;

    /// Returns the same distribution, limited to files of at most `volume`.
    #[must_use]
    pub fn below(&self, volume: Bytes) -> Self {
        let largest = self.largest.min(volume).max(Bytes::new(1));
        Mixed { largest, smallest: self.smallest.min(largest), ..*self }
    }

    /// Returns the first invalid field and its accepted values.
    pub(super) fn fault(&self) -> Option<(&'static str, &'static str)> {
        if self.median.get() == 0 {
            return Some(("mixed.median", "more than 0"));
        }
        if !(0.0..=6.0).contains(&self.sigma) {
            return Some(("mixed.sigma", "0 to 6"));
        }
        (self.smallest.get() == 0 || self.smallest > self.largest)
            .then_some(("mixed.smallest", "more than 0 and at most mixed.largest"))
    }

    /// Returns the sizes of files with a sum of `volume`: equal for equal seeds on every machine.
    pub fn sizes(&self, volume: Bytes) -> Vec<Bytes> {
        let (low, high) = (self.smallest.get().max(1), self.largest.get().max(1));
        let mut sizes = Vec::new();
        let mut left = volume.get();
        while left > 0 && sizes.len() < Self::MOST {
            let factor = (self.sigma * normal(self.seed, sizes.len() as u64)).exp();
            let drawn = (self.median.get() as f64 * factor) as u64;
            let size = drawn.max(low).min(high).min(left);
            sizes.push(Bytes::new(size));
            left -= size;
        }
        sizes
    }
}

impl Mixed {
    const fn default_smallest() -> Bytes {
        Bytes::new(1)
    }

    const fn default_largest() -> Bytes {
        Bytes::gib(1)
    }
}

/// Returns a standard normal deviate by the Box-Muller method, rounded so that different
/// mathematical libraries agree.
fn normal(seed: u64, index: u64) -> f64 {
    let uniform = |part: &str| {
        let drawn = derive_seed(seed, &["mixed", part, &index.to_string()]);
        (drawn as f64 + 0.5) / (1_u64 << 53) as f64
    };
    let radius = (-2.0 * uniform("radius").ln()).sqrt();
    let value = radius * (std::f64::consts::TAU * uniform("angle")).cos();
    (value * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_the_distribution_and_the_seed() {
        let mixed = Mixed {
            median: Bytes::new(64 << 10),
            sigma: 1.5,
            smallest: Bytes::new(1024),
            largest: Bytes::mib(16),
            seed: 1,
        };
        let volume = Bytes::mib(512);
        let sizes = mixed.sizes(volume);
        assert_eq!(sizes.iter().map(|size| size.get()).sum::<u64>(), volume.get());
        assert_eq!(sizes, mixed.sizes(volume));
        assert_ne!(sizes, Mixed { seed: 2, ..mixed }.sizes(volume));
        let below = sizes.iter().filter(|size| **size < mixed.median).count() as f64;
        let share = below / sizes.len() as f64;
        assert!((0.45..0.55).contains(&share), "{share} of {} are small", sizes.len());
        assert!(sizes.iter().all(|size| *size <= mixed.largest));
        assert!(sizes[..sizes.len() - 1].iter().all(|size| *size >= mixed.smallest));
        assert_eq!(mixed.below(Bytes::new(2048)).largest, Bytes::new(2048));
    }
}
