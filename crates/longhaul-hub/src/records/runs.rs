//! Runs: planned, leased, reported, and listed.

use longhaul_fleet::api::{RunDocument, RunState};
use longhaul_fleet::protocol::{RunReason, TestKind};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::days::{forget_day, forget_days_until};
use super::packed::unpack_json;
use crate::store::{Row, Sql, StoreError, Value, first, insert_rows, values};

/// A run that the planner adds.
#[derive(Debug, Clone, PartialEq)]
pub struct NewRun {
    /// The id.
    pub id: String,
    /// The fencing number.
    pub fencing: i64,
    /// The name of the test.
    pub test: String,
    /// The kind of the test.
    pub kind: TestKind,
    /// The source's host.
    pub source: String,
    /// The destination's host.
    pub destination: String,
    /// The due time in ms since 1970.
    pub due_ms: i64,
    /// The planned start and the end of the window, in ms since 1970.
    pub window_ms: (i64, i64),
    /// The port of the server at the destination.
    pub port: u16,
    /// The resources that the run occupies.
    pub resources: Vec<String>,
    /// The parameters of the leases, as JSON.
    pub lease: String,
    /// The revision of the mesh.
    pub revision: i64,
    /// False if the destination has no agent.
    pub has_target: bool,
    /// The reason, if the run is recorded as missed and never leased.
    pub missed: Option<RunReason>,
}

/// Returns the name of a value that serde writes as a text.
pub fn name_of(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name,
        _ => String::new(),
    }
}

/// Returns the value with a name.
pub fn named<T: DeserializeOwned>(name: &str) -> Result<T, StoreError> {
    serde_json::from_value(serde_json::Value::String(name.to_owned()))
        .map_err(|_| StoreError::Malformed { what: "name" })
}

/// Adds a planned run.
///
/// # Errors
/// The database is unavailable.
pub fn add_run(sql: &mut dyn Sql, run: &NewRun) -> Result<(), StoreError> {
    add_runs(sql, std::slice::from_ref(run))
}

/// Adds planned runs with few statements.
///
/// # Errors
/// The database is unavailable.
pub fn add_runs(sql: &mut dyn Sql, runs: &[NewRun]) -> Result<(), StoreError> {
    for run in runs.iter().filter(|run| run.missed.is_some()) {
        forget_day(sql, run.window_ms.0)?;
    }
    let rows: Vec<Vec<Value>> = runs.iter().map(new_row).collect();
    let head =
        "INSERT INTO run (id, fencing, test, kind, source, destination, state, reason, due_ms,
         planned_ms, window_end_ms, port, resources, lease, revision, source_leased, target_leased,
         source_done, target_done)";
    insert_rows(sql, (head, ""), &rows)
}

fn new_row(run: &NewRun) -> Vec<Value> {
    let state = if run.missed.is_some() { RunState::Missed } else { RunState::Planned };
    let resources = serde_json::to_string(&run.resources).unwrap_or_default();
    values![
        &run.id,
        run.fencing,
        &run.test,
        run.kind.as_str(),
        &run.source,
        &run.destination,
        state.as_str(),
        run.missed.map(RunReason::as_str),
        run.due_ms,
        run.window_ms.0,
        run.window_ms.1,
        i64::from(run.port),
        &resources,
        &run.lease,
        run.revision,
        false,
        false,
        run.missed.is_some(),
        run.missed.is_some() || !run.has_target
    ]
    .to_vec()
}

const COLUMNS: &str = "id, fencing, test, kind, source, destination, state, reason, message, \
     planned_ms, window_end_ms, started_ms, ended_ms, resources, throughput_bps, loss, rtt_ms, mtu";

fn run(row: &Row) -> Result<RunDocument, StoreError> {
    let reason = row.opt_text(7)?.map(|name| named(&name)).transpose()?;
    let resources = serde_json::from_str(&row.text(13)?)
        .map_err(|_| StoreError::Malformed { what: "list of resources" })?;
    Ok(RunDocument {
        run: row.text(0)?,
        fencing: row.int(1)?.cast_unsigned(),
        test: row.text(2)?,
        kind: named(&row.text(3)?)?,
        source: row.text(4)?,
        destination: row.text(5)?,
        state: named(&row.text(6)?)?,
        reason,
        message: row.opt_text(8)?,
        planned_ms: row.int(9)?,
        window_end_ms: row.int(10)?,
        started_ms: row.opt_int(11)?,
        ended_ms: row.opt_int(12)?,
        resources,
        throughput_bps: row.opt_int(14)?.map(i64::cast_unsigned),
        loss: row.opt_real(15)?,
        rtt_ms: row.opt_real(16)?,
        mtu: row.opt_int(17)?.and_then(|mtu| u32::try_from(mtu).ok()),
        document: None,
    })
}

/// The choice of runs of a list; `None` is any.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunFilter {
    /// The name of the test.
    pub test: Option<String>,
    /// The source's host.
    pub source: Option<String>,
    /// The destination's host.
    pub destination: Option<String>,
    /// The source's or destination's host.
    pub host: Option<String>,
    /// The state.
    pub state: Option<RunState>,
    /// The reason.
    pub reason: Option<RunReason>,
    /// The earliest planned start in ms since 1970.
    pub from_ms: Option<i64>,
    /// Only runs with a planned start before this time, in ms since 1970.
    pub to_ms: Option<i64>,
    /// The planned start and the id of the last run of the page before.
    pub before: Option<(i64, String)>,
}

