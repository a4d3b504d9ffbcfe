//! The consolidation of new blocks of samples into buckets.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::series::{LEVELS, Level};
use crate::clock::SECOND;
use crate::samples::{Bucket, Kind, merge, pack_bucket, point, unpack, unpack_bucket};
use crate::store::{
    Lock, Row, Sql, StoreError, Value, first, groups, insert_rows, parameters, values,
};

/// The maximum number of blocks that one transaction consolidates.
const BLOCKS: i64 = 5000;

/// Adds new blocks to the buckets of all levels, series by series. Returns true if more blocks wait. A damaged
/// block is a gap: an error would repeat forever and prevent the removal of all later blocks.
///
/// # Errors
/// The database is unavailable.
pub fn consolidate(sql: &mut dyn Sql) -> Result<bool, StoreError> {
    sql.lock(Lock::Retention)?;
    let last = first(
        sql,
        "SELECT series, start_ms FROM chunk WHERE consolidated = 0 ORDER BY series, start_ms
         LIMIT 1 OFFSET $1",
        values![BLOCKS],
    )?;
    let end = |row: &Row| Ok::<_, StoreError>((row.int(0)?, row.int(1)?));
    let (series, start_ms) = last.as_ref().map_or(Ok((i64::MAX, 0)), end)?;
    let rows = sql.query(
        "UPDATE chunk SET consolidated = 1
         WHERE consolidated = 0 AND (series, start_ms) < ($1, $2)
         RETURNING series, data",
        values![series, start_ms],
    )?;
    if rows.is_empty() {
        return Ok(false);
    }
    let mut kinds = BTreeMap::new();
    for row in sql.query("SELECT id, kind FROM series", &[])? {
        if let Some(kind) = Kind::named(&row.text(1)?) {
            kinds.insert(row.int(0)?, kind);
        }
    }
    let mut points = BTreeMap::<i64, Vec<_>>::new();
    for row in &rows {
        let series = row.int(0)?;
        let Some(kind) = kinds.get(&series).copied() else { continue };
        let Ok(unpacked) = unpack(kind.width(), &row.bytes(1)?) else { continue };
        points
            .entry(series)
            .or_default()
            .extend(unpacked.iter().filter_map(|row| point(kind, row)));
    }
    for level in LEVELS {
        let mut buckets = Vec::new();
        for (series, points) in &points {
            let each = points.iter().map(|point| Bucket::of(point, level.step_ms));
            buckets.extend(merge(each, level.step_ms).into_iter().map(|one| (*series, one)));
        }
        add_buckets(sql, level, buckets)?;
    }
    Ok(last.is_some())
}

/// Returns the number of blocks that wait for [`consolidate`].
///
/// # Errors
/// The database is unavailable.
pub fn blocks_waiting(sql: &mut dyn Sql) -> Result<u64, StoreError> {
    let row = first(sql, "SELECT count(*) FROM chunk WHERE consolidated = 0", &[])?;
    row.map_or(Ok(0), |row| Ok(row.int(0)?.unsigned_abs()))
}

/// Merges buckets of series with the stored buckets of a level.
///
/// # Errors
/// The database is unavailable.
pub fn add_buckets(
    sql: &mut dyn Sql,
    level: Level,
    buckets: impl IntoIterator<Item = (i64, Bucket)>,
) -> Result<(), StoreError> {
    let number = level.step_ms / SECOND;
    let mut by_start = BTreeMap::<i64, BTreeMap<i64, Bucket>>::new();
    for (series, bucket) in buckets {
        match by_start.entry(bucket.start_ms).or_default().entry(series) {
            Entry::Vacant(free) => {
                free.insert(bucket);
            }
            Entry::Occupied(mut taken) => taken.get_mut().add(&bucket),
        }
    }
    let mut rows = Vec::new();
    for (start_ms, mut new) in by_start {
        let series: Vec<Value> = new.keys().copied().map(Value::from).collect();
        for group in groups(&series) {
            let query = format!(
                "SELECT series, data FROM bucket WHERE level = $1 AND start_ms = $2 AND series IN ({})",
                parameters(3, group.len())
            );
            let mut bound = values![number, start_ms].to_vec();
            bound.extend_from_slice(group);
            for old in sql.query(&query, &bound)? {
                // A damaged bucket is replaced.
                let bucket = unpack_bucket(start_ms, &old.bytes(1)?);
                if let (Ok(bucket), Some(new)) = (bucket, new.get_mut(&old.int(0)?)) {
                    new.add(&bucket);
                }
            }
        }
        rows.extend(new.into_iter().map(|(series, bucket)| {
            values![number, series, start_ms, pack_bucket(&bucket)].to_vec()
        }));
    }
    insert_rows(
        sql,
        (
            "INSERT INTO bucket (level, series, start_ms, data)",
            "ON CONFLICT (level, series, start_ms) DO UPDATE SET data = excluded.data",
        ),
        &rows,
    )
}
