//! The lateness of departures and its causes.

use std::io;

use hdrhistogram::Histogram;
use longhaul_core::result::{Lateness, LatenessCauses};

use super::timeline::Timeline;
use crate::link::LinkTime;

/// The lateness of the departures of a lane.
#[derive(Debug)]
pub(super) struct Punctuality {
    /// In nanoseconds.
    lateness: Histogram<u64>,
    causes: LatenessCauses,
}

impl Punctuality {
    pub(super) fn new() -> io::Result<Self> {
        // Two significant digits suffice for a tail, and lateness above 10 s needs no resolution.
        let lateness = Histogram::new_with_bounds(1, 10_000_000_000, 2)
            .map_err(|_| io::ErrorKind::InvalidInput)?;
        Ok(Punctuality { lateness, causes: LatenessCauses::default() })
    }

    /// Records that a piece that was due at `due` left at `left`.
    pub(super) fn record(&mut self, due: LinkTime, left: LinkTime, timeline: &Timeline) {
        self.lateness.saturating_record(left.since(due).as_nanos() as u64);
        timeline.explain(due, left, &mut self.causes);
    }

    pub(super) fn report(&self) -> Lateness {
        let late_ms = |quantile| self.lateness.value_at_quantile(quantile) as f64 / 1e6;
        let recorded = self.lateness.iter_recorded();
        Lateness {
            p50_ms: late_ms(0.5),
            p99_ms: late_ms(0.99),
            p999_ms: late_ms(0.999),
            max_ms: late_ms(1.0),
            histogram: Lateness::histogram_of(
                recorded.map(|step| (step.value_iterated_to(), step.count_at_value())),
            ),
            causes: self.causes,
        }
    }
}
