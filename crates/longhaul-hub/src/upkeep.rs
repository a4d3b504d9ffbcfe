//! The periodic work of a hub: planning, absences, the grid, consolidation, removal, and the tasks
//! that send.

use std::sync::Arc;
use std::time::Duration;

use longhaul_fleet::protocol::Severity;
use tokio::task::JoinSet;

use crate::clock::{DAY, MINUTE, SECOND, now_ms};
use crate::fleet;
use crate::hub::{Hub, PageMessage};
use crate::outgoing;
use crate::records::agents::{agents, mark_away};
use crate::records::buckets::consolidate;
use crate::records::counts::store_days;
use crate::records::events::{NewEvent, events_after, remove_events, remove_unsent};
use crate::records::forecast::KEEP_RUNS_MS;
use crate::records::leases::hosts_due;
use crate::records::paths::remove_path_changes;
use crate::records::people::remove_expired;
use crate::records::runs::remove_runs;
use crate::records::series::{KEEP_SAMPLES_MS, remove_buckets, remove_samples};
use crate::records::shipments::remove_shipments;
use crate::secret;
use crate::store::StoreError;

/// The time without contact after which an agent is away, in ms. A long poll is half as long.
const AWAY_MS: i64 = MINUTE;

/// Starts the periodic work, which ends when the set is dropped.
pub(crate) fn start(hub: &Arc<Hub>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    tasks.spawn(repeat(hub.clone(), 1, plan));
    tasks.spawn(repeat(hub.clone(), 2, grid_of_touched));
    tasks.spawn(repeat(hub.clone(), 30, whole_grid));
    tasks.spawn(repeat(hub.clone(), 5, absences));
    tasks.spawn(repeat(hub.clone(), 60, consolidation));
    tasks.spawn(repeat(hub.clone(), 600, removal));
    for at in 0..hub.channels.len() {
        let send = async move |hub: Arc<Hub>| outgoing::send_waiting(&hub, &hub.channels[at]).await;
        tasks.spawn(repeat(hub.clone(), 2, send));
    }
    if let Some(url) = hub.remote_write.clone() {
        tasks.spawn(outgoing::stream(hub.clone(), url));
    }
    tasks.spawn(watch_events(hub.clone()));
    tasks
}

/// Runs `work` every `seconds`. After a failure, for example of the database, it is repeated later;
/// the pages and the API report the failure meanwhile, and the log has its cause.
async fn repeat(
    hub: Arc<Hub>,
    seconds: u64,
    work: impl AsyncFn(Arc<Hub>) -> Result<(), StoreError>,
) {
    let mut ticks = tokio::time::interval(Duration::from_secs(seconds));
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(error) = work(hub.clone()).await {
            hub.log.store_failure(&error);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

async fn plan(hub: Arc<Hub>) -> Result<(), StoreError> {
    let applied = hub.refresh().await?;
    let now = now_ms();
    let round = hub.store.write(move |sql| fleet::plan(sql, applied.as_deref(), now)).await?;
    // Other hubs plan as well, so the hosts with new leases are read from the store.
    let due = hub.store.read(move |sql| hosts_due(sql, now)).await?;
    hub.wake(&due);
    if round.planned > 0 || !round.missed.is_empty() {
        let _ = hub.live.send(PageMessage::Changed);
    }
    hub.touch(round.missed);
    hub.record(round.events).await
}

async fn grid_of_touched(hub: Arc<Hub>) -> Result<(), StoreError> {
    let pairs = hub.take_touched();
    if pairs.is_empty() {
        return Ok(());
    }
    grid(&hub, Some(pairs)).await
}

async fn whole_grid(hub: Arc<Hub>) -> Result<(), StoreError> {
    grid(&hub, None).await
}

async fn grid(
    hub: &Hub,
    pairs: Option<std::collections::BTreeSet<(String, String)>>,
) -> Result<(), StoreError> {
    let Some(applied) = hub.applied() else { return Ok(()) };
    let now = now_ms();
    let update = move |sql: &mut dyn crate::store::Sql| {
        fleet::update_grid(sql, &applied, pairs.as_ref(), now)
    };
    let events = hub.store.write(update).await?;
    let _ = hub.live.send(PageMessage::Changed);
    hub.record(events).await
}

async fn absences(hub: Arc<Hub>) -> Result<(), StoreError> {
    let now = now_ms();
    let away = hub.store.write(move |sql| mark_away(sql, now - AWAY_MS)).await?;
    let event = |host: String| NewEvent {
        at_ms: now,
        severity: Severity::Error,
        kind: "agent_away".to_owned(),
        message: format!(
            "the agent of {host} has not contacted the hub for {} s",
            AWAY_MS / SECOND
        ),
        origin: format!("agent_away/{host}/{now}"),
        subject: host,
    };
    hub.record(away.into_iter().map(event).collect()).await
}

async fn consolidation(hub: Arc<Hub>) -> Result<(), StoreError> {
    while hub.store.write(consolidate).await? {}
    Ok(())
}

async fn removal(hub: Arc<Hub>) -> Result<(), StoreError> {
    let now = now_ms();
    while hub.store.write(move |sql| remove_samples(sql, now)).await? {}
    let mut last = Some(0);
    while let Some(after) = last {
        last = hub.store.write(move |sql| remove_buckets(sql, now, after)).await?;
    }
    hub.store
        .write(move |sql| {
            remove_expired(sql, now)?;
            remove_unsent(sql, now - DAY)?;
            remove_shipments(sql, now - KEEP_SAMPLES_MS)?;
            remove_path_changes(sql, now - KEEP_RUNS_MS)?;
            remove_runs(sql, now - KEEP_RUNS_MS)?;
            remove_events(sql, now - KEEP_RUNS_MS)
        })
        .await?;
    while hub.store.write(move |sql| store_days(sql, now)).await? {}
    let all = hub.store.read(agents).await?;
    hub.forget_hosts(&all.into_iter().map(|agent| agent.host).collect());
    Ok(())
}

/// Passes new events of all hubs to open pages.
async fn watch_events(hub: Arc<Hub>) {
    let mut seen = std::collections::VecDeque::<String>::new();
    let started = now_ms();
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        // An id is made before its transaction ends, so a later id can be visible earlier.
        let since = started.max(now_ms() - 15 * SECOND);
        let Ok(from) = secret::id(since) else { continue };
        let found = hub.store.read(move |sql| events_after(sql, &from, 200)).await;
        for event in found.unwrap_or_default() {
            if seen.contains(&event.id) {
                continue;
            }
            seen.push_back(event.id.clone());
            let _ = hub.live.send(PageMessage::Event(Arc::new(event)));
        }
        while seen.len() > 1000 {
            seen.pop_front();
        }
    }
}
