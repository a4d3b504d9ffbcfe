//! Checks of the loss channels with states and of correlated loss.

use longhaul_core::result::{Check, CheckUnit};

use super::super::case::{Case, Judged};
use super::super::lab::{Lab, Stream};
use super::loss::loss_runs;

/// The datagrams of a check: enough to find an error of 5 % in each parameter of a channel.
const DATAGRAMS: u64 = 1_200_000;

/// Checks the three channels.
pub(in super::super) fn check(lab: &mut dyn Lab, each: &mut dyn FnMut(Check)) {
    gilbert_elliott(lab, each);
    four_states(lab, each);
    correlated(lab, each);
}

fn stream() -> Stream {
    Stream { payload_bytes: 40, ..Stream::many(DATAGRAMS) }
}

/// A Markov chain whose states lose datagrams with different probabilities.
struct Chain<const N: usize> {
    /// The probabilities of a transition, by the state before and the state after it.
    transitions: [[f64; N]; N],
    /// The share of datagrams that each state loses.
    losses: [f64; N],
}

impl<const N: usize> Chain<N> {
    /// Returns the long-run share of losses, and its standard error among `count` datagrams: the
    /// sum of the covariances of all pairs.
    fn share(&self, count: u64) -> (f64, f64) {
        const STEPS: usize = 1000;
        let mut stationary = [1.0 / N as f64; N];
        for _ in 0..STEPS {
            let before = stationary;
            stationary = std::array::from_fn(|to| {
                (0..N).map(|from| before[from] * self.transitions[from][to]).sum()
            });
        }
        let mean = |values: &[f64; N]| -> f64 {
            stationary.iter().zip(values).map(|(share, value)| share * value).sum()
        };
        let share = mean(&self.losses);
        let mut variance = share * (1.0 - share);
        // The probability of a loss some datagrams later, by the present state.
        let mut later = self.losses;
        for _ in 0..STEPS {
            let next = later;
            later = std::array::from_fn(|from| {
                (0..N).map(|to| self.transitions[from][to] * next[to]).sum()
            });
            let both = std::array::from_fn(|state| self.losses[state] * later[state]);
            variance += 2.0 * (mean(&both) - share * share);
        }
        (share, (variance / count as f64).sqrt())
    }
}

pub(in super::super) fn gilbert_elliott(lab: &mut dyn Lab, each: &mut dyn FnMut(Check)) {
    let (to_bad, to_good, bad, good) = (0.1, 0.2, 0.9, 0.3);
    let options = format!("--up-loss-ge {to_bad}:{to_good}:{bad}:{good}");
    let case = Case::new("Gilbert-Elliott loss", &options, CheckUnit::Share);
    let chain = Chain {
        transitions: [[1.0 - to_bad, to_bad], [to_good, 1.0 - to_good]],
        losses: [good, bad],
    };
    each(match lab.send(&options, false, stream()) {
        Err(reason) => case.not_done(reason.to_string()),
        Ok((probe, outcome)) => {
            let sent = probe.sent.datagrams;
            let (share, error) = chain.share(sent);
            case.mean(share, probe.lost as f64 / sent as f64, error, sent)
                .counted(probe.lost, outcome.counts.lost.segments)
        }
    });
}

/// The states are those of netem: 1 good, 2 good within a burst, 3 a burst of losses, 4 a single
/// loss.
pub(in super::super) fn four_states(lab: &mut dyn Lab, each: &mut dyn FnMut(Check)) {
    let (p13, p31, p32, p23, p14) = (0.3, 0.3, 0.3, 0.3, 0.5);
    let options = format!("--up-loss-state {p13}:{p31}:{p32}:{p23}:{p14}");
    let share_case = Case::new("loss by four states", &options, CheckUnit::Share);
    let run_case = Case::new("mean run of losses by four states", &options, CheckUnit::Count);
    let chain = Chain {
        transitions: [
            [1.0 - p13 - p14, 0.0, p13, p14],
            [0.0, 1.0 - p23, p23, 0.0],
            [p31, p32, 1.0 - p31 - p32, 0.0],
            [1.0, 0.0, 0.0, 0.0],
        ],
        losses: [0.0, 0.0, 1.0, 1.0],
    };
    let (probe, emulator, (runs, mean)) = match loss_runs(lab, &options, stream()) {
        Ok(found) => found,
        Err(reason) => {
            return [share_case, run_case]
                .into_iter()
                .for_each(|case| each(case.not_done(reason.clone())));
        }
    };
    let sent = probe.sent.datagrams;
    let (share, error) = chain.share(sent);
    let check = share_case.mean(share, probe.lost as f64 / sent as f64, error, sent);
    each(check.counted(probe.lost, emulator));
    // A visit of state 4 is a run of one loss. A visit of state 3 has a geometric length.
    let single = p14 / (p14 + p13 + p13 / p31 * p32);
    let leaves = p31 + p32;
    let expected = single + (1.0 - single) / leaves;
    let square = single + (1.0 - single) * (2.0 - leaves) / (leaves * leaves);
    let deviation = (square - expected * expected).sqrt();
    each(run_case.mean(expected, mean, deviation / (runs as f64).sqrt(), runs));
}

