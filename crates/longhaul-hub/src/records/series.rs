//! Uploaded samples, their consolidation, their removal, and their reading.

use std::collections::{BTreeMap, BTreeSet};

use crate::clock::{DAY, HOUR, MINUTE, SECOND};
use crate::samples::{Bucket, Kind, merge, pack, point, unpack, unpack_bucket};
use crate::store::{
    Lock, Row, Sql, StoreError, Value, first, insert_returning, insert_rows, values,
};

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

/// The maximum number of series of one kind of a host: a host has at most 1000 peers.
pub const MOST_SERIES: usize = 1024;

/// The maximum number of blocks that one transaction removes.
const TOGETHER: i64 = 5000;

/// A series with its number in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Series {
    /// The number.
    pub id: i64,
    /// The kind.
    pub kind: Kind,
    /// The host that measures.
    pub host: String,
    /// The interface or the peer; empty for the host itself.
    pub name: String,
    /// The rate of the interface in bit/s.
    pub speed_bps: Option<i64>,
    /// The end of the latest sample in ms since 1970.
    pub last_ms: i64,
}

fn malformed(_: crate::samples::Malformed) -> StoreError {
    StoreError::Malformed { what: "block of samples" }
}

/// The stored part of an upload.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AddedRows {
    /// The new blocks: the number of their series, and their start in ms since 1970.
    pub blocks: Vec<(i64, i64)>,
    /// The bytes of the new blocks with their overhead.
    pub bytes: i64,
    /// True if the host has too many series, so that the rows of a new one are not stored.
    pub is_refused: bool,
    /// True if blocks are not stored, because they exceed the accepted bytes.
    pub is_full: bool,
}

/// Rows of one series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRows {
    /// The interface or the peer; empty for the host itself.
    pub name: String,
    /// The rate of the interface in bit/s.
    pub speed_bps: Option<u64>,
    /// The rows, which begin with their end and span in ms.
    pub rows: Vec<Vec<i64>>,
}

/// Stores rows of a series. A repeated block is ignored.
///
/// # Errors
/// The database is unavailable.
pub fn add_rows(
    sql: &mut dyn Sql,
    (kind, host, name): (Kind, &str, &str),
    speed_bps: Option<u64>,
    rows: &[Vec<i64>],
) -> Result<AddedRows, StoreError> {
    let one = NewRows { name: name.to_owned(), speed_bps, rows: rows.to_vec() };
    add_series(sql, (kind, host), vec![one], i64::MAX)
}

/// Stores rows of series of one host with few statements, up to `most` bytes. A repeated block is
/// ignored.
///
/// # Errors
/// The database is unavailable.
pub fn add_series(
    sql: &mut dyn Sql,
    (kind, host): (Kind, &str),
    mut all: Vec<NewRows>,
    most: i64,
) -> Result<AddedRows, StoreError> {
    for one in &mut all {
        one.rows.retain(|row| row.len() == kind.width());
        one.rows.sort_unstable_by_key(|row| row[0]);
    }
    all.retain(|one| !one.rows.is_empty());
    if all.is_empty() {
        return Ok(AddedRows::default());
    }
    let (known, is_refused) = numbered(sql, (kind, host), &all)?;
    let (mut latest, mut blocks) = (BTreeMap::new(), NewBlocks::default());
    for one in &all {
        let (Some(series), Some(last)) = (known.get(&one.name), one.rows.last()) else { continue };
        let speed = one.speed_bps.and_then(|speed| i64::try_from(speed).ok());
        // PostgreSQL refuses a statement that changes a row twice.
        let newest = latest.entry(series.id).or_insert((one.name.as_str(), speed, last[0]));
        newest.2 = newest.2.max(last[0]);
        for block in
            one.rows.chunk_by(|a, b| a[0].div_euclid(BLOCK_MS) == b[0].div_euclid(BLOCK_MS))
        {
            blocks.push(series.id, block, most);
        }
    }
    let latest: Vec<Vec<Value>> = latest
        .into_iter()
        .map(|(id, (name, speed, last))| {
            values![id, kind.as_str(), host, name, speed, last].to_vec()
        })
        .collect();
    insert_rows(
        sql,
        (
            "INSERT INTO series (id, kind, host, name, speed_bps, last_ms)",
            "ON CONFLICT (kind, host, name) DO UPDATE SET speed_bps = excluded.speed_bps, last_ms =
             CASE WHEN series.last_ms > excluded.last_ms THEN series.last_ms ELSE excluded.last_ms END",
        ),
        &latest,
    )?;
    let new = insert_returning(
        sql,
        (
            "INSERT INTO chunk (series, start_ms, end_ms, consolidated, data)",
            "ON CONFLICT (series, start_ms) DO NOTHING RETURNING series, start_ms",
        ),
        &blocks.rows,
    )?;
    let number = |row: &Row| Ok::<_, StoreError>((row.int(0)?, row.int(1)?));
    let new = new.iter().map(number).collect::<Result<Vec<_>, _>>()?;
    let bytes = new.iter().filter_map(|block| blocks.sizes.get(block)).sum();
    Ok(AddedRows { blocks: new, bytes, is_refused, is_full: blocks.is_full })
}

/// The overhead of a block in bytes: its row, and its entry in an index.
const BLOCK_BYTES: i64 = 64;

