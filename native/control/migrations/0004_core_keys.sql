-- Core keys that operators add and revoke while Core runs. Only digests are stored; an identifier is the beginning of its
-- digest, as the audit log names it. A revoked row stays, so that the log can still be read.
CREATE TABLE core_keys (
    id TEXT PRIMARY KEY,
    key_sha256 TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    revoked_at BIGINT
);
