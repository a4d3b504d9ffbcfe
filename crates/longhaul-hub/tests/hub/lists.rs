//! Lists of many rows, on both databases: choices of runs, stored counts of days, many series at once.

use longhaul_fleet::api::RunState;
use longhaul_fleet::protocol::{InterfaceRow, Role, RunOutcome, RunReason, RunReport, TestKind};
use longhaul_hub::Figures;
use longhaul_hub::records::counts::{RunCount, counts, store_days};
use longhaul_hub::records::leases::report;
use longhaul_hub::records::runs::{NewRun, RunFilter, add_runs, remove_runs, runs};
use longhaul_hub::records::series::{NewRows, add_series, read_series, series};
use longhaul_hub::samples::{Kind, interface_row};
use longhaul_hub::store::{Sql, Store, StoreError};

const DAY: i64 = 86_400_000;
/// The first day of the runs, of which there are ten per day.
const FIRST: i64 = 100;
const RUNS: i64 = 300;

#[tokio::test]
async fn sqlite_lists_are_complete() {
    let dir = tempfile::tempdir().unwrap();
    lists(&Store::sqlite(&dir.path().join("hub.db")).await.unwrap()).await;
}

#[tokio::test]
async fn postgres_lists_are_complete() {
    let server = crate::postgres::Server::start();
    lists(&Store::postgres(&server.database("lists")).await.unwrap()).await;
}

async fn lists(store: &Store) {
    store.write(|sql| add_runs(sql, &(0..RUNS).map(run).collect::<Vec<_>>())).await.unwrap();
    store.read(choices_of_runs).await.unwrap();
    store.write(counts_of_days).await.unwrap();
    store.write(many_series).await.unwrap();
}

fn run(at: i64) -> NewRun {
    let hosts = ["a", "b", "c", "d"];
    let planned = FIRST * DAY + at * DAY / 10;
    NewRun {
        id: format!("run{at:04}"),
        fencing: at,
        test: format!("t{}", at % 2),
        kind: TestKind::Throughput,
        source: hosts[at as usize % 4].to_owned(),
        destination: hosts[(at as usize + 1) % 4].to_owned(),
        due_ms: planned,
        window_ms: (planned, planned + 7000),
        port: 5290,
        resources: Vec::new(),
        lease: "{}".to_owned(),
        revision: 1,
        has_target: true,
        missed: (at % 5 == 0).then_some(RunReason::AgentAway),
    }
}

fn ids(sql: &mut dyn Sql, filter: &RunFilter, limit: i64) -> Result<Vec<String>, StoreError> {
    Ok(runs(sql, filter, limit)?.into_iter().map(|run| run.run).collect())
}

fn choices_of_runs(sql: &mut dyn Sql) -> Result<(), StoreError> {
    let expected = |chosen: &dyn Fn(&NewRun) -> bool| -> Vec<String> {
        (0..RUNS).rev().map(run).filter(chosen).map(|run| run.id).collect()
    };
    let any = RunFilter::default();
    let text = |text: &str| Some(text.to_owned());
    type Choice<'a> = (RunFilter, &'a dyn Fn(&NewRun) -> bool);
    let all: [Choice<'_>; 6] = [
        (any.clone(), &|_| true),
        (RunFilter { host: text("b"), ..any.clone() }, &|run| {
            run.source == "b" || run.destination == "b"
        }),
        (RunFilter { host: text("b"), source: text("a"), ..any.clone() }, &|run| {
            run.source == "a" && run.destination == "b"
        }),
        (RunFilter { host: text("b"), source: text("c"), ..any.clone() }, &|_| false),
        (RunFilter { state: Some(RunState::Missed), test: text("t1"), ..any.clone() }, &|run| {
            run.missed.is_some() && run.test == "t1"
        }),
        (RunFilter { reason: Some(RunReason::AgentAway), ..any.clone() }, &|run| {
            run.missed.is_some()
        }),
    ];
    for (filter, chosen) in all {
        let wanted = expected(chosen);
        assert_eq!(ids(sql, &filter, 1000)?, wanted, "{filter:?}");
        // Pages have the same runs.
        let (mut pages, mut filter) = (Vec::new(), filter);
        loop {
            let page = runs(sql, &filter, 7)?;
            let Some(last) = page.last() else { break };
            filter.before = Some((last.planned_ms, last.run.clone()));
            pages.extend(page.into_iter().map(|run| run.run));
        }
        assert_eq!(pages, wanted, "{filter:?}");
    }
    Ok(())
}

