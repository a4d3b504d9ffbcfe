//! The state of the fleet: hosts, grid, schedule, expected and received runs.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Query, State};
use longhaul_fleet::api::{
    HOSTS_SCHEMA, HostDocument, HostState, HostsDocument, LoadDocument, RunDocument, RunState,
    STATUS_SCHEMA, StatusDocument,
};
use longhaul_fleet::mesh::Mesh;
use serde::{Deserialize, Serialize};

use crate::clock::{DAY, now_ms};
use crate::fleet::Applied;
use crate::hub::Hub;
use crate::records::agents::{Agent, agents};
use crate::records::cells::cells;
use crate::records::counts::{RunCount, counts, counts_of_pair};
use crate::records::runs::{RunFilter, runs};
use crate::store::{Sql, StoreError};
use crate::web::access::ApiCaller;
use crate::web::failure::Failure;

/// Returns the grid and the state of the fleet.
#[utoipa::path(get, path = "/api/v1/status", responses((status = 200, body = StatusDocument)))]
pub(crate) async fn get_status(
    State(hub): State<Arc<Hub>>,
    _: ApiCaller,
) -> Result<Json<StatusDocument>, Failure> {
    let applied = hub.refresh().await?;
    let now = now_ms();
    Ok(Json(hub.store.read(move |sql| status_document(sql, applied.as_deref(), now)).await?))
}

/// Returns the state of the fleet.
///
/// # Errors
/// The database is unavailable.
pub(crate) fn status_document(
    sql: &mut dyn Sql,
    applied: Option<&Applied>,
    now: i64,
) -> Result<StatusDocument, StoreError> {
    let hosts = hosts_document(sql, applied.map(|applied| &applied.mesh), now)?.hosts;
    let day = counts(sql, (now - DAY, now))?;
    let sum = |of: &dyn Fn(&RunCount) -> bool| -> u64 {
        day.iter().filter(|count| of(count)).map(|count| count.runs.unsigned_abs()).sum()
    };
    let within = hosts.iter().filter(|host| host.in_mesh);
    let count = |of: &dyn Fn(&&HostDocument) -> bool| {
        u32::try_from(within.clone().filter(of).count()).unwrap_or(u32::MAX)
    };
    Ok(StatusDocument {
        schema: STATUS_SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        at_ms: now,
        mesh: applied.map(|applied| applied.mesh.name.clone()),
        hosts_present: count(&|host| host.state == HostState::Present),
        hosts: count(&|_| true),
        hosts_without_agent: applied.map_or(0, |applied| {
            let without = applied.mesh.hosts.iter().filter(|host| !host.agent).count();
            u32::try_from(without).unwrap_or(u32::MAX)
        }),
        cycle_seconds: applied.map(|applied| applied.schedule.cycle_ms.unsigned_abs() / 1000),
        runs_expected: sum(&|count| count.state != RunState::Cancelled),
        runs_finished: sum(&|count| count.state == RunState::Finished),
        cells: cells(sql)?,
    })
}

/// Returns the hosts.
#[utoipa::path(get, path = "/api/v1/hosts", responses((status = 200, body = HostsDocument)))]
pub(crate) async fn get_hosts(
    State(hub): State<Arc<Hub>>,
    _: ApiCaller,
) -> Result<Json<HostsDocument>, Failure> {
    let applied = hub.refresh().await?;
    let now = now_ms();
    let read = move |sql: &mut dyn Sql| {
        hosts_document(sql, applied.as_deref().map(|applied| &applied.mesh), now)
    };
    Ok(Json(hub.store.read(read).await?))
}

/// Returns the hosts of the mesh, then other enrolled hosts.
///
/// # Errors
/// The database is unavailable.
pub(crate) fn hosts_document(
    sql: &mut dyn Sql,
    mesh: Option<&Mesh>,
    now: i64,
) -> Result<HostsDocument, StoreError> {
    let mut enrolled = agents(sql)?;
    let mut hosts = Vec::new();
    for host in mesh.map(|mesh| mesh.hosts.as_slice()).unwrap_or_default() {
        let at = enrolled.iter().position(|agent| agent.host == host.name);
        let agent = at.map(|at| enrolled.remove(at));
        let maintenance = mesh.is_some_and(|mesh| mesh.maintenance_at(&host.name, now).is_some());
        let mut document = host_document(&host.name, agent, true);
        if !host.agent {
            document.state = HostState::NoAgent;
        }
        if maintenance {
            document.state = HostState::Maintenance;
        }
        hosts.push(document);
    }
    hosts.extend(enrolled.into_iter().map(|agent| {
        let name = agent.host.clone();
        host_document(&name, Some(agent), false)
    }));
    Ok(HostsDocument { schema: HOSTS_SCHEMA.to_owned(), hosts })
}

