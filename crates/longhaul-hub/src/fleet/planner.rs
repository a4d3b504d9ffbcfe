//! A round of planning: expired runs get their reasons, and due tasks their runs.

use longhaul_fleet::protocol::{RunReason, Severity, TestSpec};
use longhaul_fleet::schedule::{ActiveRun, Decision, Situation, Task, TaskState, Verdict};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

use super::applied::Applied;
use crate::clock::{DAY, MINUTE, SECOND};
use crate::records::agents::present_hosts;
use crate::records::events::NewEvent;
use crate::records::leases::{Expired, cancel_later, expire, open_runs};
use crate::records::meshes::{latest_revision, set_task_state, task_states};
use crate::records::numbers;
use crate::records::runs::{NewRun, add_runs};
use crate::secret;
use crate::store::{Lock, Sql, StoreError};

/// The time in ms after the end of a window in which an agent reports in time.
const REPORT_MS: i64 = 20 * SECOND;
/// The shortest pause of planning that is recorded, in ms.
const PAUSE_MS: i64 = MINUTE;
/// The message of a run that was planned by a clock that was ahead.
const STEPPED_BACK: &str = "the clock of the hub stepped back";
/// The maximum number of missed runs of one task that one round records separately.
const MOST_MISSED: u32 = 48;

/// The parameters of the leases of a run, which the store keeps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct LeaseParts {
    /// The parameters of the test.
    pub(crate) spec: TestSpec,
    /// The address of the source.
    pub(crate) source: IpAddr,
    /// The address of the destination.
    pub(crate) destination: IpAddr,
    /// The port of the server at the destination.
    pub(crate) port: u16,
}

/// The effect of a round.
#[derive(Debug, Default)]
pub(crate) struct Round {
    /// The events to record.
    pub(crate) events: Vec<NewEvent>,
    /// The pairs with a new missed run.
    pub(crate) missed: Vec<(String, String)>,
    /// The number of planned runs.
    pub(crate) planned: usize,
}

/// Plans at `now`. The hubs that share a database plan in turn.
///
/// # Errors
/// The database is unavailable.
pub(crate) fn plan(
    sql: &mut dyn Sql,
    applied: Option<&Applied>,
    now: i64,
) -> Result<Round, StoreError> {
    sql.lock(Lock::Planning)?;
    let mut round = Round::default();
    let (since_ms, away_ms) = planning_time(sql, now, &mut round)?;
    let mut states = task_states(sql)?;
    for one in expire(sql, now - REPORT_MS, away_ms)? {
        note_expired(applied, &mut states, &one, now);
        round.missed.push((one.names[1].clone(), one.names[2].clone()));
    }
    let Some(applied) = applied else { return Ok(round) };
    if latest_revision(sql)? != applied.revision {
        // Another mesh was applied since the caller read this one; the next round plans it.
        return Ok(round);
    }
    let before = states.clone();
    let horizon_ms = applied.schedule.horizon_ms();
    for task in &applied.schedule.tasks {
        let state = states.entry(task.id.clone()).or_insert_with(|| TaskState::new(now));
        *state = state.reachable(task, now, horizon_ms);
    }
    cancel_later(sql, now + horizon_ms.max(DAY), STEPPED_BACK, now)?;
    let active: Vec<ActiveRun> = open_runs(sql)?.into_iter().map(|run| run.active).collect();
    let present = present_hosts(sql)?;
    let hosts = applied.mesh.hosts.iter().map(|host| host.name.clone());
    let away = hosts.filter(|host| !present.contains(host)).collect();
    let situation = Situation {
        now_ms: now,
        planning_since_ms: since_ms,
        states: &states,
        active: &active,
        away: &away,
    };
    let decisions = applied.schedule.plan(&applied.mesh, &situation);
    let mut new = Vec::new();
    for decision in &decisions {
        let task = &applied.schedule.tasks[decision.task];
        let state = states.get(&task.id).copied().unwrap_or(TaskState::new(now));
        record(sql, applied, decision, now, (&mut round, &mut new))?;
        states.insert(task.id.clone(), decision.next_state(&applied.schedule, state));
    }
    add_runs(sql, &new)?;
    for (id, state) in &states {
        if before.get(id) != Some(state) {
            set_task_state(sql, id, state)?;
        }
    }
    Ok(round)
}

