//! The forecast of the size of a database, from the series, samples and runs that it has.
//!
//! The mean sizes of rows are measured. The databases add their own overhead, which
//! [`Sql::row_bytes`], [`Sql::keyed_bytes`] and [`Sql::index_bytes`] compute.

use super::series::{KEEP_SAMPLES_MS, LEVELS};
use crate::clock::{DAY, MINUTE, SECOND};
use crate::samples::Kind;
use crate::store::{Growth, Row, Sql, StoreError, first, values};

/// The time for which runs, their documents and events are kept, in ms.
pub const KEEP_RUNS_MS: i64 = 366 * DAY;
/// The kinds of series, with the time between two samples in ms, and the usual block of an upload:
/// its packed bytes and its time in ms.
const KINDS: [(Kind, i64, Block); Kind::ALL.len()] = [
    (Kind::Interface, SECOND, Block { bytes: 165.0, ms: 11_000.0 }),
    (Kind::Queue, SECOND, Block { bytes: 80.0, ms: 11_000.0 }),
    (Kind::Host, SECOND, Block { bytes: 200.0, ms: 11_000.0 }),
    (Kind::Stamp, MINUTE, Block { bytes: 55.0, ms: 60_000.0 }),
];
/// The latest blocks, and the latest runs, that are measured.
const BLOCKS: i64 = 2000;
const RUNS: i64 = 200;
/// The bytes of a number in a key or column, and of the numbers of a run.
const NUMBER: f64 = 8.0;
const RUN_NUMBERS: f64 = 110.0;
/// The bytes of the texts of a run if there is none: its lease has most of them.
const RUN_TEXTS: f64 = 330.0;
/// The bytes of the id of a run, and of the names of its hosts or its test in an index.
const RUN_ID: f64 = 22.0;
const NAME: f64 = 9.0;
/// The size of a bucket's metric: four doubles.
const METRIC: f64 = 32.0;

/// A block of samples.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Block {
    /// The packed size.
    bytes: f64,
    /// The time that it covers.
    ms: f64,
}

/// The quantities that determine the size of a database.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StoreUsage {
    /// The number of series of each kind, in the order of [`Kind::ALL`].
    pub series: [i64; Kind::ALL.len()],
    /// The number of runs per day.
    pub runs_per_day: f64,
    blocks: [Block; Kind::ALL.len()],
    /// The mean size of the texts of a run, besides its document.
    run_texts: f64,
    /// The mean size of a run's document in its table; runs without one count.
    document_bytes: f64,
}

/// A forecast in bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StoreForecast {
    /// Samples as they were uploaded.
    pub samples: f64,
    /// Intervals of all levels.
    pub buckets: f64,
    /// Runs with their documents.
    pub runs: f64,
}

impl StoreForecast {
    /// Returns the sum.
    pub fn total(&self) -> f64 {
        self.samples + self.buckets + self.runs
    }
}

impl StoreUsage {
    /// Reads the quantities of a database whose hub plans `runs_per_day`.
    ///
    /// # Errors
    /// The database is unavailable.
    pub fn of(sql: &mut dyn Sql, runs_per_day: f64) -> Result<Self, StoreError> {
        let mut series = [0; Kind::ALL.len()];
        for row in sql.query("SELECT kind, count(*) FROM series GROUP BY kind", &[])? {
            // A kind of a later version is not forecast.
            let Some(at) = place(&row.text(0)?) else { continue };
            series[at] += row.int(1)?;
        }
        let blocks = blocks(sql)?;
        let (run_texts, document_bytes) = runs(sql)?;
        Ok(StoreUsage { series, runs_per_day, blocks, run_texts, document_bytes })
    }

