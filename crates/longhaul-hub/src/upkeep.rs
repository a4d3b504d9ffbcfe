//! The periodic work of a hub: planning, absences, the grid, consolidation, removal, and the tasks
//! that send.

use std::sync::Arc;
use std::time::Duration;

use longhaul_fleet::protocol::Severity;
use tokio::task::JoinSet;

use crate::clock::{DAY, HOUR, MINUTE, SECOND, now_ms};
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
use crate::records::removal::{DOUBT_MS, RemovalClock, removal_clock};
use crate::records::runs::remove_runs;
use crate::records::series::{KEEP_SAMPLES_MS, remove_buckets, remove_samples};
use crate::records::shipments::remove_shipments;
use crate::records::snapshots::remove_snapshots;
use crate::secret;
use crate::store::StoreError;
use crate::words;

/// The time without contact after which an agent is away, in ms. A long poll is half as long.
const AWAY_MS: i64 = MINUTE;
const AWAY: Duration = Duration::from_millis(AWAY_MS.unsigned_abs());

/// The shortest time between two consolidations.
const CONSOLIDATION: Duration = Duration::from_secs(60);

/// Starts the periodic work, which ends when the set is dropped.
pub(crate) fn start(hub: &Arc<Hub>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    tasks.spawn(repeat(hub.clone(), 1, plan));
    tasks.spawn(repeat(hub.clone(), 2, grid_of_touched));
    tasks.spawn(repeat(hub.clone(), 30, whole_grid));
    tasks.spawn(repeat(hub.clone(), 5, absences));
    tasks.spawn(consolidations(hub.clone()));
    tasks.spawn(repeat(hub.clone(), 600, removal));
    tasks.spawn(repeat(hub.clone(), 5, checkpoint_failures));
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

/// Reports the failures of checkpoints, which are part of no transaction.
async fn checkpoint_failures(hub: Arc<Hub>) -> Result<(), StoreError> {
    hub.store.take_checkpoint_failure().map_or(Ok(()), Err)
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
    let mut events = round.events;
    let full_since = hub.log.full_since_ms();
    events.extend(full_since.map(|since| disk_was_full(since, now)));
    hub.record(events).await?;
    if full_since.is_some() {
        hub.log.clear_full_disk();
    }
    Ok(())
}

fn disk_was_full(since: i64, now: i64) -> NewEvent {
    NewEvent {
        at_ms: now,
        severity: Severity::Error,
        kind: "disk_full".to_owned(),
        subject: "hub".to_owned(),
        message: format!(
            "the disk of the hub was full for {}; the agents kept their results meanwhile",
            words::span(now - since)
        ),
        // A disk on the edge is one event per hour.
        origin: format!("disk_full/{}", since / HOUR),
    }
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

/// Marks agents as away. After its own start and after a step of the clock, the hub waits as long as an
/// agent may be silent: it does not know whether the agents could call before.
async fn absences(hub: Arc<Hub>) -> Result<(), StoreError> {
    let now = now_ms();
    if hub.steady_for(now) < AWAY {
        return Ok(());
    }
    let away = hub.store.write(move |sql| mark_away(sql, now, AWAY_MS)).await?;
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

/// The blocks of a series that are consolidated together in a large fleet. They are on few pages of the database,
/// and each changes the same buckets.
const BLOCKS_TOGETHER: u32 = 5;

async fn consolidations(hub: Arc<Hub>) {
    loop {
        let pause = consolidation(&hub).await.unwrap_or_else(|error| {
            hub.log.store_failure(&error);
            CONSOLIDATION
        });
        tokio::time::sleep(pause).await;
    }
}

/// Consolidates the new blocks, and returns the time until the next consolidation.
async fn consolidation(hub: &Hub) -> Result<Duration, StoreError> {
    while hub.store.write(consolidate).await? {}
    let upload = Duration::from_secs(fleet::upload_seconds(hub.directory().await?.len()).into());
    Ok((upload * BLOCKS_TOGETHER).max(CONSOLIDATION))
}

async fn removal(hub: Arc<Hub>) -> Result<(), StoreError> {
    let all = hub.store.read(agents).await?;
    hub.forget_hosts(&all.into_iter().map(|agent| agent.host).collect());
    remove_before(&hub, now_ms()).await
}

/// Removes the data that are too old at `now`.
async fn remove_before(hub: &Hub, now: i64) -> Result<(), StoreError> {
    match hub.store.write(move |sql| removal_clock(sql, now)).await? {
        RemovalClock::Believed => {}
        RemovalClock::Ahead { is_new: false, .. } => return Ok(()),
        RemovalClock::Ahead { by_ms, is_new: true } => {
            return hub.record(vec![clock_ahead(by_ms, now)]).await;
        }
    }
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
            remove_snapshots(sql, now - KEEP_SAMPLES_MS)?;
            remove_path_changes(sql, now - KEEP_RUNS_MS)?;
            remove_runs(sql, now - KEEP_RUNS_MS)?;
            remove_events(sql, now - KEEP_RUNS_MS)
        })
        .await?;
    while hub.store.write(move |sql| store_days(sql, now)).await? {}
    Ok(())
}

fn clock_ahead(by_ms: i64, now: i64) -> NewEvent {
    NewEvent {
        at_ms: now,
        severity: Severity::Warning,
        kind: "clock_ahead".to_owned(),
        subject: "hub".to_owned(),
        message: format!(
            "the clock of the hub is {} after the last removal of old data; the hub removes no data \
             for {}, because the clock can be wrong",
            words::span(by_ms),
            words::span(DOUBT_MS)
        ),
        origin: format!("clock_ahead/{now}"),
    }
}

/// Passes new events of all hubs to open pages.
async fn watch_events(hub: Arc<Hub>) {
    let mut seen = std::collections::VecDeque::<String>::new();
    let mut started = now_ms();
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        // If the clock stepped back, new events have lower ids.
        started = started.min(now_ms());
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

#[cfg(test)]
mod tests {
    use rustls::RootCertStore;

    use super::*;
    use crate::config::HubConfig;
    use crate::records::events::{EventFilter, events};
    use crate::store::Store;
    use crate::trust;

    #[tokio::test]
    async fn a_wrong_date_removes_nothing_for_days() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::sqlite(&dir.path().join("hub.db")).await.unwrap();
        let config = HubConfig::new(dir.path().to_owned());
        let tls = trust::client(RootCertStore::empty()).unwrap();
        let hub = Hub::new(store, String::new(), &config, tls);
        let start = 1_800_000_000_000;
        hub.record(vec![clock_ahead(0, start)]).await.unwrap();
        let left = async || {
            let all = |sql: &mut dyn crate::store::Sql| events(sql, &EventFilter::default(), 10);
            let all = hub.store.read(all).await.unwrap();
            all.iter().map(|event| event.at_ms).collect::<Vec<_>>()
        };
        remove_before(&hub, start + DAY).await.unwrap();
        // The events of the first day are older than a year now.
        let later = start + 2 * KEEP_RUNS_MS;
        for hours in 0..DOUBT_MS / HOUR {
            remove_before(&hub, later + hours * HOUR).await.unwrap();
        }
        assert_eq!(left().await.last(), Some(&start), "the event of the first day");
        assert_eq!(left().await.len(), 2, "one event about the clock");
        remove_before(&hub, later + DOUBT_MS).await.unwrap();
        assert_eq!(left().await, [later]);
    }
}