pub(in super::super) fn correlated(lab: &mut dyn Lab, each: &mut dyn FnMut(Check)) {
    const RATE: f64 = 0.3;
    const CORRELATION: f64 = 0.5;
    let options = format!("--up-loss {RATE} --up-loss-correlation {CORRELATION}");
    let case = Case::new("correlated loss", &options, CheckUnit::Share);
    each(match lab.send(&options, false, stream()) {
        Err(reason) => case.not_done(reason.to_string()),
        Ok((probe, outcome)) => {
            let sent = probe.sent.datagrams;
            let share = correlated_share(RATE, CORRELATION);
            // The correlation of two losses is at most that of their numbers.
            let inflation = (1.0 + CORRELATION) / (1.0 - CORRELATION);
            let error = (share * (1.0 - share) * inflation / sent as f64).sqrt();
            case.mean(share, probe.lost as f64 / sent as f64, error, sent)
                .counted(probe.lost, outcome.counts.lost.segments)
        }
    });
}

/// Returns the probability that x(n) = (1 - c) u(n) + c x(n-1) is at most `rate`, with uniform u(n).
/// The distribution function F of x satisfies F(x) = E F((x - (1 - c) u) / c), and repeated
/// application converges to it.
fn correlated_share(rate: f64, correlation: f64) -> f64 {
    const POINTS: usize = 4000;
    const ROUNDS: usize = 60;
    let at = |index: usize| index as f64 / POINTS as f64;
    let mut function: Vec<f64> = (0..=POINTS).map(at).collect();
    for _ in 0..ROUNDS {
        let mut integral = vec![0.0; POINTS + 1];
        for index in 1..=POINTS {
            let mean = (function[index - 1] + function[index]) / 2.0;
            integral[index] = integral[index - 1] + mean / POINTS as f64;
        }
        let up_to = |x: f64| interpolated(&integral, x) + (x - 1.0).max(0.0);
        let own = 1.0 - correlation;
        function = (0..=POINTS)
            .map(|index| {
                let x = at(index);
                correlation / own * (up_to(x / correlation) - up_to((x - own) / correlation))
            })
            .collect();
    }
    interpolated(&function, rate)
}

/// Returns the value at `x` of a function given at evenly spaced points from 0 to 1.
fn interpolated(values: &[f64], x: f64) -> f64 {
    let last = values.len() - 1;
    let place = (x.clamp(0.0, 1.0) * last as f64).min(last as f64);
    let index = (place as usize).min(last.saturating_sub(1));
    let part = place - index as f64;
    values[index] * (1.0 - part) + values[index + 1] * part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_follow_from_the_states() {
        // Two states: share (P h + R k) / (P + R); the error grows with the lengths of the states.
        let chain = Chain { transitions: [[0.9, 0.1], [0.3, 0.7]], losses: [0.0, 1.0] };
        let (share, error) = chain.share(10_000);
        assert!((share - 0.25).abs() < 1e-9);
        let inflation = (1.0_f64 + 0.6) / (1.0 - 0.6);
        assert!((error - (0.25 * 0.75 * inflation / 1e4).sqrt()).abs() < 1e-9);
        let independent = Chain { transitions: [[0.5; 2]; 2], losses: [0.1; 2] };
        assert!((independent.share(100).1 - 0.03).abs() < 1e-9);
    }

    #[test]
    fn correlation_narrows_the_distribution() {
        // Without correlation x is uniform.
        assert!((correlated_share(0.3, 1e-6) - 0.3).abs() < 1e-3);
        // The distribution is symmetric.
        assert!((correlated_share(0.5, 0.5) - 0.5).abs() < 1e-3);
        assert!(correlated_share(0.3, 0.5) < correlated_share(0.3, 0.25));
        assert!((correlated_share(1.0, 0.5) - 1.0).abs() < 1e-3);
    }
}
