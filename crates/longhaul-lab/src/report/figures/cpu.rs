//! Figures of CPU time.

use std::collections::BTreeMap;

use longhaul_chart::{Bar, BarChart};
use longhaul_core::plan::Workload;
use longhaul_core::result::{RunRecord, RunSample};
use longhaul_core::stats::median;

use super::facet::{Common, Facets};
use super::{Chart, Figure};

/// CPU seconds per GB of every run, by tool and path.
type Costs = BTreeMap<usize, BTreeMap<Common, Vec<f64>>>;

/// The maximum number of bars per tool; the table of runs has all values.
const MOST_BARS: usize = 32;

/// Returns figures of CPU seconds per GB of both ends together, one chart per kind of work.
pub(super) fn cpu(facets: &Facets<'_>) -> Vec<Figure> {
    let mut works: BTreeMap<&str, (Workload, Costs)> = BTreeMap::new();
    for facet in &facets.all {
        let Some(cost) = seconds_a_gigabyte(facet.run) else { continue };
        let work = facet.run.workload;
        let (_, costs) = works.entry(work.name()).or_insert_with(|| (work, Costs::new()));
        let common = facets.common(facet, &[]);
        costs.entry(facets.series(facet, &[])).or_default().entry(common).or_default().push(cost);
    }
    let figures = works.into_iter().map(|(name, (work, costs))| {
        let left_out: usize =
            costs.values().map(|paths| paths.len().saturating_sub(MOST_BARS)).sum();
        let all = facets.palette(&[]);
        let palette = costs.keys().map(|series| all[*series]).collect();
        let groups = costs.into_iter().map(|(series, paths)| {
            let bars = paths.into_iter().take(MOST_BARS).filter_map(|(common, values)| {
                let low = values.iter().copied().fold(f64::INFINITY, f64::min);
                let high = values.iter().copied().fold(0.0, f64::max);
                Some(Bar {
                    name: common.path().join(", "),
                    value: median(&values)?,
                    range: (values.len() > 1).then_some((low, high)),
                })
            });
            (facets.names(&[])[series].clone(), bars.collect::<Vec<Bar>>())
        });
        let chart = BarChart {
            title: format!("CPU seconds per GB: {}", work.label()),
            subtitle: format!(
                "User and system time of the commands at {}; median, and range of the runs{}",
                if facets.is_real {
                    "the near end only"
                } else {
                    "both ends, without the emulator"
                },
                match left_out {
                    0 => String::new(),
                    1 => "; 1 more bar omitted".to_owned(),
                    many => format!("; {many} more bars omitted"),
                }
            ),
            label: "CPU seconds per GB (10^9 bytes)".into(),
            groups: groups.collect(),
            palette,
        };
        let figure = Figure::new(&format!("cpu-{name}"), Chart::Bars(chart));
        figure.with_notes(emulator_note(facets, work))
    });
    figures.collect()
}

/// Returns the remark about the CPU time of the emulator, with its median per GB.
fn emulator_note(facets: &Facets<'_>, work: Workload) -> Option<String> {
    let runs = facets.all.iter().map(|facet| facet.run).filter(|run| run.workload == work);
    let costs = runs.filter_map(|run| per_gigabyte(run, run.cpu?.emulator_seconds?));
    let costs: Vec<f64> = costs.collect();
    let middle = median(&costs)?;
    Some(format!(
        "The emulator used {middle:.2} CPU seconds per GB (median of {} runs). This includes the \
         kernel's receiving TCP work of both ends, which runs when the emulator writes a packet and \
         is not part of any bar.",
        costs.len()
    ))
}

/// Returns CPU seconds per GB. For a copy the GB are those copied; for a memory test those that
/// crossed the path, because the tool's figure excludes the omitted seconds, which also need CPU
/// time.
fn seconds_a_gigabyte(run: &RunRecord) -> Option<f64> {
    per_gigabyte(run, run.cpu?.total_seconds())
}

fn per_gigabyte(run: &RunRecord, seconds: f64) -> Option<f64> {
    let stated = run.bytes.map(|bytes| bytes.get() as f64);
    let bytes = if run.workload.copies() { stated } else { crossed(&run.samples).or(stated) }?;
    (bytes > 0.0).then(|| seconds / (bytes / 1e9))
}

/// Returns the sum of the bytes of the samples.
fn crossed(samples: &[RunSample]) -> Option<f64> {
    let starts = std::iter::once(0.0).chain(samples.iter().map(|sample| sample.seconds));
    let bytes = samples.iter().zip(starts);
    let bytes = bytes.map(|(s, from)| s.throughput_bps.bps() as f64 / 8.0 * (s.seconds - from));
    (!samples.is_empty()).then(|| bytes.sum())
}

#[cfg(test)]
mod tests {
    use longhaul_core::units::Rate;

    use super::*;

    #[test]
    fn samples_add_up_to_bytes() {
        let sample = |seconds, bps| RunSample { seconds, throughput_bps: Rate::from_bps(bps) };
        assert_eq!(crossed(&[sample(0.5, 16), sample(2.0, 8)]), Some(2.5));
        assert_eq!(crossed(&[]), None);
    }
}
