//! The certificate of the emulator as a table with a row per check.

use longhaul_core::result::{Certificate, Check, CheckVerdict};

use super::style::{Style, styled};
use super::with_escaped_text;

/// Returns the header of the table.
pub(crate) fn certificate_head() -> String {
    row(["check", "configured", "measured", "95 % interval", "emulator", "verdict"])
}

/// Returns the row of a check, followed by the reason if it did not pass.
pub(crate) fn check_line(check: &Check, colour: bool) -> String {
    let check = &with_escaped_text(check);
    let figure = |value: Option<f64>| value.map_or("-".to_owned(), |v| check.unit.format(v));
    let interval = check.interval_95.map_or("-".to_owned(), |(low, high)| {
        format!("{} .. {}", check.unit.format(low), check.unit.format(high))
    });
    let verdict = match (check.verdict, colour) {
        (CheckVerdict::Pass, colour) => styled(Style::Good, check.outcome(), colour),
        (CheckVerdict::Fail, colour) => styled(Style::Bad, check.outcome(), colour),
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

#[cfg(test)]
mod tests {
    use longhaul_core::result::Unit;

    use super::*;

    #[test]
    fn the_reason_of_a_check_follows_its_row() {
        let check = Check {
            name: "loss 1e-2".to_owned(),
            family: "ipv6".to_owned(),
            options: "--up-loss 1e-2".to_owned(),
            unit: Unit::Share,
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
        assert!(check_line(&check, true).contains("  not done\n"), "no colour: nothing is known");
    }
}
