//! The page of a record, as MRTG draws it: four graphs of each interface with their tables.

use std::io::Write;
use std::path::Path;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use longhaul_chart::document;
use longhaul_chart::traffic::{Period, TrafficGraph, TrafficUnit, section};
use longhaul_core::text::escape_name;
use maud::{Markup, html as markup};

use crate::WatchError;
use crate::consolidate::{SeriesBin, coarser};
use crate::record::{Record, RecordedInterface};
use crate::series::Quantity;

/// The content of a page besides the record.
#[derive(Debug, Clone)]
pub struct PageOptions {
    /// The name of the host.
    pub host: String,
    /// The time of the page in Unix seconds.
    pub now: i64,
    /// The zone of the times on the page.
    pub time_zone: TimeZone,
    /// The version of the program.
    pub version: String,
}

/// Returns the page of a record: one HTML file without network references and scripts.
///
/// # Errors
/// The record cannot be read.
pub fn page(record: &Record, options: &PageOptions) -> Result<String, WatchError> {
    let mut sections = Vec::new();
    for interface in record.interfaces()? {
        let graphs = graphs(record, &interface, options)?;
        sections.push((interface, graphs));
    }
    Ok(document(&format!("Traffic of {}", options.host), &body(&sections, options)))
}

/// Writes `text` to `path` at once: a reader sees the old or the new page.
///
/// # Errors
/// The file system refuses the file.
pub fn write_page(path: &Path, text: &str) -> Result<(), WatchError> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let write = || -> std::io::Result<()> {
        let mut builder = tempfile::Builder::new();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        let mut file = builder.prefix(".longhaul-watch").permissions(mode).tempfile_in(dir)?;
        file.write_all(text.as_bytes())?;
        file.persist(path).map_err(|error| error.error)?;
        Ok(())
    };
    write().map_err(|source| WatchError::File { operation: "write", path: path.to_owned(), source })
}

/// Returns the graphs of an interface from the shortest to the longest period.
fn graphs(
    record: &Record,
    interface: &RecordedInterface,
    options: &PageOptions,
) -> Result<Vec<TrafficGraph>, WatchError> {
    let name = escape_name(interface.name.as_bytes());
    let graph = |period: Period| {
        let mut graph = TrafficGraph {
            title: name.clone(),
            capacity: interface.speed.map(|rate| rate.bps() as f64),
            time_zone: options.time_zone.clone(),
            ..TrafficGraph::new(period, options.now, TrafficUnit::Bits)
        };
        // Bins of 30 minutes are not stored.
        let stored = if period == Period::Week { Period::Day } else { period };
        let mut bins = record.bins(interface, stored.step_seconds(), graph.window)?;
        if period == Period::Week {
            bins = coarser(&bins, period.step_seconds());
        }
        graph.inbound = bins.iter().map(|bin| bin.bin(Quantity::InBits)).collect();
        graph.outbound = bins.iter().map(|bin| bin.bin(Quantity::OutBits)).collect();
        graph.sample_seconds = interval_seconds(&bins);
        Ok(graph)
    };
    Period::ALL.into_iter().map(graph).collect()
}

/// Returns the mean length of the intervals in `bins`, rounded to a second.
fn interval_seconds(bins: &[SeriesBin]) -> Option<f64> {
    let covered: u64 = bins.iter().map(|bin| bin.covered_ms).sum();
    let intervals: u64 = bins.iter().map(|bin| bin.intervals).sum();
    (intervals > 0).then(|| (covered as f64 / intervals as f64 / 1000.0).round().max(1.0))
}

fn body(sections: &[(RecordedInterface, Vec<TrafficGraph>)], options: &PageOptions) -> Markup {
    markup! {
        header {
            p.kind { "Traffic of interfaces" }
            h1 { (options.host) }
            p.soft { "Last updated " (local(options)) }
            @if sections.is_empty() { p.lead { "The record has no interfaces yet." } }
        }
        @if sections.len() > 1 {
            nav {
                @for (index, (interface, _)) in sections.iter().enumerate() {
                    a href=(format!("#interface-{index}")) { (escape_name(interface.name.as_bytes())) }
                }
            }
        }
        @for (index, (interface, graphs)) in sections.iter().enumerate() {
            section id=(format!("interface-{index}")) {
                h2 { (escape_name(interface.name.as_bytes())) }
                p.soft { (capacity(interface)) }
                @for graph in graphs { (section(graph)) }
            }
        }
        footer {
            "Written by longhaul " (options.version) ". In is traffic that the host received, Out is "
            "traffic that it sent. A gray area has no data. Averages do not include time without data. "
            "Percentages are relative to the rate of the link. The 95th percentile is the average "
            "that 95 % of the bins do not exceed."
        }
    }
}

fn capacity(interface: &RecordedInterface) -> String {
    match interface.speed {
        Some(speed) => format!("Rate of the link: {speed}"),
        None => "The rate of the link is unknown, so there are no percentages.".to_owned(),
    }
}

fn local(options: &PageOptions) -> String {
    match Timestamp::from_second(options.now) {
        Ok(time) => {
            let local = time.to_zoned(options.time_zone.clone());
            local.strftime("%Y-%m-%d %H:%M:%S %Z (UTC%:z)").to_string()
        }
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::units::Rate;
    use longhaul_sys::traffic::LinkCounters;

    use super::*;
    use crate::record::Recorder;
    use crate::series::TrafficInterval;

    const NOW: i64 = 1_800_000_000;

    fn options() -> PageOptions {
        PageOptions {
            host: "<host>".into(),
            now: NOW,
            time_zone: TimeZone::UTC,
            version: "1".into(),
        }
    }

    /// Records intervals of a second of traffic, one per minute, in the given minutes before now.
    fn record(dir: &Path, name: &str, minutes: impl Iterator<Item = i64>) {
        let mut recorder = Recorder::open(dir).unwrap();
        for minute in minutes {
            let counts =
                LinkCounters { in_bytes: 1_000_000, out_bytes: 500_000, ..Default::default() };
            let end_ms = (NOW - minute * 60) * 1000;
            let interval = TrafficInterval { end_ms, span_ms: 1000, counts };
            recorder.push_interval(name, Some(Rate::from_bps(100_000_000)), interval);
        }
    }

    #[test]
    fn the_page_has_four_graphs_of_each_interface() {
        let dir = tempfile::tempdir().unwrap();
        record(
            dir.path(),
            "eth\x1b0<b>",
            (0..600).rev().filter(|minute| !(100..200).contains(minute)),
        );
        let page = page(&Record::open(dir.path()).unwrap(), &options()).unwrap();
        for words in
            ["Daily (5 min", "Weekly (30 min", "Monthly (2 h", "Yearly (1 d", "8.00 Mb/s", "8.0 %"]
        {
            assert!(page.contains(words), "'{words}' is not in the page");
        }
        assert!(
            page.contains("eth%1B0&lt;b&gt;") && !page.contains("<b>") && !page.contains('\x1b')
        );
        assert!(page.contains("Max of 1 s"), "the maximum is labeled");
        // The daily graph has a gap of 100 minutes; every graph has one before the record.
        assert!(page.contains("2 gaps with"), "the gap is drawn");
        assert!(page.contains("<h1>&lt;host&gt;</h1>"));
    }

    #[test]
    fn a_page_replaces_the_previous_one_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("traffic.html");
        write_page(&path, "one").unwrap();
        write_page(&path, "two").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file is left");
        let missing = write_page(&dir.path().join("no/such/dir.html"), "x").unwrap_err();
        assert!(matches!(missing, WatchError::File { operation: "write", .. }));
    }
}
