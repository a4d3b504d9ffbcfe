//! The upload of an agent: stored in one transaction, together with its counter.

use std::collections::BTreeSet;
use std::sync::Arc;

use longhaul_fleet::api::RunState;
use longhaul_fleet::protocol::{
    AgentEvent, HostSnapshot, Lease, MAX_ADDRESSES, MAX_EVENTS, MAX_LEASES, MAX_MESSAGE_BYTES,
    MAX_NAME_BYTES, MAX_ROWS, MAX_RUNS, RunReport, SampleBatch, Severity, SyncRequest, TestKind,
};
use longhaul_fleet::schedule::TaskState;

use super::applied::Applied;
use super::excess::{
    EventAllowance, Excess, MAX_FACTS_BYTES, NEWEST_MS, OLDEST_SAMPLE_MS, refused,
};
use super::leases::leases;
use crate::clock::DAY;
use crate::figures::Figures;
use crate::figures::Route;
use crate::records::agents::{Accepted, Contact, add_facts, contact};
use crate::records::events::{NewEvent, record};
use crate::records::intake::{self, Intake};
use crate::records::leases::{Reported, cancelled, mark_running, report};
use crate::records::meshes::{set_task_state, task_state};
use crate::records::paths::{PathChange, note_route};
use crate::records::runs::{document_bytes, run_kind};
use crate::records::series::{NewRows, add_series};
use crate::records::shipments::ship;
use crate::records::snapshots::set_snapshot;
use crate::samples::{Kind, host_row, interface_row, queue_row, stamp_row};
use crate::store::{Lock, Sql, StoreError};

/// The maximum age of accepted reports and events.
const OLDEST_MS: i64 = 366 * DAY;

/// An authenticated upload.
#[derive(Debug)]
pub(crate) struct Upload {
    /// The name of the agent's host.
    pub(crate) host: String,
    /// The contact.
    pub(crate) contact: Contact,
    /// The message.
    pub(crate) request: SyncRequest,
    /// The names of the channels of notifications.
    pub(crate) channels: Vec<String>,
    /// True if new data go into the journal of remote write.
    pub(crate) ships: bool,
}

/// The effect of an upload.
#[derive(Debug, Default)]
pub(crate) struct Ingested {
    /// The numbers of the stored journal entries.
    pub(crate) acknowledged: Vec<u64>,
    /// The leases of the agent.
    pub(crate) leases: Vec<Lease>,
    /// The runs that the agent must stop.
    pub(crate) cancel: Vec<String>,
    /// The pairs with a new outcome.
    pub(crate) pairs: BTreeSet<(String, String)>,
    /// The new blocks of samples: the number of their series, and their start in ms since 1970.
    blocks: Vec<(i64, i64)>,
    /// The runs with a new result.
    finished: Vec<String>,
    /// The bytes of documents of runs that the hub still accepts.
    document_room: i64,
    events: Vec<NewEvent>,
}

/// Returns whether a message is within the limits of the protocol.
pub(crate) fn within_limits(request: &SyncRequest) -> bool {
    let name = |text: &String| text.len() <= MAX_NAME_BYTES;
    let rows: usize = request.samples.iter().map(SampleBatch::row_count).sum();
    let state = &request.state;
    rows + request.stamp.len() <= MAX_ROWS
        && request.samples.len() <= MAX_ROWS
        && request.results.len() <= MAX_RUNS
        && request.events.len() <= MAX_EVENTS
        && name(&request.boot)
        && name(&state.version)
        && state.running.len() + state.accepted.len() <= 2 * MAX_LEASES
        && state.running.iter().chain(&state.accepted).all(name)
        && state.addresses.len() <= MAX_ADDRESSES
        && state.addresses.iter().all(|one| name(&one.interface))
        && request.samples.iter().all(|samples| name(&samples.interface))
        && request.stamp.iter().all(|summary| name(&summary.peer))
        && request.snapshot.as_ref().is_none_or(HostSnapshot::is_valid)
        && request.results.iter().all(|result| {
            let message = result.message.as_deref().unwrap_or_default();
            name(&result.run) && message.len() <= 2 * MAX_MESSAGE_BYTES
        })
        && request
            .events
            .iter()
            .all(|event| name(&event.kind) && event.message.len() <= 2 * MAX_MESSAGE_BYTES)
}

/// Returns the upload interval in seconds for a fleet of `agents` agents: 10 in a small fleet, and up to 300, so
/// that a large fleet does not sync the hub's disk too often.
pub(crate) fn upload_seconds(agents: usize) -> u32 {
    u32::try_from(10 + agents / 20).unwrap_or(300).min(300)
}

