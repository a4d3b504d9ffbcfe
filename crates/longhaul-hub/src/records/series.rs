//! Uploaded samples, their consolidation, their removal, and their reading.

use std::collections::BTreeMap;

use crate::clock::{DAY, HOUR, MINUTE, SECOND};
use crate::samples::{Bucket, Kind, merge, pack, pack_bucket, point, unpack, unpack_bucket};
use crate::store::{Lock, Sql, StoreError, first, values};

/// A level of consolidation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level {
    /// The length of an interval in ms.
    pub step_ms: i64,
    /// The time for which the level is kept, in ms.
    pub keep_ms: i64,
}

/// The time for which samples are kept as they were uploaded.
pub const KEEP_SAMPLES_MS: i64 = 48 * HOUR;

/// The levels, the finest first.
pub const LEVELS: [Level; 3] = [
    Level { step_ms: 5 * MINUTE, keep_ms: 50 * DAY },
    Level { step_ms: 2 * HOUR, keep_ms: 2 * 366 * DAY },
    Level { step_ms: DAY, keep_ms: 10 * 366 * DAY },
];

/// The longest time that a block of samples covers, in ms.
const BLOCK_MS: i64 = 30 * MINUTE;

/// The most blocks that one transaction consolidates.
const BLOCKS: i64 = 2000;

/// A series with its number in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Series {
    /// The number.
    pub id: i64,
    /// The kind.
    pub kind: Kind,
    /// The host that measures.
    pub host: String,
    /// The interface or the peer.
    pub name: String,
    /// The rate of the interface in bit/s.
    pub speed_bps: Option<i64>,
    /// The end of the latest sample in ms since 1970.
    pub last_ms: i64,
}

fn malformed(_: crate::samples::Malformed) -> StoreError {
    StoreError::Malformed { what: "block of samples" }
}

/// Stores rows of a series, which begin with their end and span in ms. A repeated block is ignored.
///
/// # Errors
/// The database is unavailable.
pub fn add_rows(
    sql: &mut dyn Sql,
    (kind, host, name): (Kind, &str, &str),
    speed_bps: Option<u64>,
    rows: &[Vec<i64>],
) -> Result<(), StoreError> {
    let mut rows: Vec<&Vec<i64>> = rows.iter().filter(|row| row.len() == kind.width()).collect();
    rows.sort_unstable_by_key(|row| row[0]);
    let Some(last) = rows.last() else { return Ok(()) };
    let speed = speed_bps.and_then(|speed| i64::try_from(speed).ok());
    let series = series_id(sql, (kind, host, name))?;
    sql.execute(
        "UPDATE series SET last_ms = CASE WHEN last_ms > $1 THEN last_ms ELSE $1 END,
         speed_bps = $2 WHERE id = $3",
        values![last[0], speed, series],
    )?;
    for block in rows.chunk_by(|a, b| a[0].div_euclid(BLOCK_MS) == b[0].div_euclid(BLOCK_MS)) {
        let block: Vec<Vec<i64>> = block.iter().map(|row| (*row).clone()).collect();
        let (Some(first), Some(last)) = (block.first(), block.last()) else { continue };
        sql.execute(
            "INSERT INTO chunk (series, start_ms, end_ms, consolidated, data)
             VALUES ($1, $2, $3, 0, $4) ON CONFLICT (series, start_ms) DO NOTHING",
            values![series, first[0], last[0], pack(kind.width(), &block)],
        )?;
    }
    Ok(())
}

fn series_id(sql: &mut dyn Sql, (kind, host, name): (Kind, &str, &str)) -> Result<i64, StoreError> {
    let query = "SELECT id FROM series WHERE kind = $1 AND host = $2 AND name = $3";
    let key = values![kind.as_str(), host, name];
    if let Some(row) = first(sql, query, key)? {
        return row.int(0);
    }
    let id = super::numbers::next(sql, "series")?;
    sql.execute(
        "INSERT INTO series (id, kind, host, name, last_ms) VALUES ($1, $2, $3, $4, 0)
         ON CONFLICT (kind, host, name) DO NOTHING",
        values![id, kind.as_str(), host, name],
    )?;
    first(sql, query, key)?.ok_or(StoreError::Malformed { what: "series" })?.int(0)
}

/// Returns the series of a host, or of all hosts.
///
/// # Errors
/// The database is unavailable.
pub fn series(
    sql: &mut dyn Sql,
    kind: Kind,
    host: Option<&str>,
) -> Result<Vec<Series>, StoreError> {
    let rows = sql.query(
        "SELECT id, host, name, speed_bps, last_ms FROM series
         WHERE kind = $1 AND ($2 = '' OR host = $2) ORDER BY host, name",
        values![kind.as_str(), host.unwrap_or_default()],
    )?;
    let read = |row: &crate::store::Row| {
        Ok(Series {
            id: row.int(0)?,
            kind,
            host: row.text(1)?,
            name: row.text(2)?,
            speed_bps: row.opt_int(3)?,
            last_ms: row.int(4)?,
        })
    };
    rows.iter().map(read).collect()
}

