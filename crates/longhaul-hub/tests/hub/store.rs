//! The conformance suite of the store, on SQLite and on PostgreSQL.

use longhaul_fleet::api::RunState;
use longhaul_fleet::protocol::{InterfaceRow, Role, RunOutcome, RunReason, RunReport, TestKind};
use longhaul_hub::Figures;
use longhaul_hub::records::leases::{self, Reported};
use longhaul_hub::records::runs::{self, NewRun, RunFilter};
use longhaul_hub::records::series::{self, LEVELS};
use longhaul_hub::records::{buckets, counts, meshes, numbers};
use longhaul_hub::samples::{Kind, interface_row};
use longhaul_hub::store::{Sql, Store, StoreError, Value};
use serde_json::json;

use crate::store_intake::{daily_limits, documents_and_blocks};
use crate::store_journal::{changes_of_paths, events_and_outbox, journal_of_new_data};
use crate::store_load::{latest_snapshots, queues_and_hosts};
use crate::store_people::{absences, enrollment_and_counters, people_and_sessions};

pub(crate) const DAY: i64 = 86_400_000;

#[tokio::test]
async fn sqlite_conforms() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hub.db");
    conforms(&Store::sqlite(&path).await.unwrap()).await;
    let again = Store::sqlite(&path).await.unwrap();
    older_is_completed(&again, async || Store::sqlite(&path).await).await;
    newer_is_refused(&again, async || Store::sqlite(&path).await).await;
}

#[tokio::test]
async fn postgres_conforms() {
    let server = crate::postgres::Server::start();
    let address = server.database("conforms");
    conforms(&Store::postgres(&address).await.unwrap()).await;
    let again = Store::postgres(&address).await.unwrap();
    older_is_completed(&again, async || Store::postgres(&address).await).await;
    newer_is_refused(&again, async || Store::postgres(&address).await).await;
    assert!(matches!(Store::postgres("port=x").await, Err(StoreError::Address(_))));
}

/// Checks that a database of a version without the tables of daily limits and snapshots gets them and keeps its
/// data.
async fn older_is_completed(store: &Store, open: impl AsyncFn() -> Result<Store, StoreError>) {
    for table in ["intake", "snapshot"] {
        let drop = format!("DROP TABLE {table}");
        store.write(move |sql| sql.execute(&drop, &[])).await.unwrap();
        let select = format!("SELECT * FROM {table}");
        store.read(move |sql| sql.query(&select, &[])).await.unwrap_err();
    }
    let opened = open().await.unwrap();
    daily_limits(&opened).await;
    latest_snapshots(&opened).await;
    assert_eq!(opened.read(|sql| numbers::get(sql, "kept")).await.unwrap(), Some(7));
}

async fn newer_is_refused(store: &Store, open: impl AsyncFn() -> Result<Store, StoreError>) {
    store.write(|sql| sql.execute("UPDATE schema_version SET version = 999", &[])).await.unwrap();
    let Err(StoreError::Newer { found: 999, known }) = open().await else {
        panic!("a newer database is refused")
    };
    assert_eq!(known, longhaul_hub::store::SCHEMA);
}

async fn conforms(store: &Store) {
    transactions(store).await;
    concurrent_counters(store).await;
    people_and_sessions(store).await;
    enrollment_and_counters(store).await;
    absences(store).await;
    runs_and_reports(store).await;
    reasons_of_expired_runs(store).await;
    daily_limits(store).await;
    documents_and_blocks(store).await;
    series_and_retention(store).await;
    queues_and_hosts(store).await;
    latest_snapshots(store).await;
    events_and_outbox(store).await;
    journal_of_new_data(store).await;
    changes_of_paths(store).await;
}

