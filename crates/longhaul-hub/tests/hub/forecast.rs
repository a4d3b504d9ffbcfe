//! The forecast of the size of a database against the bytes that it really has, on both databases.

use longhaul_fleet::protocol::{
    HostRow, InterfaceRow, QueueRow, Role, RunOutcome, RunReport, StampSummary, TestKind,
};
use longhaul_hub::Figures;
use longhaul_hub::records::buckets::{add_buckets, consolidate};
use longhaul_hub::records::forecast::{StoreForecast, StoreUsage};
use longhaul_hub::records::leases::report;
use longhaul_hub::records::runs::{NewRun, add_runs};
use longhaul_hub::records::series::{LEVELS, NewRows, add_series, series};
use longhaul_hub::samples::{Bucket, Kind, Span, host_row, interface_row, queue_row, stamp_row};
use longhaul_hub::store::{Sql, Store, StoreError};
use serde_json::json;

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
/// The first day of the data.
const START: i64 = 20_000 * DAY;
/// The hosts, the time of their samples, and the days of older intervals.
const HOSTS: [&str; 6] = ["amsterdam", "boston", "chicago", "denver", "geneva", "lisbon"];
const SAMPLED: i64 = 3 * HOUR;
const DAYS: i64 = 2;
/// The time between two uploads of a small fleet.
const UPLOAD: i64 = 11_000;
/// The runs, all of one day.
const RUNS: i64 = 3000;

#[tokio::test]
async fn sqlite_grows_as_forecast() {
    let dir = tempfile::tempdir().unwrap();
    grows_as_forecast(&Store::sqlite(&dir.path().join("hub.db")).await.unwrap(), || {}).await;
}

#[tokio::test]
async fn postgres_grows_as_forecast() {
    let server = crate::postgres::Server::start();
    let store = Store::postgres(&server.database("forecast")).await.unwrap();
    // The server does this each minute of the hours that the test stores in seconds.
    grows_as_forecast(&store, || server.vacuum("forecast")).await;
}

async fn grows_as_forecast(store: &Store, tidy: impl Fn()) {
    tidy();
    let mut before = store.read(|sql| sql.size_bytes()).await.unwrap();
    let mut grown = async || {
        let size = store.read(|sql| sql.size_bytes()).await.unwrap();
        size - std::mem::replace(&mut before, size)
    };
    for start in (START..START + SAMPLED).step_by(10 * MINUTE as usize) {
        let end = start + 10 * MINUTE;
        store
            .write(move |sql| {
                (start..end).step_by(UPLOAD as usize).try_for_each(|at| upload(sql, at))
            })
            .await
            .unwrap();
        while store.write(consolidate).await.unwrap() {}
        tidy();
    }
    let found = forecast(store, SAMPLED).await;
    near("samples", grown().await, found.samples + found.buckets);

    for start in (START - DAYS * DAY..START).step_by(2 * HOUR as usize) {
        store.write(move |sql| intervals(sql, start)).await.unwrap();
    }
    near("intervals", grown().await, forecast(store, DAYS * DAY).await.buckets);

    for first in (0..RUNS).step_by(100) {
        store.write(move |sql| runs(sql, first..first + 100)).await.unwrap();
        tidy();
    }
    near("runs", grown().await, forecast(store, DAY).await.runs);
}

async fn forecast(store: &Store, age_ms: i64) -> StoreForecast {
    let read = move |sql: &mut dyn Sql| Ok(StoreUsage::of(sql, RUNS as f64)?.forecast(sql, age_ms));
    store.read(read).await.unwrap()
}

#[track_caller]
fn near(part: &str, grown: i64, forecast: f64) {
    let ratio = forecast / grown as f64;
    assert!((0.75..=1.25).contains(&ratio), "{part}: {grown} bytes, forecast {forecast:.0}");
}

