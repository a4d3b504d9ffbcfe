//! Published figures of other groups with their sources, shown beside measured figures.
//!
//! The figures come from other machines and paths. They show the state of the art at their time,
//! and are excluded from medians and ratios.

use std::sync::LazyLock;
use std::time::Duration;

use longhaul_core::plan::Workload;
use serde::{Deserialize, Serialize};

/// Returns all published figures, in the order of their sources.
pub fn published() -> &'static Published {
    static ALL: LazyLock<Published> = LazyLock::new(|| {
        // The text is a constant of the program; a test parses it.
        toml::from_str(include_str!("published.toml")).unwrap_or_default()
    });
    &ALL
}

/// The sources and their figures.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// The sources.
    #[serde(rename = "source")]
    pub sources: Vec<Publication>,
    /// The figures.
    #[serde(rename = "figure")]
    pub figures: Vec<Figure>,
    /// The results that are no rates.
    #[serde(rename = "fact")]
    pub facts: Vec<PublishedFact>,
}

/// A publication with figures.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Publication {
    /// The id by which figures refer to the source.
    pub id: String,
    /// The heading of the figures.
    pub title: String,
    /// The authors of the measurement.
    pub by: String,
    /// The document and its date.
    pub place: String,
}

/// A published result that is no rate, such as a jitter.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedFact {
    /// The [`Publication::id`] of the publication.
    pub source: String,
    /// The measured quantity.
    pub subject: String,
    /// The result as printed in the source.
    pub published: String,
    /// The conditions of the measurement.
    pub under: String,
}

/// One published figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// The [`Publication::id`] of the publication.
    pub source: String,
    /// The tool, as the source names it.
    pub tool: String,
    /// The drivers with which the figure can be compared.
    #[serde(default)]
    pub drivers: Vec<String>,
    /// The kind of work.
    pub workload: Workload,
    /// The round-trip time of the path in ms, if the source states it.
    #[serde(default)]
    pub rtt_ms: Option<f64>,
    /// The length of the path in miles, if the source states it.
    #[serde(default)]
    pub miles: Option<f64>,
    /// The figure, in Gb/s.
    pub gbps: f64,
    /// The standard deviation over repeats in Mb/s.
    #[serde(default)]
    pub deviation_mbps: Option<f64>,
    /// The decrease per mile in Mb/s.
    #[serde(default)]
    pub decrease_mbps_per_mile: Option<f64>,
    /// The number of simultaneous clients or streams.
    #[serde(default)]
    pub count: Option<u32>,
    /// The throughput of a single client or stream, in Gb/s.
    #[serde(default)]
    pub single_gbps: Option<f64>,
    /// The joint throughput divided by `count` times the single throughput.
    #[serde(default)]
    pub scale_factor: Option<f64>,
    /// The size of the data set in GB.
    #[serde(default)]
    pub data_gb: Option<f64>,
    /// The figure as printed in the source.
    pub published: String,
    /// The conditions of the measurement.
    pub under: String,
}

impl Published {
    /// Returns the figures for a driver and workload at the nearest published round-trip time. The
    /// distance of two times is the logarithm of their ratio, after adding 1 ms.
    pub fn nearest(&self, driver: &str, work: Workload, rtt: Duration) -> Vec<&Figure> {
        let distance = |ms: f64| ((ms + 1.0) / (rtt.as_secs_f64() * 1e3 + 1.0)).ln().abs();
        let known = self.of(driver, work);
        let known = known.filter_map(|figure| Some((distance(figure.rtt_ms?), figure)));
        let known: Vec<(f64, &Figure)> = known.collect();
        let least = known.iter().map(|(distance, _)| *distance).fold(f64::INFINITY, f64::min);
        // Times that differ by less than 5 % are one condition: 80.14 and 80.58 ms.
        known.into_iter().filter(|(d, _)| *d <= least + 0.05).map(|(_, figure)| figure).collect()
    }

    /// Returns the figures for a driver and workload with a published round-trip time of at most
    /// `most`.
    pub fn within(&self, driver: &str, work: Workload, most: Duration) -> Vec<&Figure> {
        let most = most.as_secs_f64() * 1e3;
        let short = |figure: &&Figure| figure.rtt_ms.is_some_and(|ms| ms <= most);
        self.of(driver, work).filter(short).collect()
    }

    fn of(&self, driver: &str, work: Workload) -> impl Iterator<Item = &Figure> {
        self.figures.iter().filter(move |figure| {
            figure.workload == work && figure.drivers.iter().any(|name| name == driver)
        })
    }

    /// Returns the number of a figure's source, from 1.
    pub fn number(&self, figure: &Figure) -> usize {
        self.sources.iter().position(|source| source.id == figure.source).map_or(0, |at| at + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_has_its_source_and_a_sane_value() {
        let all = published();
        assert_eq!((all.sources.len(), all.figures.len(), all.facts.len()), (8, 118, 5));
        for fact in &all.facts {
            assert!(all.sources.iter().any(|source| source.id == fact.source), "{fact:?}");
        }
        for figure in &all.figures {
            assert!((1..=8).contains(&all.number(figure)), "{figure:?}");
            assert!(figure.gbps > 2e-5 && figure.gbps < 101.0, "{figure:?}");
            assert!(!figure.published.is_empty() && !figure.under.is_empty(), "{figure:?}");
        }
    }

    /// Checks that figures in Gb/s equal the printed figures in their units.
    #[test]
    fn units_were_converted_exactly() {
        for figure in &published().figures {
            let digits = |c: char| c.is_ascii_digit() || c == '.';
            let text: String = figure
                .published
                .chars()
                .skip_while(|c| !digits(*c))
                .take_while(|c| digits(*c))
                .collect();
            let printed: f64 = text.parse().unwrap();
            let factor = match &figure.published {
                unit if unit.contains("MB/s") => 0.008,
                unit if unit.contains("GB/s") => 8.0,
                unit if unit.contains('G') => 1.0,
                _ => 0.001,
            };
            assert!((printed * factor - figure.gbps).abs() < 1e-6, "{figure:?}");
        }
    }

    #[test]
    fn the_nearest_round_trip_time_stands_beside() {
        let nearest = |driver: &str, work, ms: u64| -> Vec<f64> {
            let found = published().nearest(driver, work, Duration::from_millis(ms));
            found.into_iter().map(|figure| figure.gbps).collect()
        };
        assert_eq!(nearest("nuttcp", Workload::Memory, 100), [7.36]);
        assert_eq!(nearest("nuttcp", Workload::Memory, 80).len(), 6);
        assert_eq!(nearest("nuttcp", Workload::Disk, 100), [0.0; 0]);
        assert_eq!(nearest("bbftp", Workload::Disk, 180), [0.264, 0.264], "those at 100 ms");
        assert!(nearest("longhaul cp", Workload::Disk, 99).contains(&4.616), "nuttscp at 100 ms");
        assert_eq!(published().within("bbftp", Workload::Disk, Duration::ZERO).len(), 2);
    }

    /// Checks decreases and factors against the sources' rounded or truncated values.
    #[test]
    fn derived_columns_agree_with_their_figures() {
        for figure in &published().figures {
            if let (Some(count), Some(single), Some(factor)) =
                (figure.count, figure.single_gbps, figure.scale_factor)
            {
                let own = figure.gbps / (f64::from(count) * single);
                assert!((own - factor).abs() < 0.01, "{own}: {figure:?}");
            }
        }
    }
}
