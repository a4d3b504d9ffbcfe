//! Leases of runs, and the reports of their outcome.

use longhaul_fleet::api::RunState;
use longhaul_fleet::protocol::{Role, RunOutcome, RunReason, RunReport};
use longhaul_fleet::schedule::ActiveRun;

use super::days::forget_day;
use super::packed::pack_json;
use super::runs::{name_of, named};
use crate::figures::Figures;
use crate::store::{Row, Sql, StoreError, first, values};

/// The states of runs that can still be leased or reported in time.
const OPEN: &str = "state IN ('planned', 'leased', 'running')";

/// A run that an agent may start.
#[derive(Debug, Clone, PartialEq)]
pub struct Due {
    /// The id of the run.
    pub run: String,
    /// The fencing number.
    pub fencing: i64,
    /// The part of the agent.
    pub role: Role,
    /// The parameters of the leases, as JSON.
    pub lease: String,
    /// The test, the source and the destination.
    pub names: [String; 3],
    /// The start and end of the window in ms since 1970.
    pub window_ms: (i64, i64),
    /// The resources that the run occupies.
    pub resources: Vec<String>,
    /// True if the agent has the lease already.
    pub repeated: bool,
}

fn due(row: &Row, role: Role) -> Result<Due, StoreError> {
    Ok(Due {
        run: row.text(0)?,
        fencing: row.int(1)?,
        role,
        lease: row.text(2)?,
        names: [row.text(3)?, row.text(4)?, row.text(5)?],
        window_ms: (row.int(6)?, row.int(7)?),
        resources: serde_json::from_str(&row.text(8)?)
            .map_err(|_| StoreError::Malformed { what: "list of resources" })?,
        repeated: row.int(9)? != 0,
    })
}

/// Returns the runs of `host` without an outcome whose window has not ended at `now`, by their
/// fencing numbers, and marks them as leased.
///
/// All planned runs are leased at once: an agent refuses a lease that arrives after one with a
/// higher number for the same resource.
///
/// # Errors
/// The database is unavailable.
pub fn lease(sql: &mut dyn Sql, host: &str, now: i64) -> Result<Vec<Due>, StoreError> {
    let mut all = waiting(sql, host, now)?;
    for due in all.iter_mut().filter(|due| !due.repeated) {
        let (column, id) = (column(due.role), &due.run);
        // Another transaction may have cancelled the run since the query.
        let changed = sql.execute(
            &format!(
                "UPDATE run SET {column}_leased = 1,
                 state = CASE WHEN state = 'planned' THEN 'leased' ELSE state END
                 WHERE id = $1 AND {OPEN}"
            ),
            values![id],
        )?;
        if changed == 0 {
            due.run.clear();
        }
    }
    all.retain(|due| !due.run.is_empty());
    all.sort_by_key(|due| due.fencing);
    Ok(all)
}

/// Returns the runs that [`lease`] would return.
///
/// # Errors
/// The database is unavailable.
pub fn waiting(sql: &mut dyn Sql, host: &str, now: i64) -> Result<Vec<Due>, StoreError> {
    let mut all = Vec::new();
    for (role, end) in [(Role::Source, "source"), (Role::Target, "destination")] {
        let column = column(role);
        let query = format!(
            "SELECT id, fencing, lease, test, source, destination, planned_ms, window_end_ms,
             resources, {column}_leased FROM run WHERE {OPEN} AND window_end_ms > $1
             AND {end} = $2 AND {column}_done = 0 ORDER BY fencing LIMIT 1000"
        );
        for row in &sql.query(&query, values![now, host])? {
            all.push(due(row, role)?);
        }
    }
    Ok(all)
}

/// Returns the hosts that have a lease to fetch.
///
/// # Errors
/// The database is unavailable.
pub fn hosts_due(sql: &mut dyn Sql, now: i64) -> Result<Vec<String>, StoreError> {
    let rows = sql.query(
        &format!(
            "SELECT source FROM run WHERE {OPEN} AND window_end_ms > $1
             AND source_leased = 0 AND source_done = 0
             UNION SELECT destination FROM run WHERE {OPEN} AND window_end_ms > $1
             AND target_leased = 0 AND target_done = 0"
        ),
        values![now],
    )?;
    rows.iter().map(|row| row.text(0)).collect()
}

fn column(role: Role) -> &'static str {
    match role {
        Role::Source => "source",
        Role::Target => "target",
    }
}

/// The effect of a report.
#[derive(Debug, Clone, PartialEq)]
pub enum Reported {
    /// The run has its outcome. A report of the source decides the state.
    Stored {
        /// The source and destination.
        pair: (String, String),
        /// The test.
        test: String,
        /// The due time of the run in ms since 1970.
        due_ms: i64,
        /// The new state; `None` if the report of the target does not decide it.
        state: Option<RunState>,
    },
    /// The report was stored before.
    Repeated,
    /// The hub has no such run, or the agent has no part in it, or the fencing number differs.
    Foreign,
}

