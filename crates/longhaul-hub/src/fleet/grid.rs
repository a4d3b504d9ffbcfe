//! The states of the grid, and the events of their changes.

use std::collections::{BTreeSet, HashMap};

use longhaul_fleet::api::{CellDocument, CellMetric, CellState, RunDocument, RunState};
use longhaul_fleet::grid::{CellContext, Reading, cell};
use longhaul_fleet::mesh::{Judgement, MeshTest};
use longhaul_fleet::protocol::{Severity, TestKind};
use longhaul_fleet::schedule::path_capacity;

use super::applied::Applied;
use crate::clock::MINUTE;
use crate::records::agents::agents;
use crate::records::cells::{cells, remove_cell, set_cell};
use crate::records::events::NewEvent;
use crate::records::runs::{RunFilter, runs};
use crate::records::series::{Series, read_series, series};
use crate::samples::Kind;
use crate::store::{Lock, Sql, StoreError};

/// The age in ms from which a STAMP measurement does not count.
const STALE_STAMP_MS: i64 = 5 * MINUTE;
/// The minimum age in ms from which a run does not count.
const STALE_RUN_MS: i64 = 15 * MINUTE;

type Key = (String, String, CellMetric);

/// Computes the cells of `pairs`, or of the whole grid, and returns the events of changed states.
///
/// # Errors
/// The database is unavailable.
pub(crate) fn update(
    sql: &mut dyn Sql,
    applied: &Applied,
    pairs: Option<&BTreeSet<(String, String)>>,
    now: i64,
) -> Result<Vec<NewEvent>, StoreError> {
    sql.lock(Lock::States)?;
    let old: HashMap<Key, CellDocument> = cells(sql)?
        .into_iter()
        .map(|cell| ((cell.source.clone(), cell.destination.clone(), cell.metric), cell))
        .collect();
    let chosen = |source: &String, destination: &String| {
        pairs.is_none_or(|pairs| pairs.contains(&(source.clone(), destination.clone())))
    };
    let mut new = HashMap::<Key, CellDocument>::new();
    for test in &applied.mesh.tests {
        for (source, destination) in test.pairs.iter().filter(|(a, b)| chosen(a, b)) {
            add_test(sql, (applied, test), (source, destination), now, &mut new)?;
        }
    }
    if let Some(stamp) = &applied.mesh.stamp {
        let all = series(sql, Kind::Stamp, None)?;
        let by_name: HashMap<(&str, &str), &Series> =
            all.iter().map(|one| ((one.host.as_str(), one.name.as_str()), one)).collect();
        for (source, destination) in stamp.pairs.iter().filter(|(a, b)| chosen(a, b)) {
            let series = by_name.get(&(source.as_str(), destination.as_str()));
            let pair = (source, destination);
            add_stamp(sql, (applied, &stamp.judgement), (pair, series.copied()), now, &mut new)?;
        }
    }
    let away: BTreeSet<String> =
        agents(sql)?.into_iter().filter(|one| !one.present).map(|one| one.host).collect();
    let mut events = Vec::new();
    for (key, cell) in &new {
        let before = old.get(key);
        if before != Some(cell) {
            set_cell(sql, cell, now)?;
        }
        let silent = away.contains(&cell.source) || away.contains(&cell.destination);
        let unknown = CellDocument { state: CellState::Unknown, ..cell.clone() };
        events.extend(event(before.unwrap_or(&unknown), cell, silent, now));
    }
    if pairs.is_none() {
        for (_, cell) in old.iter().filter(|(key, _)| !new.contains_key(*key)) {
            remove_cell(sql, cell)?;
        }
    }
    Ok(events)
}

fn context(applied: &Applied, (source, destination): (&str, &str), now: i64) -> CellContext {
    let in_maintenance = |host: &str| applied.mesh.maintenance_at(host, now).is_some();
    CellContext {
        now_ms: now,
        stale_ms: STALE_STAMP_MS,
        maintenance: in_maintenance(source) || in_maintenance(destination),
        capacity_bps: None,
    }
}

/// Takes a value from the document of a run.
type Extract = fn(&RunDocument) -> Option<f64>;

/// Returns the metrics of a kind of test, with their values.
fn metrics(kind: TestKind) -> &'static [(CellMetric, Extract)] {
    match kind {
        TestKind::Path => &[
            (CellMetric::Loss, |run| run.loss),
            (CellMetric::Rtt, |run| run.rtt_ms),
            (CellMetric::Mtu, |run| run.mtu.map(f64::from)),
        ],
        _ => &[(CellMetric::Throughput, |run| run.throughput_bps.map(|bps| bps as f64))],
    }
}

