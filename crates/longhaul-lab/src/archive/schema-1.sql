-- longhaul matrix archive, schema 1; see docs/design/archive.md.
CREATE TABLE matrix (
    id              INTEGER PRIMARY KEY CHECK (id = 1),
    name            TEXT NOT NULL,
    plan_fingerprint TEXT NOT NULL,
    started_at      TEXT NOT NULL,
    program_version TEXT NOT NULL,
    header_json     TEXT NOT NULL
) STRICT;

CREATE TABLE host_fact (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;

CREATE TABLE tool (
    name    TEXT PRIMARY KEY,
    version TEXT,
    missing TEXT,
    CHECK ((version IS NULL) <> (missing IS NULL))
) STRICT;

CREATE TABLE run (
    sequence            INTEGER PRIMARY KEY,
    repeat              INTEGER NOT NULL,
    tool                TEXT NOT NULL,
    label               TEXT NOT NULL,
    workload            TEXT NOT NULL CHECK (workload IN ('memory', 'disk')),
    rtt_ms              REAL NOT NULL,
    rate_bps            INTEGER,
    status              TEXT NOT NULL CHECK (status IN ('ok', 'failed', 'invalid')),
    reason              TEXT,
    throughput_bps      INTEGER,
    tool_throughput_bps INTEGER,
    bytes               INTEGER,
    seconds             REAL,
    durable_seconds     REAL,
    encrypted           INTEGER NOT NULL,
    verified            INTEGER NOT NULL,
    synced              INTEGER NOT NULL,
    started_at          TEXT NOT NULL,
    tool_version        TEXT NOT NULL,
    near_command        TEXT NOT NULL,
    far_command         TEXT,
    record_json         TEXT NOT NULL
) STRICT;

CREATE INDEX run_by_cell ON run (label, rtt_ms, rate_bps, repeat);

-- The table of a report, for the sqlite3 shell.
CREATE VIEW figures AS
SELECT label, workload, rtt_ms, rate_bps,
       count(*) FILTER (WHERE status = 'ok')                    AS runs,
       round(avg(throughput_bps) FILTER (WHERE status = 'ok') / 1e9, 3) AS mean_gbps,
       round(min(throughput_bps) FILTER (WHERE status = 'ok') / 1e9, 3) AS min_gbps,
       round(max(throughput_bps) FILTER (WHERE status = 'ok') / 1e9, 3) AS max_gbps,
       count(*) FILTER (WHERE status <> 'ok')                   AS not_counted
FROM run
GROUP BY label, workload, rtt_ms, rate_bps;