/// Returns the time since which the hubs have planned without a pause, and the last pause.
fn planning_time(
    sql: &mut dyn Sql,
    now: i64,
    round: &mut Round,
) -> Result<(i64, Option<(i64, i64)>), StoreError> {
    let last = numbers::get(sql, "planned_ms")?;
    numbers::set(sql, "planned_ms", now)?;
    match last {
        Some(last) if (-PAUSE_MS..PAUSE_MS).contains(&now.saturating_sub(last)) => {}
        Some(last) if now < last => {
            // The hub was not away, also not in the time that the clock now shows again.
            let away_to = numbers::get(sql, "away_to_ms")?.unwrap_or(now);
            numbers::set(sql, "away_to_ms", away_to.min(now))?;
            numbers::set(sql, "planning_since_ms", now)?;
            round.events.push(stepped_back(last, now));
        }
        last => {
            if let Some(last) = last {
                numbers::set(sql, "away_from_ms", last)?;
                numbers::set(sql, "away_to_ms", now)?;
                round.events.push(NewEvent {
                    at_ms: now,
                    severity: Severity::Warning,
                    kind: "hub_away".to_owned(),
                    subject: "hub".to_owned(),
                    message: format!("no hub planned runs for {} s", (now - last) / SECOND),
                    origin: format!("hub_away/{last}"),
                });
            }
            numbers::set(sql, "planning_since_ms", now)?;
        }
    }
    let since = numbers::get(sql, "planning_since_ms")?.unwrap_or(now);
    let from = numbers::get(sql, "away_from_ms")?;
    let to = numbers::get(sql, "away_to_ms")?;
    Ok((since, from.zip(to)))
}

/// Returns the event of a clock that showed `last` before `now`.
fn stepped_back(last: i64, now: i64) -> NewEvent {
    NewEvent {
        at_ms: now,
        severity: Severity::Warning,
        kind: "clock_step".to_owned(),
        subject: "hub".to_owned(),
        message: format!("the clock of the hub stepped back by {} s", (last - now) / SECOND),
        origin: format!("clock_step/{last}/{now}"),
    }
}

fn note_expired(
    applied: Option<&Applied>,
    states: &mut std::collections::BTreeMap<String, TaskState>,
    expired: &Expired,
    now: i64,
) {
    let id = expired.names.join("/");
    let task = applied.and_then(|applied| applied.schedule.task(&id));
    if let (Some(task), Some(state)) = (task, states.get_mut(&id)) {
        state.missed(task, expired.due_ms, now);
    }
}

fn record(
    sql: &mut dyn Sql,
    applied: &Applied,
    decision: &Decision,
    now: i64,
    (round, new): (&mut Round, &mut Vec<NewRun>),
) -> Result<(), StoreError> {
    let task = &applied.schedule.tasks[decision.task];
    match decision.verdict {
        Verdict::Run { start_ms, end_ms, port } => {
            let window_ms = (start_ms, end_ms);
            let slot = Slot { due_ms: decision.due_ms, window_ms, port, missed: None };
            if let Some(run) = new_run(sql, applied, task, slot)? {
                new.push(run);
                round.planned += 1;
            }
        }
        Verdict::Missed { reason, occurrences, .. } => {
            // After a long absence only the latest runs are recorded one by one.
            for at in occurrences.saturating_sub(MOST_MISSED)..occurrences {
                let due_ms = decision.due_ms + i64::from(at) * task.period_ms;
                let window_ms = (due_ms, due_ms + task.slot_ms);
                let slot = Slot { due_ms, window_ms, port: 0, missed: Some(reason) };
                if let Some(run) = new_run(sql, applied, task, slot)? {
                    new.push(run);
                }
            }
            if occurrences > MOST_MISSED {
                round.events.push(unrecorded(task, decision.due_ms, occurrences, reason, now));
            }
            round.missed.push((task.source.clone(), task.destination.clone()));
        }
    }
    Ok(())
}