/// Stores the report of a host, once per run and role.
///
/// # Errors
/// The database is unavailable.
pub fn report(
    sql: &mut dyn Sql,
    host: &str,
    report: &RunReport,
    figures: &Figures,
) -> Result<Reported, StoreError> {
    let column = column(report.role);
    sql.execute("UPDATE run SET id = id WHERE id = $1", values![&report.run])?;
    let query = format!(
        "SELECT source, destination, test, fencing, {column}_done, state, due_ms, reason, planned_ms
         FROM run WHERE id = $1"
    );
    let Some(row) = first(sql, &query, values![&report.run])? else { return Ok(Reported::Foreign) };
    let pair = (row.text(0)?, row.text(1)?);
    let owner = if report.role == Role::Source { &pair.0 } else { &pair.1 };
    if owner != host || row.int(3)?.cast_unsigned() != report.fencing {
        return Ok(Reported::Foreign);
    }
    if row.int(4)? != 0 {
        return Ok(Reported::Repeated);
    }
    let fate = name_of(&report.outcome);
    sql.execute(
        &format!("UPDATE run SET {column}_done = 1, {column}_fate = $1 WHERE id = $2"),
        values![&fate, &report.run],
    )?;
    let present: RunState = named(&row.text(5)?)?;
    let state = decided(report, present);
    if let Some(state) = state {
        // The hub knows why it cancelled a run; the agent does not.
        let cancelled = present == RunState::Cancelled && state == RunState::Cancelled;
        let known = row.opt_text(7)?.filter(|_| cancelled);
        store_outcome(sql, report, (state, known), figures)?;
        forget_day(sql, row.int(8)?)?;
    }
    Ok(Reported::Stored { pair, test: row.text(2)?, due_ms: row.int(6)?, state })
}

/// Returns the state after a report: that of the source, or of a target without which the run
/// cannot start.
fn decided(report: &RunReport, present: RunState) -> Option<RunState> {
    let state = match report.outcome {
        RunOutcome::Finished => RunState::Finished,
        RunOutcome::Failed => RunState::Failed,
        RunOutcome::NotRun => RunState::Missed,
        RunOutcome::Cancelled => RunState::Cancelled,
    };
    match report.role {
        Role::Source => Some(state),
        // The report of the source replaces that of the target.
        Role::Target if report.outcome == RunOutcome::NotRun && !present.is_final() => Some(state),
        Role::Target => None,
    }
}

fn store_outcome(
    sql: &mut dyn Sql,
    report: &RunReport,
    (state, known): (RunState, Option<String>),
    figures: &Figures,
) -> Result<(), StoreError> {
    let unexplained = (state != RunState::Finished).then_some(RunReason::Unknown);
    let given = report.reason.or(unexplained).map(|reason| reason.as_str().to_owned());
    let throughput = figures.throughput_bps.and_then(|rate| i64::try_from(rate).ok());
    sql.execute(
        "UPDATE run SET state = $1, reason = $2, message = $3, started_ms = $4, ended_ms = $5,
         throughput_bps = $6, loss = $7, rtt_ms = $8, mtu = $9 WHERE id = $10",
        values![
            state.as_str(),
            known.or(given).as_ref(),
            report.message.as_ref(),
            report.started_ms,
            report.ended_ms,
            throughput,
            figures.loss,
            figures.rtt_ms,
            figures.mtu.map(i64::from),
            &report.run
        ],
    )?;
    if let Some(document) = &report.document {
        sql.execute(
            "INSERT INTO run_document (run, at_ms, document) VALUES ($1, $2, $3)
             ON CONFLICT (run) DO NOTHING",
            values![&report.run, report.ended_ms, pack_json(document)?],
        )?;
    }
    Ok(())
}

/// Marks runs that an agent reports as running.
///
/// # Errors
/// The database is unavailable.
pub fn mark_running(sql: &mut dyn Sql, host: &str, runs: &[String]) -> Result<(), StoreError> {
    for run in runs.iter().take(64) {
        sql.execute(
            "UPDATE run SET state = 'running' WHERE id = $1 AND state = 'leased' AND source = $2",
            values![run, host],
        )?;
    }
    Ok(())
}

