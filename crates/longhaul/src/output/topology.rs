//! The summary, the table and the final counters of a topology as text.

use std::fmt::Write;

use longhaul_core::plan::{Side, TopologyPlan};
use longhaul_core::result::{DirectionReport, TopologyLinkReport, TopologyReport};
use longhaul_core::units::Bytes;
use serde_json::Value;

use super::link::{delay_text, link_options, rate_text};
use super::test::words::wrap;
use super::{command_columns, with_escaped_text};

/// Returns one line with the sites and links of a topology.
pub(crate) fn topology_summary(plan: &TopologyPlan) -> String {
    format!(
        "'{}' is up: sites {}; links {}",
        plan.name,
        plan.sites.join(", "),
        plan.links.iter().map(|link| &*link.name).collect::<Vec<_>>().join(", ")
    )
}

/// Returns a table of the links with a line per direction.
pub(crate) fn topology_table(report: &TopologyReport) -> String {
    let report = &with_escaped_text(report);
    let mut text = format!(
        "{}: up for {:.0} s, sites {}, links {}\n\n",
        report.name,
        report.seconds,
        report.sites.len(),
        report.links.len()
    );
    let mut rows = vec![COLUMNS.map(str::to_owned).to_vec()];
    for link in &report.links {
        rows.extend(ways(link).map(|way| row(link, &way)));
    }
    text.push_str(&table(&rows, command_columns()));
    let lines = |link| options(link).into_iter().chain(notes(link));
    let notes: Vec<String> = report.links.iter().flat_map(lines).collect();
    if !notes.is_empty() {
        text.push('\n');
        text.push_str(&notes.concat());
    }
    text
}

/// The headings of the table.
const COLUMNS: [&str; 11] = [
    "LINK",
    "FROM",
    "TO",
    "DELAY",
    "RATE",
    "PACKETS",
    "SEGMENTS",
    "ARRIVED",
    "IN FLIGHT",
    "QUEUE",
    "LATE P99.9",
];
/// The number of columns with names, which are left-aligned; numbers are right-aligned.
const NAMES: usize = 3;
/// The columns that a narrow terminal omits, in this order.
const OMITTED: [&str; 6] = ["SEGMENTS", "PACKETS", "IN FLIGHT", "DELAY", "RATE", "LATE P99.9"];

/// Returns a table of `rows` with as many of its [columns](COLUMNS) as fit into `most` characters.
fn table(rows: &[Vec<String>], most: usize) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let mut shown: Vec<(usize, usize)> = (0..COLUMNS.len()).map(|at| (at, width(at))).collect();
    for name in OMITTED {
        let needed: usize = shown.iter().map(|(_, width)| width + 2).sum();
        if needed.saturating_sub(2) <= most {
            break;
        }
        shown.retain(|(column, _)| COLUMNS[*column] != name);
    }
    let mut text = String::new();
    for row in rows {
        for &(column, width) in &shown {
            let cell = &row[column];
            let _ = if column < NAMES {
                write!(text, "{cell:<width$}  ")
            } else {
                write!(text, "{cell:>width$}  ")
            };
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

/// Returns the final counters of a topology: a line per link, and its warnings.
pub(crate) fn topology_end(report: &TopologyReport) -> String {
    let report = &with_escaped_text(report);
    let mut text = format!("'{}' was up for {:.1} s\n", report.name, report.seconds);
    for link in &report.links {
        let way = |way: NamedDirection| {
            format!("{} to {}: {}", way.from, way.to, Bytes::new(way.direction.delivered.bytes))
        };
        let [up, down] = ways(link).map(way);
        let _ = writeln!(text, "{}: {up}, {down}", link.name);
        text.push_str(&notes(link).concat());
    }
    text
}

/// A direction of a link with the names of its sites.
struct NamedDirection<'a> {
    from: &'a str,
    to: &'a str,
    side: Side,
    direction: &'a DirectionReport,
}

fn ways(link: &TopologyLinkReport) -> [NamedDirection<'_>; 2] {
    let (near, far) = (&*link.near, &*link.far);
    [
        NamedDirection { from: near, to: far, side: Side::Near, direction: &link.link.up },
        NamedDirection { from: far, to: near, side: Side::Far, direction: &link.link.down },
    ]
}

fn row(link: &TopologyLinkReport, way: &NamedDirection<'_>) -> Vec<String> {
    let planned = link.link.plan.from(way.side);
    let NamedDirection { direction, .. } = way;
    vec![
        link.name.clone(),
        way.from.to_owned(),
        way.to.to_owned(),
        delay_text(planned),
        if link.down { "down".to_owned() } else { rate_text(planned, "-") },
        direction.delivered.packets.to_string(),
        direction.delivered.segments.to_string(),
        Bytes::new(direction.delivered.bytes).to_string(),
        Bytes::new(direction.queued.bytes).to_string(),
        direction.waiting_bytes.to_string(),
        format!("{:.2} ms", direction.lateness.p999_ms),
    ]
}

/// Returns a line with the options that the table lacks.
fn options(link: &TopologyLinkReport) -> Option<String> {
    let options = link_options(&link.link.plan);
    let note = format!("{}: {}", link.name, options.join(", "));
    (!options.is_empty()).then(|| wrap(&note, command_columns()) + "\n")
}

/// Returns a line per direction with dropped and impaired segments, and a line per warning.
fn notes(link: &TopologyLinkReport) -> Vec<String> {
    let mut notes = Vec::new();
    for way in ways(link) {
        let counts = counts(way.direction);
        if !counts.is_empty() {
            let note = format!("{}: from {}: {}", link.name, way.from, counts.join(", "));
            notes.push(wrap(&note, command_columns()) + "\n");
        }
    }
    let ends = format!("near is {}, far is {}", link.near, link.far);
    for warning in &link.link.warnings {
        let note = format!("{}: warning: {warning} ({ends})", link.name);
        notes.push(wrap(&note, command_columns()) + "\n");
    }
    notes
}

/// Returns the nonzero counters of a direction with their names in the JSON document.
fn counts(direction: &DirectionReport) -> Vec<String> {
    let document = serde_json::to_value(direction).unwrap_or_default();
    let groups = ["dropped", "impairments"].into_iter().filter_map(|key| document[key].as_object());
    let count = |(name, count): (&String, &Value)| {
        let segments = count["segments"].as_u64().filter(|segments| *segments > 0)?;
        Some(format!("{} {segments}", name.replace('_', " ")))
    };
    let mut counts: Vec<String> = groups.flatten().filter_map(count).collect();
    if direction.interface_drops > 0 {
        counts.push(format!("interface drops {}", direction.interface_drops));
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_table_omits_columns() {
        let values = [
            "near-server",
            "near",
            "server",
            "5ms",
            "1.00 Gb/s",
            "167797",
            "231854",
            "1.52 GiB",
            "0 B",
            "0 B",
            "4.92 ms",
        ];
        let rows = [COLUMNS, values].map(|row| row.map(str::to_owned).to_vec());
        for (columns, headings) in [(60, 6), (80, 8), (200, 11)] {
            let text = table(&rows, columns);
            let shown = COLUMNS.iter().filter(|name| text.contains(*name)).count();
            assert!(text.lines().all(|line| line.len() <= columns), "{text}");
            assert_eq!(shown, headings, "{columns}: {text}");
        }
        assert!(COLUMNS.iter().all(|name| table(&rows, usize::MAX).contains(name)));
    }
}
