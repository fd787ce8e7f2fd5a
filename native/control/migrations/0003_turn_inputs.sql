-- A database rewrites a whole row for every change of it, and a standard input may have 50 MiB: it stands beside its
-- Turn, is written once and removed when the Turn has ended.
CREATE TABLE turn_inputs (
    turn_id TEXT PRIMARY KEY REFERENCES turns (id),
    stdin BYTEA NOT NULL
);
INSERT INTO turn_inputs (turn_id, stdin)
    SELECT id, stdin FROM turns WHERE stdin IS NOT NULL AND completed_at IS NULL;
ALTER TABLE turns DROP COLUMN stdin;