fn unrecorded(task: &Task, due_ms: i64, occurrences: u32, reason: RunReason, now: i64) -> NewEvent {
    let earlier = occurrences - MOST_MISSED;
    NewEvent {
        at_ms: now,
        severity: Severity::Warning,
        kind: "runs_missed".to_owned(),
        subject: format!("{} > {}", task.source, task.destination),
        message: format!("{earlier} earlier runs of {} did not run: {}", task.id, reason.as_str()),
        origin: format!("runs_missed/{}/{due_ms}", task.id),
    }
}

/// The times and the port of a run.
struct Slot {
    /// The scheduled start.
    due_ms: i64,
    /// The start and end of the period in which the run must start and end.
    window_ms: (i64, i64),
    port: u16,
    /// The reason why the run did not take place.
    missed: Option<RunReason>,
}

/// Returns a run of a task; `None` if the mesh lacks an address.
fn new_run(
    sql: &mut dyn Sql,
    applied: &Applied,
    task: &Task,
    slot: Slot,
) -> Result<Option<NewRun>, StoreError> {
    let Slot { due_ms, window_ms, port, missed } = slot;
    let test = &applied.mesh.tests[task.test];
    let address = |host: &str| {
        let host = applied.mesh.host(host)?;
        Some(host.interface(test.interface.as_deref())?.address)
    };
    let (Some(source), Some(destination)) = (address(&task.source), address(&task.destination))
    else {
        return Ok(None);
    };
    let parts = LeaseParts { spec: test.spec.clone(), source, destination, port };
    let lease =
        serde_json::to_string(&parts).map_err(|_| StoreError::Malformed { what: "lease" })?;
    let has_agent = applied.mesh.host(&task.destination).is_some_and(|host| host.agent);
    Ok(Some(NewRun {
        id: secret::id(window_ms.0).map_err(|_| StoreError::Closed)?,
        // The time is above the numbers of all earlier runs, also of those that a restored copy of the
        // database lacks: agents refuse lower numbers.
        fencing: numbers::next(sql, "fencing", window_ms.0)?,
        test: test.name.clone(),
        kind: test.spec.kind,
        source: task.source.clone(),
        destination: task.destination.clone(),
        due_ms,
        window_ms,
        port,
        resources: applied.schedule.resource_names(task),
        lease,
        revision: applied.revision,
        has_target: has_agent && test.spec.kind.needs_target_agent(),
        missed,
    }))
}

#[cfg(test)]
mod tests {
    use longhaul_fleet::api::RunState;
    use longhaul_fleet::mesh;
    use longhaul_fleet::schedule::Schedule;

    use super::*;
    use crate::records::runs::{RunFilter, runs};
    use crate::store::Store;

    const MESH: &str = "[hosts.a]\naddress = \"10.0.0.1\"\ncapacity = \"1G\"\n\
        [hosts.b]\naddress = \"10.0.0.2\"\ncapacity = \"1G\"\n\
        [tests.t]\nkind = \"throughput\"\nseconds = 5\nevery = \"1h\"\nfrom = \"a\"\nto = \"b\"\n";

    fn applied() -> Applied {
        let mesh = mesh::parse(MESH).unwrap();
        let schedule = Schedule::new(&mesh);
        Applied { revision: 1, applied_ms: 0, text: MESH.to_owned(), mesh, schedule }
    }

    /// Adds two agents in contact, and the mesh.
    fn prepare(sql: &mut dyn Sql) -> Result<(), StoreError> {
        for host in ["a", "b"] {
            sql.execute(
                "INSERT INTO agent (id, host, public_key, enrolled_ms, counter, present)
                 VALUES ($1, $1, 'k', 0, 0, 1)",
                &[host.into()],
            )?;
        }
        sql.execute("INSERT INTO mesh VALUES (1, 'm', '', 0, 'ann')", &[]).map(drop)
    }

