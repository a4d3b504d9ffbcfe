//! The stored counts of past days that a change of a run makes invalid.

use crate::clock::DAY;
use crate::store::{Sql, StoreError, values};

/// Removes the stored counts of the day of a run that changes.
///
/// # Errors
/// The database is unavailable.
pub(super) fn forget_day(sql: &mut dyn Sql, planned_ms: i64) -> Result<(), StoreError> {
    sql.execute("DELETE FROM run_day WHERE day = $1", values![planned_ms.div_euclid(DAY)])?;
    Ok(())
}

/// Removes the counts of days whose runs are removed, until `limit_ms`.
///
/// # Errors
/// The database is unavailable.
pub(super) fn forget_days_until(sql: &mut dyn Sql, limit_ms: i64) -> Result<(), StoreError> {
    sql.execute("DELETE FROM run_day WHERE day <= $1", values![limit_ms.div_euclid(DAY)])?;
    Ok(())
}