/// Cancels an open run; returns false if it is unknown or over.
///
/// # Errors
/// The database is unavailable.
pub fn cancel(
    sql: &mut dyn Sql,
    run: &str,
    reason: RunReason,
    now: i64,
) -> Result<bool, StoreError> {
    let changed = sql.execute(
        &format!(
            "UPDATE run SET state = 'cancelled', reason = $1, ended_ms = $2
             WHERE id = $3 AND {OPEN}"
        ),
        values![reason.as_str(), now, run],
    )?;
    Ok(changed == 1)
}

/// Cancels the open runs that were planned for a time after `limit_ms`: a clock was ahead. Returns
/// their number.
///
/// # Errors
/// The database is unavailable.
pub fn cancel_later(
    sql: &mut dyn Sql,
    limit_ms: i64,
    message: &str,
    now: i64,
) -> Result<u64, StoreError> {
    sql.execute(
        &format!(
            "UPDATE run SET state = 'cancelled', reason = $1, message = $2, ended_ms = $3
             WHERE planned_ms > $4 AND {OPEN}"
        ),
        values![RunReason::Cancelled.as_str(), message, now, limit_ms],
    )
}

/// An open run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenRun {
    /// The id.
    pub run: String,
    /// The test, the source and the destination.
    pub names: [String; 3],
    /// The occupied resources, the port and the window.
    pub active: ActiveRun,
}

/// Returns the runs that are planned, leased or running.
///
/// # Errors
/// The database is unavailable.
pub fn open_runs(sql: &mut dyn Sql) -> Result<Vec<OpenRun>, StoreError> {
    let rows = sql.query(
        &format!(
            "SELECT id, test, source, destination, resources, port, planned_ms, window_end_ms
             FROM run WHERE {OPEN} ORDER BY planned_ms, id"
        ),
        &[],
    )?;
    let read = |row: &Row| {
        let names = [row.text(1)?, row.text(2)?, row.text(3)?];
        let active = ActiveRun {
            resources: serde_json::from_str(&row.text(4)?)
                .map_err(|_| StoreError::Malformed { what: "list of resources" })?,
            destination: names[2].clone(),
            port: u16::try_from(row.int(5)?).unwrap_or_default(),
            start_ms: row.int(6)?,
            end_ms: row.int(7)?,
        };
        Ok(OpenRun { run: row.text(0)?, names, active })
    };
    rows.iter().map(read).collect()
}

/// Returns those of `runs` that an agent has and the hub has cancelled or never leased to it.
///
/// # Errors
/// The database is unavailable.
pub fn cancelled(sql: &mut dyn Sql, runs: &[String]) -> Result<Vec<String>, StoreError> {
    let mut cancelled = Vec::new();
    for run in runs.iter().take(1024) {
        let row = first(sql, "SELECT state FROM run WHERE id = $1", values![run])?;
        let state = row.map(|row| row.text(0)).transpose()?;
        if state.is_none_or(|state| state == "cancelled") {
            cancelled.push(run.clone());
        }
    }
    Ok(cancelled)
}

/// A run whose window ended without an outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expired {
    /// The id.
    pub run: String,
    /// The test, the source and the destination.
    pub names: [String; 3],
    /// The due time in ms since 1970.
    pub due_ms: i64,
    /// The reason.
    pub reason: RunReason,
}

/// Gives a reason to the runs whose window ended before `limit_ms` without a report of the source.
/// A later report replaces the reason. `away_ms` is the last time in which no hub planned.
///
/// # Errors
/// The database is unavailable.
pub fn expire(
    sql: &mut dyn Sql,
    limit_ms: i64,
    away_ms: Option<(i64, i64)>,
) -> Result<Vec<Expired>, StoreError> {
    let rows = sql.query(
        &format!(
            "SELECT id, test, source, destination, planned_ms, source_leased, target_leased,
             target_done, due_ms FROM run WHERE {OPEN} AND window_end_ms < $1 LIMIT 1000"
        ),
        values![limit_ms],
    )?;
    let mut expired = Vec::new();
    for row in rows {
        let (leased, target) = (row.int(5)? != 0, row.int(6)? != 0 || row.int(7)? != 0);
        let planned = row.int(4)?;
        let hub_away = away_ms.is_some_and(|(from, to)| (from..to).contains(&planned));
        let reason = match (leased, target) {
            (false, _) if hub_away => RunReason::HubAway,
            (true, false) => RunReason::PeerAway,
            _ => RunReason::AgentAway,
        };
        let id = row.text(0)?;
        sql.execute(
            &format!("UPDATE run SET state = 'missed', reason = $1 WHERE id = $2 AND {OPEN}"),
            values![reason.as_str(), &id],
        )?;
        forget_day(sql, planned)?;
        let names = [row.text(1)?, row.text(2)?, row.text(3)?];
        expired.push(Expired { run: id, names, due_ms: row.int(8)?, reason });
    }
    Ok(expired)
}
