//! Writes a record.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use longhaul_core::units::Rate;
use rusqlite::{Connection, OpenFlags, Transaction, params};

use super::prune::prune;
use super::schema;
use crate::WatchError;
use crate::consolidate::{Consolidator, LEVELS};
use crate::sample::Sample;
use crate::series::TrafficInterval;

/// The time between two commits: the most that a killed process loses.
const COMMIT: Duration = Duration::from_secs(5);
/// The time between two removals of old rows.
const PRUNE: Duration = Duration::from_secs(60);
/// The length of the recorded intervals in ms; shorter samples are added up.
const SHORTEST_MS: u32 = 950;
/// The maximum number of intervals that wait for a commit. If the disk stays full for longer, the
/// oldest are lost.
const MOST_PENDING: usize = 20_000;

/// The only writer of a record.
#[derive(Debug)]
pub struct Recorder {
    connection: Connection,
    path: PathBuf,
    _lock: File,
    series: HashMap<String, RecordedSeries>,
    pending: Vec<(String, Option<Rate>, TrafficInterval)>,
    /// Samples of less than a second that are not pending yet.
    partial: HashMap<String, (Option<Rate>, TrafficInterval)>,
    /// The time of the last commit; `None` before the first one, which is not delayed.
    committed: Option<Instant>,
    loopback: bool,
    pub(super) pruned: Option<Instant>,
}

/// The state of one interface.
#[derive(Debug)]
struct RecordedSeries {
    id: i64,
    speed: Option<Rate>,
    levels: Vec<Consolidator>,
}

impl Recorder {
    /// Opens the record in `dir`, or creates it.
    ///
    /// # Errors
    /// Another process writes the record, another user owns it, a later version or another program wrote
    /// it, or the file system refuses it.
    pub fn open(dir: &Path) -> Result<Self, WatchError> {
        let lock = super::lock(dir)?;
        let path = super::database(dir)?.unwrap_or_else(|| dir.join(super::FILE_NAME));
        let open = || -> rusqlite::Result<Connection> {
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
                | OpenFlags::SQLITE_OPEN_CREATE
                | OpenFlags::SQLITE_OPEN_NOFOLLOW;
            let connection = Connection::open_with_flags(&path, flags)?;
            connection.busy_timeout(Duration::from_secs(10))?;
            // With a WAL, NORMAL keeps the database consistent after a loss of power, and a killed process
            // loses no commit (sqlite.org/pragma.html#pragma_synchronous).
            connection.pragma_update(None, "journal_mode", "WAL")?;
            connection.pragma_update(None, "synchronous", "NORMAL")?;
            connection.pragma_update(None, "cache_size", -1024)?;
            Ok(connection)
        };
        let connection = open().map_err(schema::failed("open", &path))?;
        if !schema::check(&connection, &path)? {
            schema::create(&connection).map_err(schema::failed("create", &path))?;
        }
        Ok(Recorder {
            connection,
            path,
            _lock: lock,
            series: HashMap::new(),
            pending: Vec::new(),
            partial: HashMap::new(),
            committed: None,
            loopback: false,
            pruned: None,
        })
    }

    /// Records loopback interfaces, too.
    pub fn include_loopback(&mut self) {
        self.loopback = true;
    }

    /// Adds the traffic of the running interfaces of a sample. Every five seconds it commits.
    ///
    /// # Errors
    /// The commit failed. The intervals stay pending for the next one, up to 20,000 of them.
    pub fn push(&mut self, sample: &Sample) -> Result<(), WatchError> {
        for interface in sample.interfaces.iter().filter(|one| one.running) {
            if interface.loopback && !self.loopback {
                continue;
            }
            let Some(interval) = sample.interval(interface) else { continue };
            self.push_interval(&interface.name, interface.speed, interval);
        }
        if self.pending.is_empty() || self.committed.is_some_and(|at| at.elapsed() < COMMIT) {
            return Ok(());
        }
        self.commit()
    }

    /// Adds the traffic of interface `name`; it is stored by the next [`commit`](Self::commit).
    pub fn push_interval(&mut self, name: &str, speed: Option<Rate>, interval: TrafficInterval) {
        let mut whole = interval;
        if let Some((speed, mut partial)) = self.partial.remove(name) {
            if partial.append(&interval) {
                whole = partial;
            } else {
                self.pending.push((name.to_owned(), speed, partial));
            }
        }
        if whole.span_ms < SHORTEST_MS {
            self.partial.insert(name.to_owned(), (speed, whole));
        } else {
            self.pending.push((name.to_owned(), speed, whole));
        }
    }

