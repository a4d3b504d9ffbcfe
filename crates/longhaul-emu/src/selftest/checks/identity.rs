//! Checks that a link without options changes nothing.

use std::time::Duration;

use longhaul_core::result::{Check, CheckUnit};

use super::super::case::Case;
use super::super::lab::{Lab, Stream};

/// Checks that without options every datagram arrives once, unchanged, unmarked and in order.
/// Datagrams are sent singly, in super-packets of small datagrams, and in super-packets of large
/// ones.
pub(in super::super) fn check(
    lab: &mut dyn Lab,
    ipv6: bool,
    quick: bool,
    each: &mut dyn FnMut(Check),
) {
    let part = if quick { 4 } else { 1 };
    let large = Stream {
        payload_bytes: 8900,
        together: 7,
        interval: Duration::from_micros(200),
        ..Stream::many(14_000 / part)
    };
    for (name, stream) in [
        ("identity, single", Stream::single(10_000 / part, Duration::from_micros(50))),
        ("identity, super-packets of 64", Stream::many(200_000 / part)),
        ("identity, super-packets of 7 jumbo", Stream { ecn_capable: true, ..large }),
    ] {
        let case = Case::new(name, "", CheckUnit::Count).over(ipv6);
        each(match lab.send("", ipv6, stream) {
            Err(reason) => case.not_done(reason.to_string()),
            Ok((probe, _)) => {
                let odd = probe.lost
                    + probe.duplicates
                    + probe.changed
                    + probe.reordered
                    + probe.marked
                    + probe.checksum_errors;
                case.none("lost, doubled, changed, marked or out of order", odd, probe.arrivals)
            }
        });
    }
}
