//! The conformance of the store: the series of queues and hosts, and the latest snapshot of a host.

use longhaul_fleet::protocol::{CoreLoad, HostRow, HostSnapshot, QueueRow};
use longhaul_hub::records::series::{self, LEVELS, NewRows};
use longhaul_hub::records::snapshots::{remove_snapshots, set_snapshot, snapshot};
use longhaul_hub::records::{buckets, forecast};
use longhaul_hub::samples::{Kind, host_row, queue_row};
use longhaul_hub::store::{Sql, Store};

use crate::store::DAY;

const START: i64 = 3000 * DAY;

/// Checks that queues and hosts have samples, intervals and gaps as interfaces have.
pub(crate) async fn queues_and_hosts(store: &Store) {
    let end = |second: i64| START + (second + 1) * 1000;
    // A gap of ten minutes, and a counter that was reset.
    let seconds = || (0..300).chain(900..1200);
    let queue = move |second: i64| {
        let drops = (second != 5).then_some(2);
        queue_row(QueueRow { end_ms: end(second), span_ms: 1000, bytes: 3000, packets: 2, drops })
    };
    let host = move |second: i64| {
        host_row(HostRow {
            end_ms: end(second),
            span_ms: 1000,
            retransmits: Some(if second == 7 { 90 } else { 10 }),
            max_busy_ppm: Some(250_000),
            ..HostRow::default()
        })
    };
    let rows = |name: &str, rows: Vec<Vec<i64>>| {
        vec![NewRows { name: name.to_owned(), speed_bps: None, rows }]
    };
    let (queues, hosts) =
        (rows("eth0", seconds().map(queue).collect()), rows("", seconds().map(host).collect()));
    store
        .write(move |sql| {
            series::add_series(sql, (Kind::Queue, "load"), queues.clone(), i64::MAX)?;
            series::add_series(sql, (Kind::Host, "load"), hosts.clone(), i64::MAX)?;
            series::add_series(sql, (Kind::Host, "load"), hosts.clone(), i64::MAX)
        })
        .await
        .unwrap();
    while store.write(buckets::consolidate).await.unwrap() {}
    let read = move |sql: &mut dyn Sql, kind: Kind, step: i64| {
        let all = series::series(sql, kind, Some("load"))?;
        assert_eq!(all.len(), 1, "one series of each kind");
        let range = (START, START + DAY);
        Ok::<_, longhaul_hub::store::StoreError>(
            series::read_series(sql, &all[0], range, step, START + DAY)?.1,
        )
    };
    let (samples, queue, host) = store
        .read(move |sql| {
            let step = LEVELS[0].step_ms;
            Ok((
                read(sql, Kind::Host, 1000)?,
                read(sql, Kind::Queue, step)?,
                read(sql, Kind::Host, step)?,
            ))
        })
        .await
        .unwrap();
    assert_eq!(samples.len(), 600, "a repeated block is stored once");
    let starts: Vec<i64> = queue.iter().map(|bucket| bucket.start_ms - START).collect();
    assert_eq!(starts, [0, 900_000], "a gap has no intervals");
    assert_eq!(queue[0].spans[0].average(), Some(3000.0));
    assert_eq!((queue[0].spans[2].average(), queue[0].spans[2].weight_ms), (Some(2.0), 299_000.0));
    let [segments, retransmits] = [host[0].spans[0], host[0].spans[1]];
    assert_eq!((segments.average(), retransmits.max), (None, 90.0));
    assert_eq!(retransmits.average(), Some((299.0 * 10.0 + 90.0) / 300.0));
    assert_eq!(host[0].spans[4].max, 0.25);
    let usage = store.read(|sql| forecast::StoreUsage::of(sql, 0.0)).await.unwrap();
    assert_eq!(usage.series[1..3], [1, 1], "the forecast counts them");
    let left = store
        .write(|sql| {
            series::remove_old(sql, START + 60 * DAY)?;
            let blocks = sql.query("SELECT 1 FROM chunk", &[])?.len();
            sql.execute("DELETE FROM bucket", &[])?;
            sql.execute("DELETE FROM series WHERE host = 'load'", &[])?;
            Ok(blocks)
        })
        .await
        .unwrap();
    assert_eq!(left, 0);
}

/// Checks that the hub keeps only the latest snapshot of a host.
pub(crate) async fn latest_snapshots(store: &Store) {
    let of = |at_ms: i64| HostSnapshot {
        at_ms,
        flows: None,
        cores: vec![CoreLoad { core: 1, busy_ppm: 2, softirq_ppm: 3 }],
    };
    let found = store
        .write(move |sql| {
            set_snapshot(sql, "one", &of(5000), 9000)?;
            set_snapshot(sql, "one", &of(6000), 9000)?;
            set_snapshot(sql, "two", &of(i64::MAX), 9000)?;
            let all = [snapshot(sql, "one")?, snapshot(sql, "two")?, snapshot(sql, "none")?];
            remove_snapshots(sql, 7000)?;
            Ok((all, snapshot(sql, "one")?, snapshot(sql, "two")?))
        })
        .await
        .unwrap();
    assert_eq!(found.0, [Some(of(6000)), Some(of(9000)), None], "no time is in the future");
    assert_eq!((found.1, found.2), (None, Some(of(9000))));
    let unreadable = store
        .write(|sql| {
            sql.execute("UPDATE snapshot SET document = $1", &[vec![7_u8; 3].into()])?;
            snapshot(sql, "two")
        })
        .await
        .unwrap();
    assert_eq!(unreadable, None);
}