/// Limits the times of an upload to a range in which the hub can compute. A measurement in the far
/// future would never become too old.
pub(crate) fn limit_times(request: &mut SyncRequest, now: i64) {
    let timely = |at_ms: i64| at_ms.clamp(now - OLDEST_MS, now + NEWEST_MS);
    for result in &mut request.results {
        result.started_ms = result.started_ms.map(timely);
        result.ended_ms = timely(result.ended_ms);
    }
    for event in &mut request.events {
        event.at_ms = timely(event.at_ms);
    }
}

/// Stores an upload, unless its counter is not new, and leases the planned runs of the agent.
///
/// # Errors
/// The database is unavailable.
pub(crate) fn ingest(
    sql: &mut dyn Sql,
    upload: &Upload,
    applied: Option<&Arc<Applied>>,
    now: i64,
) -> Result<(Accepted, Ingested), StoreError> {
    let mut done = Ingested::default();
    let request = &upload.request;
    if !request.results.is_empty() {
        // The states of tasks change, as in a round of planning.
        sql.lock(Lock::Planning)?;
    }
    let accepted = contact(sql, &upload.contact, now)?;
    let Accepted::New { back } = accepted else { return Ok((accepted, done)) };
    if back {
        done.events.push(present(&upload.host, now));
    }
    if let Some(facts) = &request.facts {
        if facts.to_string().len() <= MAX_FACTS_BYTES {
            add_facts(sql, &upload.contact.agent, facts, now)?;
        } else {
            done.events.push(refused(&upload.host, Excess::Facts, now));
        }
    }
    if let Some(snapshot) = &request.snapshot {
        set_snapshot(sql, &upload.contact.agent, snapshot, now)?;
    }
    add_samples(sql, upload, now, &mut done)?;
    add_reports(sql, upload, (applied, now), &mut done)?;
    record(sql, &done.events, &upload.channels, now)?;
    if upload.ships {
        ship(sql, &done.blocks, &done.finished, now)?;
    }
    mark_running(sql, &upload.host, &request.state.running)?;
    done.leases = leases(sql, &upload.host, now)?;
    let held: Vec<String> =
        request.state.running.iter().chain(&request.state.accepted).cloned().collect();
    done.cancel = cancelled(sql, &held)?;
    Ok((accepted, done))
}

fn add_samples(
    sql: &mut dyn Sql,
    upload: &Upload,
    now: i64,
    done: &mut Ingested,
) -> Result<(), StoreError> {
    let request = &upload.request;
    if request.samples.is_empty() && request.stamp.is_empty() {
        return Ok(());
    }
    let mut late = false;
    // A row begins with the end and the length of its interval.
    let mut timely = |row: &Vec<i64>| {
        let timely = (now - OLDEST_SAMPLE_MS..now + NEWEST_MS).contains(&row[0])
            && (0..=OLDEST_SAMPLE_MS).contains(&row[1]);
        late |= !timely;
        timely
    };
    let (mut interfaces, mut queues) = (Vec::new(), Vec::new());
    let (mut host, mut peers) = (Vec::new(), Vec::new());
    for samples in &request.samples {
        let (name, speed_bps) = (samples.interface.clone(), samples.speed_bps);
        let rows = samples.queue.iter().map(|row| queue_row(*row)).filter(&mut timely).collect();
        queues.push(NewRows { name: name.clone(), speed_bps, rows });
        let rows = samples.rows.iter().map(|row| interface_row(*row)).filter(&mut timely).collect();
        interfaces.push(NewRows { name, speed_bps, rows });
        let rows = samples.host.iter().map(|row| host_row(*row)).filter(&mut timely).collect();
        host.push(NewRows { name: String::new(), speed_bps: None, rows });
        done.acknowledged.push(samples.id);
    }
    for summary in &request.stamp {
        let rows = Some(stamp_row(summary)).into_iter().filter(&mut timely).collect();
        peers.push(NewRows { name: summary.peer.clone(), speed_bps: None, rows });
        done.acknowledged.push(summary.id);
    }
    let new = [
        (Kind::Interface, interfaces),
        (Kind::Queue, queues),
        (Kind::Host, host),
        (Kind::Stamp, peers),
    ];
    let most = intake::remaining_bytes(sql, &upload.contact.agent, Intake::Samples, now)?;
    let mut bytes = 0;
    let mut excesses = vec![(Excess::SampleTimes, late)];
    for (kind, rows) in new {
        let added = add_series(sql, (kind, &upload.host), rows, most - bytes)?;
        bytes += added.bytes;
        done.blocks.extend(added.blocks);
        excesses.extend([(Excess::Series, added.is_refused), (Excess::Samples, added.is_full)]);
    }
    let exceeded = excesses.into_iter().filter(|(_, exceeded)| *exceeded);
    done.events.extend(exceeded.map(|(excess, _)| refused(&upload.host, excess, now)));
    intake::add_bytes(sql, (&upload.contact.agent, Intake::Samples), bytes, now)
}

