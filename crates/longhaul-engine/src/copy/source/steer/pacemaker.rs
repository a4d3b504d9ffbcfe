//! Paces the connections at the lower of the bound and the user's limit.

use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::units::Rate;

use super::bound::Bound;
use super::sample::ConnectionsSample;
use super::steered::rate_of;
use crate::copy::source::shared::SourceShared;

/// Paces all connections together at the lower of the [`Bound`] and the user's limit.
pub(in crate::copy::source) struct Pacemaker<'a> {
    shared: &'a SourceShared<'a>,
    bound: Bound,
    start: Instant,
    /// The rate in force and the number of connections that share it.
    paced: Option<(Rate, usize)>,
}

impl<'a> Pacemaker<'a> {
    /// Creates a pacemaker for a path over which an earlier copy reached the rate `earlier`.
    pub(in crate::copy::source) fn new(
        shared: &'a SourceShared<'a>,
        earlier: Option<Rate>,
    ) -> Self {
        let bound = Bound::with_earlier_rate(earlier.map(|rate| rate.bytes_per_second() as f64));
        Pacemaker { shared, bound, start: Instant::now(), paced: None }
    }

    /// Reads the state of the connections and paces them, until `over` returns true.
    pub(in crate::copy::source) fn run(&mut self, over: impl Fn() -> bool) {
        while !over() {
            thread::park_timeout(self.pace());
        }
    }

    /// Paces the connections. Returns the time until the next call.
    fn pace(&mut self) -> Duration {
        let steered = &self.shared.steered;
        let infos = steered.tcp_infos();
        let sample = ConnectionsSample::of(&infos, self.start.elapsed());
        let was_lowered = self.bound.is_lowered();
        let bound = sample.and_then(|sample| self.bound.next(sample)).map(rate_of);
        if let Some(peak) = self.bound.delivered() {
            steered.reached(rate_of(peak));
        }
        if self.bound.is_lowered() && !was_lowered {
            let rate = bound.unwrap_or_default();
            steered.note(format!("paced at {rate}: {}", self.bound.reason()));
            if let Some(rate) = self.bound.overflows_at() {
                steered.overflows_at(rate_of(rate));
            }
        }
        if let Some(rate) = self.bound.drops_at() {
            steered.drops_at(rate_of(rate));
        }
        let limit = self.shared.context.progress.limit();
        let rate = bound.into_iter().chain(limit).min();
        if self.is_changed(rate, infos.len()) {
            if limit.is_some() && rate == limit {
                steered.pace_each(rate);
            } else {
                steered.pace_together(rate);
            }
            self.paced = rate.map(|rate| (rate, infos.len()));
        }
        let rtt = sample.map_or(Duration::ZERO, |sample| sample.rtt);
        self.bound.interval(rtt)
    }

    /// True if `rate` differs by more than 2 % from the rate in force.
    fn is_changed(&self, rate: Option<Rate>, streams: usize) -> bool {
        match (self.paced, rate) {
            (None, None) => false,
            (Some((paced, among)), Some(rate)) => {
                among != streams || rate.bps().abs_diff(paced.bps()) > paced.bps() / 50
            }
            _ => true,
        }
    }
}
