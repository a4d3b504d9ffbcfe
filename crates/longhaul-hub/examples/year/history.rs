//! The series of the year: samples of the last hours, and buckets of the older intervals.

use std::collections::HashMap;

use longhaul_fleet::protocol::{HostRow, InterfaceRow, QueueRow, StampSummary};
use longhaul_hub::records::buckets::{add_buckets, consolidate};
use longhaul_hub::records::series::{LEVELS, Level, NewRows, Series, add_series, series};
use longhaul_hub::samples::{Bucket, Kind, host_row, interface_row, queue_row, stamp_row};
use longhaul_hub::store::{Store, StoreError};

use crate::model::{SITES, bucket, is_down, load, loss, noise, rtt_ms};
use crate::{DAY, Extent, write};

/// The interfaces of each host, and their capacities in bit/s.
pub(crate) const INTERFACES: [(&str, f64); 2] = [("eth0", 100e9), ("eth1", 10e9)];
/// The time between two uploads of an agent of a small fleet, in ms.
const UPLOAD_MS: i64 = 11_000;
/// The uploads of one transaction.
const TOGETHER: i64 = 40;

/// Returns the start of the stored samples: that of a day.
fn samples_from(extent: Extent) -> i64 {
    (extent.now - extent.samples_ms).div_euclid(DAY) * DAY
}

/// Stores samples as the agents upload them, and consolidates them.
pub(crate) async fn samples(store: &Store, extent: Extent) -> Result<i64, StoreError> {
    let mut tasks = tokio::task::JoinSet::new();
    for host in 0..extent.hosts {
        let store = store.clone();
        tasks.spawn(async move { samples_of(&store, extent, host).await });
    }
    let mut rows = 0;
    while let Some(one) = tasks.join_next().await {
        rows += one.map_err(|_| StoreError::Closed)??;
    }
    while write(store, consolidate).await? {}
    Ok(rows)
}

async fn samples_of(store: &Store, extent: Extent, host: usize) -> Result<i64, StoreError> {
    let name = SITES[host].0;
    let (mut at, mut count) = (samples_from(extent), 0);
    while at < extent.now {
        let end = (at + TOGETHER * UPLOAD_MS).min(extent.now / 1000 * 1000);
        if end <= at {
            break;
        }
        count += write(store, move |sql| {
            let mut rows = 0;
            for upload in (at..end).step_by(UPLOAD_MS as usize) {
                if is_down(host as i64, upload) {
                    continue;
                }
                let until = (upload + UPLOAD_MS).min(end);
                let new = interfaces(host, (upload, until));
                rows += new.iter().map(|one| one.rows.len() as i64).sum::<i64>();
                add_series(sql, (Kind::Interface, name), new, i64::MAX)?;
                add_series(sql, (Kind::Queue, name), queues(host, (upload, until)), i64::MAX)?;
                add_series(sql, (Kind::Host, name), load_of(host, (upload, until)), i64::MAX)?;
                let minute = until.div_euclid(60_000) * 60_000;
                if minute > upload {
                    let new = peers(extent.hosts, host, minute - 60_000);
                    rows += new.len() as i64;
                    add_series(sql, (Kind::Stamp, name), new, i64::MAX)?;
                }
            }
            Ok(rows)
        })
        .await?;
        at = end;
    }
    Ok(count)
}

