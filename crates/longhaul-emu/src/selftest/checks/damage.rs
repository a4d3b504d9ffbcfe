//! Checks of duplication, corruption and ECN marks.

use longhaul_core::result::{Check, CheckUnit};

use super::super::case::{Case, Judged, Tallies};
use super::super::lab::{Lab, Stream};

/// The rate of each impairment. The number of affected datagrams decides how small an error a check
/// finds: 25,000 of them find an error of 5 %.
const RATE: f64 = 0.1;

/// Checks duplicates, changed bits and ECN marks.
pub(in super::super) fn check(lab: &mut dyn Lab, each: &mut dyn FnMut(Check)) {
    let stream = Stream::shares();
    duplicates(lab, stream, each);
    detected(lab, stream, each);
    silent(lab, stream, each);
    marks(lab, Stream { ecn_capable: true, ..stream }, each);
    let options = format!("--up-mark {RATE}");
    let case = Case::new("no marks without ECN", &options, CheckUnit::Count);
    each(match lab.send(&options, false, stream) {
        Err(reason) => case.not_done(reason.to_string()),
        Ok((probe, _)) => case.none("marked", probe.marked, probe.arrivals),
    });
}

pub(in super::super) fn duplicates(lab: &mut dyn Lab, stream: Stream, each: &mut dyn FnMut(Check)) {
    let options = format!("--up-duplicate {RATE}");
    let case = Case::new("duplication 0.1", &options, CheckUnit::Share);
    each(match lab.send(&options, false, stream) {
        Err(reason) => case.not_done(reason.to_string()),
        Ok((probe, outcome)) => {
            let emulator = outcome.counts.duplicated.segments;
            let tallies = Tallies { counted: probe.duplicates, of: probe.sent.datagrams, emulator };
            case.share(RATE, tallies).unless(some(probe.lost, "lost"))
        }
    });
}

/// Detected damage must never arrive; the receiving kernel counts it.
pub(in super::super) fn detected(lab: &mut dyn Lab, stream: Stream, each: &mut dyn FnMut(Check)) {
    let options = format!("--up-corrupt {RATE}");
    let case = Case::new("corruption 0.1, detected", &options, CheckUnit::Share);
    each(match lab.send(&options, false, stream) {
        Err(reason) => case.not_done(reason.to_string()),
        Ok((probe, outcome)) => {
            let emulator = outcome.counts.corrupted.segments;
            let tallies = Tallies { counted: probe.lost, of: probe.sent.datagrams, emulator };
            let unseen = probe.lost.abs_diff(probe.checksum_errors);
            case.share(RATE, tallies)
                .unless(some(probe.changed, "arrived changed"))
                .unless(some(unseen, "lost and not by the kernel's checksum"))
        }
    });
}

/// Silent damage must arrive without a checksum error.
pub(in super::super) fn silent(lab: &mut dyn Lab, stream: Stream, each: &mut dyn FnMut(Check)) {
    let options = format!("--up-corrupt-silent {RATE}");
    let case = Case::new("corruption 0.1, silent", &options, CheckUnit::Share);
    each(match lab.send(&options, false, stream) {
        Err(reason) => case.not_done(reason.to_string()),
        Ok((probe, outcome)) => {
            let emulator = outcome.counts.corrupted_silent.segments;
            let tallies = Tallies { counted: probe.changed, of: probe.sent.datagrams, emulator };
            case.share(RATE, tallies)
                .unless(some(probe.lost, "lost"))
                .unless(some(probe.checksum_errors, "noticed by the kernel's checksum"))
        }
    });
}

pub(in super::super) fn marks(lab: &mut dyn Lab, stream: Stream, each: &mut dyn FnMut(Check)) {
    let options = format!("--up-mark {RATE}");
    let case = Case::new("ECN marks 0.1", &options, CheckUnit::Share);
    each(match lab.send(&options, false, stream) {
        Err(reason) => case.not_done(reason.to_string()),
        Ok((probe, outcome)) => {
            let emulator = outcome.counts.marked_ce.segments;
            let tallies = Tallies { counted: probe.marked, of: probe.arrivals, emulator };
            let bare = probe.arrivals - probe.ecn_capable;
            case.share(RATE, tallies).unless(some(bare, "arrived without ECN"))
        }
    });
}

fn some(count: u64, what: &str) -> Option<String> {
    (count > 0).then(|| format!("{count} {what}"))
}