fn host_document(name: &str, agent: Option<Agent>, in_mesh: bool) -> HostDocument {
    let state = match &agent {
        None => HostState::NotEnrolled,
        Some(agent) if agent.revoked_ms.is_some() => HostState::Revoked,
        Some(agent) if agent.present => HostState::Present,
        Some(_) => HostState::Away,
    };
    HostDocument {
        name: name.to_owned(),
        state,
        in_mesh,
        agent: agent.as_ref().map(|agent| agent.id.clone()),
        seen_ms: agent.as_ref().and_then(|agent| agent.seen_ms),
        address: agent.as_ref().and_then(|agent| agent.address.clone()),
        clock_offset_ms: agent.as_ref().and_then(|agent| agent.clock_offset_ms),
        report: agent.and_then(|agent| agent.state),
    }
}

/// The planned runs and the load of the resources.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub(crate) struct ScheduleDocument {
    /// `longhaul.fleet-schedule/1`.
    schema: &'static str,
    /// The time of a full cycle of all tests in seconds.
    cycle_seconds: Option<u64>,
    /// The runs that are planned, leased or running, the earliest first.
    runs: Vec<RunDocument>,
    /// The load of interfaces and trunks.
    load: Vec<LoadDocument>,
}

/// Returns the planned runs.
#[utoipa::path(get, path = "/api/v1/schedule", responses((status = 200, body = ScheduleDocument)))]
pub(crate) async fn get_schedule(
    State(hub): State<Arc<Hub>>,
    _: ApiCaller,
) -> Result<Json<ScheduleDocument>, Failure> {
    let applied = hub.refresh().await?;
    let now = now_ms();
    let read = move |sql: &mut dyn Sql| {
        let from_ms = Some(now - crate::clock::HOUR);
        runs(sql, &RunFilter { from_ms, ..RunFilter::default() }, 5000)
    };
    let mut planned = hub.store.read(read).await?;
    planned.retain(|run| !run.state.is_final());
    planned.reverse();
    Ok(Json(ScheduleDocument {
        schema: "longhaul.fleet-schedule/1",
        cycle_seconds: applied.as_ref().map(|one| one.schedule.cycle_ms.unsigned_abs() / 1000),
        runs: planned,
        load: applied
            .map(|applied| super::mesh::load_documents(&applied.schedule))
            .unwrap_or_default(),
    }))
}

/// The choice of days.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
pub(crate) struct CountQuery {
    /// The number of days up to now; 1 to 366.
    days: Option<i64>,
    /// The source of a pair; needs `destination`.
    source: Option<String>,
    /// The destination of a pair; needs `source`.
    destination: Option<String>,
}

/// The runs of one test and day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub(crate) struct CountDocument {
    /// The start of the day (UTC) in ms since 1970.
    day_ms: i64,
    /// The name of the test.
    test: String,
    /// The state of the runs.
    state: RunState,
    /// The reason, if the runs have no result.
    reason: Option<&'static str>,
    /// The number of runs.
    runs: i64,
}

/// Returns the number of runs by day, test, state and reason: those of all pairs, or of one pair.
#[utoipa::path(get, path = "/api/v1/counts", params(CountQuery),
    responses((status = 200, body = Vec<CountDocument>)))]
pub(crate) async fn get_counts(
    State(hub): State<Arc<Hub>>,
    _: ApiCaller,
    Query(query): Query<CountQuery>,
) -> Result<Json<Vec<CountDocument>>, Failure> {
    let now = now_ms();
    let from = now - query.days.unwrap_or(7).clamp(1, 366) * DAY;
    let pair = match (query.source, query.destination) {
        (Some(source), Some(destination)) => Some((source, destination)),
        (None, None) => None,
        _ => return Err(Failure::bad("a pair needs a source and a destination")),
    };
    let read = move |sql: &mut dyn Sql| match &pair {
        Some((source, destination)) => counts_of_pair(sql, (source, destination), (from, now)),
        None => counts(sql, (from, now)),
    };
    let found = hub.store.read(read).await?;
    let document = |count: RunCount| CountDocument {
        day_ms: count.day_ms,
        test: count.test,
        state: count.state,
        reason: count.reason.map(longhaul_fleet::protocol::RunReason::as_str),
        runs: count.runs,
    };
    Ok(Json(found.into_iter().map(document).collect()))
}
