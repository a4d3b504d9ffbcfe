//! The page of a pair: both directions with their history.

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::response::Response;
use longhaul_fleet::api::{CellDocument, CellMetric, RunDocument};
use maud::{Markup, html};

use super::PageViewer;
use super::days::{days_summary, days_table};
use super::layout::{badge, page, range_form, segment, time};
use super::plot::{Mark, Plot, Quantity};
use super::runs::table;
use crate::clock::{MINUTE, now_ms};
use crate::hub::Hub;
use crate::records::cells::cells_of;
use crate::records::counts::{RunCount, counts_of_pair};
use crate::records::paths::{PathChange, path_changes};
use crate::records::runs::{RunFilter, runs};
use crate::records::series::{read_series, series};
use crate::samples::{Bucket, Kind};
use crate::store::{Sql, StoreError};
use crate::web::failure::Failure;
use crate::web::range::Range;
use crate::words;

/// The maximum number of runs of one direction in a graph.
const MOST_RUNS: usize = 2000;
/// The maximum number of changes of the path of one direction in the table.
const MOST_CHANGES: i64 = 50;
/// The maximum number of points of a graph: a month has a point per stored interval of two hours.
const MOST_POINTS: i64 = 360;

/// The measurements of one direction.
struct Direction {
    source: String,
    destination: String,
    cells: Vec<CellDocument>,
    /// The latest runs of the range.
    runs: Vec<RunDocument>,
    /// True if the range has earlier runs, too.
    has_more: bool,
    counted: Vec<RunCount>,
    stamp: Option<(i64, Vec<Bucket>)>,
    /// The changes of the path, the latest first, and the route before them.
    paths: Vec<PathChange>,
}

/// `GET /pairs/A/B`.
pub(super) async fn get_pair(
    State(hub): State<Arc<Hub>>,
    PageViewer(caller): PageViewer,
    Path((source, destination)): Path<(String, String)>,
    Query(range): Query<Range>,
) -> Result<Response, Failure> {
    let now = now_ms();
    let window = range.times(now)?;
    let title = format!("{source} and {destination}");
    let path = format!("/pairs/{}/{}", segment(&source), segment(&destination));
    let read = |from: String, to: String| {
        hub.store.read(move |sql: &mut dyn Sql| direction(sql, (&from, &to), window, now))
    };
    // Two connections to the database, because each query of a year takes a tenth of a second.
    let there = read(source.clone(), destination.clone());
    let (there, back) = tokio::try_join!(there, read(destination, source))?;
    let directions = [there, back];
    let main = html! {
        h1 { (title) }
        (range_form(&path, &range, window, &[]))
        @for direction in &directions { (section(direction, window)) }
    };
    Ok(page(&title, Some(&caller), true, &main))
}

fn direction(
    sql: &mut dyn Sql,
    (source, destination): (&str, &str),
    (from, to): (i64, i64),
    now: i64,
) -> Result<Direction, StoreError> {
    let filter = RunFilter {
        source: Some(source.to_owned()),
        destination: Some(destination.to_owned()),
        from_ms: Some(from),
        to_ms: Some(to),
        ..RunFilter::default()
    };
    let all = series(sql, Kind::Stamp, Some(source))?;
    let stamp = match all.iter().find(|one| one.name == destination) {
        Some(one) => {
            let step = MINUTE.max((to - from) / MOST_POINTS);
            Some(read_series(sql, one, (from, to), step, now)?)
        }
        None => None,
    };
    let mut latest = runs(sql, &filter, MOST_RUNS as i64 + 1)?;
    let has_more = latest.len() > MOST_RUNS;
    latest.truncate(MOST_RUNS);
    Ok(Direction {
        source: source.to_owned(),
        destination: destination.to_owned(),
        cells: cells_of(sql, (source, destination))?,
        runs: latest,
        has_more,
        counted: counts_of_pair(sql, (source, destination), (from, to))?,
        stamp,
        paths: path_changes(sql, (source, destination), (from, to), MOST_CHANGES)?,
    })
}

fn section(direction: &Direction, window_ms: (i64, i64)) -> Markup {
    let shown = &direction.runs[..direction.runs.len().min(50)];
    html! {
        section {
            h2 { (direction.source) " \u{2192} " (direction.destination) }
            ul.states { @for cell in &direction.cells { li { (state(cell)) } } }
            (throughput(direction, window_ms))
            @if let Some((step, buckets)) = &direction.stamp { (stamp(*step, buckets, window_ms)) }
            (paths(&direction.paths, window_ms.0))
            h3 { "Runs" }
            details.more { summary { (days_summary(&direction.counted)) } (days_table(&direction.counted)) }
            (table(shown))
            @if direction.runs.len() > shown.len() {
                p { a href=(format!("/runs?source={}&destination={}", segment(&direction.source), segment(&direction.destination))) { "All runs" } }
            }
        }
    }
}

fn state(cell: &CellDocument) -> Markup {
    let (word, glyph, class) = words::state(cell.state);
    html! {
        (badge(glyph, word, class)) " " (words::metric(cell.metric))
        @if let Some(value) = cell.value { " " b { (words::value(cell.metric, value)) } }
        @if let Some(expected) = cell.expected { span.soft { " (reference " (words::value(cell.metric, expected)) ")" } }
    }
}