/// Blocks of samples to insert.
#[derive(Default)]
struct NewBlocks {
    /// The rows of the table.
    rows: Vec<Vec<Value>>,
    /// The bytes of the blocks, by series and start.
    sizes: BTreeMap<(i64, i64), i64>,
    bytes: i64,
    is_full: bool,
}

impl NewBlocks {
    /// Adds the rows of a block, unless all blocks then have more than `most` bytes.
    fn push(&mut self, series: i64, rows: &[Vec<i64>], most: i64) {
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return };
        let data = pack(first.len(), rows);
        let bytes = BLOCK_BYTES + data.len() as i64;
        if self.bytes + bytes > most {
            self.is_full = true;
            return;
        }
        self.bytes += bytes;
        self.sizes.entry((series, first[0])).or_insert(bytes);
        self.rows.push(values![series, first[0], last[0], 0, data].to_vec());
    }
}

/// Returns the series of a host by name, with new ones for the missing names, and whether the host
/// has too many series for all of them.
fn numbered(
    sql: &mut dyn Sql,
    (kind, host): (Kind, &str),
    all: &[NewRows],
) -> Result<(BTreeMap<String, Series>, bool), StoreError> {
    let mut known = by_name(sql, kind, host)?;
    let missing: BTreeSet<&str> =
        all.iter().map(|one| one.name.as_str()).filter(|name| !known.contains_key(*name)).collect();
    let room = MOST_SERIES.saturating_sub(known.len());
    let is_refused = missing.len() > room;
    let missing: Vec<&str> = missing.into_iter().take(room).collect();
    if !missing.is_empty() {
        let count = missing.len() as i64;
        let first = super::numbers::advance(sql, "series", count)? - count + 1;
        let rows: Vec<Vec<Value>> = (first..)
            .zip(missing)
            .map(|(id, name)| values![id, kind.as_str(), host, name, 0].to_vec())
            .collect();
        insert_rows(
            sql,
            (
                "INSERT INTO series (id, kind, host, name, last_ms)",
                "ON CONFLICT (kind, host, name) DO NOTHING",
            ),
            &rows,
        )?;
        known = by_name(sql, kind, host)?;
    }
    Ok((known, is_refused))
}

fn by_name(
    sql: &mut dyn Sql,
    kind: Kind,
    host: &str,
) -> Result<BTreeMap<String, Series>, StoreError> {
    let all = series(sql, kind, Some(host))?;
    Ok(all.into_iter().map(|one| (one.name.clone(), one)).collect())
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
    let columns = "SELECT id, host, name, speed_bps, last_ms FROM series WHERE kind = $1";
    let rows = match host {
        // The condition of a host is separate, so that both databases use the index.
        Some(host) => sql.query(
            &format!("{columns} AND host = $2 ORDER BY name"),
            values![kind.as_str(), host],
        )?,
        None => sql.query(&format!("{columns} ORDER BY host, name"), values![kind.as_str()])?,
    };
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

/// Removes samples and buckets that are older than their level keeps.
///
/// # Errors
/// The database is unavailable.
pub fn remove_old(sql: &mut dyn Sql, now: i64) -> Result<(), StoreError> {
    while remove_samples(sql, now)? {}
    let mut last = Some(0);
    while let Some(after) = last {
        last = remove_buckets(sql, now, after)?;
    }
    Ok(())
}

/// Removes some blocks of samples that are older than 48 h and consolidated. Returns true if more
/// wait, so that uploads do not wait for all of them.
///
/// # Errors
/// The database is unavailable.
pub fn remove_samples(sql: &mut dyn Sql, now: i64) -> Result<bool, StoreError> {
    sql.lock(Lock::Retention)?;
    let limit = now - KEEP_SAMPLES_MS;
    let last = first(
        sql,
        "SELECT end_ms FROM chunk WHERE consolidated = 1 AND end_ms < $1
         ORDER BY end_ms LIMIT 1 OFFSET $2",
        values![limit, TOGETHER],
    )?;
    let until = last.as_ref().map_or(Ok(limit - 1), |row| row.int(0))?;
    sql.execute("DELETE FROM chunk WHERE consolidated = 1 AND end_ms <= $1", values![until])?;
    Ok(last.is_some())
}

/// Removes the buckets that are older than their level keeps, of some series with numbers above
/// `after`. Returns the last number, or `None` if there are no more series.
///
/// # Errors
/// The database is unavailable.
pub fn remove_buckets(sql: &mut dyn Sql, now: i64, after: i64) -> Result<Option<i64>, StoreError> {
    sql.lock(Lock::Retention)?;
    let query = "SELECT id FROM series WHERE id > $1 ORDER BY id LIMIT $2";
    let some = sql.query(query, values![after, TOGETHER / 10])?;
    let some = some.iter().map(|row| row.int(0)).collect::<Result<Vec<_>, _>>()?;
    for series in &some {
        for level in LEVELS {
            sql.execute(
                "DELETE FROM bucket WHERE level = $1 AND series = $2 AND start_ms < $3",
                values![level.step_ms / SECOND, *series, now - level.keep_ms],
            )?;
        }
    }
    Ok(some.last().copied())
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
    let rows = sql.query_scattered(
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
    let rows = sql.query_scattered(
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
