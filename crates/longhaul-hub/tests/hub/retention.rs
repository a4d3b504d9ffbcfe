//! The levels of consolidation over more than ten years of virtual time, on both databases.

use longhaul_fleet::protocol::InterfaceRow;
use longhaul_hub::records::buckets::consolidate;
use longhaul_hub::records::series::{
    KEEP_SAMPLES_MS, LEVELS, add_rows, read_series, remove_old, series,
};
use longhaul_hub::samples::{Kind, interface_row};
use longhaul_hub::store::{Sql, Store, StoreError};

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;
/// The first day, and the number of days: more than the coarsest level keeps.
const FIRST: i64 = 10_000;
const DAYS: i64 = 3800;
/// The days of one transaction.
const TOGETHER: i64 = 100;
/// The samples of a day, one per second.
const SAMPLES: i64 = 20;

#[tokio::test]
async fn sqlite_keeps_each_level_for_its_time() {
    let dir = tempfile::tempdir().unwrap();
    ten_years(&Store::sqlite(&dir.path().join("hub.db")).await.unwrap()).await;
}

#[tokio::test]
async fn postgres_keeps_each_level_for_its_time() {
    let server = crate::postgres::Server::start();
    ten_years(&Store::postgres(&server.database("years")).await.unwrap()).await;
}

/// Returns whether the agent was away: each seventh day, and the whole last month of the third year.
fn is_gap(day: i64) -> bool {
    day % 7 == 0 || (FIRST + 1065..FIRST + 1095).contains(&day)
}

/// Returns the rate of a day's samples in bit/s; each sample adds 8000.
fn rate(day: i64) -> i64 {
    (day % 1000 + 1) * 80_000
}

/// Returns the average, lowest and highest rate of a day.
fn expected(day: i64) -> (f64, f64, f64) {
    let low = rate(day) as f64;
    (low + 8000.0 * (SAMPLES - 1) as f64 / 2.0, low, low + 8000.0 * (SAMPLES - 1) as f64)
}

/// Stores the samples of a day from six in the morning on, and does the work of the hub at its end.
fn live(sql: &mut dyn Sql, day: i64) -> Result<(), StoreError> {
    if !is_gap(day) {
        let row = |at: i64| {
            interface_row(InterfaceRow {
                end_ms: day * DAY + 6 * HOUR + (at + 1) * 1000,
                span_ms: 1000,
                in_bytes: (rate(day) / 8 + at * 1000).unsigned_abs(),
                ..InterfaceRow::default()
            })
        };
        let rows: Vec<_> = (0..SAMPLES).map(row).collect();
        add_rows(sql, (Kind::Interface, "a", "eth0"), Some(1_000_000_000), &rows)?;
    }
    consolidate(sql)?;
    remove_old(sql, (day + 1) * DAY)
}

async fn ten_years(store: &Store) {
    for first in (FIRST..FIRST + DAYS).step_by(TOGETHER as usize) {
        store
            .write(move |sql| (first..first + TOGETHER).try_for_each(|day| live(sql, day)))
            .await
            .unwrap();
    }
    let now = (FIRST + DAYS) * DAY;
    store.read(move |sql| samples_are_kept_for_two_days(sql, now)).await.unwrap();
    for level in 0..LEVELS.len() {
        store.read(move |sql| level_is_kept(sql, level, now)).await.unwrap();
    }
    store.write(move |sql| late_samples_count(sql, now)).await.unwrap();
    store.write(move |sql| damage_is_a_gap(sql, now)).await.unwrap();
}

fn samples_are_kept_for_two_days(sql: &mut dyn Sql, now: i64) -> Result<(), StoreError> {
    let ends: Vec<i64> = sql
        .query("SELECT end_ms FROM chunk ORDER BY end_ms", &[])?
        .iter()
        .map(|row| row.int(0))
        .collect::<Result<_, _>>()?;
    let kept: Vec<i64> = (FIRST..FIRST + DAYS)
        .filter(|day| !is_gap(*day))
        .map(|day| day * DAY + 6 * HOUR + SAMPLES * 1000)
        .filter(|end| *end >= now - KEEP_SAMPLES_MS)
        .collect();
    assert!(!kept.is_empty());
    assert_eq!(ends, kept, "samples of 48 h");
    Ok(())
}

