//! The forecast of the size of a database, from the series and runs that it has.

use super::series::{KEEP_SAMPLES_MS, LEVELS};
use crate::clock::{DAY, MINUTE, SECOND};
use crate::samples::Kind;
use crate::store::{Sql, StoreError, first};

/// The time for which runs, their documents and events are kept, in ms.
pub const KEEP_RUNS_MS: i64 = 366 * DAY;
/// The packed size of a sample of an interface, and of a minute of STAMP, in bytes.
const SAMPLE_BYTES: [f64; 2] = [15.0, 55.0];
/// The rows of an upload of samples of one interface, and of STAMP.
const BLOCK_ROWS: [f64; 2] = [11.0, 1.0];
/// The bytes of the columns of a run besides its document, with its lease and resources.
const RUN_BYTES: f64 = 430.0;
/// The bytes of the entries of a run in the indexes.
const RUN_INDEX_BYTES: f64 = 330.0;
/// The runs whose documents are measured.
const MEASURED: i64 = 200;

/// The quantities that determine the size of a database.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StoreUsage {
    /// The number of interfaces, and of pairs that STAMP measures.
    pub series: [i64; 2],
    /// The number of runs per day.
    pub runs_per_day: f64,
    /// The mean size of a stored document of a run in bytes.
    pub document_bytes: f64,
}

impl StoreUsage {
    /// Reads the quantities of a database whose hub plans `runs_per_day`.
    ///
    /// # Errors
    /// The database is unavailable.
    pub fn of(sql: &mut dyn Sql, runs_per_day: f64) -> Result<Self, StoreError> {
        let mut series = [0; 2];
        for row in sql.query("SELECT kind, count(*) FROM series GROUP BY kind", &[])? {
            series[usize::from(row.text(0)? != Kind::Interface.as_str())] += row.int(1)?;
        }
        let query = format!(
            "SELECT count(*), CAST(coalesce(sum(length(document)), 0) AS BIGINT) FROM
             (SELECT document FROM run_document ORDER BY run DESC LIMIT {MEASURED}) AS latest"
        );
        let measured = first(sql, &query, &[])?;
        let measured = measured.map(|row| Ok::<_, StoreError>((row.int(0)?, row.int(1)?)));
        let (count, bytes) = measured.transpose()?.unwrap_or_default();
        #[allow(clippy::cast_precision_loss)]
        let document_bytes = bytes as f64 / count.max(1) as f64;
        Ok(StoreUsage { series, runs_per_day, document_bytes })
    }

    /// Returns the size in bytes of a database of this use that is `age_ms` old.
    #[allow(clippy::cast_precision_loss)]
    pub fn bytes(&self, sql: &dyn Sql, age_ms: i64) -> f64 {
        let kinds = [(Kind::Interface, SECOND), (Kind::Stamp, MINUTE)];
        let mut bytes = 0.0;
        for (at, (kind, interval_ms)) in kinds.into_iter().enumerate() {
            let blocks = KEEP_SAMPLES_MS.min(age_ms) as f64 / interval_ms as f64 / BLOCK_ROWS[at];
            let block = sql.stored_bytes(SAMPLE_BYTES[at] * BLOCK_ROWS[at], true);
            let bucket = sql.stored_bytes(32.0 * kind.metrics().len() as f64, false);
            let kept = |level: &super::series::Level| {
                (level.keep_ms.min(age_ms) / level.step_ms) as f64 * bucket
            };
            let series = blocks * block + LEVELS.iter().map(kept).sum::<f64>();
            bytes += series * self.series[at] as f64;
        }
        let run = sql.stored_bytes(RUN_BYTES, false) + RUN_INDEX_BYTES;
        let document = sql.stored_bytes(self.document_bytes, false);
        let days = KEEP_RUNS_MS.min(age_ms) as f64 / DAY as f64;
        bytes + self.runs_per_day * days * (run + document)
    }
}
