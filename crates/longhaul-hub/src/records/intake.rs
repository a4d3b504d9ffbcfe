//! The bytes that the hub accepts from an agent per day, so that an enrolled agent cannot fill the disk.

use crate::clock::DAY;
use crate::store::{Sql, StoreError, first, values};

/// A part of the uploads of an agent with a daily limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intake {
    /// The blocks of samples. The largest honest agent has 128 interfaces at 1 s in blocks of 10 s
    /// (237 MB), their queues (181 MB), its host (3 MB) and 1000 peers of STAMP per minute (164 MB), and
    /// then sends a journal of 256 MiB of JSON (about 64 MB).
    Samples,
    /// The documents of runs, as stored: about 20,000 of the mean size.
    Documents,
    /// The events: about 10,000 of the usual size.
    Events,
}

impl Intake {
    /// Returns the name in the store.
    fn as_str(self) -> &'static str {
        match self {
            Intake::Samples => "samples",
            Intake::Documents => "documents",
            Intake::Events => "events",
        }
    }

    /// Returns the bytes that the hub accepts from an agent per day.
    pub fn most_bytes(self) -> i64 {
        match self {
            Intake::Samples => 768 << 20,
            Intake::Documents => 128 << 20,
            Intake::Events => 4 << 20,
        }
    }
}

/// Returns the bytes that the hub still accepts from an agent on the day of `now`.
///
/// # Errors
/// The database is unavailable.
pub fn remaining_bytes(
    sql: &mut dyn Sql,
    agent: &str,
    part: Intake,
    now: i64,
) -> Result<i64, StoreError> {
    let query = "SELECT bytes FROM intake WHERE agent = $1 AND part = $2 AND day = $3";
    let row = first(sql, query, values![agent, part.as_str(), now.div_euclid(DAY)])?;
    let stored = row.map_or(Ok(0), |row| row.int(0))?;
    Ok(part.most_bytes().saturating_sub(stored).max(0))
}

/// Notes that the hub stored `bytes` of an agent on the day of `now`. The counter of an earlier day
/// begins again.
///
/// # Errors
/// The database is unavailable.
pub fn add_bytes(
    sql: &mut dyn Sql,
    (agent, part): (&str, Intake),
    bytes: i64,
    now: i64,
) -> Result<(), StoreError> {
    if bytes == 0 {
        return Ok(());
    }
    sql.execute(
        "INSERT INTO intake (agent, part, day, bytes) VALUES ($1, $2, $3, $4)
         ON CONFLICT (agent, part) DO UPDATE SET day = excluded.day, bytes = excluded.bytes +
         CASE WHEN intake.day = excluded.day THEN intake.bytes ELSE 0 END",
        values![agent, part.as_str(), now.div_euclid(DAY), bytes],
    )?;
    Ok(())
}
