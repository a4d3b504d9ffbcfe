//! Checks of reordering.

use longhaul_core::result::{Check, Unit};

use super::super::case::{Case, Tallies};
use super::super::lab::{Lab, Stream};

/// Checks the share of reordered datagrams and their reordering extent (RFC 4737).
pub(super) fn check(lab: &mut Lab<'_>, quick: bool, each: &mut dyn FnMut(Check)) {
    const RATE: f64 = 1e-2;
    const EXTENT: u64 = 5;
    let options = format!("--up-reorder {RATE}:{EXTENT}");
    let share = Case::new("reordering 1e-2", &options, Unit::Share);
    let extent = Case::new("reordering extent, mean", &options, Unit::Count);
    let stream = Stream::many(if quick { 50_000 } else { 200_000 });
    match lab.send(&options, false, stream) {
        Err(reason) => {
            each(share.not_done(reason.to_string()));
            each(extent.not_done(reason.to_string()));
        }
        Ok((probe, outcome)) => {
            let emulator = outcome.link.up.impairments.reordered.segments;
            let of = probe.sent.datagrams;
            each(share.share(RATE, Tallies { seen: probe.reordered, of, emulator }));
            let total: u64 = probe.extents.iter().map(|(extent, count)| extent * count).sum();
            let mean = total as f64 / probe.reordered.max(1) as f64;
            // If two segments are held at the same time, the later one leaves one position later.
            let range = (EXTENT as f64, EXTENT as f64 + 0.2);
            each(extent.between((EXTENT as f64, mean), range, probe.reordered));
        }
    }
}
