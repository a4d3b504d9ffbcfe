//! The rate at which a path begins to drop segments that did not wait in a queue.
//!
//! A policer or a shallow queue loses nothing below its rate, and much above it. Random errors lose the
//! same share at every rate.

/// The share of the rate of the onset up to which a rate counts as below it.
const BELOW: f64 = 0.95;
/// The share of the loss at the onset up to which the loss below it counts as vanished.
const VANISHED: f64 = 0.25;
/// The bytes that the loss of the onset must have caused in the time of the comparison: if 8 segments
/// are expected, a Poisson variable is 2 or less with a probability of 1.4 %.
const LEAST_EXPECTED: f64 = 8.0 * 1448.0;

/// A loss without a queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Onset {
    /// The delivered rate in bytes per second.
    rate: f64,
    /// The share of the bytes lost.
    loss: f64,
    /// True once the loss has vanished below this rate.
    confirmed: bool,
}

impl Onset {
    /// A loss of the share `loss` of the bytes at the delivered `rate`.
    pub(super) fn new(rate: f64, loss: f64) -> Self {
        Onset { rate, loss, confirmed: false }
    }

    /// Compares with the loss of the share `loss` of `sent` bytes at `rate`.
    pub(super) fn compare(&mut self, rate: f64, sent: f64, loss: f64) {
        let enough = rate <= BELOW * self.rate && self.loss * sent >= LEAST_EXPECTED;
        self.confirmed |= enough && loss <= VANISHED * self.loss;
    }

    /// Returns whether the loss has vanished below the rate.
    pub(super) fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    /// Returns the rate of the onset in bytes per second.
    pub(super) fn rate(&self) -> f64 {
        self.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_that_vanishes_below_its_rate_confirms_the_onset() {
        let confirmed = |rate, sent, loss| {
            let mut onset = Onset::new(100e6, 0.2);
            onset.compare(rate, sent, loss);
            onset.is_confirmed()
        };
        assert!(confirmed(70e6, 1e6, 0.0));
        assert!(confirmed(70e6, 1e6, 0.04));
        assert!(!confirmed(70e6, 1e6, 0.1), "random errors");
        assert!(!confirmed(99e6, 1e6, 0.0), "the same rate");
        assert!(!confirmed(70e6, 1e4, 0.0), "too few bytes");
    }
}
