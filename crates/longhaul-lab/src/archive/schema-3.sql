-- From schema 2 to schema 3: further kinds of workload, what a run moved and by which setting, any
-- option of the path, processor time, what the path carried over time, and by which binaries; see
-- docs/design/archive.md.
DROP VIEW figures;
ALTER TABLE run RENAME TO run_2;
DROP INDEX run_by_cell;
ALTER TABLE matrix ADD COLUMN program_digest TEXT;
ALTER TABLE tool ADD COLUMN program TEXT;
ALTER TABLE tool ADD COLUMN digest TEXT;

CREATE TABLE run (
    sequence            INTEGER NOT NULL,
    attempt             INTEGER NOT NULL,
    repeat              INTEGER NOT NULL,
    tool                TEXT NOT NULL,
    label               TEXT NOT NULL,
    workload            TEXT NOT NULL CHECK (workload IN
                        ('memory', 'disk', 'memory_to_disk', 'disk_to_memory', 'memory_files')),
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
    busy_share          REAL,
    steal_share         REAL,
    started_at          TEXT NOT NULL,
    tool_version        TEXT NOT NULL,
    near_command        TEXT NOT NULL,
    far_command         TEXT,
    record_json         TEXT NOT NULL,
    path                TEXT NOT NULL,
    loss_share          REAL,
    options_json        TEXT NOT NULL CHECK (json_valid(options_json)),
    work                TEXT,
    files               INTEGER,
    file_bytes          INTEGER,
    streams             INTEGER,
    window_bytes        INTEGER,
    clients             INTEGER NOT NULL,
    seed                INTEGER,
    near_cpu_seconds    REAL,
    far_cpu_seconds     REAL,
    PRIMARY KEY (sequence, attempt)
) STRICT;

INSERT INTO run
SELECT sequence, attempt, repeat, tool, label, workload, rtt_ms, rate_bps, status, reason,
       throughput_bps, tool_throughput_bps, bytes, seconds, durable_seconds, encrypted, verified,
       synced, busy_share, steal_share, started_at, tool_version, near_command, far_command,
       record_json,
       rtt_ms || ' ms' || coalesce(', ' || rate_bps || ' bit/s', ''),
       NULL, '{}', NULL, NULL, NULL, NULL, NULL, 1, NULL, NULL, NULL
FROM run_2;
DROP TABLE run_2;

CREATE INDEX run_by_cell ON run (label, path, repeat);

-- What a path carried, interval by interval; seconds is the interval's end.
CREATE TABLE sample (
    sequence       INTEGER NOT NULL,
    attempt        INTEGER NOT NULL,
    seconds        REAL NOT NULL,
    throughput_bps INTEGER NOT NULL,
    PRIMARY KEY (sequence, attempt, seconds)
) STRICT, WITHOUT ROWID;

-- The table of a report, for the sqlite3 shell. The median of an even number of runs is the mean
-- of the two in the middle.
CREATE VIEW figures AS
WITH counted AS (
    SELECT label, path, throughput_bps,
           row_number() OVER cell AS place,
           count(*) OVER (PARTITION BY label, path) AS runs
    FROM run
    WHERE status = 'ok'
    WINDOW cell AS (PARTITION BY label, path ORDER BY throughput_bps)
), middle AS (
    SELECT label, path, avg(throughput_bps) AS median_bps
    FROM counted
    WHERE place IN ((runs + 1) / 2, (runs + 2) / 2)
    GROUP BY label, path
)
SELECT run.label, workload, run.path, run.rtt_ms, run.rate_bps, run.loss_share,
       count(*) FILTER (WHERE status = 'ok')                            AS runs,
       round(median_bps / 1e9, 3)                                       AS median_gbps,
       round(min(throughput_bps) FILTER (WHERE status = 'ok') / 1e9, 3) AS min_gbps,
       round(max(throughput_bps) FILTER (WHERE status = 'ok') / 1e9, 3) AS max_gbps,
       count(*) FILTER (WHERE status <> 'ok')                           AS not_counted
FROM run
LEFT JOIN middle ON middle.label = run.label AND middle.path = run.path
GROUP BY run.label, workload, run.path;