/// Checks that a level has one interval per day with samples, as long as it is kept, and no other.
fn level_is_kept(sql: &mut dyn Sql, level: usize, now: i64) -> Result<(), StoreError> {
    let (step, keep) = (LEVELS[level].step_ms, LEVELS[level].keep_ms);
    let all = series(sql, Kind::Interface, Some("a"))?;
    let (found_step, found) = read_series(sql, &all[0], (now - keep, now), step, now)?;
    assert_eq!(found_step, step);
    let start = |day: i64| (day * DAY + 6 * HOUR).div_euclid(step) * step;
    let days: Vec<i64> =
        (FIRST..FIRST + DAYS).filter(|day| !is_gap(*day) && start(*day) >= now - keep).collect();
    // The coarsest level forgets, too, because the years are more than it keeps.
    assert!(days[0] > FIRST + 100);
    let starts: Vec<i64> = found.iter().map(|bucket| bucket.start_ms).collect();
    assert_eq!(
        starts,
        days.iter().map(|day| start(*day)).collect::<Vec<_>>(),
        "level {level}: gaps stay gaps"
    );
    for (bucket, day) in found.iter().zip(&days) {
        let span = bucket.spans[0];
        let values = (span.average().unwrap(), span.min, span.max);
        let wanted = expected(*day);
        assert!(
            (values.0 - wanted.0).abs() < 1e-6 * wanted.0,
            "level {level}, day {day}: {values:?}"
        );
        assert_eq!((values.1, values.2), (wanted.1, wanted.2), "level {level}, day {day}");
        assert_eq!(span.weight_ms, 1000.0 * SAMPLES as f64, "the measured time");
    }
    let rows =
        sql.query("SELECT count(*) FROM bucket WHERE level = $1", &[(step / 1000).into()])?;
    assert_eq!(rows[0].int(0)?, days.len() as i64, "nothing older is stored");
    Ok(())
}

/// Checks that a damaged block and a damaged interval do not stop the consolidation.
fn damage_is_a_gap(sql: &mut dyn Sql, now: i64) -> Result<(), StoreError> {
    let sample = |name: &str| {
        let row = InterfaceRow {
            end_ms: now - 5000,
            span_ms: 1000,
            in_bytes: 125,
            ..InterfaceRow::default()
        };
        (name.to_owned(), interface_row(row))
    };
    for (name, row) in [sample("bad"), sample("good")] {
        add_rows(sql, (Kind::Interface, &name, "eth0"), None, &[row])?;
    }
    let damage = "data = $1 WHERE series = (SELECT id FROM series WHERE host = $2)";
    let bad = [vec![0xff_u8; 3].into(), "bad".into()];
    assert_eq!(sql.execute(&format!("UPDATE chunk SET {damage}"), &bad)?, 1);
    consolidate(sql)?;
    assert_eq!(longhaul_hub::records::buckets::blocks_waiting(sql)?, 0);
    let good = [vec![0xff_u8; 3].into(), "good".into()];
    assert_eq!(sql.execute(&format!("UPDATE bucket SET {damage}"), &good)?, 3);
    let later = InterfaceRow {
        end_ms: now - 4000,
        span_ms: 1000,
        in_bytes: 125,
        ..InterfaceRow::default()
    };
    add_rows(sql, (Kind::Interface, "good", "eth0"), None, &[interface_row(later)])?;
    consolidate(sql)?;
    let all = series(sql, Kind::Interface, Some("good"))?;
    let (_, found) = read_series(sql, &all[0], (now - DAY, now + DAY), LEVELS[0].step_ms, now)?;
    assert_eq!(found.last().unwrap().spans[0].max, 1000.0);
    Ok(())
}

/// Checks that samples of an agent that was away for a week reach the levels before their removal.
fn late_samples_count(sql: &mut dyn Sql, now: i64) -> Result<(), StoreError> {
    let end = now - 7 * DAY - 12 * HOUR;
    let row = interface_row(InterfaceRow {
        end_ms: end,
        span_ms: 1000,
        in_bytes: 125,
        ..InterfaceRow::default()
    });
    add_rows(sql, (Kind::Interface, "late", "eth0"), None, &[row])?;
    remove_old(sql, now)?;
    consolidate(sql)?;
    remove_old(sql, now)?;
    let all = series(sql, Kind::Interface, Some("late"))?;
    for level in LEVELS {
        let (_, found) = read_series(sql, &all[0], (end - DAY, end + DAY), level.step_ms, now)?;
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].spans[0].max, 1000.0);
    }
    let left = sql.query("SELECT 1 FROM chunk WHERE end_ms = $1", &[end.into()])?;
    assert!(left.is_empty(), "the sample itself is older than 48 h");
    Ok(())
}
