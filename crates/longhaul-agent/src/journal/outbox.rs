//! The entries of the journal that the hub has not acknowledged.

use longhaul_fleet::protocol::{AgentEvent, RunReport, SampleBatch, Severity, StampSummary};
use rusqlite::{Connection, params};
use serde::Serialize;

use super::Journal;
use crate::error::Result;

/// The oldest entries, for one request.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) results: Vec<RunReport>,
    pub(crate) samples: Vec<SampleBatch>,
    pub(crate) stamp: Vec<StampSummary>,
    pub(crate) events: Vec<AgentEvent>,
    /// True if the journal has more entries.
    pub(crate) more: bool,
    /// The entries that this version cannot read.
    damaged: Vec<u64>,
}

/// The size of a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchLimits {
    pub(crate) bytes: usize,
    pub(crate) rows: usize,
    pub(crate) results: usize,
    pub(crate) events: usize,
}

/// The maximum number of entries of a batch.
const MOST_ENTRIES: usize = 1024;
/// The kinds of measurements in the outbox, besides results.
const SAMPLES: &str = "('samples', 'stamp')";
/// The maximum number of bytes of unacknowledged samples and STAMP summaries; the oldest are
/// dropped above.
const MOST_SAMPLE_BYTES: i64 = 256 << 20;
/// The maximum number of bytes of unacknowledged events; the oldest are dropped above.
const MOST_EVENT_BYTES: i64 = 8 << 20;
/// The entries that are dropped together.
const DROPPED: i64 = 64;

impl Journal {
    /// Stores samples that the hub did not take. Returns the number of batches that are dropped for
    /// them.
    pub(crate) fn push_samples(&self, samples: &SampleBatch) -> Result<usize> {
        self.push("samples", samples.row_count(), samples)?;
        self.drop_oldest(SAMPLES, MOST_SAMPLE_BYTES)
    }

    /// Stores a STAMP summary. Returns the number of batches that are dropped for it.
    pub(crate) fn push_stamp(&self, summary: &StampSummary) -> Result<usize> {
        self.push("stamp", 1, summary)?;
        self.drop_oldest(SAMPLES, MOST_SAMPLE_BYTES)
    }

    /// Stores an event.
    pub(crate) fn push_event(&self, event: &AgentEvent) -> Result<()> {
        self.push("event", 0, event)?;
        self.drop_oldest("('event')", MOST_EVENT_BYTES).map(drop)
    }

    /// Drops the oldest entries of `kinds` if they have more than `most` bytes. Returns their number.
    fn drop_oldest(&self, kinds: &str, most: i64) -> Result<usize> {
        let held = format!("SELECT coalesce(sum(bytes), 0) FROM outbox WHERE kind IN {kinds}");
        let drop_oldest = format!(
            "DELETE FROM outbox WHERE id IN
             (SELECT id FROM outbox WHERE kind IN {kinds} ORDER BY id LIMIT {DROPPED})"
        );
        self.write(|transaction| {
            let bytes: i64 = transaction.query_row(&held, (), |row| row.get(0))?;
            if bytes > most { transaction.execute(&drop_oldest, ()) } else { Ok(0) }
        })
    }

    fn push(&self, kind: &str, rows: usize, body: &impl Serialize) -> Result<()> {
        let body = serde_json::to_string(body).unwrap_or_default();
        let sql = "INSERT INTO outbox (kind, bytes, rows, body) VALUES (?1, ?2, ?3, ?4)";
        let values = params![kind, body.len() as i64, rows as i64, body];
        self.write(|transaction| transaction.execute(sql, values))?;
        Ok(())
    }

    /// Returns the oldest entries within `limits`: results before the others.
    pub(crate) fn batch(&self, limits: BatchLimits) -> Result<Batch> {
        let mut batch = Batch::default();
        let connection = self.connection();
        let mut statement =
            connection.prepare_cached("SELECT kind, rows, body FROM outbox WHERE id = ?1")?;
        let (mut bytes, mut rows, mut count) = (0, 0, 0);
        for id in oldest(&connection)? {
            let mut found = statement.query([id])?;
            let Some(row) = found.next()? else { continue };
            let body = row.get_ref(2)?.as_str().unwrap_or_default();
            bytes += body.len();
            rows += row.get::<_, i64>(1)? as usize;
            let full = bytes > limits.bytes
                || rows > limits.rows
                || batch.results.len() >= limits.results
                || batch.events.len() >= limits.events;
            if full && count > 0 {
                batch.more = true;
                break;
            }
            count += 1;
            batch.add(id as u64, row.get_ref(0)?.as_str().unwrap_or_default(), body);
        }
        drop(statement);
        drop(connection);
        batch.more |= count >= MOST_ENTRIES;
        if !batch.damaged.is_empty() {
            self.acknowledge(&batch.damaged)?;
        }
        Ok(batch)
    }

    /// Returns the number of entries.
    pub(crate) fn backlog(&self) -> Result<u64> {
        let sql = "SELECT count(*) FROM outbox";
        let count: i64 = self.connection().query_row(sql, (), |row| row.get(0))?;
        Ok(count as u64)
    }