/// Returns a repeatable number from 0 to 1.
fn noise(series: i64, at: i64) -> f64 {
    let mut x = (series.wrapping_mul(0x9e37_79b9) ^ at).cast_unsigned().wrapping_add(0x7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x >> 11) as f64 / (1u64 << 53) as f64
}

/// Stores the uploads of all hosts from `at` on: two interfaces with their queues, the host, and each minute the
/// other hosts.
fn upload(sql: &mut dyn Sql, at: i64) -> Result<(), StoreError> {
    for (host, name) in HOSTS.iter().enumerate() {
        let interface = |number: i64| {
            let row = |second: i64| {
                let end_ms = at + (second + 1) * 1000;
                let bytes = (4e8 * noise(10 * host as i64 + number, end_ms)) as u64;
                interface_row(InterfaceRow {
                    end_ms,
                    span_ms: 1000,
                    in_bytes: bytes,
                    out_bytes: bytes / 2,
                    in_packets: bytes / 4000,
                    out_packets: bytes / 9000,
                    ..InterfaceRow::default()
                })
            };
            let rows = (0..UPLOAD / 1000).map(row).collect();
            NewRows { name: format!("eth{number}"), speed_bps: Some(10_000_000_000), rows }
        };
        add_series(sql, (Kind::Interface, name), (0..2).map(interface).collect(), i64::MAX)?;
        add_series(
            sql,
            (Kind::Queue, name),
            (0..2).map(|number| queue(number, at)).collect(),
            i64::MAX,
        )?;
        add_series(sql, (Kind::Host, name), vec![load(host as i64, at)], i64::MAX)?;
        let minute = (at + UPLOAD).div_euclid(MINUTE) * MINUTE;
        if minute > at {
            let peers = HOSTS.iter().enumerate().filter(|(peer, _)| *peer != host);
            let peer = |(peer, peer_name): (usize, &&str)| NewRows {
                name: (*peer_name).to_owned(),
                speed_bps: None,
                rows: vec![stamp((host * 10 + peer) as i64, minute - MINUTE)],
            };
            add_series(sql, (Kind::Stamp, name), peers.map(peer).collect(), i64::MAX)?;
        }
    }
    Ok(())
}

fn queue(number: i64, at: i64) -> NewRows {
    let row = |second: i64| {
        let end_ms = at + (second + 1) * 1000;
        let packets = (40.0 * noise(number, end_ms)) as u64;
        let packets = packets.saturating_sub(30);
        let bytes = packets * 1500;
        queue_row(QueueRow { end_ms, span_ms: 1000, bytes, packets, drops: Some(0) })
    };
    let rows = (0..UPLOAD / 1000).map(row).collect();
    NewRows { name: format!("eth{number}"), speed_bps: None, rows }
}

fn load(host: i64, at: i64) -> NewRows {
    let row = |second: i64| {
        let end_ms = at + (second + 1) * 1000;
        let share = noise(host, end_ms);
        let ppm = |factor: f64| Some((1e6 * share * factor) as u64);
        host_row(HostRow {
            end_ms,
            span_ms: 1000,
            segments: Some((1e5 * share) as u64),
            retransmits: Some((9.0 * share) as u64),
            connections: Some(200),
            busy_ppm: ppm(0.3),
            max_busy_ppm: ppm(0.9),
            softirq_ppm: ppm(0.05),
            max_softirq_ppm: ppm(0.2),
            steal_ppm: Some(0),
        })
    };
    let rows = (0..UPLOAD / 1000).map(row).collect();
    NewRows { name: String::new(), speed_bps: None, rows }
}

fn stamp(pair: i64, start_ms: i64) -> Vec<i64> {
    let (rtt, queue) = (20.0 + pair as f64, noise(pair, start_ms));
    stamp_row(&StampSummary {
        start_ms,
        span_ms: 60_000,
        sent: 600,
        lost_forward: Some(0),
        lost_reverse: Some(0),
        rtt_min_ms: Some(rtt),
        rtt_p50_ms: Some(rtt + 0.3 * queue),
        rtt_p99_ms: Some(rtt + queue),
        rtt_max_ms: Some(rtt + 2.0 * queue),
        forward_p50_ms: Some(rtt / 2.0),
        reverse_p50_ms: Some(rtt / 2.0 + 0.1),
        clock_error_ms: Some(0.4),
        ..StampSummary::default()
    })
}