    /// Writes all pending intervals, and the bins that contain them, in one transaction.
    ///
    /// # Errors
    /// The database refuses, for example because the disk is full. The intervals stay pending.
    pub fn commit(&mut self) -> Result<(), WatchError> {
        self.committed = Some(Instant::now());
        let excess = self.pending.len().saturating_sub(MOST_PENDING);
        self.pending.drain(..excess);
        let written = self.write();
        if written.is_err() {
            // The consolidators have intervals that the database lacks: the next commit reads the bins
            // from the database again.
            self.series.clear();
        }
        written.map_err(schema::failed("write", &self.path))?;
        self.pending.clear();
        Ok(())
    }

    /// Writes all intervals, also those of less than a second.
    ///
    /// # Errors
    /// As for [`commit`](Self::commit).
    pub fn finish(&mut self) -> Result<(), WatchError> {
        let rest = self.partial.drain().map(|(name, (speed, interval))| (name, speed, interval));
        self.pending.extend(rest);
        if self.pending.is_empty() { Ok(()) } else { self.commit() }
    }

    fn write(&mut self) -> rusqlite::Result<()> {
        let Recorder { connection, series, pending, .. } = self;
        let transaction = connection.transaction()?;
        for (name, speed, interval) in pending.iter() {
            if !series.contains_key(name) {
                series.insert(name.clone(), RecordedSeries::load(&transaction, name)?);
            }
            let Some(series) = series.get_mut(name) else { continue };
            series.set_speed(&transaction, *speed)?;
            series.insert(&transaction, interval)?;
        }
        for series in series.values() {
            series.put_open_bins(&transaction)?;
        }
        let newest = pending.iter().map(|(_, _, interval)| interval.end_ms).max();
        if let Some(newest) = newest
            && self.pruned.is_none_or(|pruned| pruned.elapsed() >= PRUNE)
        {
            prune(&transaction, newest.div_euclid(1000))?;
            self.pruned = Some(Instant::now());
        }
        transaction.commit()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // A caller that needs the error calls `finish` first.
        let _ = self.finish();
    }
}

impl RecordedSeries {
    fn load(connection: &Connection, name: &str) -> rusqlite::Result<Self> {
        connection
            .prepare_cached("INSERT OR IGNORE INTO interface (name) VALUES (?1)")?
            .execute([name])?;
        let id = connection
            .prepare_cached("SELECT id FROM interface WHERE name = ?1")?
            .query_row([name], |row| row.get(0))?;
        let levels = LEVELS.iter().map(|level| Consolidator::new(level.step_seconds)).collect();
        Ok(RecordedSeries { id, speed: None, levels })
    }

    fn set_speed(&mut self, connection: &Connection, speed: Option<Rate>) -> rusqlite::Result<()> {
        if speed.is_none() || speed == self.speed {
            return Ok(());
        }
        let bps = speed.map(|rate| i64::try_from(rate.bps()).unwrap_or(i64::MAX));
        connection
            .prepare_cached("UPDATE interface SET speed_bps = ?2 WHERE id = ?1")?
            .execute(params![self.id, bps])?;
        self.speed = speed;
        Ok(())
    }

