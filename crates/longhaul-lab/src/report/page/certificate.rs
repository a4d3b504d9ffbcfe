//! The section of the emulator's certificate.

use longhaul_core::result::{Certificate, Check, CheckVerdict};
use maud::{Markup, html as markup};

use crate::archive::Contents;

/// Returns the section on the emulator's accuracy on this machine, or a note that it is unknown.
pub(super) fn section(contents: &Contents) -> Markup {
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