/// Stores the intervals of all levels and series of two hours.
fn intervals(sql: &mut dyn Sql, start: i64) -> Result<(), StoreError> {
    for kind in Kind::ALL {
        let all = series(sql, kind, None)?;
        let span = Span { weight_ms: 3e5, sum: 7e9, min: 1.0, max: 9.0 };
        for level in LEVELS {
            let starts = (start..start + 2 * HOUR).step_by(level.step_ms.min(2 * HOUR) as usize);
            for start_ms in starts.filter(|at| at % level.step_ms == 0) {
                let spans = vec![span; kind.metrics().len()];
                let bucket = Bucket { start_ms, spans };
                let each = all.iter().map(|one| (one.id, bucket.clone())).collect::<Vec<_>>();
                add_buckets(sql, level, each)?;
            }
        }
    }
    Ok(())
}

/// Stores runs, some of which have no result.
fn runs(sql: &mut dyn Sql, numbers: std::ops::Range<i64>) -> Result<(), StoreError> {
    let all: Vec<NewRun> = numbers.map(run).collect();
    add_runs(sql, &all)?;
    for run in &all {
        let failed = run.fencing % 50 == 0;
        let interval = |at: i64| {
            let share = 0.9 + 0.2 * noise(run.fencing, at);
            json!({"start_seconds": at as f64 / 10.0, "seconds": 0.1, "bytes": (1e9 * share) as u64,
                "throughput_bps": (9e10 * share) as u64, "rtt_ms": 20.0 + share,
                "cwnd_bytes": (2e8 * share) as u64, "retransmits": 0})
        };
        // Tests are of different lengths.
        let intervals: Vec<_> = (0..10 + run.fencing % 3 * 40).map(interval).collect();
        let document = json!({"schema": "longhaul.test/1",
            "summary": {"throughput_bps": 90_000_000_000u64}, "intervals": intervals});
        let result = RunReport {
            id: 1,
            run: run.id.clone(),
            fencing: run.fencing.cast_unsigned(),
            role: Role::Source,
            outcome: if failed { RunOutcome::Failed } else { RunOutcome::Finished },
            reason: None,
            started_ms: Some(run.window_ms.0 + 500),
            ended_ms: run.window_ms.0 + 3000,
            exit_code: Some(0),
            message: failed.then(|| "the connection was reset".to_owned()),
            document: (!failed).then_some(document),
        };
        let figures = Figures::of(run.kind, result.document.as_ref());
        report(sql, &run.source, &result, &figures)?;
    }
    Ok(())
}

fn run(number: i64) -> NewRun {
    let (source, shift) = (number as usize % 6, 1 + number as usize / 6 % 5);
    let destination = HOSTS[(source + shift) % 6];
    let planned = START + number * DAY / RUNS;
    NewRun {
        id: format!("{planned:011x}-{number:010x}"),
        fencing: number + 1,
        test: "throughput".to_owned(),
        kind: TestKind::Throughput,
        source: HOSTS[source].to_owned(),
        destination: destination.to_owned(),
        due_ms: planned,
        window_ms: (planned, planned + 7000),
        port: 5290,
        resources: vec![
            format!("{}/eth0/out", HOSTS[source]),
            format!("{destination}/eth0/in"),
            "trunk atlantic".to_owned(),
        ],
        lease: json!({"spec": {"kind": "throughput", "seconds": 2}, "source": "10.1.0.1",
            "destination": "10.1.0.2", "port": 5290})
        .to_string(),
        revision: 1,
        has_target: true,
        missed: None,
    }
}