async fn transactions(store: &Store) {
    // A refused transaction leaves nothing behind; others that are committed with it stay.
    let failing = store.write(|sql| {
        numbers::set(sql, "undone", 1)?;
        sql.execute("INSERT INTO number (name) VALUES ('x')", &[])?;
        Ok(())
    });
    let good = store.write(|sql| numbers::set(sql, "kept", 7));
    let (failed, good) = tokio::join!(failing, good);
    assert!(failed.is_err());
    good.unwrap();
    assert_eq!(store.read(|sql| numbers::get(sql, "undone")).await.unwrap(), None);
    assert_eq!(store.read(|sql| numbers::get(sql, "kept")).await.unwrap(), Some(7));
    assert_eq!(store.read(meshes::latest_mesh).await.unwrap(), None);
    assert_eq!(store.read(meshes::latest_revision).await.unwrap(), 0);
    let all = [
        Value::Null,
        Value::Int(i64::MIN),
        Value::Real(0.1),
        Value::Text("\u{1F600} <b>'\"$1?\u{0}".to_owned()),
        Value::Bytes(vec![0, 255]),
    ];
    let row = store
        .read(move |sql| {
            let select =
                "SELECT CAST($1 AS BIGINT), CAST($2 AS BIGINT), CAST($3 AS DOUBLE PRECISION), $4";
            let values =
                [all[0].clone(), all[1].clone(), all[2].clone(), Value::from("\u{1F600} \0'")];
            Ok(sql.query(select, &values)?.remove(0))
        })
        .await
        .unwrap();
    assert_eq!(row.opt_int(0).unwrap(), None);
    assert_eq!(row.int(1).unwrap(), i64::MIN);
    assert_eq!(row.opt_real(2).unwrap(), Some(0.1));
    assert_eq!(row.text(3).unwrap(), "\u{1F600} \u{fffd}'");
    assert!(matches!(row.int(3), Err(StoreError::Column { index: 3, .. })));
    assert!(store.read(|sql| sql.size_bytes()).await.unwrap() > 10_000);
}

async fn concurrent_counters(store: &Store) {
    let tasks: Vec<_> = (0..40)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.write(|sql| numbers::next(sql, "many", 1)).await })
        })
        .collect();
    let mut seen = Vec::new();
    for task in tasks {
        seen.push(task.await.unwrap().unwrap());
    }
    seen.sort_unstable();
    assert_eq!(seen, (1..=40).collect::<Vec<i64>>());
}

fn new_run(id: &str, fencing: i64, start: i64) -> NewRun {
    NewRun {
        id: id.to_owned(),
        fencing,
        test: "bulk".to_owned(),
        kind: TestKind::Throughput,
        source: "a".to_owned(),
        destination: "b".to_owned(),
        due_ms: start,
        window_ms: (start, start + 1000),
        port: 5300,
        resources: vec!["a/eth0/out".to_owned(), "b/eth0/in".to_owned()],
        lease: "{}".to_owned(),
        revision: 1,
        has_target: true,
        missed: None,
    }
}

fn report(run: &str, fencing: u64, role: Role, outcome: RunOutcome) -> RunReport {
    RunReport {
        id: 1,
        run: run.to_owned(),
        fencing,
        role,
        outcome,
        reason: (outcome != RunOutcome::Finished).then_some(RunReason::Failed),
        started_ms: Some(1),
        ended_ms: 2,
        exit_code: Some(0),
        message: None,
        document: (role == Role::Source).then(|| json!({"schema": "longhaul.test/1"})),
    }
}

