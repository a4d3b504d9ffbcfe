-- From schema 4 to schema 5: what each path was like before its first run; see
-- docs/design/archive.md.
CREATE TABLE path (
    path              TEXT PRIMARY KEY,
    measured_at       TEXT NOT NULL,
    rtt_small_ms      REAL,
    rtt_full_ms       REAL,
    mtu_forward_bytes INTEGER,
    mtu_reverse_bytes INTEGER,
    probes            INTEGER,
    lost              INTEGER,
    failure           TEXT,
    document_json     TEXT NOT NULL,
    seal              TEXT NOT NULL
) STRICT;