fn add_test(
    sql: &mut dyn Sql,
    (applied, test): (&Applied, &MeshTest),
    (source, destination): (&String, &String),
    now: i64,
    new: &mut HashMap<Key, CellDocument>,
) -> Result<(), StoreError> {
    let filter = RunFilter {
        test: Some(test.name.clone()),
        source: Some(source.clone()),
        destination: Some(destination.clone()),
        to_ms: Some(now),
        ..RunFilter::default()
    };
    // Some of the latest runs may be unfinished or cancelled.
    let mut latest = runs(sql, &filter, i64::from(test.judgement.of) + 8)?;
    latest.retain(|run| run.state.is_final() && run.state != RunState::Cancelled);
    latest.reverse();
    let id = format!("{}/{source}/{destination}", test.name);
    let period = applied.schedule.task(&id).map_or(0, |task| task.period_ms);
    let context = CellContext {
        stale_ms: STALE_RUN_MS.max(3 * period),
        capacity_bps: path_capacity(&applied.mesh, test.interface.as_deref(), source, destination),
        ..context(applied, (source, destination), now)
    };
    for (metric, value) in metrics(test.spec.kind) {
        let readings: Vec<Reading> = latest
            .iter()
            .map(|run| Reading {
                at_ms: run.ended_ms.unwrap_or(run.planned_ms),
                value: value(run).filter(|_| run.state == RunState::Finished),
            })
            .collect();
        add(new, (source, destination, *metric), &test.judgement, context, &readings);
    }
    Ok(())
}

fn add_stamp(
    sql: &mut dyn Sql,
    (applied, rule): (&Applied, &Judgement),
    ((source, destination), series): ((&String, &String), Option<&Series>),
    now: i64,
    new: &mut HashMap<Key, CellDocument>,
) -> Result<(), StoreError> {
    let from = now - (i64::from(rule.of) + 2) * MINUTE;
    let buckets = match series {
        Some(series) => read_series(sql, series, (from, now), MINUTE, now)?.1,
        None => Vec::new(),
    };
    let context = context(applied, (source, destination), now);
    // The positions of the loss and of the median round-trip time in the metrics of STAMP.
    for (metric, at) in [(CellMetric::Loss, 0), (CellMetric::Rtt, 4)] {
        let readings: Vec<Reading> = buckets
            .iter()
            .map(|bucket| Reading {
                at_ms: bucket.start_ms,
                value: bucket.spans.get(at).and_then(crate::samples::Span::average),
            })
            .collect();
        // The permanent measurement replaces that of single runs.
        new.remove(&(source.clone(), destination.clone(), metric));
        add(new, (source, destination, metric), rule, context, &readings);
    }
    Ok(())
}

fn add(
    new: &mut HashMap<Key, CellDocument>,
    (source, destination, metric): (&String, &String, CellMetric),
    rule: &Judgement,
    context: CellContext,
    readings: &[Reading],
) {
    let found = cell(metric, rule, context, readings);
    let key = (source.clone(), destination.clone(), metric);
    new.entry(key).or_insert_with(|| CellDocument {
        source: source.clone(),
        destination: destination.clone(),
        metric,
        state: found.state,
        value: found.value,
        expected: found.expected,
        at_ms: found.at_ms,
    });
}

/// Returns the event of a change. There is no event if an unknown state becomes good, or if the
/// absence of an agent has an event already.
fn event(old: &CellDocument, new: &CellDocument, silent: bool, now: i64) -> Option<NewEvent> {
    let judged = [CellState::Good, CellState::Warning, CellState::Critical, CellState::NotRun];
    let absent = silent && new.state == CellState::NotRun;
    let known = judged.contains(&old.state) || new.state != CellState::Good;
    if old.state == new.state || absent || !known || !judged.contains(&new.state) {
        return None;
    }
    let (severity, kind) = match new.state {
        CellState::Critical => (Severity::Error, "cell_critical"),
        CellState::Warning => (Severity::Warning, "cell_warning"),
        CellState::NotRun => (Severity::Warning, "cell_not_run"),
        _ => (Severity::Info, "cell_good"),
    };
    let metric = crate::words::metric(new.metric);
    let value = new.value.map_or("no value".to_owned(), |v| crate::words::value(new.metric, v));
    let subject = format!("{} > {}", new.source, new.destination);
    let message = match new.state {
        CellState::NotRun => {
            format!("runs that measure {metric} have no result; the last is {value}")
        }
        state => format!("{metric} is {}: {value}", crate::words::state(state).0),
    };
    Some(NewEvent {
        at_ms: now,
        severity,
        kind: kind.to_owned(),
        message,
        origin: format!("{kind}/{subject}/{metric}/{now}"),
        subject,
    })
}
