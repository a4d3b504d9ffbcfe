//! Tests of losses by Markov chains and with netem's correlation, against the chains' stationary
//! distributions.

use std::time::Duration;

use super::{Run, bulk, plan};

const SEGMENTS: u64 = 800_000;

/// Transition probabilities and losses per state.
struct Matrix<const N: usize> {
    next: [[f64; N]; N],
    loss: [f64; N],
}

impl<const N: usize> Matrix<N> {
    fn step(&self, shares: [f64; N]) -> [f64; N] {
        std::array::from_fn(|to| (0..N).map(|from| shares[from] * self.next[from][to]).sum())
    }

    /// Returns the stationary share of losses, and the share of losses that follow a loss.
    fn shares(&self) -> (f64, f64) {
        let mut shares = [1.0 / N as f64; N];
        for _ in 0..10_000 {
            shares = self.step(shares);
        }
        let lost: [f64; N] = std::array::from_fn(|state| shares[state] * self.loss[state]);
        let after = self.step(lost);
        let both: f64 = (0..N).map(|state| after[state] * self.loss[state]).sum();
        (lost.iter().sum(), both / lost.iter().sum::<f64>())
    }
}

/// Returns the share of losses, and the share of losses that follow a loss, over 800,000
/// segments.
fn measure(options: &str) -> (f64, f64) {
    let mut run = Run::new(&plan(options));
    run.offer_many(SEGMENTS / 40, Duration::from_micros(10), &bulk(40));
    let lost = run.missing();
    assert_eq!(run.model.counts().lost.segments, lost.len() as u64);
    let pairs = lost.windows(2).filter(|pair| pair[0] + 1 == pair[1]).count();
    (lost.len() as f64 / run.offered as f64, pairs as f64 / lost.len() as f64)
}

#[track_caller]
fn assert_near((share, pairs): (f64, f64), expected: (f64, f64)) {
    // There are at least 10,000 losses, so the error of either share is below 2 %.
    assert!((share / expected.0 - 1.0).abs() < 0.05, "{share}, not {}", expected.0);
    assert!((pairs / expected.1 - 1.0).abs() < 0.05, "{pairs}, not {}", expected.1);
}

#[test]
fn a_gilbert_elliott_channel_has_the_losses_of_its_matrix() {
    for (p, r, bad, good) in
        [(0.01, 0.2, 1.0, 0.0), (0.02, 0.1, 0.5, 0.01), (0.3, 0.3, 0.2, 0.2), (0.9, 0.1, 0.7, 0.1)]
    {
        let matrix = Matrix { next: [[1.0 - p, p], [r, 1.0 - r]], loss: [good, bad] };
        let options = format!("--loss-ge {p}:{r}:{bad}:{good} --seed 4");
        assert_near(measure(&options), matrix.shares());
    }
    // Without R losses are independent.
    assert_near(measure("--loss-ge 0.03 --seed 5"), (0.03, 0.03));
}

#[test]
fn the_chain_of_four_states_has_the_losses_of_its_matrix() {
    for (p13, p31, p32, p23, p14) in
        [(0.01, 0.3, 0.1, 0.5, 0.005), (0.05, 0.2, 0.5, 0.3, 0.0), (0.0, 0.5, 0.0, 1.0, 0.02)]
    {
        // The states in the order of netem's numbers: gap, delivery in a burst, burst, single loss.
        let next = [
            [1.0 - p13 - p14, 0.0, p13, p14],
            [0.0, 1.0 - p23, p23, 0.0],
            [p31, p32, 1.0 - p31 - p32, 0.0],
            [1.0, 0.0, 0.0, 0.0],
        ];
        let matrix = Matrix { next, loss: [0.0, 0.0, 1.0, 1.0] };
        let expected = matrix.shares();
        let found = measure(&format!("--loss-state {p13}:{p31}:{p32}:{p23}:{p14} --seed 6"));
        if expected.1 == 0.0 {
            assert_eq!(found.1, 0.0, "single losses have no neighbors");
            assert!((found.0 / expected.0 - 1.0).abs() < 0.05, "{} {}", found.0, expected.0);
        } else {
            assert_near(found, expected);
        }
    }
}

#[test]
fn a_chain_without_a_way_to_a_loss_loses_nothing() {
    for options in ["--loss-ge 0:0.1", "--loss-ge 0.5:0.5:0:0", "--loss-state 0:0:0:0:0"] {
        assert_eq!(measure(options).0, 0.0, "{options}");
    }
    assert_eq!(
        measure("--loss-ge 1:0").0,
        1.0 - 1.0 / SEGMENTS as f64,
        "it never leaves the bad state"
    );
}

/// The distribution of netem's numbers narrows around 0.5, so low rates lose fewer segments than
/// configured.
#[test]
fn correlated_losses_are_those_of_netem() {
    let reference = |rate: f64, correlation: f64| {
        // The generator of Knuth's MMIX; independent of the model's.
        let mut state = 99_u64;
        let mut draw = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        let (mut last, mut before) = (draw(), false);
        let (mut lost, mut pairs) = (0, 0);
        for _ in 0..SEGMENTS {
            last = draw() * (1.0 - correlation) + last * correlation;
            let hit = last <= rate;
            lost += u32::from(hit);
            pairs += u32::from(hit && before);
            before = hit;
        }
        (f64::from(lost) / SEGMENTS as f64, f64::from(pairs) / f64::from(lost))
    };
    for (rate, correlation) in [(0.5, 0.25), (0.1, 0.25), (0.2, 0.5)] {
        let options = format!("--loss {rate} --loss-correlation {correlation} --seed 8");
        let (found, expected) = (measure(&options), reference(rate, correlation));
        assert_near(found, expected);
        assert!(found.1 > found.0 * 1.1, "a loss follows a loss more often");
    }
    assert_near(measure("--loss 0.1 --loss-correlation 0 --seed 8"), (0.1, 0.1));
    let narrow = measure("--loss 0.1 --loss-correlation 0.5 --seed 8").0;
    assert!(narrow < 0.06, "{narrow}");
}
