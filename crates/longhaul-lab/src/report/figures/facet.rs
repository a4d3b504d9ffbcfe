//! Groups valid runs by the properties that figures distinguish.

use std::collections::{BTreeSet, HashMap};

use longhaul_core::plan::{Content, MatrixRow, PlanEntry, Workload};
use longhaul_core::result::{Outcome, RunRecord};
use longhaul_core::units::{Bytes, Rate};

use super::Dimension;
use super::palette::palette;
use crate::archive::Contents;
use crate::table::{Intervals, usual_volume};

/// The maximum number of combinations of entries and settings that a panel shows as lines.
const MOST_VARIANTS: usize = 12;

/// The valid runs, grouped by the properties that figures distinguish.
pub(super) struct Facets<'a> {
    pub(super) all: Vec<Facet<'a>>,
    /// The entries of the plan, with their drivers. Entries that differ only in the number of flows
    /// beside the tool are one.
    entries: Vec<(String, String)>,
    /// The combinations of entries and settings, with their drivers.
    variants: Vec<(String, String)>,
    /// The entries that copied less data than their workload, with that size.
    smaller: Vec<(String, Bytes)>,
    /// True if the runs went over a real path.
    pub(super) is_real: bool,
    /// The intervals of medians.
    pub(super) intervals: Intervals,
    /// The dimensions with more than one value.
    pub(super) varying: Vec<Dimension>,
}

/// A valid run.
pub(super) struct Facet<'a> {
    pub(super) run: &'a RunRecord,
    entry: usize,
    variant: usize,
    pub(super) gbps: f64,
    values: [Option<f64>; Dimension::COUNT],
    /// The other properties that must be equal for a comparison, as text.
    rest: String,
}

/// The common properties of the points of a panel.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Common {
    /// The index of the work.
    work: usize,
    rest: String,
    values: [Option<u64>; Dimension::COUNT],
}

impl<'a> Facets<'a> {
    pub(super) fn of(contents: &'a Contents) -> Self {
        let plan = &contents.header.plan;
        // The lines stand in the order of the table.
        let named = plan.rows().into_iter().map(|row| {
            let entry = &plan.entries[row.entry];
            (variant(&entry.label(), &row), entry.tool.clone())
        });
        let variants = distinct(named);
        let entries = distinct(
            plan.entries.iter().map(|entry| (label_without_flows(entry), entry.tool.clone())),
        );
        let rows: HashMap<String, MatrixRow> =
            plan.rows().into_iter().map(|row| (row.label.clone(), row)).collect();
        let mut all = Vec::new();
        let mut smaller = Vec::new();
        for run in contents.runs.iter().filter(|run| run.outcome == Outcome::Ok) {
            let (Some(rate), Some(row)) = (run.throughput_bps, rows.get(&run.label)) else {
                continue;
            };
            let gbps = rate.bps() as f64 / 1e9;
            let entry = &plan.entries[row.entry];
            let usual = usual_volume(plan, row);
            if let Some(own) = smaller_volume(row, usual) {
                let known = (entry.label(), own);
                if !smaller.contains(&known) {
                    smaller.push(known);
                }
            }
            let (mut values, rest) = values(run, row, usual);
            values[Dimension::Beside as usize] = Some(f64::from(entry.beside));
            let name = variant(&entry.label(), row);
            let known = variants.iter().position(|(known, _)| *known == name);
            let Some(variant) = known else { continue };
            let Some(entry) =
                entries.iter().position(|(known, _)| *known == label_without_flows(entry))
            else {
                continue;
            };
            all.push(Facet { run, entry, variant, gbps, values, rest });
        }
        let several = |dimension: &Dimension| {
            let values = all.iter().filter_map(|facet| facet.value(*dimension));
            values.map(f64::to_bits).collect::<BTreeSet<u64>>().len() > 1
        };
        let varying = Dimension::ALL.into_iter().filter(several).collect();
        let (intervals, is_real) = (Intervals::of(plan), plan.real.is_some());
        Facets { all, entries, variants, smaller, is_real, intervals, varying }
    }

    /// Returns the footnote about entries that copied less data than the others; `None` if there
    /// are none.
    pub(super) fn size_note(&self) -> Option<String> {
        let each = self.smaller.iter().map(|(name, bytes)| format!("{name} {bytes}"));
        let each: Vec<String> = each.collect();
        (!each.is_empty()).then(|| {
            format!(
                "Smaller copies: {}. TCP's slow start is a larger part of a smaller copy, which lowers \
                 its rate.",
                each.join(", ")
            )
        })
    }