    #[tokio::test]
    async fn a_clock_that_was_ahead_stops_no_task() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::sqlite(&dir.path().join("hub.db")).await.unwrap();
        let start = 1_800_000_000_000;
        let year = start + 366 * DAY;
        let work = move |sql: &mut dyn Sql| {
            prepare(sql)?;
            let applied = applied();
            // The right time, a year ahead, and back.
            let rounds = [start, start + SECOND, year, year + SECOND, start + MINUTE];
            let mut found = Vec::new();
            for now in rounds {
                let round = plan(sql, Some(&applied), now)?;
                let kinds: Vec<String> = round.events.into_iter().map(|one| one.kind).collect();
                found.push((round.planned, kinds));
            }
            let all = runs(sql, &RunFilter::default(), 1000)?;
            let away = numbers::get(sql, "away_to_ms")?;
            Ok((found, all, away, numbers::get(sql, "planning_since_ms")?))
        };
        let (found, all, away, since) = store.write(work).await.unwrap();
        let planned: Vec<usize> = found.iter().map(|round| round.0).collect();
        assert_eq!(planned, [1, 0, 1, 0, 1], "{found:?}");
        assert!(found[2].1.contains(&"hub_away".to_owned()), "{found:?}");
        assert_eq!(found[4].1, ["clock_step"]);
        assert_eq!((away, since), (Some(start + MINUTE), Some(start + MINUTE)));
        let open = all.iter().filter(|run| !run.state.is_final());
        assert!(open.clone().all(|run| run.planned_ms < start + 2 * MINUTE), "{all:?}");
        let cancelled: Vec<_> = all.iter().filter(|run| run.state == RunState::Cancelled).collect();
        assert_eq!(cancelled.len(), 1, "the run of the next year: {all:?}");
        assert_eq!(cancelled[0].message.as_deref(), Some(STEPPED_BACK));
    }

    #[tokio::test]
    async fn fencing_numbers_increase_after_a_restore() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::sqlite(&dir.path().join("hub.db")).await.unwrap();
        let start = 1_800_000_000_000;
        let work = move |sql: &mut dyn Sql| {
            prepare(sql)?;
            let applied = applied();
            let highest = |sql: &mut dyn Sql, now: i64| {
                plan(sql, Some(&applied), now)?;
                let all = runs(sql, &RunFilter::default(), 1000)?;
                Ok::<_, StoreError>(all.iter().map(|run| run.fencing).max().unwrap_or(0))
            };
            let before = highest(sql, start)?;
            // A copy of the database from the day before knows neither the run nor its number.
            sql.execute("DELETE FROM run", &[])?;
            sql.execute("DELETE FROM task", &[])?;
            numbers::set(sql, "fencing", 7)?;
            let after = highest(sql, start + MINUTE)?;
            Ok((before, after, numbers::next(sql, "fencing", 1)?))
        };
        let (before, after, next) = store.write(work).await.unwrap();
        assert!(before > 0 && after > before, "{before} {after}");
        assert_eq!(next.cast_unsigned(), after + 1, "a clock behind the counter");
    }

    #[tokio::test]
    async fn a_clock_that_was_behind_plans_again() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::sqlite(&dir.path().join("hub.db")).await.unwrap();
        // A host without a battery starts in 1970, and gets the time of the network a minute later.
        let rounds = [DAY, DAY + MINUTE / 2, 1_800_000_000_000];
        let work = move |sql: &mut dyn Sql| {
            prepare(sql)?;
            let applied = applied();
            let round = |now: i64| plan(sql, Some(&applied), now).map(|round| round.planned);
            let planned = rounds.into_iter().map(round).collect::<Result<Vec<_>, _>>()?;
            Ok((planned, runs(sql, &RunFilter::default(), 1000)?))
        };
        let (planned, all) = store.write(work).await.unwrap();
        assert_eq!(planned, [1, 0, 1]);
        // The missed runs of 57 years are a note, and the latest ones have their reason.
        let missed = all.iter().filter(|run| run.reason == Some(RunReason::HubAway)).count();
        assert_eq!(missed, MOST_MISSED as usize, "{}", all.len());
    }
}
