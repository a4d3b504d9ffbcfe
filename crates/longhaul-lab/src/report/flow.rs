//! The table of the flows beside the tools: their share of the link and their recovery.

use longhaul_core::plan::Condition;

use super::words::{gbps, references};
use crate::archive::Contents;
use crate::flow_share::{FlowShare, flow_shares};
use crate::table::Table;

/// The definitions of the columns.
pub(super) const MEANING: &str = "Share of the flow: its goodput over the rate of the link while the tool \
     runs. Back at 80 %: time from the end of the tool to the end of the first second in which the flow \
     has 80 % of the rate of the link, at least 1 s. Medians of the valid runs.";

/// The heads of the columns; the first two columns are names.
pub(super) const HEADS: [&str; 7] = [
    "Tool",
    "Path",
    "Share of the flow, mean",
    "Worst second",
    "Back at 80 %",
    "Goodput of the tool, Gb/s",
    "Valid runs",
];

/// Returns one line per cell with flows; empty if the plan does not measure them.
pub(super) fn lines(contents: &Contents, table: &Table) -> Vec<Vec<String>> {
    let path = |share: &FlowShare| {
        table.conditions.get(share.condition).map_or_else(String::new, Condition::label)
    };
    let percent = |share: Option<f64>| {
        share.map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", 100.0 * share))
    };
    let line = |share: &FlowShare| {
        let mean = match share.mean_share {
            Some(mean) => percent(Some(mean)),
            None => share.state.label().to_owned(),
        };
        vec![
            share.label.clone(),
            path(share),
            format!("{mean}{}", references(&share.notes)),
            percent(share.least_share),
            share.recovery().unwrap_or_else(|| "-".to_owned()),
            share.goodput_bps.map_or_else(|| "-".to_owned(), gbps),
            share.runs.to_string(),
        ]
    };
    flow_shares(contents, table).iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{fixture, html, markdown, text};

    #[test]
    fn every_report_has_the_table_of_the_flows() {
        let contents = fixture::contents_with_flows();
        let table = Table::fold(&contents);
        let lines = lines(&contents, &table);
        let flat = |line: &[String]| line.join("|");
        assert!(
            flat(&lines[0]).starts_with("scp, beside 1 cubic flow|0 ms|45 %|45 %|more than 10 s|"),
            "{lines:?}"
        );
        assert!(flat(&lines[3]).contains("|failed[") && flat(&lines[3]).ends_with("|-|-|-|0"));

        let plain = text(&contents, &table);
        assert!(plain.contains("Share of the flow, mean  Worst second"), "{plain}");
        assert!(plain.lines().any(|l| l.contains("45 %") && l.contains("more than 10 s")));
        let rich = markdown(&contents, &table);
        assert!(rich.contains("| 0 ms | 45 % | 45 % | more than 10 s |"), "{rich}");
        let page = html(&contents, &table);
        for said in [
            "id=\"figure-flow-share\"",
            "more than <span class=\"word\">10 s</span>",
            "Share of the flow over time",
        ] {
            assert!(page.contains(said), "'{said}' is not in the report");
        }
        let without = html(&fixture::contents(), &Table::fold(&fixture::contents()));
        assert!(!without.contains("flow-share"));
    }
}
