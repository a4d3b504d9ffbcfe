//! The tables, in the types of PostgreSQL that SQLite also accepts, and the check of their version.
//!
//! Times are milliseconds since 1970. Secrets are stored as hashes. `KEYED` marks tables that
//! SQLite orders by their key.

use super::{Lock, Sql, StoreError, first, values};

/// The version of the tables.
pub const SCHEMA: i64 = 1;

const TABLES: &[&str] = &[
    // People.
    "CREATE TABLE IF NOT EXISTS person (
        name TEXT PRIMARY KEY, password TEXT NOT NULL, role TEXT NOT NULL, created_ms BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS session (
        hash TEXT PRIMARY KEY, person TEXT NOT NULL REFERENCES person (name) ON DELETE CASCADE,
        csrf TEXT NOT NULL, expires_ms BIGINT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS bearer (
        hash TEXT PRIMARY KEY, person TEXT NOT NULL REFERENCES person (name) ON DELETE CASCADE,
        label TEXT NOT NULL, created_ms BIGINT NOT NULL, expires_ms BIGINT NOT NULL)",
    // Agents.
    "CREATE TABLE IF NOT EXISTS enrolment (
        hash TEXT PRIMARY KEY, host TEXT NOT NULL, expires_ms BIGINT NOT NULL,
        used_ms BIGINT, agent TEXT)",
    "CREATE TABLE IF NOT EXISTS agent (
        id TEXT PRIMARY KEY, host TEXT NOT NULL, public_key TEXT NOT NULL,
        enrolled_ms BIGINT NOT NULL, revoked_ms BIGINT, counter BIGINT NOT NULL,
        seen_ms BIGINT, address TEXT, clock_offset_ms BIGINT, boot TEXT, state TEXT, present BIGINT NOT NULL)",
    "CREATE INDEX IF NOT EXISTS agent_host ON agent (host)",
    "CREATE TABLE IF NOT EXISTS fact (
        agent TEXT NOT NULL, at_ms BIGINT NOT NULL, document BYTEA NOT NULL, PRIMARY KEY (agent, at_ms)) KEYED",
    "CREATE TABLE IF NOT EXISTS snapshot (
        agent TEXT PRIMARY KEY, at_ms BIGINT NOT NULL, document BYTEA NOT NULL) KEYED",
    "CREATE TABLE IF NOT EXISTS intake (
        agent TEXT NOT NULL, part TEXT NOT NULL, day BIGINT NOT NULL, bytes BIGINT NOT NULL,
        PRIMARY KEY (agent, part)) KEYED",
    // Meshes and runs.
    "CREATE TABLE IF NOT EXISTS mesh (
        revision BIGINT PRIMARY KEY, name TEXT NOT NULL, text TEXT NOT NULL,
        applied_ms BIGINT NOT NULL, person TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS run (
        id TEXT PRIMARY KEY, fencing BIGINT NOT NULL, test TEXT NOT NULL, kind TEXT NOT NULL,
        source TEXT NOT NULL, destination TEXT NOT NULL, state TEXT NOT NULL, reason TEXT, message TEXT,
        due_ms BIGINT NOT NULL, planned_ms BIGINT NOT NULL, window_end_ms BIGINT NOT NULL,
        port BIGINT NOT NULL, started_ms BIGINT, ended_ms BIGINT,
        resources TEXT NOT NULL, lease TEXT NOT NULL, revision BIGINT NOT NULL,
        source_leased BIGINT NOT NULL, target_leased BIGINT NOT NULL,
        source_done BIGINT NOT NULL, target_done BIGINT NOT NULL, source_fate TEXT, target_fate TEXT,
        throughput_bps BIGINT, loss DOUBLE PRECISION, rtt_ms DOUBLE PRECISION, mtu BIGINT)",
    "CREATE INDEX IF NOT EXISTS run_planned ON run (planned_ms)",
    "CREATE INDEX IF NOT EXISTS run_pair ON run (source, destination, planned_ms)",
    "CREATE INDEX IF NOT EXISTS run_source ON run (source, planned_ms)",
    "CREATE INDEX IF NOT EXISTS run_target ON run (destination, planned_ms)",
    "CREATE INDEX IF NOT EXISTS run_test ON run (test, planned_ms)",
    "CREATE INDEX IF NOT EXISTS run_unfinished ON run (state, planned_ms) WHERE state <> 'finished'",
    "CREATE INDEX IF NOT EXISTS run_reason ON run (reason, planned_ms) WHERE reason IS NOT NULL",
    "CREATE INDEX IF NOT EXISTS run_open ON run (window_end_ms)
        WHERE state IN ('planned', 'leased', 'running')",
    "CREATE TABLE IF NOT EXISTS run_document (
        run TEXT PRIMARY KEY, at_ms BIGINT NOT NULL, document BYTEA NOT NULL) KEYED",
    "CREATE TABLE IF NOT EXISTS run_day (
        day BIGINT PRIMARY KEY, counts TEXT NOT NULL) KEYED",
    "CREATE TABLE IF NOT EXISTS task (id TEXT PRIMARY KEY, state TEXT NOT NULL) KEYED",
    // Series.
    "CREATE TABLE IF NOT EXISTS series (
        id BIGINT PRIMARY KEY, kind TEXT NOT NULL, host TEXT NOT NULL, name TEXT NOT NULL,
        speed_bps BIGINT, last_ms BIGINT NOT NULL, UNIQUE (kind, host, name))",
    "CREATE TABLE IF NOT EXISTS chunk (
        series BIGINT NOT NULL, start_ms BIGINT NOT NULL, end_ms BIGINT NOT NULL,
        consolidated BIGINT NOT NULL, data BYTEA NOT NULL, PRIMARY KEY (series, start_ms)) KEYED",
    "DROP INDEX IF EXISTS chunk_new",
    // By series, so that a transaction changes few pages.
    "CREATE INDEX IF NOT EXISTS chunk_waiting ON chunk (series, start_ms) WHERE consolidated = 0",
    "CREATE INDEX IF NOT EXISTS chunk_old ON chunk (end_ms) WHERE consolidated = 1",
    "CREATE TABLE IF NOT EXISTS bucket (
        level BIGINT NOT NULL, series BIGINT NOT NULL, start_ms BIGINT NOT NULL, data BYTEA NOT NULL,
        PRIMARY KEY (level, series, start_ms)) KEYED",
    "CREATE TABLE IF NOT EXISTS shipment (
        position BIGINT PRIMARY KEY, at_ms BIGINT NOT NULL, series BIGINT, start_ms BIGINT, run TEXT)",
    // Paths.
    "CREATE TABLE IF NOT EXISTS path_change (
        source TEXT NOT NULL, destination TEXT NOT NULL, at_ms BIGINT NOT NULL, run TEXT NOT NULL,
        route TEXT NOT NULL, PRIMARY KEY (source, destination, at_ms)) KEYED",
    // States and events.
    "CREATE TABLE IF NOT EXISTS cell (
        source TEXT NOT NULL, destination TEXT NOT NULL, metric TEXT NOT NULL, state TEXT NOT NULL,
        value DOUBLE PRECISION, expected DOUBLE PRECISION, at_ms BIGINT, since_ms BIGINT NOT NULL,
        PRIMARY KEY (source, destination, metric)) KEYED",
    "CREATE TABLE IF NOT EXISTS event (
        id TEXT PRIMARY KEY, origin TEXT NOT NULL, at_ms BIGINT NOT NULL, severity TEXT NOT NULL,
        kind TEXT NOT NULL, subject TEXT NOT NULL, message TEXT NOT NULL, repeats BIGINT NOT NULL,
        person TEXT, acknowledged_ms BIGINT, comment TEXT, UNIQUE (origin))",
    "CREATE INDEX IF NOT EXISTS event_time ON event (at_ms)",
    "CREATE INDEX IF NOT EXISTS event_open ON event (id)
        WHERE acknowledged_ms IS NULL AND severity <> 'info'",
    "CREATE INDEX IF NOT EXISTS event_subject ON event (subject, id)",
    "CREATE TABLE IF NOT EXISTS outbox (
        event TEXT NOT NULL, channel TEXT NOT NULL, attempts BIGINT NOT NULL, next_ms BIGINT NOT NULL,
        PRIMARY KEY (event, channel)) KEYED",
    // Numbers and facts of the hub itself.
    "CREATE TABLE IF NOT EXISTS number (name TEXT PRIMARY KEY, value BIGINT NOT NULL) KEYED",
];

/// Creates missing tables and checks their version.
///
/// # Errors
/// A later version wrote the database, or the database is unavailable.
pub(super) fn prepare(sql: &mut dyn Sql) -> Result<(), StoreError> {
    sql.lock(Lock::Schema)?;
    sql.execute("CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)", &[])?;
    match first(sql, "SELECT version FROM schema_version", &[])? {
        Some(row) if row.int(0)? > SCHEMA => {
            return Err(StoreError::Newer { found: row.int(0)?, known: SCHEMA });
        }
        Some(_) => {}
        None => {
            sql.execute("INSERT INTO schema_version (version) VALUES ($1)", values![SCHEMA])?;
        }
    }
    for table in TABLES {
        let definition = sql.definition(table);
        sql.execute(&definition, &[])?;
    }
    Ok(())
}