/// Adds new blocks to the buckets of all levels. Returns true if more blocks wait.
///
/// # Errors
/// The database is unavailable or a block is damaged.
pub fn consolidate(sql: &mut dyn Sql) -> Result<bool, StoreError> {
    sql.lock(Lock::Retention)?;
    let rows = sql.query(
        "SELECT c.series, c.start_ms, c.data, s.kind FROM chunk c JOIN series s ON s.id = c.series
         WHERE c.consolidated = 0 ORDER BY c.end_ms LIMIT $1",
        values![BLOCKS],
    )?;
    let mut points = BTreeMap::<i64, Vec<_>>::new();
    for row in &rows {
        let (series, kind) = (row.int(0)?, Kind::named(&row.text(3)?));
        let kind = kind.ok_or(StoreError::Malformed { what: "kind of a series" })?;
        let unpacked = unpack(kind.width(), &row.bytes(2)?).map_err(malformed)?;
        points
            .entry(series)
            .or_default()
            .extend(unpacked.iter().filter_map(|row| point(kind, row)));
        sql.execute(
            "UPDATE chunk SET consolidated = 1 WHERE series = $1 AND start_ms = $2",
            values![series, row.int(1)?],
        )?;
    }
    for (series, points) in points {
        for level in LEVELS {
            let each = points.iter().map(|point| Bucket::of(point, level.step_ms));
            for bucket in merge(each, level.step_ms) {
                add_bucket(sql, level, series, bucket)?;
            }
        }
    }
    Ok(rows.len() as i64 == BLOCKS)
}

fn add_bucket(
    sql: &mut dyn Sql,
    level: Level,
    series: i64,
    mut bucket: Bucket,
) -> Result<(), StoreError> {
    let level = level.step_ms / SECOND;
    let old = first(
        sql,
        "SELECT data FROM bucket WHERE level = $1 AND series = $2 AND start_ms = $3",
        values![level, series, bucket.start_ms],
    )?;
    if let Some(old) = old {
        bucket.add(&unpack_bucket(bucket.start_ms, &old.bytes(0)?).map_err(malformed)?);
    }
    sql.execute(
        "INSERT INTO bucket (level, series, start_ms, data) VALUES ($1, $2, $3, $4)
         ON CONFLICT (level, series, start_ms) DO UPDATE SET data = excluded.data",
        values![level, series, bucket.start_ms, pack_bucket(&bucket)],
    )?;
    Ok(())
}

/// Removes samples and buckets that are older than their level keeps.
///
/// # Errors
/// The database is unavailable.
pub fn remove_old(sql: &mut dyn Sql, now: i64) -> Result<(), StoreError> {
    sql.lock(Lock::Retention)?;
    sql.execute(
        "DELETE FROM chunk WHERE consolidated = 1 AND end_ms < $1",
        values![now - KEEP_SAMPLES_MS],
    )?;
    let series: Vec<i64> = sql
        .query("SELECT id FROM series", &[])?
        .iter()
        .map(|row| row.int(0))
        .collect::<Result<_, _>>()?;
    for series in series {
        for level in LEVELS {
            sql.execute(
                "DELETE FROM bucket WHERE level = $1 AND series = $2 AND start_ms < $3",
                values![level.step_ms / SECOND, series, now - level.keep_ms],
            )?;
        }
    }
    Ok(())
}

/// Returns the buckets of a series between two times, in intervals of `step_ms` or, if that level
/// is not kept so long, longer ones, with the length of the intervals.
///
/// # Errors
/// The database is unavailable or a block is damaged.
pub fn read_series(
    sql: &mut dyn Sql,
    series: &Series,
    (from_ms, to_ms): (i64, i64),
    step_ms: i64,
    now: i64,
) -> Result<(i64, Vec<Bucket>), StoreError> {
    let finest = LEVELS.iter().rev().find(|level| level.step_ms <= step_ms);
    let kept = |level: &&Level| from_ms >= now - level.keep_ms;
    let level = match finest {
        None if from_ms >= now - KEEP_SAMPLES_MS => None,
        None => LEVELS.iter().find(kept).or(LEVELS.last()),
        Some(level) if kept(&level) => Some(level),
        Some(finest) => LEVELS
            .iter()
            .find(|level| level.step_ms > finest.step_ms && kept(level))
            .or(LEVELS.last()),
    };
    let Some(level) = level else {
        return Ok((step_ms, samples(sql, series, (from_ms, to_ms), step_ms)?));
    };
    let rows = sql.query(
        "SELECT start_ms, data FROM bucket WHERE level = $1 AND series = $2
         AND start_ms >= $3 AND start_ms < $4 ORDER BY start_ms",
        values![
            level.step_ms / SECOND,
            series.id,
            from_ms.div_euclid(level.step_ms) * level.step_ms,
            to_ms
        ],
    )?;
    let buckets =
        rows.iter().map(|row| unpack_bucket(row.int(0)?, &row.bytes(1)?).map_err(malformed));
    let buckets = buckets.collect::<Result<Vec<_>, _>>()?;
    let step_ms = step_ms.max(level.step_ms);
    Ok((step_ms, merge(buckets, step_ms)))
}

fn samples(
    sql: &mut dyn Sql,
    series: &Series,
    (from_ms, to_ms): (i64, i64),
    step_ms: i64,
) -> Result<Vec<Bucket>, StoreError> {
    let rows = sql.query(
        "SELECT data FROM chunk WHERE series = $1 AND start_ms >= $2 AND start_ms < $3
         AND end_ms >= $4 ORDER BY start_ms",
        values![series.id, from_ms - BLOCK_MS, to_ms, from_ms],
    )?;
    let mut buckets = Vec::new();
    for row in rows {
        let rows = unpack(series.kind.width(), &row.bytes(0)?).map_err(malformed)?;
        let points = rows.iter().filter_map(|row| point(series.kind, row));
        let within = points.filter(|p| (from_ms..to_ms).contains(&p.start_ms));
        buckets.extend(within.map(|point| Bucket::of(&point, step_ms)));
    }
    Ok(merge(buckets, step_ms))
}