    /// Deletes entries that the hub has stored.
    pub(crate) fn acknowledge(&self, ids: &[u64]) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        self.write(|transaction| {
            let mut statement = transaction.prepare_cached("DELETE FROM outbox WHERE id = ?1")?;
            for id in ids {
                statement.execute([i64::try_from(*id).unwrap_or(i64::MAX)])?;
            }
            Ok(())
        })
    }
}

/// Returns the event of measurements that the journal has no space for.
pub(crate) fn samples_dropped(batches: usize, at_ms: i64) -> AgentEvent {
    AgentEvent {
        id: 0,
        at_ms,
        severity: Severity::Error,
        kind: "samples_dropped".to_owned(),
        message: format!("{batches} batches of samples were dropped"),
    }
}

/// Returns the numbers of the oldest entries: results before the others.
fn oldest(connection: &Connection) -> rusqlite::Result<Vec<i64>> {
    let mut ids = Vec::new();
    for kinds in ["= 'result'", "!= 'result'"] {
        let sql =
            format!("SELECT id FROM outbox WHERE kind {kinds} ORDER BY id LIMIT {MOST_ENTRIES}");
        let mut statement = connection.prepare_cached(&sql)?;
        let rows = statement.query_map((), |row| row.get(0))?;
        for id in rows.take(MOST_ENTRIES - ids.len()) {
            ids.push(id?);
        }
    }
    Ok(ids)
}

impl Batch {
    fn add(&mut self, id: u64, kind: &str, body: &str) {
        let read = match kind {
            "result" => serde_json::from_str(body)
                .map(|result| self.results.push(RunReport { id, ..result })),
            "samples" => serde_json::from_str(body)
                .map(|samples| self.samples.push(SampleBatch { id, ..samples })),
            "stamp" => serde_json::from_str(body)
                .map(|summary| self.stamp.push(StampSummary { id, ..summary })),
            _ => {
                serde_json::from_str(body).map(|event| self.events.push(AgentEvent { id, ..event }))
            }
        };
        if read.is_err() {
            self.damaged.push(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use longhaul_fleet::protocol::InterfaceRow;

    use super::*;

    const LIMITS: BatchLimits = BatchLimits { bytes: 1 << 20, rows: 10, results: 10, events: 3 };

    fn event(kind: &str) -> AgentEvent {
        let (kind, message) = (kind.to_owned(), String::new());
        AgentEvent { id: 0, at_ms: 1, severity: Severity::Info, kind, message }
    }

    #[test]
    fn the_entries_that_wait_for_a_hub_are_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::open(&dir.path().join("journal.db")).unwrap();
        let many: i64 = 500;
        let summary = StampSummary { peer: "p".to_owned(), ..StampSummary::default() };
        // A journal with as many bytes as it may have.
        let fill = |kind: &str, bytes: i64| {
            let sql = "INSERT INTO outbox (kind, bytes, rows, body) VALUES (?1, ?2, 1, '')";
            for _ in 0..many {
                journal.connection().execute(sql, params![kind, bytes / many]).unwrap();
            }
        };
        fill("stamp", MOST_SAMPLE_BYTES + many);
        assert_eq!(journal.push_stamp(&summary).unwrap(), DROPPED as usize);
        assert_eq!(journal.push_stamp(&summary).unwrap(), 0);
        let held = journal.backlog().unwrap();
        fill("event", MOST_EVENT_BYTES + many);
        journal.push_event(&event("last")).unwrap();
        let after = journal.backlog().unwrap();
        assert_eq!(after - held, (many + 1 - DROPPED).unsigned_abs());
        let last = "SELECT body FROM outbox ORDER BY id DESC LIMIT 1";
        let last: String = journal.connection().query_row(last, (), |row| row.get(0)).unwrap();
        assert!(last.contains("last"), "the newest event stays: {last}");
    }

    #[test]
    fn entries_stay_until_they_are_acknowledged() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.db");
        let journal = Journal::open(&path).unwrap();
        for kind in ["a", "b", "c", "d"] {
            journal.push_event(&event(kind)).unwrap();
        }
        let rows = vec![InterfaceRow { in_bytes: 5, ..InterfaceRow::default() }; 4];
        let samples = SampleBatch { interface: "eth0".into(), rows, ..SampleBatch::default() };
        drop(journal);
        let journal = Journal::open(&path).unwrap();
        let batch = journal.batch(LIMITS).unwrap();
        assert_eq!((batch.events.len(), batch.more), (3, true));
        let ids: Vec<u64> = batch.events.iter().map(|event| event.id).collect();
        journal.acknowledge(&ids).unwrap();
        assert_eq!(journal.push_samples(&samples).unwrap(), 0);
        journal.push_samples(&samples).unwrap();
        journal.push_samples(&samples).unwrap();
        let batch = journal.batch(LIMITS).unwrap();
        assert_eq!(batch.events[0].kind, "d");
        assert_eq!((batch.samples.len(), batch.more, journal.backlog().unwrap()), (2, true, 4));
        assert_eq!(batch.samples[0].rows[3].in_bytes, 5);
        assert!(batch.samples[0].id > ids[2]);
    }
}