    pub(super) fn varies(&self, dimension: Dimension) -> bool {
        self.varying.contains(&dimension)
    }

    /// Returns whether each setting of an entry has a separate line. The settings share a line if
    /// one of them is on an axis or if there would be too many lines.
    fn has_variants(&self, along: &[Dimension]) -> bool {
        let is_along = Dimension::SETTINGS.iter().any(|setting| along.contains(setting));
        !is_along && self.variants.len() <= MOST_VARIANTS
    }

    fn lines(&self, along: &[Dimension]) -> &[(String, String)] {
        if self.has_variants(along) { &self.variants } else { &self.entries }
    }

    /// Returns the names of the lines in a figure with dimensions `along` on its axes.
    pub(super) fn names(&self, along: &[Dimension]) -> Vec<String> {
        self.lines(along).iter().map(|(name, _)| name.clone()).collect()
    }

    /// Returns the palette indices of the lines of [`Facets::names`].
    pub(super) fn palette(&self, along: &[Dimension]) -> Vec<usize> {
        palette(self.lines(along).iter().map(|(_, tool)| tool.as_str()))
    }

    /// Returns the driver of a line.
    pub(super) fn tool(&self, along: &[Dimension], series: usize) -> &str {
        self.lines(along).get(series).map_or("", |(_, tool)| tool)
    }

    /// Returns the line of a run.
    pub(super) fn series(&self, facet: &Facet<'_>, along: &[Dimension]) -> usize {
        if self.has_variants(along) { facet.variant } else { facet.entry }
    }

    /// Returns the properties that a run shares with the other runs in its panel of a figure with
    /// dimensions `along` on its axes.
    pub(super) fn common(&self, facet: &Facet<'_>, along: &[Dimension]) -> Common {
        let mut values = [None; Dimension::COUNT];
        let by_line = self.has_variants(along);
        let apart = |dimension: &&Dimension| {
            along.contains(dimension) || (by_line && Dimension::SETTINGS.contains(dimension))
        };
        for dimension in self.varying.iter().filter(|varying| !apart(varying)) {
            values[*dimension as usize] = facet.value(*dimension).map(f64::to_bits);
        }
        let work = Workload::ALL.iter().position(|work| *work == facet.run.workload);
        Common { work: work.unwrap_or_default(), rest: facet.rest.clone(), values }
    }
}

impl Facet<'_> {
    pub(super) fn value(&self, dimension: Dimension) -> Option<f64> {
        self.values[dimension as usize]
    }
}

impl Common {
    /// Returns the heading of the panel.
    pub(super) fn title(&self) -> String {
        let mut parts = vec![Workload::ALL[self.work].label().to_owned()];
        parts.extend(self.path());
        parts.join(", ")
    }

    /// Returns the heading without the work.
    pub(super) fn path(&self) -> Vec<String> {
        let value = |dimension: Dimension| {
            self.values[dimension as usize].map(|bits| dimension.named(f64::from_bits(bits)))
        };
        let mut parts: Vec<String> = Dimension::ALL.into_iter().filter_map(value).collect();
        parts.extend((!self.rest.is_empty()).then(|| self.rest.clone()));
        parts
    }

    pub(super) fn workload(&self) -> Workload {
        Workload::ALL[self.work]
    }
}

/// Returns the size of the data of a row that copies less than its workload.
fn smaller_volume(row: &MatrixRow, usual: Option<Bytes>) -> Option<Bytes> {
    let Content::Files { files, size } = &row.work.content else { return None };
    let own = Bytes::new(files.saturating_mul(size.get()));
    usual.is_some_and(|usual| own < usual).then_some(own)
}

