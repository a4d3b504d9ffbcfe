//! The certificate of a replayed recording as text.

use longhaul_core::plan::Side;
use longhaul_core::result::{RecordingCertificate, RecordingCheck, RecordingFigure};
use longhaul_core::units::Rate;

/// Returns the certificate as a table with a verdict.
pub(crate) fn certify_text(certificate: &RecordingCertificate) -> String {
    let mut text = format!(
        "{:<11} {:<28} {:>12} {:>12} {:>9} {:>7}  {}\n",
        "direction", "figure", "recorded", "rebuilt", "distance", "bound", "verdict"
    );
    for check in &certificate.checks {
        text.push_str(&line(check));
    }
    for warning in &certificate.warnings {
        text.push_str(&format!("warning: {warning}\n"));
    }
    text.push_str(match (certificate.passed, certificate.warnings.is_empty()) {
        (true, _) => {
            "The rebuilt link does not differ from the recorded path by more than chance.\n"
        }
        (false, true) => "The rebuilt link differs from the recorded path.\n",
        (false, false) => {
            "The rebuilt link differs from the recorded path; the host may be the cause, see the \
             warnings.\n"
        }
    });
    text
}

fn line(check: &RecordingCheck) -> String {
    let direction = match check.from {
        Side::Near => "there",
        Side::Far => "back",
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
    use super::*;

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
        assert_eq!(words.join(" "), "back capacity 100 Mb/s 110 Mb/s 0.1000 0.0400 FAILED");
        assert!(text.contains("too few values") && text.contains("warning: the emulator was late"));
        assert!(text.contains("the host may be the cause"));
    }
}
