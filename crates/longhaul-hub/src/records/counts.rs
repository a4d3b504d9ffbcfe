//! The numbers of runs per day, test, state and reason. Those of past days are stored.

use longhaul_fleet::api::RunState;
use longhaul_fleet::protocol::RunReason;
use serde::{Deserialize, Serialize};

use super::runs::named;
use crate::clock::DAY;
use crate::store::{Lock, Row, Sql, StoreError, values};

/// The maximum number of days that one call of [`store_days`] counts.
const DAYS: i64 = 40;

/// The number of runs of one test, day, state and reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunCount {
    /// The start of the day (UTC) in ms since 1970.
    pub day_ms: i64,
    /// The name of the test.
    pub test: String,
    /// The state.
    pub state: RunState,
    /// The reason.
    pub reason: Option<RunReason>,
    /// The number of runs.
    pub runs: i64,
}

/// Counts the runs with a planned start between two times.
///
/// # Errors
/// The database is unavailable.
pub fn counts(
    sql: &mut dyn Sql,
    (from_ms, to_ms): (i64, i64),
) -> Result<Vec<RunCount>, StoreError> {
    let first_day = (from_ms + DAY - 1).div_euclid(DAY);
    let stored = sql.query(
        "SELECT day, counts FROM run_day WHERE day >= $1 AND day < $2 ORDER BY day",
        values![first_day, to_ms.div_euclid(DAY)],
    )?;
    let (mut all, mut counted_ms) = (Vec::new(), from_ms);
    for row in stored {
        let start = row.int(0)? * DAY;
        if start > counted_ms {
            all.extend(count(sql, None, (counted_ms, start))?);
        }
        let day: Vec<RunCount> = serde_json::from_str(&row.text(1)?)
            .map_err(|_| StoreError::Malformed { what: "count of runs" })?;
        all.extend(day);
        counted_ms = start + DAY;
    }
    all.extend(count(sql, None, (counted_ms, to_ms))?);
    Ok(all)
}

/// Counts the runs from `source` to `destination` with a planned start between two times.
///
/// # Errors
/// The database is unavailable.
pub fn counts_of_pair(
    sql: &mut dyn Sql,
    (source, destination): (&str, &str),
    window_ms: (i64, i64),
) -> Result<Vec<RunCount>, StoreError> {
    count(sql, Some((source, destination)), window_ms)
}

fn count(
    sql: &mut dyn Sql,
    pair: Option<(&str, &str)>,
    (from_ms, to_ms): (i64, i64),
) -> Result<Vec<RunCount>, StoreError> {
    let mut chosen = values![from_ms, to_ms].to_vec();
    let mut of_pair = "";
    if let Some((source, destination)) = pair {
        chosen.extend_from_slice(values![source, destination]);
        of_pair = "AND source = $3 AND destination = $4";
    }
    let rows = sql.query(
        &format!(
            "SELECT planned_ms / {DAY} AS day, test, state, reason, count(*) FROM run
             WHERE planned_ms >= $1 AND planned_ms < $2 {of_pair}
             GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4"
        ),
        &chosen,
    )?;
    let read = |row: &Row| {
        Ok(RunCount {
            day_ms: row.int(0)? * DAY,
            test: row.text(1)?,
            state: named(&row.text(2)?)?,
            reason: row.opt_text(3)?.map(|name| named(&name)).transpose()?,
            runs: row.int(4)?,
        })
    };
    rows.iter().map(read).collect()
}

/// Stores the counts of days that ended a day or more before `now`. Returns true if more days wait.
///
/// # Errors
/// The database is unavailable.
pub fn store_days(sql: &mut dyn Sql, now: i64) -> Result<bool, StoreError> {
    // Late reports and missed runs remove the counts of a day under the same lock.
    sql.lock(Lock::Planning)?;
    let oldest = sql.query("SELECT min(planned_ms) FROM run", &[])?;
    let Some(oldest) = oldest.first().map(|row| row.opt_int(0)).transpose()?.flatten() else {
        return Ok(false);
    };
    let (first, end) = (oldest.div_euclid(DAY) + 1, now.div_euclid(DAY) - 1);
    let known =
        sql.query("SELECT day FROM run_day WHERE day >= $1 ORDER BY day", values![first])?;
    let known = known.iter().map(|row| row.int(0)).collect::<Result<Vec<_>, _>>()?;
    let mut missing = (first..end).filter(|day| known.binary_search(day).is_err());
    for day in missing.by_ref().take(DAYS as usize) {
        let counted = count(sql, None, (day * DAY, (day + 1) * DAY))?;
        let text = serde_json::to_string(&counted)
            .map_err(|_| StoreError::Malformed { what: "count of runs" })?;
        sql.execute("INSERT INTO run_day (day, counts) VALUES ($1, $2)", values![day, &text])?;
    }
    Ok(missing.next().is_some())
}
