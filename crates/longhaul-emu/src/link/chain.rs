//! Loss by a Markov chain whose states lose segments with different probabilities.

use std::ops::Range;

use longhaul_core::plan::link::{Loss, Probability};

use super::random::Stream;

/// The random numbers of a chain: the lengths of stays, the next states, and losses within a state.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChainStreams {
    pub(super) stays: Stream,
    pub(super) choices: Stream,
    pub(super) losses: Stream,
}

/// A state of a chain.
#[derive(Debug, Clone)]
struct State {
    /// The share of segments that the state loses.
    loss: f64,
    /// Probabilities per segment of a transition, with the next state.
    exits: Vec<(f64, usize)>,
}

/// A chain of states with the number of segments that it has decided.
///
/// The number of segments in a state is geometric, and so is the number of segments until the next
/// loss within a state. The cost is therefore proportional to the transitions and losses.
#[derive(Debug, Clone)]
pub(super) struct Chain {
    states: Vec<State>,
    streams: ChainStreams,
    current: usize,
    /// The number of the first segment after the current stay.
    until: u64,
    /// The number of the first segment whose fate is open.
    decided: u64,
    /// The last run of lost segments.
    lost: Range<u64>,
}

impl Chain {
    /// Creates the chain of `plan` from segment `from` on, in its first state; `None` if the plan
    /// is not a chain or loses nothing.
    pub(super) fn new(plan: &Loss, streams: ChainStreams, from: u64) -> Option<Self> {
        let states = states(plan)?;
        let loses = states.iter().any(|state| state.loss > 0.0);
        let mut chain =
            Chain { states, streams, current: 0, until: from, decided: from, lost: from..from };
        chain.stay(from);
        loses.then_some(chain)
    }

    /// Returns the first run of lost segments that overlaps `segments`, cut to this range. The
    /// ranges of successive calls must not go back.
    pub(super) fn first_in(&mut self, segments: &Range<u64>) -> Option<Range<u64>> {
        loop {
            let run = self.lost.start.max(segments.start)..self.lost.end.min(segments.end);
            if !run.is_empty() {
                return Some(run);
            }
            if self.decided >= segments.end {
                return None;
            }
            self.decide();
        }
    }

    /// Decides up to the next loss or the end of the stay.
    fn decide(&mut self) {
        let from = self.decided;
        if from >= self.until {
            self.enter_next(from);
        }
        let loss = self.states[self.current].loss;
        (self.lost, self.decided) = if loss >= 1.0 {
            (from..self.until, self.until)
        } else if loss > 0.0 {
            let hit = from.saturating_add(self.streams.losses.failures(from, loss));
            if hit < self.until { (hit..hit + 1, hit + 1) } else { (from..from, self.until) }
        } else {
            (from..from, self.until)
        };
    }

    fn enter_next(&mut self, from: u64) {
        let exits = &self.states[self.current].exits;
        let total: f64 = exits.iter().map(|(p, _)| p).sum();
        let mut choice = self.streams.choices.unit(from) * total;
        for (p, next) in exits {
            self.current = *next;
            if choice <= *p {
                break;
            }
            choice -= p;
        }
        self.stay(from);
    }

    /// Draws the number of segments in the current state, of which `from` is the first.
    fn stay(&mut self, from: u64) {
        let exit: f64 = self.states[self.current].exits.iter().map(|(p, _)| p).sum();
        let more = if exit > 0.0 { self.streams.stays.failures(from, exit) } else { u64::MAX };
        self.until = from.saturating_add(1).saturating_add(more);
    }
}

fn states(plan: &Loss) -> Option<Vec<State>> {
    let state = |loss: Probability, exits: &[(Probability, usize)]| State {
        loss: loss.get(),
        exits: exits
            .iter()
            .filter(|exit| !exit.0.is_zero())
            .map(|exit| (exit.0.get(), exit.1))
            .collect(),
    };
    let (none, all) = (Probability::ZERO, Probability::ONE);
    match *plan {
        Loss::GilbertElliott { to_bad, to_good, bad_loss, good_loss } => {
            Some(vec![state(good_loss, &[(to_bad, 1)]), state(bad_loss, &[(to_good, 0)])])
        }
        Loss::FourState {
            gap_to_burst,
            burst_to_gap,
            burst_to_delivery,
            delivery_to_burst,
            gap_to_single,
        } => Some(vec![
            state(none, &[(gap_to_burst, 1), (gap_to_single, 3)]),
            state(all, &[(burst_to_gap, 0), (burst_to_delivery, 2)]),
            state(none, &[(delivery_to_burst, 1)]),
            state(all, &[(all, 0)]),
        ]),
        _ => None,
    }
}

/// Loss with netem's correlation (`get_crandom` in net/sched/sch_netem.c). Every segment has a
/// number: a weighted mean of a new random number and the number of the segment before. A segment
/// with a number of at most the threshold is lost.
#[derive(Debug, Clone)]
pub(super) struct Correlated {
    threshold: f64,
    correlation: f64,
    stream: Stream,
    last: f64,
    decided: u64,
}

impl Correlated {
    /// Creates the losses from segment `from` on.
    pub(super) fn new(
        threshold: Probability,
        correlation: Probability,
        stream: Stream,
        from: u64,
    ) -> Self {
        let (threshold, correlation) = (threshold.get(), correlation.get());
        Correlated { threshold, correlation, stream, last: stream.units(from).1, decided: from }
    }

    /// Returns the first lost segment in `segments` that has not been decided before.
    pub(super) fn first_in(&mut self, segments: &Range<u64>) -> Option<Range<u64>> {
        while self.decided < segments.end {
            let number = self.decided;
            self.decided += 1;
            self.last =
                self.stream.unit(number) * (1.0 - self.correlation) + self.last * self.correlation;
            if self.last <= self.threshold && number >= segments.start {
                return Some(number..number + 1);
            }
        }
        None
    }
}