fn interfaces(host: usize, (from, until): (i64, i64)) -> Vec<NewRows> {
    let of = |(at, (name, capacity)): (usize, &(&str, f64))| {
        let series = (host * 10 + at) as i64;
        let row = |end_ms: i64| {
            let second =
                load(series, end_ms) * (0.7 + 0.6 * noise(series, end_ms)) * capacity / 8.0;
            let bytes = second.min(capacity / 8.0) as u64;
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
        let ends = (from..until).step_by(1000).map(|start| start + 1000);
        NewRows {
            name: (*name).to_owned(),
            speed_bps: Some(*capacity as u64),
            rows: ends.map(row).collect(),
        }
    };
    INTERFACES.iter().enumerate().map(of).collect()
}

fn ends((from, until): (i64, i64)) -> impl Iterator<Item = i64> {
    (from..until).step_by(1000).map(|start| start + 1000)
}

fn queues(host: usize, range: (i64, i64)) -> Vec<NewRows> {
    let of = |(at, (name, _)): (usize, &(&str, f64))| {
        let row = |end_ms: i64| {
            let packets = (queue((host * 10 + at) as i64, end_ms) / 9000.0) as u64;
            let (bytes, drops) = (packets * 9000, Some(packets / 500));
            queue_row(QueueRow { end_ms, span_ms: 1000, bytes, packets, drops })
        };
        NewRows { name: (*name).to_owned(), speed_bps: None, rows: ends(range).map(row).collect() }
    };
    INTERFACES.iter().enumerate().map(of).collect()
}

/// Returns the bytes in a queue at a time: none most of the time.
fn queue(number: i64, at: i64) -> f64 {
    5e6 * (load(number, at) - 0.4).max(0.0) * noise(number, at).powi(3)
}

fn load_of(host: usize, range: (i64, i64)) -> Vec<NewRows> {
    let row = |end_ms: i64| {
        let share = load(host as i64 * 10, end_ms) * (0.7 + 0.6 * noise(host as i64, end_ms));
        let ppm = |factor: f64| Some((1e6 * (share * factor).min(1.0)) as u64);
        host_row(HostRow {
            end_ms,
            span_ms: 1000,
            segments: Some((4e6 * share) as u64),
            retransmits: Some((40.0 * share * noise(host as i64 + 5, end_ms)) as u64),
            connections: Some(200 + (50.0 * share) as u64),
            busy_ppm: ppm(0.3),
            max_busy_ppm: ppm(1.1),
            softirq_ppm: ppm(0.05),
            max_softirq_ppm: ppm(0.7),
            steal_ppm: Some(0),
        })
    };
    vec![NewRows { name: String::new(), speed_bps: None, rows: ends(range).map(row).collect() }]
}

fn peers(hosts: usize, host: usize, start_ms: i64) -> Vec<NewRows> {
    let of = |peer: usize| {
        let pair = (host * 100 + peer) as i64;
        let rtt = rtt_ms(host, peer);
        let queue = 0.2 + 2.0 * noise(pair, start_ms).powi(4);
        let row = stamp_row(&StampSummary {
            start_ms,
            span_ms: 60_000,
            sent: 600,
            lost: (600.0 * loss(pair, start_ms)) as u64,
            lost_forward: Some((600.0 * loss(pair, start_ms)) as u64),
            lost_reverse: Some(0),
            rtt_min_ms: Some(rtt),
            rtt_p50_ms: Some(rtt + 0.3 * queue),
            rtt_p99_ms: Some(rtt + queue),
            rtt_max_ms: Some(rtt + 2.0 * queue),
            forward_p50_ms: Some(rtt / 2.0),
            reverse_p50_ms: Some(rtt / 2.0 + 0.1),
            clock_error_ms: Some(0.4),
            ..StampSummary::default()
        });
        NewRows { name: SITES[peer].0.to_owned(), speed_bps: None, rows: vec![row] }
    };
    (0..hosts).filter(|peer| *peer != host).map(of).collect()
}

/// Stores the intervals before the samples, day by day as time passes, at the levels that are kept.
pub(crate) async fn buckets(store: &Store, extent: Extent) -> Result<i64, StoreError> {
    let mut numbers = HashMap::new();
    for kind in Kind::ALL {
        for one in store.read(move |sql| series(sql, kind, None)).await? {
            let at = |name: &str| SITES.iter().position(|(site, _)| *site == name);
            if let Some(host) = at(&one.host) {
                numbers.insert(one.id, (one, host));
            }
        }
    }
    let all: Vec<(Series, usize)> = numbers.into_values().collect();
    let end = samples_from(extent);
    let mut count = 0;
    let mut day = end - (extent.days - extent.samples_ms / DAY) * DAY;
    while day < end {
        for level in LEVELS.into_iter().filter(|level| day >= extent.now - level.keep_ms) {
            let mut tasks = tokio::task::JoinSet::new();
            for part in all.chunks(100) {
                let (part, store) = (part.to_vec(), store.clone());
                let add = move |sql: &mut dyn longhaul_hub::store::Sql| {
                    let new = buckets_of(&part, level, day);
                    let count = new.len() as i64;
                    add_buckets(sql, level, new).map(|()| count)
                };
                tasks.spawn(async move { write(&store, add).await });
            }
            while let Some(one) = tasks.join_next().await {
                count += one.map_err(|_| StoreError::Closed)??;
            }
        }
        day += DAY;
    }
    Ok(count)
}

/// Returns the buckets of a level in a day; times at which the host is down have none.
fn buckets_of(part: &[(Series, usize)], level: Level, day: i64) -> Vec<(i64, Bucket)> {
    let mut new = Vec::new();
    for start in (day..day + DAY).step_by(level.step_ms as usize) {
        for (one, host) in part {
            let up = (start..start + level.step_ms)
                .step_by(300_000)
                .filter(|at| !is_down(*host as i64, *at))
                .count() as i64;
            if up > 0 {
                new.push((one.id, bucket_of(one, *host, start, up * 300_000)));
            }
        }
    }
    new
}

fn bucket_of(one: &Series, host: usize, start: i64, weight: i64) -> Bucket {
    match one.kind {
        Kind::Interface => {
            let at = INTERFACES.iter().position(|(name, _)| *name == one.name).unwrap_or(0);
            let number = (host * 10 + at) as i64;
            let rate = load(number, start) * INTERFACES[at].1;
            let values: Vec<_> = [1.0, 0.5, 1.0 / 32_000.0, 0.5 / 72_000.0]
                .iter()
                .map(|share| Some((0.6 * rate * share, rate * share, 1.35 * rate * share)))
                .chain([Some((0.0, 0.0, 0.0)); 4])
                .collect();
            bucket(start, weight, &values)
        }
        Kind::Queue => {
            let at = INTERFACES.iter().position(|(name, _)| *name == one.name).unwrap_or(0);
            let bytes = queue((host * 10 + at) as i64, start);
            let up_to = |most: f64| Some((0.0, most / 3.0, most));
            let values = [up_to(bytes), up_to(bytes / 9000.0), up_to(bytes / 4.5e6)];
            bucket(start, weight, &values)
        }
        Kind::Host => {
            let share = load(host as i64 * 10, start);
            let around = |value: f64| Some((0.6 * value, value, 1.35 * value));
            let shares = [0.3, 1.1, 0.05, 0.7, 0.0].map(|factor| around((share * factor).min(0.7)));
            let counts = [around(4e6 * share), around(20.0 * share), around(200.0 + 50.0 * share)];
            bucket(start, weight, &[counts.as_slice(), shares.as_slice()].concat())
        }
        Kind::Stamp => {
            let peer = SITES.iter().position(|(site, _)| *site == one.name).unwrap_or(0);
            let pair = (host * 100 + peer) as i64;
            let (rtt, lost) = (rtt_ms(host, peer), loss(pair, start));
            let queue = 0.2 + 2.0 * noise(pair, start).powi(4);
            let near =
                |value: f64, spread: f64| Some((value, value + spread / 3.0, value + spread));
            let values = [
                Some((0.0, lost, 2.0 * lost)),
                Some((0.0, lost, 2.0 * lost)),
                Some((0.0, 0.0, 0.0)),
                near(rtt, 0.1),
                near(rtt, 0.3 * queue),
                near(rtt, queue),
                near(rtt, 2.0 * queue),
                near(rtt / 2.0, 0.1),
                near(rtt / 2.0, 0.1),
                near(0.4, 0.1),
            ];
            bucket(start, weight, &values)
        }
    }
}
