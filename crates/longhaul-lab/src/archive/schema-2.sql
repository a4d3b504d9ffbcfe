-- From schema 1 to schema 2: a place in the matrix may have several attempts, and a run knows what
-- the host did meanwhile; see docs/design/archive.md.
DROP VIEW figures;
ALTER TABLE run RENAME TO run_1;
DROP INDEX run_by_cell;

CREATE TABLE run (
    sequence            INTEGER NOT NULL,
    attempt             INTEGER NOT NULL,
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
    busy_share          REAL,
    steal_share         REAL,
    started_at          TEXT NOT NULL,
    tool_version        TEXT NOT NULL,
    near_command        TEXT NOT NULL,
    far_command         TEXT,
    record_json         TEXT NOT NULL,
    PRIMARY KEY (sequence, attempt)
) STRICT;

INSERT INTO run
SELECT sequence, 1, repeat, tool, label, workload, rtt_ms, rate_bps, status, reason,
       throughput_bps, tool_throughput_bps, bytes, seconds, durable_seconds, encrypted, verified,
       synced, NULL, NULL, started_at, tool_version, near_command, far_command, record_json
FROM run_1;
DROP TABLE run_1;

CREATE INDEX run_by_cell ON run (label, rtt_ms, rate_bps, repeat);

-- The table of a report, for the sqlite3 shell. The median of an even number of runs is the mean
-- of the two in the middle.
CREATE VIEW figures AS
WITH counted AS (
    SELECT label, rtt_ms, rate_bps, throughput_bps,
           row_number() OVER cell AS place,
           count(*) OVER (PARTITION BY label, rtt_ms, rate_bps) AS runs
    FROM run
    WHERE status = 'ok'
    WINDOW cell AS (PARTITION BY label, rtt_ms, rate_bps ORDER BY throughput_bps)
), middle AS (
    SELECT label, rtt_ms, rate_bps, avg(throughput_bps) AS median_bps
    FROM counted
    WHERE place IN ((runs + 1) / 2, (runs + 2) / 2)
    GROUP BY label, rtt_ms, rate_bps
)
SELECT run.label, workload, run.rtt_ms, run.rate_bps,
       count(*) FILTER (WHERE status = 'ok')                            AS runs,
       round(median_bps / 1e9, 3)                                       AS median_gbps,
       round(min(throughput_bps) FILTER (WHERE status = 'ok') / 1e9, 3) AS min_gbps,
       round(max(throughput_bps) FILTER (WHERE status = 'ok') / 1e9, 3) AS max_gbps,
       count(*) FILTER (WHERE status <> 'ok')                           AS not_counted
FROM run
LEFT JOIN middle
       ON middle.label = run.label AND middle.rtt_ms = run.rtt_ms
      AND middle.rate_bps IS run.rate_bps
GROUP BY run.label, workload, run.rtt_ms, run.rate_bps;