async fn runs_and_reports(store: &Store) {
    let (first, again, target, open) = store
        .write(|sql| {
            runs::add_run(sql, &new_run("r1", 1, 5000))?;
            runs::add_run(sql, &new_run("r2", 2, 7000))?;
            let due = leases::hosts_due(sql, 4000)?;
            assert_eq!(due, ["a", "b"]);
            let first = leases::lease(sql, "a", 4000)?;
            Ok((
                first,
                leases::lease(sql, "a", 4000)?,
                leases::lease(sql, "b", 4000)?,
                leases::open_runs(sql)?,
            ))
        })
        .await
        .unwrap();
    assert_eq!(first.iter().map(|due| due.fencing).collect::<Vec<_>>(), [1, 2]);
    assert!(first.iter().all(|due| !due.repeated && due.role == Role::Source));
    assert!(again.iter().all(|due| due.repeated), "a lost answer loses no lease");
    assert!(target.iter().all(|due| due.role == Role::Target));
    assert_eq!(open.len(), 2);
    let figures = Figures { throughput_bps: Some(9_000_000_000), ..Figures::default() };
    let outcomes = store
        .write(move |sql| {
            let finished = report("r1", 1, Role::Source, RunOutcome::Finished);
            Ok([
                leases::report(sql, "b", &finished, &figures)?,
                leases::report(
                    sql,
                    "a",
                    &report("r1", 9, Role::Source, RunOutcome::Finished),
                    &figures,
                )?,
                leases::report(sql, "a", &finished, &figures)?,
                leases::report(sql, "a", &finished, &figures)?,
                leases::report(
                    sql,
                    "b",
                    &report("r1", 1, Role::Target, RunOutcome::NotRun),
                    &figures,
                )?,
            ])
        })
        .await
        .unwrap();
    let stored = |state| Reported::Stored {
        pair: ("a".to_owned(), "b".to_owned()),
        test: "bulk".to_owned(),
        due_ms: 5000,
        state,
    };
    assert_eq!(
        outcomes,
        [
            Reported::Foreign,
            Reported::Foreign,
            stored(Some(RunState::Finished)),
            Reported::Repeated,
            stored(None),
        ]
    );
    let (run, page, next, counts) = store
        .read(|sql| {
            let all = RunFilter { host: Some("b".to_owned()), ..RunFilter::default() };
            let page = runs::runs(sql, &all, 1)?;
            let before = page.last().map(|run| (run.planned_ms, run.run.clone()));
            let next = runs::runs(sql, &RunFilter { before, ..all }, 10)?;
            Ok((runs::run_of(sql, "r1")?, page, next, counts::counts(sql, (0, DAY))?))
        })
        .await
        .unwrap();
    let run = run.unwrap();
    assert_eq!((run.state, run.throughput_bps), (RunState::Finished, Some(9_000_000_000)));
    assert_eq!(run.document, Some(json!({"schema": "longhaul.test/1"})));
    assert_eq!((page.len(), page[0].run.as_str()), (1, "r2"));
    assert_eq!((next.len(), next[0].run.as_str()), (1, "r1"));
    assert_eq!(counts.len(), 2);
}

async fn reasons_of_expired_runs(store: &Store) {
    let expired = store
        .write(|sql| {
            for (id, start) in [("n1", 20_000), ("n2", 21_000), ("n3", 22_000)] {
                let source = if id == "n2" { "c" } else { "a" };
                let run = NewRun {
                    source: source.to_owned(),
                    destination: "z".to_owned(),
                    ..new_run(id, 3, start)
                };
                runs::add_run(sql, &run)?;
            }
            leases::lease(sql, "c", 20_000)?;
            assert_eq!(leases::cancelled(sql, &["n1".to_owned(), "gone".to_owned()])?, ["gone"]);
            assert!(leases::cancel(sql, "r2", RunReason::MeshChanged, 9)?);
            assert!(!leases::cancel(sql, "r2", RunReason::MeshChanged, 9)?);
            leases::expire(sql, 30_000, Some((19_000, 20_500)))
        })
        .await
        .unwrap();
    let mut reasons: Vec<_> = expired.iter().map(|one| (one.run.as_str(), one.reason)).collect();
    reasons.sort_unstable();
    assert_eq!(
        reasons,
        [("n1", RunReason::HubAway), ("n2", RunReason::PeerAway), ("n3", RunReason::AgentAway),]
    );
    // The agent of a cancelled run does not know the reason of the hub.
    let stopped = report("n4", 4, Role::Source, RunOutcome::Cancelled);
    let run = store
        .write(move |sql| {
            runs::add_run(sql, &new_run("n4", 4, 20_600))?;
            leases::cancel(sql, "n4", RunReason::MeshChanged, 9)?;
            leases::report(sql, "a", &stopped, &Figures::default())?;
            runs::run_of(sql, "n4")
        })
        .await
        .unwrap()
        .unwrap();
    assert_eq!((run.state, run.reason), (RunState::Cancelled, Some(RunReason::MeshChanged)));
    assert_eq!(run.started_ms, Some(1));
    // A report that arrives later replaces the reason.
    let late = report("n3", 3, Role::Source, RunOutcome::Finished);
    let run = store
        .write(move |sql| {
            leases::report(sql, "a", &late, &Figures::default())?;
            runs::run_of(sql, "n3")
        })
        .await
        .unwrap()
        .unwrap();
    assert_eq!((run.state, run.reason), (RunState::Finished, None));
    let left = store
        .write(|sql| {
            runs::remove_runs(sql, 21_500)?;
            runs::runs(sql, &RunFilter::default(), 10)
        })
        .await
        .unwrap();
    assert_eq!(left.iter().map(|run| run.run.as_str()).collect::<Vec<_>>(), ["n3"]);
}