/// Returns the dimensions of a run. Rows of one workload share its usual size, even if an entry
/// copies less, so that a figure compares all of them.
fn values(
    run: &RunRecord,
    row: &MatrixRow,
    usual: Option<Bytes>,
) -> ([Option<f64>; Dimension::COUNT], String) {
    let path = &run.condition;
    let mut values = [None; Dimension::COUNT];
    let mut set = |dimension: Dimension, value: Option<f64>| values[dimension as usize] = value;
    let miles = path.option("distance").and_then(|text| miles(&text));
    let emulated = miles.is_none() && path.real.is_none();
    set(Dimension::Rtt, emulated.then_some(path.rtt.as_nanos() as f64 / 1e6));
    set(Dimension::Rate, path.rate.map(|rate| rate.bps() as f64 / 1e9));
    let options = [
        ("distance", Dimension::Miles, miles),
        ("loss", Dimension::Loss, path.loss()),
        ("corrupt", Dimension::Corruption, path.share("corrupt")),
        ("mtu", Dimension::Mtu, path.option("mtu").and_then(|text| text.parse().ok())),
        ("links", Dimension::Links, path.real.is_none().then(|| f64::from(path.links()))),
        ("cross", Dimension::Cross, path.option("cross").and_then(|text| cross(&text))),
    ];
    for (_, dimension, value) in options {
        set(dimension, value);
    }
    set(Dimension::Streams, row.streams.map(f64::from));
    set(Dimension::Window, row.window.map(|bytes| bytes.get() as f64));
    set(Dimension::Message, row.message.map(|bytes| bytes.get() as f64));
    set(Dimension::Clients, Some(f64::from(row.clients)));

    // An option whose value is not a number separates the panels.
    let is_drawn =
        |name: &str| options.iter().any(|(option, _, value)| *option == name && value.is_some());
    let others = path.options.iter().filter(|(name, _)| !is_drawn(name.as_str()));
    let mut rest: Vec<String> = others.map(|(name, value)| format!("{name} {value}")).collect();
    rest.extend(row.beside_congestion.iter().map(|name| format!("beside {name} flows")));
    match &row.work.content {
        Content::Files { files: 1, size } => {
            set(Dimension::Size, Some(usual.unwrap_or(*size).get() as f64));
        }
        Content::Files { files, size } => {
            set(Dimension::Size, Some(size.get() as f64));
            // A plan may vary the file size at a constant volume, so runs are grouped by their
            // volume.
            let volume = size.get().saturating_mul(*files) as f64;
            rest.push(format!("{} in files", Dimension::Size.named(volume)));
        }
        Content::Timed { .. } => {}
        Content::Volume { .. } | Content::Mixed { .. } | Content::Data { .. } => {
            rest.push(row.work.name.clone());
        }
    }
    rest.extend(path.real.iter().map(|host| format!("to {host}")));
    (values, rest.join(", "))
}

/// Returns the names with their drivers, each name once, in the order of their first occurrence.
fn distinct(names: impl Iterator<Item = (String, String)>) -> Vec<(String, String)> {
    let mut kept: Vec<(String, String)> = Vec::new();
    for (name, tool) in names {
        if !kept.iter().any(|(known, _)| *known == name) {
            kept.push((name, tool));
        }
    }
    kept
}

/// Returns the label of an entry without the flows beside the tool.
fn label_without_flows(entry: &PlanEntry) -> String {
    entry.without_flows().label()
}

/// Parses `500M` or `500M:64KiB` into Gb/s; `none` is 0.
fn cross(text: &str) -> Option<f64> {
    let rate = text.split(':').next().unwrap_or(text).trim();
    if rate == "none" {
        return Some(0.0);
    }
    rate.parse::<Rate>().ok().map(|rate| rate.bps() as f64 / 1e9)
}

/// Returns the name of an entry with a setting, for example `iperf3, 8 streams`.
fn variant(entry: &str, row: &MatrixRow) -> String {
    let mut parts = vec![entry.to_owned()];
    parts.extend(row.streams.map(|count| Dimension::Streams.named(f64::from(count))));
    parts.extend(row.window.map(|bytes| Dimension::Window.named(bytes.get() as f64)));
    parts.extend(row.message.map(|bytes| Dimension::Message.named(bytes.get() as f64)));
    let several = (row.clients > 1).then(|| Dimension::Clients.named(f64::from(row.clients)));
    parts.extend(several);
    parts.join(", ")
}

/// Parses `8600mi` or `3000km` into statute miles.
fn miles(text: &str) -> Option<f64> {
    const KM_A_MILE: f64 = 1.609_344;
    let number = |unit: &str| text.trim().strip_suffix(unit)?.trim().parse::<f64>().ok();
    number("mi").or_else(|| number("km").map(|km| km / KM_A_MILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_miles() {
        assert_eq!(miles("8600mi"), Some(8600.0));
        assert_eq!(miles("1.609344 km"), Some(1.0));
        assert_eq!(miles("far"), None);
    }

    #[test]
    fn cross_traffic_is_a_rate() {
        assert_eq!(cross("none"), Some(0.0));
        assert_eq!(cross("1500M"), Some(1.5));
        assert_eq!(cross("500M:64KiB"), Some(0.5));
        assert_eq!(cross("much"), None);
    }
}
