//! The table of the expected and the received runs of each day and test, with the reasons of the gaps.

use std::collections::BTreeMap;

use longhaul_fleet::api::RunState;
use maud::{Markup, html};

use crate::records::counts::RunCount;
use crate::words;

/// The most rows of the table.
const MOST_ROWS: usize = 100;

/// The runs of one day and test.
#[derive(Debug, Default, PartialEq, Eq)]
struct Day {
    /// The runs that were due; canceled ones do not count.
    expected: i64,
    /// The runs with a result.
    received: i64,
    /// The runs that will have an outcome.
    open: i64,
    /// The runs without a result, by their reason.
    missing: BTreeMap<&'static str, i64>,
}

impl Day {
    fn add(&mut self, count: &RunCount) {
        match count.state {
            RunState::Cancelled => {}
            RunState::Finished => self.received += count.runs,
            RunState::Planned | RunState::Leased | RunState::Running => self.open += count.runs,
            RunState::Failed | RunState::Missed => {
                let reason = count.reason.map_or("the reason is unknown", words::reason);
                *self.missing.entry(reason).or_default() += count.runs;
            }
        }
        if count.state != RunState::Cancelled {
            self.expected += count.runs;
        }
    }

    /// Returns the open runs and the reasons with their numbers.
    fn words(&self) -> Vec<String> {
        let open = (self.open > 0).then(|| format!("planned or running: {}", self.open));
        let missing = self.missing.iter().map(|(reason, runs)| format!("{reason}: {runs}"));
        open.into_iter().chain(missing).collect()
    }
}

/// Returns the numbers by day and test, the latest day first.
fn days(counted: &[RunCount]) -> Vec<((i64, &str), Day)> {
    let mut all: BTreeMap<(i64, &str), Day> = BTreeMap::new();
    for count in counted {
        all.entry((-count.day_ms, &count.test)).or_default().add(count);
    }
    all.into_iter().map(|((day, test), one)| ((-day, test), one)).collect()
}

/// Returns the table of expected and received runs.
pub(super) fn days_table(counted: &[RunCount]) -> Markup {
    let all = days(counted);
    html! {
        div.scroll { table.small {
            thead { tr {
                th scope="col" { "Day (UTC)" }
                th scope="col" { "Test" }
                @for name in ["Expected", "With a result", "Share"] { th.figure scope="col" { (name) } }
                th scope="col" { "Runs without a result" }
            } }
            tbody {
                @if all.is_empty() { tr { td colspan="6" { "No runs in this range." } } }
                @for ((day_ms, test), day) in all.iter().take(MOST_ROWS) { tr {
                    td { (&words::utc(*day_ms)[..10]) }
                    td { (test) }
                    td.figure { (day.expected) }
                    td.figure { (day.received) }
                    td.figure { (share(day)) }
                    td.wrap { ul.plain { @for text in day.words() { li { (text) } } } }
                } }
            }
        } }
        @if all.len() > MOST_ROWS { p.soft { "The table has the latest " (MOST_ROWS) " of " (all.len()) " rows." } }
    }
}

/// Returns the sum of all days as a sentence.
pub(super) fn days_summary(counted: &[RunCount]) -> String {
    let all = days(counted);
    let sum = |of: fn(&Day) -> i64| all.iter().map(|(_, day)| of(day)).sum::<i64>();
    let (expected, received) = (sum(|day| day.expected), sum(|day| day.received));
    format!("Runs per day: {received} of {expected} have a result")
}

#[allow(clippy::cast_precision_loss)]
fn share(day: &Day) -> String {
    match day.expected - day.open {
        0 => "\u{2013}".to_owned(),
        due => words::percent(day.received as f64 / due as f64),
    }
}

#[cfg(test)]
mod tests {
    use longhaul_fleet::protocol::RunReason;

    use super::*;

    #[test]
    fn gaps_have_their_reasons() {
        let count = |test: &str, state, reason, runs| RunCount {
            day_ms: 86_400_000,
            test: test.to_owned(),
            state,
            reason,
            runs,
        };
        let counted = [
            count("daily", RunState::Finished, None, 7),
            count("daily", RunState::Missed, Some(RunReason::AgentAway), 2),
            count("daily", RunState::Failed, Some(RunReason::Failed), 1),
            count("daily", RunState::Cancelled, Some(RunReason::Cancelled), 5),
            count("other", RunState::Planned, None, 3),
        ];
        let table = days_table(&counted).into_string();
        for part in [
            "10</td>",
            "70.0 %",
            "the agent of the source was not connected: 2",
            "planned or running: 3",
        ] {
            assert!(table.contains(part), "{part} in {table}");
        }
        assert_eq!(days_summary(&counted), "Runs per day: 7 of 13 have a result");
        assert!(days_table(&[]).into_string().contains("No runs"));
    }
}
