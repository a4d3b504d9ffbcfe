//! Checks of reordering.

use std::time::Duration;

use longhaul_core::result::{Check, CheckUnit};

use super::super::case::{Case, Judged, Tallies, twice};
use super::super::lab::{Lab, Stream};
use super::super::noise::Noise;

const EXTENT: u64 = 5;

/// Checks the share of reordered datagrams, their reordering extent (RFC 4737), and the time for
/// which datagrams are held.
pub(in super::super) fn check(lab: &mut dyn Lab, quick: bool, each: &mut dyn FnMut(Check)) {
    each(share(lab));
    each(extent(lab, quick));
    twice(|| vec![time(lab)]).into_iter().for_each(each);
}

fn share(lab: &mut dyn Lab) -> Check {
    const RATE: f64 = 0.1;
    let options = format!("--up-reorder {RATE}:{EXTENT}");
    let case = Case::new("reordering 0.1", &options, CheckUnit::Share);
    match lab.send(&options, false, Stream::shares()) {
        Err(reason) => case.not_done(reason.to_string()),
        Ok((probe, outcome)) => {
            let emulator = outcome.counts.reordered.segments;
            let of = probe.sent.datagrams;
            case.share(RATE, Tallies { counted: probe.reordered, of, emulator })
        }
    }
}

fn extent(lab: &mut dyn Lab, quick: bool) -> Check {
    let options = format!("--up-reorder 1e-2:{EXTENT}");
    let case = Case::new("reordering extent, mean", &options, CheckUnit::Count);
    match lab.send(&options, false, Stream::many(if quick { 50_000 } else { 200_000 })) {
        Err(reason) => case.not_done(reason.to_string()),
        Ok((probe, _)) => {
            let total: u64 = probe.extents.iter().map(|(extent, count)| extent * count).sum();
            let mean = total as f64 / probe.reordered.max(1) as f64;
            // If two segments are held at the same time, the later one leaves one position later.
            let range = (EXTENT as f64, EXTENT as f64 + 0.2);
            case.between((EXTENT as f64, mean), range, probe.reordered)
        }
    }
}

/// A tenth of the datagrams is held, so the 97th percentile of the delay is theirs.
fn time(lab: &mut dyn Lab) -> Check {
    const HELD_MS: f64 = 20.0;
    const LATE_MS: f64 = 0.4;
    let options = format!("--up-delay 10ms --up-reorder 0.1:{HELD_MS}ms");
    let case = Case::new("reordering by 20 ms, delay of 97 %", &options, CheckUnit::Ms);
    match lab.send(&options, false, Stream::single(3000, Duration::from_micros(300))) {
        Err(reason) => case.not_done(reason.to_string()),
        Ok((probe, outcome)) => {
            let delay = probe.delay.unwrap_or_default();
            let figures = (10.0 + HELD_MS, delay.quantile_ms(0.97));
            let range = (figures.0 - 0.01, figures.0 + LATE_MS);
            let latest = range.1 + Noise::of(&outcome.machine).at(0.97);
            case.between(figures, range, delay.samples).beside(outcome.machine, range.0..=latest)
        }
    }
}
