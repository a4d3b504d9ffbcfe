//! Certificates as text: of the emulator, and of a link that replays a recording.

use longhaul_core::plan::Side;
use longhaul_core::result::{
    Certificate, Check, CheckVerdict, RecordingCertificate, RecordingCheck, RecordingFigure,
};
use longhaul_core::units::Rate;

use super::style::{Style, styled};
use super::with_escaped_text;

/// Returns the header of the table.
pub(crate) fn certificate_head() -> String {
    row(["check", "configured", "measured", "95 % interval", "emulator", "verdict"])
}

/// Returns the row of a check, followed by the reason if it did not pass.
pub(crate) fn check_line(check: &Check, color: bool) -> String {
    let check = &with_escaped_text(check);
    let figure = |value: Option<f64>| value.map_or("-".to_owned(), |v| check.unit.format(v));
    let interval = check.interval_95.map_or("-".to_owned(), |(low, high)| {
        format!("{} .. {}", check.unit.format(low), check.unit.format(high))
    });
    let verdict = match (check.verdict, color) {
        (CheckVerdict::Pass, color) => styled(Style::Good, check.outcome(), color),
        (CheckVerdict::Fail, color) => styled(Style::Bad, check.outcome(), color),
        _ => check.outcome().to_owned(),
    };
    let name = format!("{}, {}", check.name, if check.family == "ipv6" { "IPv6" } else { "IPv4" });
    let mut text = row([
        &name,
        &figure(check.configured),
        &figure(check.measured),
        &interval,
        &figure(check.emulator),
        &verdict,
    ]);
    if !check.reason.is_empty() {
        text.push_str(&format!("    {}\n", check.reason));
    }
    text
}

/// Returns the totals of a certificate.
pub(crate) fn certificate_end(certificate: &Certificate) -> String {
    let count = |verdict| certificate.count(verdict);
    format!(
        "\n{} passed, {} failed, {} invalid because of host interference, {} not done, in {:.0} s; \
         seed {}.\nEach share and mean has a 99.99 % interval: a correct emulator fails in at most \
         {:.1} % of runs.\n",
        count(CheckVerdict::Pass),
        count(CheckVerdict::Fail),
        certificate.spoiled(),
        count(CheckVerdict::NotDone) - certificate.spoiled(),
        certificate.seconds,
        certificate.seed,
        certificate.false_alarm * 100.0
    )
}

fn row(cells: [&str; 6]) -> String {
    let [name, configured, measured, interval, emulator, verdict] = cells;
    format!("{name:<42} {configured:>11} {measured:>11} {interval:>23} {emulator:>11}  {verdict}\n")
}

/// Returns the certificate as a table with a verdict.
pub(crate) fn certify_text(certificate: &RecordingCertificate) -> String {
    let mut text = format!(
        "{:<11} {:<28} {:>12} {:>12} {:>9} {:>7}  {}\n",
        "direction", "figure", "recorded", "replayed", "distance", "bound", "verdict"
    );
    for check in &certificate.checks {
        text.push_str(&line(check));
    }
    for warning in &certificate.warnings {
        text.push_str(&format!("warning: {warning}\n"));
    }
    text.push_str(match (certificate.passed, certificate.warnings.is_empty()) {
        (true, _) => {
            "The replayed link does not differ from the recorded path by more than chance.\n"
        }
        (false, true) => "The replayed link differs from the recorded path.\n",
        (false, false) => {
            "The replayed link differs from the recorded path; the host may be the cause, see the \
             warnings.\n"
        }
    });
    text
}

fn line(check: &RecordingCheck) -> String {
    let direction = match check.from {
        Side::Near => "forward",
        Side::Far => "reverse",
    };
    let (figure, value): (_, fn(f64) -> String) = match check.figure {
        RecordingFigure::Delay => ("delay, median", milliseconds),
        RecordingFigure::DelayVariation => ("variation of delay, median", milliseconds),
        RecordingFigure::Loss => ("lost probes", share),
        RecordingFigure::Outage => ("seconds with an outage", share),
        RecordingFigure::LossRuns => ("pairs among runs of losses", share),
        RecordingFigure::Reordering => ("reordered probes", share),
        RecordingFigure::Capacity => ("capacity", |bps| Rate::from_bps(bps as u64).to_string()),
    };
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let verdict = match check.passed {
        Some(true) => "passed",
        Some(false) => "FAILED",
        None => "not done: too few values",
    };
    format!(
        "{direction:<11} {figure:<28} {:>12} {:>12} {:>9} {:>7}  {verdict}\n",
        or_dash(check.recorded.map(value)),
        or_dash(check.rebuilt.map(value)),
        or_dash(check.distance.map(|distance| format!("{distance:.4}"))),
        or_dash(check.bound.map(|bound| format!("{bound:.4}"))),
    )
}

fn milliseconds(ms: f64) -> String {
    format!("{ms:.3} ms")
}

fn share(share: f64) -> String {
    format!("{share:.3e}")
}

#[cfg(test)]
mod tests {
    use longhaul_core::result::CheckUnit;

    use super::*;

    #[test]
    fn the_reason_of_a_check_follows_its_row() {
        let check = Check {
            name: "loss 1e-2".to_owned(),
            family: "ipv6".to_owned(),
            options: "--up-loss 1e-2".to_owned(),
            unit: CheckUnit::Share,
            configured: Some(0.01),
            measured: Some(0.0101),
            interval_95: Some((0.0097, 0.0105)),
            emulator: None,
            samples: 200_000,
            criterion: String::new(),
            verdict: CheckVerdict::NotDone,
            reason: "too slow".to_owned(),
            spoiled_by_host: false,
            machine: None,
        };
        assert_eq!(
            certificate_head() + &check_line(&check, false),
            "check                                       configured    measured           95 % \
             interval    emulator  verdict\n\
             loss 1e-2, IPv6                               1.000e-2    1.010e-2    9.700e-3 .. \
             1.050e-2           -  not done\n    too slow\n"
        );
        assert!(check_line(&check, true).contains("  not done\n"), "no color: nothing is known");
    }

    #[test]
    fn a_failed_check_is_named() {
        let check = RecordingCheck {
            from: Side::Far,
            figure: RecordingFigure::Capacity,
            recorded: Some(1e8),
            rebuilt: Some(1.1e8),
            distance: Some(0.1),
            bound: Some(0.04),
            passed: Some(false),
        };
        let certificate = RecordingCertificate {
            schema: String::new(),
            seconds: 60.0,
            passed: false,
            checks: vec![check, RecordingCheck { passed: None, rebuilt: None, ..check }],
            warnings: vec!["the emulator was late".to_owned()],
        };
        let text = certify_text(&certificate);
        let words: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(words.join(" "), "reverse capacity 100 Mb/s 110 Mb/s 0.1000 0.0400 FAILED");
        assert!(text.contains("too few values") && text.contains("warning: the emulator was late"));
        assert!(text.contains("the host may be the cause"));
    }
}