    /// Stores an interval, and adds it to the bins. An interval with the same end exists if the clock was
    /// set back; it stays.
    fn insert(
        &mut self,
        transaction: &Transaction<'_>,
        interval: &TrafficInterval,
    ) -> rusqlite::Result<()> {
        let count = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let counts = &interval.counts;
        transaction
            .prepare_cached(
                "INSERT OR IGNORE INTO interval VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            )?
            .execute(params![
                self.id,
                interval.end_ms,
                interval.span_ms,
                count(counts.in_bytes),
                count(counts.out_bytes),
                count(counts.in_packets),
                count(counts.out_packets),
                count(counts.in_drops),
                count(counts.out_drops),
                count(counts.in_errors),
                count(counts.out_errors),
            ])?;
        for level in &mut self.levels {
            let key = (self.id, level.step_seconds());
            if let Some(start) = level.opens(interval) {
                if let Some(done) = level.open() {
                    schema::put_bin(transaction, key, done)?;
                }
                if let Some(stored) = schema::bin_at(transaction, key, start)? {
                    level.resume(stored);
                }
            }
            level.push(interval);
        }
        Ok(())
    }

    fn put_open_bins(&self, connection: &Connection) -> rusqlite::Result<()> {
        for level in &self.levels {
            if let Some(open) = level.open() {
                schema::put_bin(connection, (self.id, level.step_seconds()), open)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use longhaul_sys::traffic::LinkCounters;

    use super::super::Record;
    use super::*;
    use crate::series::Quantity;

    const START_MS: i64 = 1_800_000_000_000;

    fn interval(end_ms: i64, span_ms: u32, in_bytes: u64) -> TrafficInterval {
        TrafficInterval {
            end_ms,
            span_ms,
            counts: LinkCounters { in_bytes, ..LinkCounters::default() },
        }
    }

    fn second(at: i64, in_bytes: u64) -> TrafficInterval {
        interval(START_MS + at * 1000, 1000, in_bytes)
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let mut recorder = Recorder::open(dir.path()).unwrap();
        for at in 1..=600 {
            recorder.push_interval("eth0", Some(Rate::from_bps(10_000_000_000)), second(at, 125));
        }
        recorder.commit().unwrap();
        // The writer is still open.
        let record = Record::open(dir.path()).unwrap();
        let interfaces = record.interfaces().unwrap();
        assert_eq!((interfaces.len(), interfaces[0].name.as_str()), (1, "eth0"));
        assert_eq!(interfaces[0].speed, Some(Rate::from_bps(10_000_000_000)));
        let bins = record.bins(&interfaces[0], 300, (0, i64::MAX)).unwrap();
        assert_eq!(bins.len(), 2);
        let bin = bins[0].bin(Quantity::InBits);
        assert_eq!((bin.start, bin.average, bin.maximum), (1_800_000_000, 1000.0, 1000.0));
        assert_eq!(record.bins(&interfaces[0], 86_400, (0, i64::MAX)).unwrap().len(), 1);
        let all = record.intervals(&interfaces[0], (0, i64::MAX)).unwrap();
        assert_eq!((all.len(), all[0]), (600, second(1, 125)));
    }

    #[test]
    fn bins_continue_in_another_process() {
        let dir = tempfile::tempdir().unwrap();
        for part in 0..3 {
            let mut recorder = Recorder::open(dir.path()).unwrap();
            for at in 1..=60 {
                recorder.push_interval("eth0", None, second(part * 60 + at, 1000));
            }
        }
        let record = Record::open(dir.path()).unwrap();
        let interface = &record.interfaces().unwrap()[0];
        for step in [300, 7200, 86_400] {
            let bins = record.bins(interface, step, (0, i64::MAX)).unwrap();
            assert_eq!(
                (bins.len(), bins[0].covered_ms, bins[0].intervals),
                (1, 180_000, 180),
                "{step}"
            );
        }
    }

    #[test]
    fn short_samples_are_added_up() {
        let dir = tempfile::tempdir().unwrap();
        let mut recorder = Recorder::open(dir.path()).unwrap();
        for at in 1..=25 {
            recorder.push_interval("eth0", None, interval(START_MS + at * 100, 100, 10));
        }
        drop(recorder);
        let record = Record::open(dir.path()).unwrap();
        let all = record.intervals(&record.interfaces().unwrap()[0], (0, i64::MAX)).unwrap();
        let spans: Vec<u32> = all.iter().map(|one| one.span_ms).collect();
        assert_eq!(spans, [1000, 1000, 500]);
        assert_eq!(all.iter().map(|one| one.counts.in_bytes).sum::<u64>(), 250);
    }

    #[test]
    fn a_clock_that_goes_back_spoils_no_bin() {
        let dir = tempfile::tempdir().unwrap();
        let mut recorder = Recorder::open(dir.path()).unwrap();
        for at in (1..=10).chain(1000..=1010).chain(5..=14) {
            recorder.push_interval("eth0", None, second(at, 100));
        }
        recorder.commit().unwrap();
        let record = Record::open(dir.path()).unwrap();
        let interface = &record.interfaces().unwrap()[0];
        let bins = record.bins(interface, 300, (0, i64::MAX)).unwrap();
        let intervals: Vec<u64> = bins.iter().map(|bin| bin.intervals).collect();
        assert_eq!(intervals, [20, 11]);
        assert!(bins.iter().all(|bin| bin.bin(Quantity::InBits).maximum == 800.0));
    }
}