/// Returns the graph of the runs that measure throughput. Runs without a result are gaps.
fn throughput(direction: &Direction, window_ms: (i64, i64)) -> Markup {
    let measures = |run: &&RunDocument| run.kind != longhaul_fleet::protocol::TestKind::Path;
    #[allow(clippy::cast_precision_loss)]
    let mark = |run: &RunDocument| Mark {
        at_ms: run.started_ms.unwrap_or(run.planned_ms),
        value: run.throughput_bps.map(|bps| bps as f64),
        range: None,
    };
    let over = direction.runs.iter().rev().filter(|run| run.state.is_final());
    let marks: Vec<Mark> = over.filter(measures).map(mark).collect();
    if marks.is_empty() {
        return html! {};
    }
    let cell = direction.cells.iter().find(|cell| cell.metric == CellMetric::Throughput);
    let mut gaps: Vec<i64> = marks.windows(2).map(|two| two[1].at_ms - two[0].at_ms).collect();
    gaps.sort_unstable();
    let plot = Plot {
        title: "Throughput of the runs",
        quantity: Quantity::Rate,
        window_ms,
        // A run is missing in a gap of two usual distances.
        joined_ms: 2 * gaps.get(gaps.len() / 2).copied().unwrap_or(window_ms.1 - window_ms.0),
        series: vec![("throughput", marks)],
        expected: cell.and_then(|cell| cell.expected),
    };
    html! {
        (plot.figure())
        @if direction.has_more {
            p.soft { "The range has more runs; the graph is limited to the latest " (MOST_RUNS) "." }
        }
    }
}

fn stamp(step_ms: i64, buckets: &[Bucket], window_ms: (i64, i64)) -> Markup {
    let marks = |at: usize| -> Vec<Mark> {
        let mark = |bucket: &Bucket| {
            let span = bucket.spans.get(at)?;
            Some(Mark {
                at_ms: bucket.start_ms,
                value: Some(span.average()?),
                range: Some((span.min, span.max)),
            })
        };
        buckets.iter().filter_map(mark).collect()
    };
    // The periods of an agent are a little longer than a minute, so one bucket can be empty.
    let joined_ms = 2 * step_ms;
    let plot = |title, quantity, series| {
        Plot { title, quantity, window_ms, joined_ms, series, expected: None }.figure()
    };
    let delays = vec![("median", marks(4)), ("99th percentile", marks(5)), ("lowest", marks(3))];
    html! {
        (plot("Round-trip time (STAMP)", Quantity::Time, delays))
        (plot("Loss (STAMP)", Quantity::Share, vec![("loss", marks(0))]))
    }
}

/// Returns the present route and the table of its changes.
fn paths(changes: &[PathChange], from_ms: i64) -> Markup {
    let Some(present) = changes.first() else { return html! {} };
    html! {
        h3 { "Path changes" }
        p.soft { "The path has " (present.route.words()) " since " (time(present.at_ms)) "." }
        @if present.at_ms >= from_ms && changes.len() > 1 {
            div.scroll { table.small.paths {
                thead { tr { @for name in ["Time", "Change", "Run"] { th scope="col" { (name) } } } }
                tbody { @for two in changes.windows(2).filter(|two| two[0].at_ms >= from_ms) { tr {
                    td { (time(two[0].at_ms)) }
                    td.wrap { ul.plain { @for change in two[1].route.changes(&two[0].route) { li { (change) } } } }
                    td { a href=(format!("/runs/{}", segment(&two[0].run))) { (two[0].run) } }
                } } }
            } }
        }
    }
}

#[cfg(test)]
mod tests {
    use longhaul_fleet::protocol::{RunReason, TestKind};

    use super::*;
    use crate::records::runs::{NewRun, add_runs};
    use crate::store::Store;

    fn run(at: usize) -> NewRun {
        let planned = at as i64 * MINUTE;
        NewRun {
            id: format!("run{at}"),
            fencing: at as i64,
            test: "bulk".to_owned(),
            kind: TestKind::Throughput,
            source: "a".to_owned(),
            destination: "b".to_owned(),
            due_ms: planned,
            window_ms: (planned, planned + MINUTE),
            port: 5290,
            resources: Vec::new(),
            lease: "{}".to_owned(),
            revision: 1,
            has_target: true,
            missed: Some(RunReason::AgentAway),
        }
    }

    #[tokio::test]
    async fn a_graph_that_lacks_runs_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::sqlite(&dir.path().join("hub.db")).await.unwrap();
        let all: Vec<NewRun> = (0..=MOST_RUNS).map(run).collect();
        store.write(move |sql| add_runs(sql, &all)).await.unwrap();
        let text = async |from: i64| {
            let window = (from, MOST_RUNS as i64 * MINUTE + 1);
            let read = move |sql: &mut dyn Sql| direction(sql, ("a", "b"), window, window.1);
            let direction = store.read(read).await.unwrap();
            (direction.runs.len(), section(&direction, window).into_string())
        };
        let note = "limited to the latest 2000.";
        let (count, page) = text(0).await;
        assert!(count == MOST_RUNS && page.contains(note), "{count} {page}");
        let (count, page) = text(MINUTE).await;
        assert!(count == MOST_RUNS && !page.contains(note), "{count} {page}");
        assert!(page.contains("Throughput of the runs"), "{page}");
    }
}