/// Stores the results and events of an upload.
fn add_reports(
    sql: &mut dyn Sql,
    upload: &Upload,
    (applied, now): (Option<&Arc<Applied>>, i64),
    done: &mut Ingested,
) -> Result<(), StoreError> {
    let (request, agent) = (&upload.request, upload.contact.agent.as_str());
    if request.events.is_empty() && request.results.is_empty() {
        return Ok(());
    }
    let mut room = EventAllowance::of(sql, (agent, &upload.host), now)?;
    done.document_room = intake::remaining_bytes(sql, agent, Intake::Documents, now)?;
    let documents = done.document_room;
    for result in &request.results {
        if let Some(event) = add_result(sql, &upload.host, result, (applied, now), done)? {
            room.push(event, &mut done.events);
        }
        done.acknowledged.push(result.id);
    }
    for event in &request.events {
        room.push(from_agent(upload, event), &mut done.events);
        done.acknowledged.push(event.id);
    }
    if room.is_exceeded {
        done.events.push(refused(&upload.host, Excess::Events, now));
    }
    intake::add_bytes(sql, (agent, Intake::Documents), documents - done.document_room, now)?;
    intake::add_bytes(sql, (agent, Intake::Events), room.bytes as i64, now)
}

/// Stores a result, without its document if the documents of the agent are too large. If the result
/// is not the agent's, returns an event instead.
fn add_result(
    sql: &mut dyn Sql,
    host: &str,
    result: &RunReport,
    (applied, now): (Option<&Arc<Applied>>, i64),
    done: &mut Ingested,
) -> Result<Option<NewEvent>, StoreError> {
    let kind = run_kind(sql, &result.run)?;
    let figures = kind.map(|kind| Figures::of(kind, result.document.as_ref())).unwrap_or_default();
    let is_full = done.document_room <= 0 && result.document.is_some();
    let bare = is_full.then(|| RunReport { document: None, ..result.clone() });
    match report(sql, host, bare.as_ref().unwrap_or(result), &figures)? {
        Reported::Stored { pair, test, due_ms, state } => {
            let id = format!("{test}/{}/{}", pair.0, pair.1);
            let task = applied.and_then(|applied| applied.schedule.task(&id));
            if let (Some(task), Some(outcome)) = (task, state) {
                let mut state = task_state(sql, &id)?.unwrap_or(TaskState::new(now));
                match outcome {
                    RunState::Finished => state.finished(),
                    RunState::Cancelled => {}
                    _ => state.missed(task, due_ms, now),
                }
                set_task_state(sql, &id, &state)?;
            }
            if is_full {
                done.events.push(refused(host, Excess::Documents, now));
            } else if state.is_some() && result.document.is_some() {
                done.document_room -= document_bytes(sql, &result.run)?;
            }
            if state == Some(RunState::Finished) {
                done.finished.push(result.run.clone());
                if kind == Some(TestKind::Path) {
                    done.events.extend(path_event(sql, &pair, result, figures.mtu)?);
                }
            }
            done.pairs.insert(pair);
        }
        Reported::Repeated => {}
        Reported::Foreign => {
            return Ok(Some(NewEvent {
                at_ms: now,
                severity: Severity::Warning,
                kind: "foreign_report".to_owned(),
                subject: host.to_owned(),
                message: format!("{host} reported run {}, which it does not hold", result.run),
                origin: format!("foreign_report/{host}/{}", result.run),
            }));
        }
    }
    Ok(None)
}

/// Stores the route of a `path` run, and returns the event of a change.
fn path_event(
    sql: &mut dyn Sql,
    (source, destination): &(String, String),
    result: &RunReport,
    mtu: Option<u32>,
) -> Result<Option<NewEvent>, StoreError> {
    let route = result.document.as_ref().and_then(|document| Route::of(document, mtu));
    let Some(route) = route else { return Ok(None) };
    let at_ms = result.started_ms.unwrap_or(result.ended_ms);
    let new = PathChange { at_ms, run: result.run.clone(), route };
    let changes = note_route(sql, (source, destination), &new)?;
    Ok(changes.map(|changes| NewEvent {
        at_ms,
        severity: Severity::Info,
        kind: "path_changed".to_owned(),
        subject: format!("{source} > {destination}"),
        message: format!("the path from {source} to {destination} changed: {}", changes.join(", ")),
        origin: format!("path_changed/{}", result.run),
    }))
}

fn present(host: &str, now: i64) -> NewEvent {
    NewEvent {
        at_ms: now,
        severity: Severity::Info,
        kind: "agent_present".to_owned(),
        subject: host.to_owned(),
        message: format!("the agent of {host} is in contact"),
        origin: format!("agent_present/{host}/{now}"),
    }
}

fn from_agent(upload: &Upload, event: &AgentEvent) -> NewEvent {
    NewEvent {
        at_ms: event.at_ms,
        severity: event.severity,
        kind: event.kind.clone(),
        subject: upload.host.clone(),
        message: event.message.clone(),
        origin: format!("agent/{}/{}", upload.contact.agent, event.id),
    }
}
