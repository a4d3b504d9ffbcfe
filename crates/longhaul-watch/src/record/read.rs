//! Reads a record, also while another process writes it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use longhaul_core::units::Rate;
use longhaul_sys::traffic::LinkCounters;
use rusqlite::{Connection, OpenFlags, params};

use super::schema;
use crate::WatchError;
use crate::consolidate::SeriesBin;
use crate::series::TrafficInterval;

/// An open record.
#[derive(Debug)]
pub struct Record {
    connection: Connection,
    path: PathBuf,
}

/// An interface of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedInterface {
    /// The number in this record.
    pub id: i64,
    /// The name. It may contain control characters.
    pub name: String,
    /// The latest known rate of the link.
    pub speed: Option<Rate>,
}

/// The time limit for a lock of the writer.
const PATIENCE: Duration = Duration::from_secs(10);

impl Record {
    /// Opens the record in `dir`.
    ///
    /// # Errors
    /// There is no record, another user owns it, or a later version or another program wrote it.
    pub fn open(dir: &Path) -> Result<Self, WatchError> {
        let path = super::database(dir)?.ok_or_else(|| WatchError::NoRecord(dir.to_owned()))?;
        // A reader of a WAL needs write access to its index, and falls back to reading only.
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let connection =
            Connection::open_with_flags(&path, flags).map_err(schema::failed("open", &path))?;
        connection.busy_timeout(PATIENCE).map_err(schema::failed("open", &path))?;
        if !schema::check(&connection, &path)? {
            return Err(WatchError::NoRecord(dir.to_owned()));
        }
        Ok(Record { connection, path })
    }

    /// Returns the interfaces in the order of their names.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn interfaces(&self) -> Result<Vec<RecordedInterface>, WatchError> {
        let read = || -> rusqlite::Result<Vec<RecordedInterface>> {
            let query = "SELECT id, name, speed_bps FROM interface ORDER BY name";
            let mut query = self.connection.prepare(query)?;
            let found = query.query_map([], |row| {
                let speed: Option<i64> = row.get(2)?;
                let speed = speed.and_then(|bps| u64::try_from(bps).ok()).map(Rate::from_bps);
                Ok(RecordedInterface { id: row.get(0)?, name: row.get(1)?, speed })
            })?;
            found.collect()
        };
        read().map_err(schema::failed("read", &self.path))
    }

    /// Returns the bins of `step_seconds` that start within a window of Unix seconds, in order.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn bins(
        &self,
        interface: &RecordedInterface,
        step_seconds: i64,
        window: (i64, i64),
    ) -> Result<Vec<SeriesBin>, WatchError> {
        schema::bins_between(&self.connection, (interface.id, step_seconds), window)
            .map_err(schema::failed("read", &self.path))
    }

    /// Returns the intervals that end within a window of Unix milliseconds, in order.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn intervals(
        &self,
        interface: &RecordedInterface,
        (from_ms, to_ms): (i64, i64),
    ) -> Result<Vec<TrafficInterval>, WatchError> {
        let read = || -> rusqlite::Result<Vec<TrafficInterval>> {
            let mut query = self.connection.prepare(
                "SELECT end_ms, span_ms, in_bytes, out_bytes, in_packets, out_packets, in_drops, \
                 out_drops, in_errors, out_errors FROM interval \
                 WHERE interface = ?1 AND end_ms >= ?2 AND end_ms < ?3 ORDER BY end_ms",
            )?;
            let found = query.query_map(params![interface.id, from_ms, to_ms], |row| {
                let count = |at: usize| -> rusqlite::Result<u64> {
                    Ok(row.get::<_, i64>(at)?.max(0) as u64)
                };
                Ok(TrafficInterval {
                    end_ms: row.get(0)?,
                    span_ms: row.get::<_, i64>(1)?.clamp(1, i64::from(u32::MAX)) as u32,
                    counts: LinkCounters {
                        in_bytes: count(2)?,
                        out_bytes: count(3)?,
                        in_packets: count(4)?,
                        out_packets: count(5)?,
                        in_drops: count(6)?,
                        out_drops: count(7)?,
                        in_errors: count(8)?,
                        out_errors: count(9)?,
                    },
                })
            })?;
            found.collect()
        };
        read().map_err(schema::failed("read", &self.path))
    }
}