fn total(all: &[RunCount], of: impl Fn(&RunCount) -> bool) -> i64 {
    all.iter().filter(|count| of(count)).map(|count| count.runs).sum()
}

fn counts_of_days(sql: &mut dyn Sql) -> Result<(), StoreError> {
    let (start, now) = (FIRST * DAY, (FIRST + RUNS / 10) * DAY);
    let live = counts(sql, (start, now))?;
    assert_eq!(total(&live, |_| true), RUNS);
    while store_days(sql, now)? {}
    let days = sql.query("SELECT day FROM run_day", &[])?.len();
    assert_eq!(days as i64, RUNS / 10 - 2, "all days but the first and the last");
    let sorted = |mut all: Vec<RunCount>| {
        all.sort_by_key(|one| {
            (one.day_ms, one.test.clone(), one.state.as_str(), one.reason.map(RunReason::as_str))
        });
        all
    };
    assert_eq!(sorted(counts(sql, (start, now))?), sorted(live.clone()));
    let part = (start + DAY / 2, now - DAY / 2);
    assert_eq!(total(&counts(sql, part)?, |_| true), RUNS - 10, "parts of days");
    // A report that arrives days later changes the stored day.
    let late = RunReport {
        id: 1,
        run: "run0101".to_owned(),
        fencing: 101,
        role: Role::Source,
        outcome: RunOutcome::Finished,
        reason: None,
        started_ms: None,
        ended_ms: 1,
        exit_code: None,
        message: None,
        document: None,
    };
    report(sql, "b", &late, &Figures::default())?;
    let changed = counts(sql, (start, now))?;
    assert_eq!(total(&changed, |one| one.state == RunState::Finished), 1);
    assert_eq!(total(&changed, |_| true), RUNS);
    while store_days(sql, now)? {}
    assert_eq!(total(&counts(sql, (start, now))?, |one| one.state == RunState::Finished), 1);
    remove_runs(sql, start + 5 * DAY)?;
    while store_days(sql, now)? {}
    assert_eq!(total(&counts(sql, (start, now))?, |_| true), RUNS - 50);
    Ok(())
}

fn many_series(sql: &mut dyn Sql) -> Result<(), StoreError> {
    let row = |second: i64| {
        interface_row(InterfaceRow {
            end_ms: FIRST * DAY + second * 1000,
            span_ms: 1000,
            in_bytes: 1000,
            ..InterfaceRow::default()
        })
    };
    let one = |name: String, seconds: std::ops::Range<i64>| NewRows {
        name,
        speed_bps: Some(1),
        rows: seconds.map(row).collect(),
    };
    // An upload with samples from the journal has a series twice.
    let mut all: Vec<NewRows> = (0..75).map(|at| one(format!("eth{at}"), 1..11)).collect();
    all.push(one("eth3".to_owned(), 11..21));
    all.push(one("empty".to_owned(), 0..0));
    add_series(sql, (Kind::Interface, "many"), all.clone(), i64::MAX)?;
    add_series(sql, (Kind::Interface, "many"), all, i64::MAX)?;
    let found = series(sql, Kind::Interface, Some("many"))?;
    assert_eq!(found.len(), 75);
    for one in &found {
        let range = (FIRST * DAY, FIRST * DAY + 60_000);
        let (_, buckets) = read_series(sql, one, range, 1000, FIRST * DAY + 60_000)?;
        let seconds = if one.name == "eth3" { 20 } else { 10 };
        assert_eq!(buckets.len(), seconds, "{}", one.name);
        assert_eq!(one.last_ms, FIRST * DAY + seconds as i64 * 1000);
    }
    Ok(())
}