async fn series_and_retention(store: &Store) {
    let start = 1_000 * DAY;
    let row = move |at: i64, bytes: u64| {
        interface_row(InterfaceRow {
            end_ms: start + (at + 1) * 1000,
            span_ms: 1000,
            in_bytes: bytes,
            ..InterfaceRow::default()
        })
    };
    store
        .write(move |sql| {
            // 10 minutes at 8 Mbit/s with one second at 80, a gap of an hour, then 8 again.
            let first: Vec<_> =
                (0..600).map(|at| row(at, if at == 7 { 10_000_000 } else { 1_000_000 })).collect();
            let second: Vec<_> = (4200..4260).map(|at| row(at, 1_000_000)).collect();
            let name = (Kind::Interface, "a", "eth0");
            series::add_rows(sql, name, Some(10_000_000), &first)?;
            series::add_rows(sql, name, Some(10_000_000), &first)?;
            series::add_rows(sql, name, Some(10_000_000), &second)
        })
        .await
        .unwrap();
    while store.write(buckets::consolidate).await.unwrap() {}
    let (fine, coarse, hours) = store
        .read(move |sql| {
            let all = series::series(sql, Kind::Interface, Some("a"))?;
            assert_eq!(all.len(), 1);
            assert_eq!(all[0].last_ms, start + 4_260_000);
            let range = (start, start + DAY);
            let now = start + DAY;
            let read =
                |sql: &mut dyn Sql, step| series::read_series(sql, &all[0], range, step, now);
            Ok((read(sql, 1000)?, read(sql, LEVELS[0].step_ms)?, read(sql, LEVELS[1].step_ms)?))
        })
        .await
        .unwrap();
    assert_eq!((fine.0, fine.1.len()), (1000, 660), "a repeated block is stored once");
    assert_eq!((coarse.0, coarse.1.len()), (300_000, 3), "a gap has no buckets");
    let peak = coarse.1[0].spans[0];
    assert_eq!((peak.min, peak.max), (8e6, 8e7));
    assert_eq!(peak.average(), Some((299.0 * 8e6 + 8e7) / 300.0));
    assert_eq!((hours.0, hours.1.len()), (7_200_000, 1));
    assert_eq!(hours.1[0].spans[0].max, 8e7);
    let (left, level) = store
        .write(move |sql| {
            let now = start + 60 * DAY;
            series::remove_old(sql, now)?;
            let all = series::series(sql, Kind::Interface, None)?;
            let (step, found) = series::read_series(sql, &all[0], (start, start + DAY), 1000, now)?;
            let chunks = sql.query("SELECT 1 FROM chunk", &[])?.len();
            Ok((chunks, (step, found.len())))
        })
        .await
        .unwrap();
    assert_eq!(left, 0);
    assert_eq!(level, (7_200_000, 1), "after 60 days the level of two hours remains");
}
