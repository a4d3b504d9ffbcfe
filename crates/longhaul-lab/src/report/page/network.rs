//! The sections about the network: the measured paths, and the certificate of the emulator.

use longhaul_core::result::{Certificate, Check, CheckVerdict};
use maud::{Markup, html as markup};

use crate::archive::{Contents, PathRecord};

/// Returns the measurements of each path before its first run; `None` for archives without them.
pub(super) fn paths(contents: &Contents) -> Option<Markup> {
    if contents.path_records.is_empty() {
        return None;
    }
    Some(markup! {
        p {
            "Measured with " code { "longhaul path" } " over a new path of each kind, with packets that may not be "
            "fragmented and one second of numbered probes in each direction."
        }
        div.scroll {
            table.small {
                thead { tr {
                    th { "Path" }
                    th.figure { "RTT, small" }
                    th.figure { "RTT, full-size" }
                    th.figure { "MTU forward" }
                    th.figure { "MTU reverse" }
                    th.figure { "Lost" }
                } }
                tbody { @for record in by_distance(contents) { (path(record)) } }
            }
        }
    })
}

/// Returns the measurements in the order of the paths' round-trip times.
fn by_distance(contents: &Contents) -> Vec<&PathRecord> {
    let conditions = contents.header.plan.conditions();
    let rtt = |record: &&PathRecord| {
        let own = conditions.iter().find(|condition| condition.label() == record.path);
        own.map(|condition| condition.rtt)
    };
    let mut records: Vec<&PathRecord> = contents.path_records.iter().collect();
    records.sort_by_key(rtt);
    records
}

fn path(record: &PathRecord) -> Markup {
    let millis = |value: Option<f64>| value.map_or("-".to_owned(), |ms| format!("{ms:.2} ms"));
    let bytes = |value: Option<u32>| value.map_or("-".to_owned(), |bytes| bytes.to_string());
    let lost = record.loss().map_or("-".to_owned(), |(of, lost)| format!("{lost} of {of}"));
    let ([small, full], [there, back]) = (record.rtt_ms(), record.mtu_bytes());
    markup! {
        tr {
            th scope="row" { (record.path) }
            @match &record.failure {
                Some(reason) => td.wrap.bad colspan="5" { "not measured: " (reason) },
                None => {
                    td.figure { (millis(small)) }
                    td.figure { (millis(full)) }
                    td.figure { (bytes(there)) }
                    td.figure { (bytes(back)) }
                    td.figure { (lost) }
                }
            }
        }
    }
}

/// Returns the section on the emulator's accuracy on this machine, or a note that it is unknown.
pub(super) fn certificate(contents: &Contents) -> Markup {
    markup! {
        @match &contents.certificate {
            Some(certificate) => (shown(certificate)),
            None => p {
                "No certificate is attached: the accuracy of the emulator on this machine is unknown for "
                "these runs. Each run still has the counters and the lateness of its link. "
                code { "longhaul wan selftest --json > certificate.json" }
                " measures it, and "
                code { "longhaul report DIR --certificate certificate.json" }
                " shows it here."
            },
        }
    }
}

fn shown(certificate: &Certificate) -> Markup {
    let count = |verdict| certificate.count(verdict);
    let (passed, failed) = (count(CheckVerdict::Pass), count(CheckVerdict::Fail));
    let spoiled = certificate.spoiled();
    let open = count(CheckVerdict::NotDone) - spoiled;
    markup! {
        p {
            b { (if certificate.holds() { "The certificate holds" } else { "The certificate does not hold" }) }
            ": " (passed) " checks passed, " (failed) " failed, "
            @if spoiled > 0 { (spoiled) " disturbed by the host, " }
            (open) " not done. Measured "
            (certificate.started) " by longhaul " (certificate.version) " on Linux "
            (certificate.kernel) " with " (certificate.processors) " processors"
            @if certificate.quick { ", with fewer datagrams than a full one" }
            "."
        }
        p.soft {
            "Measured by a probe that shares no code with the emulator; a correct emulator fails a check "
            "by chance with a probability of at most " (format!("{:.2} %", certificate.false_alarm * 100.0)) "."
        }
        details.more open[failed > 0] {
            summary { "All checks" }
            div.scroll {
                table.small {
                    thead { tr {
                        th { "Check" }
                        th { "Link" }
                        th.figure { "Configured" }
                        th.figure { "Measured" }
                        th.figure { "95 % interval" }
                        th { "Verdict" }
                    } }
                    tbody { @for check in &certificate.checks { (line(check)) } }
                }
            }
        }
    }
}

fn line(check: &Check) -> Markup {
    let figure = |value: Option<f64>| value.map_or_else(|| "-".into(), |v| check.unit.format(v));
    let interval = check.interval_95.map_or_else(
        || "-".to_owned(),
        |(low, high)| format!("{} - {}", check.unit.format(low), check.unit.format(high)),
    );
    markup! {
        tr {
            th scope="row" { (check.name) ", " (check.family) }
            td.wrap { code { (check.options) } }
            td.figure { (figure(check.configured)) }
            td.figure { (figure(check.measured)) }
            td.figure { (interval) }
            td.wrap.bad[check.verdict == CheckVerdict::Fail] {
                (check.outcome())
                @if !check.reason.is_empty() { ": " (check.reason) }
            }
        }
    }
}