    /// Returns the forecast for a database of this use that is `age_ms` old.
    #[allow(clippy::cast_precision_loss)]
    pub fn forecast(&self, sql: &dyn Sql, age_ms: i64) -> StoreForecast {
        let (mut samples, mut buckets) = (0.0, 0.0);
        for (at, (kind, ..)) in KINDS.into_iter().enumerate() {
            let (series, block) = (self.series[at] as f64, self.blocks[at]);
            // The key is the series and the start; the other columns are the end and a mark.
            let row = sql.keyed_bytes(2.0 * NUMBER, block.bytes + NUMBER, Growth::Scattered)
                + sql.index_bytes(3.0 * NUMBER, Growth::Appended);
            samples += series * KEEP_SAMPLES_MS.min(age_ms) as f64 / block.ms * row;
            let metrics = METRIC * kind.metrics().len() as f64;
            let bucket = sql.keyed_bytes(3.0 * NUMBER, metrics, Growth::Scattered);
            let kept = LEVELS.iter().map(|level| level.keep_ms.min(age_ms) / level.step_ms);
            buckets += series * kept.sum::<i64>() as f64 * bucket;
        }
        let indexes = sql.index_bytes(RUN_ID, Growth::Appended)
            + sql.index_bytes(NUMBER, Growth::Appended)
            + sql.index_bytes(2.0 * NAME + NUMBER, Growth::Scattered)
            // By source, by destination and by test.
            + 3.0 * sql.index_bytes(NAME + NUMBER, Growth::Scattered);
        let run = sql.row_bytes(self.run_texts + RUN_NUMBERS) + indexes + self.document_bytes;
        let days = KEEP_RUNS_MS.min(age_ms) as f64 / DAY as f64;
        StoreForecast { samples, buckets, runs: self.runs_per_day * days * run }
    }
}

/// Returns the index of a kind.
fn place(kind: &str) -> Option<usize> {
    KINDS.iter().position(|(one, ..)| one.as_str() == kind)
}

/// Returns the mean of the latest blocks of each kind, or the usual block.
#[allow(clippy::cast_precision_loss)]
fn blocks(sql: &mut dyn Sql) -> Result<[Block; Kind::ALL.len()], StoreError> {
    let query = "SELECT series.kind, count(*), CAST(sum(length(latest.data)) AS BIGINT),
         CAST(sum(latest.end_ms - latest.start_ms) AS BIGINT)
         FROM (SELECT series, start_ms, end_ms, data FROM chunk WHERE consolidated = 1
               ORDER BY end_ms DESC LIMIT $1) AS latest
         JOIN series ON series.id = latest.series GROUP BY series.kind";
    let mut found = KINDS.map(|(_, _, usual)| usual);
    for row in sql.query(query, values![BLOCKS])? {
        let Some(at) = place(&row.text(0)?) else { continue };
        let count = row.int(1)?.max(1) as f64;
        // A block covers the time from the start of its first sample; `start_ms` is the end of that
        // sample.
        found[at] = Block {
            bytes: row.int(2)? as f64 / count,
            ms: row.int(3)? as f64 / count + KINDS[at].1 as f64,
        };
    }
    Ok(found)
}

/// Returns the mean size of the texts of the latest runs, and that of their documents in the table.
#[allow(clippy::cast_precision_loss)]
fn runs(sql: &mut dyn Sql) -> Result<(f64, f64), StoreError> {
    let query = "SELECT count(*), CAST(coalesce(sum(length(id) + length(test) + length(kind)
         + length(source) + length(destination) + length(state) + length(resources) + length(lease)
         + coalesce(length(reason), 0) + coalesce(length(message), 0)), 0) AS BIGINT)
         FROM (SELECT * FROM run WHERE ended_ms IS NOT NULL ORDER BY planned_ms DESC LIMIT $1) AS latest";
    let measured = first(sql, query, values![RUNS])?;
    let measured = measured.map(|row: Row| Ok::<_, StoreError>((row.int(0)?, row.int(1)?)));
    let (count, texts) = measured.transpose()?.unwrap_or_default();
    if count == 0 {
        return Ok((RUN_TEXTS, 0.0));
    }
    let query = "SELECT CAST(length(run_document.document) AS BIGINT)
         FROM (SELECT id FROM run WHERE ended_ms IS NOT NULL ORDER BY planned_ms DESC LIMIT $1) AS latest
         JOIN run_document ON run_document.run = latest.id";
    let mut documents = 0.0;
    for row in sql.query(query, values![RUNS])? {
        let payload = row.int(0)? as f64 + NUMBER;
        documents += sql.keyed_bytes(RUN_ID, payload, Growth::Appended);
    }
    Ok((texts as f64 / count as f64, documents / count as f64))
}