/// Returns the latest runs of a choice, the latest first.
///
/// # Errors
/// The database is unavailable.
pub fn runs(
    sql: &mut dyn Sql,
    filter: &RunFilter,
    limit: i64,
) -> Result<Vec<RunDocument>, StoreError> {
    let Some(host) = &filter.host else { return chosen(sql, filter, limit) };
    // An index has the runs of a source, and another those of a destination.
    let of = |source: bool| {
        let mut one = RunFilter { host: None, ..filter.clone() };
        let end = if source { &mut one.source } else { &mut one.destination };
        match end {
            Some(other) if other != host => None,
            _ => {
                *end = Some(host.clone());
                Some(one)
            }
        }
    };
    let mut all = Vec::new();
    for one in [of(true), of(false)].iter().flatten() {
        all.extend(chosen(sql, one, limit)?);
    }
    all.sort_by(|a, b| (b.planned_ms, &b.run).cmp(&(a.planned_ms, &a.run)));
    all.dedup_by(|a, b| a.run == b.run);
    all.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    Ok(all)
}

/// Returns the latest runs of a choice without [`RunFilter::host`], the latest first.
fn chosen(
    sql: &mut dyn Sql,
    filter: &RunFilter,
    limit: i64,
) -> Result<Vec<RunDocument>, StoreError> {
    let mut parts = Vec::new();
    let mut bound: Vec<Value> = Vec::new();
    let mut add = |part: &str, value: Value| {
        bound.push(value);
        parts.push(part.replace('?', &format!("${}", bound.len())));
        bound.len()
    };
    let texts = [
        ("test = ?", &filter.test),
        ("source = ?", &filter.source),
        ("destination = ?", &filter.destination),
    ];
    for (part, value) in texts {
        if let Some(value) = value {
            add(part, value.into());
        }
    }
    if let Some(state) = filter.state {
        // The first condition is that of the index.
        let unfinished = "state <> 'finished' AND state = ?";
        let is_finished = state == RunState::Finished;
        add(if is_finished { "state = ?" } else { unfinished }, state.as_str().into());
    }
    if let Some(reason) = filter.reason {
        add("reason IS NOT NULL AND reason = ?", reason.as_str().into());
    }
    if let Some(from) = filter.from_ms {
        add("planned_ms >= ?", from.into());
    }
    if let Some(to) = filter.to_ms {
        add("planned_ms < ?", to.into());
    }
    if let Some((planned, id)) = &filter.before {
        // A text with the time itself would be another prepared statement for each page.
        let time = add("planned_ms <= ?", (*planned).into());
        add(&format!("(planned_ms < ${time} OR id < ?)"), id.into());
    }
    let place =
        if parts.is_empty() { String::new() } else { format!("WHERE {}", parts.join(" AND ")) };
    bound.push(limit.into());
    let query = format!(
        "SELECT {COLUMNS} FROM run {place} ORDER BY planned_ms DESC, id DESC LIMIT ${}",
        bound.len()
    );
    sql.query(&query, &bound)?.iter().map(run).collect()
}

/// Returns a run with its document.
///
/// # Errors
/// The database is unavailable or the document is damaged.
pub fn run_of(sql: &mut dyn Sql, id: &str) -> Result<Option<RunDocument>, StoreError> {
    let query = format!("SELECT {COLUMNS} FROM run WHERE id = $1");
    let Some(row) = first(sql, &query, values![id])? else { return Ok(None) };
    let mut found = run(&row)?;
    let document = first(sql, "SELECT document FROM run_document WHERE run = $1", values![id])?;
    found.document = document.map(|row| unpack_json(&row.bytes(0)?)).transpose()?;
    Ok(Some(found))
}

/// Removes runs that were planned before `limit_ms`.
///
/// # Errors
/// The database is unavailable.
pub fn remove_runs(sql: &mut dyn Sql, limit_ms: i64) -> Result<(), StoreError> {
    sql.execute(
        "DELETE FROM run_document WHERE run IN (SELECT id FROM run WHERE planned_ms < $1)",
        values![limit_ms],
    )?;
    sql.execute("DELETE FROM run WHERE planned_ms < $1", values![limit_ms])?;
    forget_days_until(sql, limit_ms)?;
    Ok(())
}

/// Returns the kind of a run.
///
/// # Errors
/// The database is unavailable.
pub fn run_kind(sql: &mut dyn Sql, id: &str) -> Result<Option<TestKind>, StoreError> {
    let row = first(sql, "SELECT kind FROM run WHERE id = $1", values![id])?;
    row.map(|row| named(&row.text(0)?)).transpose()
}

/// Returns the bytes of the stored document of a run.
///
/// # Errors
/// The database is unavailable.
pub fn document_bytes(sql: &mut dyn Sql, run: &str) -> Result<i64, StoreError> {
    // The type of the length differs between the databases.
    let query = "SELECT CAST(length(document) AS BIGINT) FROM run_document WHERE run = $1";
    first(sql, query, values![run])?.map_or(Ok(0), |row| row.int(0))
}
