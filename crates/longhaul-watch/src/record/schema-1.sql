-- Version 1 of the record of `longhaul watch`; docs/design/watch-record.md describes it.

CREATE TABLE interface (
    id        INTEGER PRIMARY KEY,
    name      TEXT NOT NULL UNIQUE,
    -- The latest known rate of the link.
    speed_bps INTEGER
);

-- Intervals of about a second.
CREATE TABLE interval (
    interface   INTEGER NOT NULL REFERENCES interface (id),
    end_ms      INTEGER NOT NULL,
    span_ms     INTEGER NOT NULL,
    in_bytes    INTEGER NOT NULL,
    out_bytes   INTEGER NOT NULL,
    in_packets  INTEGER NOT NULL,
    out_packets INTEGER NOT NULL,
    in_drops    INTEGER NOT NULL,
    out_drops   INTEGER NOT NULL,
    in_errors   INTEGER NOT NULL,
    out_errors  INTEGER NOT NULL,
    PRIMARY KEY (interface, end_ms)
) WITHOUT ROWID;

-- Bins of 5 minutes, 2 hours and 1 day. `spreads` has 24 numbers of 64 bits (IEEE 754, little-endian):
-- average, minimum and maximum of 8 channels.
CREATE TABLE bin (
    interface     INTEGER NOT NULL REFERENCES interface (id),
    step_seconds  INTEGER NOT NULL,
    start_seconds INTEGER NOT NULL,
    covered_ms    INTEGER NOT NULL,
    intervals     INTEGER NOT NULL,
    spreads       BLOB NOT NULL,
    PRIMARY KEY (interface, step_seconds, start_seconds)
) WITHOUT ROWID;
