-- From schema 3 to schema 4: what the link counted, a certificate of the emulator, and seals, by
-- which damage is told that a database does not see; see docs/design/archive.md.
ALTER TABLE run ADD COLUMN lost_segments INTEGER;
ALTER TABLE run ADD COLUMN late_p999_ms REAL;
ALTER TABLE run ADD COLUMN seal TEXT;
ALTER TABLE matrix ADD COLUMN seal TEXT;

CREATE TABLE certificate (
    id            INTEGER PRIMARY KEY CHECK (id = 1),
    document_json TEXT NOT NULL,
    seal          TEXT NOT NULL
) STRICT;
