-- One history for SQLite and PostgreSQL. Portable types only: TEXT, BIGINT, DOUBLE PRECISION, BYTEA.
-- Times are milliseconds since the Unix epoch. Flags are 0 or 1. Identifiers are canonical UUID text.
-- Text that somebody else chose and that may hold U+0000 (outputs, argument vectors) is BYTEA or JSON text:
-- PostgreSQL refuses U+0000 in TEXT.

-- Deployment §3.1: exactly one row, the active selection of this installation.
CREATE TABLE runtime_deployment (
    singleton BIGINT PRIMARY KEY CHECK (singleton = 1),
    installation_id TEXT,
    web_managed BIGINT NOT NULL DEFAULT 1 CHECK (web_managed IN (0, 1)),
    provider_kind TEXT NOT NULL DEFAULT '',
    mode TEXT NOT NULL DEFAULT '',
    backend_fingerprint TEXT NOT NULL DEFAULT '',
    generation BIGINT NOT NULL DEFAULT 0 CHECK (generation >= 0),
    owner_epoch BIGINT NOT NULL DEFAULT 0 CHECK (owner_epoch >= 0),
    specification TEXT NOT NULL DEFAULT '{}',
    provider_config TEXT NOT NULL DEFAULT '{}',
    provider_metadata TEXT NOT NULL DEFAULT '{}',
    provider_credential BYTEA,
    idle_seconds BIGINT NOT NULL DEFAULT 0,
    retention_seconds BIGINT NOT NULL DEFAULT 0,
    admission_paused BIGINT NOT NULL DEFAULT 0 CHECK (admission_paused IN (0, 1)),
    reset_clear TEXT CHECK (reset_clear IN ('auto', 'force')),
    reset_requested_at BIGINT,
    reset_deadline_at BIGINT,
    reset_forced_at BIGINT,
    reset_audit TEXT,
    CHECK ((provider_kind = '') = (mode = '') AND (provider_kind = '') = (backend_fingerprint = '')),
    CHECK (provider_kind = '' OR generation > 0),
    CHECK ((idle_seconds = 0) = (retention_seconds = 0)),
    CHECK (web_managed = 0 OR (admission_paused = 1) = (reset_clear IS NOT NULL)),
    CHECK (
        (reset_clear IS NULL AND reset_requested_at IS NULL AND reset_deadline_at IS NULL
            AND reset_forced_at IS NULL AND reset_audit IS NULL)
        OR (reset_clear IS NOT NULL AND reset_requested_at IS NOT NULL AND reset_audit IS NOT NULL
            AND provider_kind <> ''
            AND ((reset_clear = 'auto' AND reset_deadline_at IS NOT NULL AND reset_forced_at IS NULL)
                OR (reset_clear = 'force' AND reset_forced_at IS NOT NULL)))
    )
);
INSERT INTO runtime_deployment (singleton) VALUES (1);

-- Deployment §3.2: superseded selections that something still uses. Rows are never updated.
CREATE TABLE runtime_deployment_generations (
    generation BIGINT PRIMARY KEY CHECK (generation > 0),
    provider_kind TEXT NOT NULL,
    specification TEXT NOT NULL,
    provider_config TEXT NOT NULL,
    provider_metadata TEXT NOT NULL,
    created_at BIGINT NOT NULL
);

-- Deployment §3.3. A removed row stays, so that its id is never used again.
CREATE TABLE runtime_nodes (
    id TEXT PRIMARY KEY,
    installation_id TEXT NOT NULL,
    name TEXT NOT NULL,
    backend_fingerprint TEXT NOT NULL,
    credential_sha256 TEXT NOT NULL,
    max_active BIGINT NOT NULL CHECK (max_active > 0),
    max_retained BIGINT NOT NULL CHECK (max_retained >= max_active),
    specification_digest TEXT NOT NULL,
    deployment_generation BIGINT NOT NULL CHECK (deployment_generation > 0),
    core_url TEXT NOT NULL,
    enrollment_id TEXT,
    connection_id TEXT,
    connected_epoch BIGINT,
    last_seen_at BIGINT,
    ready_generation BIGINT CHECK (ready_generation > 0),
    -- The last health report (deployment §8.1); every measurement may be unknown.
    health_observed_at BIGINT,
    active_operations BIGINT,
    cpu_count BIGINT,
    effective_cpu_cores DOUBLE PRECISION,
    cpu_utilization DOUBLE PRECISION,
    total_memory_bytes BIGINT,
    available_memory_bytes BIGINT,
    available_disk_bytes BIGINT,
    created_at BIGINT NOT NULL,
    removed_at BIGINT
);

CREATE TABLE runtime_node_enrollments (
    token_sha256 TEXT PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    installation_id TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    consumed_at BIGINT,
    node_id TEXT,
    -- Null where the operator left the limit unset (decision 19).
    max_active BIGINT,
    max_retained BIGINT
);

CREATE TABLE runtime_node_generation_status (
    node_id TEXT NOT NULL REFERENCES runtime_nodes (id),
    generation BIGINT NOT NULL CHECK (generation > 0),
    specification_digest TEXT NOT NULL,
    connection_id TEXT NOT NULL,
    owner_epoch BIGINT NOT NULL CHECK (owner_epoch > 0),
    state TEXT NOT NULL CHECK (state IN ('ready', 'preparing', 'failed')),
    diagnostic TEXT NOT NULL DEFAULT '',
    artifact_domain TEXT,
    execution_class TEXT,
    observed_at BIGINT NOT NULL,
    PRIMARY KEY (node_id, generation),
    CHECK (state <> 'ready' OR diagnostic = ''),
    CHECK ((artifact_domain IS NULL) = (execution_class IS NULL))
);

CREATE TABLE node_host_history_samples (
    node_id TEXT NOT NULL REFERENCES runtime_nodes (id),
    observed_at BIGINT NOT NULL,
    cpu_utilization DOUBLE PRECISION,
    memory_used_bytes BIGINT,
    available_disk_bytes BIGINT,
    PRIMARY KEY (node_id, observed_at)
);
CREATE INDEX node_host_history_samples_age ON node_host_history_samples (observed_at);

CREATE TABLE admin_audit_log (
    id TEXT PRIMARY KEY,
    created_at BIGINT NOT NULL,
    admin_credential_id TEXT NOT NULL CHECK (admin_credential_id <> ''),
    actor_label TEXT NOT NULL,
    action TEXT NOT NULL,
    project_id TEXT,
    resource_type TEXT NOT NULL,
    resource_id TEXT NOT NULL,
    result_ids TEXT NOT NULL DEFAULT '[]',
    request_id TEXT NOT NULL CHECK (request_id <> ''),
    trace_id TEXT NOT NULL CHECK (trace_id <> '')
);

-- Deployment §11. A project owns one tenant.
CREATE TABLE projects (
    id TEXT PRIMARY KEY,
    tenant_id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    archived_at BIGINT
);

CREATE TABLE project_keys (
    id TEXT PRIMARY KEY,
    project_id TEXT NOT NULL REFERENCES projects (id),
    name TEXT NOT NULL,
    key_sha256 TEXT NOT NULL UNIQUE,
    created_at BIGINT NOT NULL,
    revoked_at BIGINT
);

CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    project_id TEXT NOT NULL REFERENCES projects (id),
    tenant_id TEXT NOT NULL,
    environment_type TEXT NOT NULL,
    idempotency_key TEXT,
    created_at BIGINT NOT NULL,
    deleted_at BIGINT,
    UNIQUE (project_id, idempotency_key)
);

CREATE TABLE environments (
    id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL UNIQUE REFERENCES sessions (id),
    status TEXT NOT NULL CHECK (status IN ('pending', 'connected', 'disconnected', 'failed', 'expired')),
    initialization TEXT NOT NULL DEFAULT 'pending',
    failure_code TEXT,
    created_at BIGINT NOT NULL,
    changed_at BIGINT NOT NULL
);

CREATE TABLE runtime_placements (
    environment_id TEXT PRIMARY KEY REFERENCES environments (id),
    node_id TEXT NOT NULL REFERENCES runtime_nodes (id),
    deployment_generation BIGINT NOT NULL CHECK (deployment_generation > 0),
    reserved_at BIGINT NOT NULL,
    released_at BIGINT
);
CREATE INDEX runtime_placements_node ON runtime_placements (node_id) WHERE released_at IS NULL;

CREATE TABLE runtime_allocations (
    id TEXT PRIMARY KEY,
    environment_id TEXT NOT NULL UNIQUE REFERENCES environments (id),
    device_id TEXT NOT NULL UNIQUE,
    device_credential_sha256 TEXT,
    device_revoked_at BIGINT,
    -- The installation that owns the resource.
    provider_key TEXT NOT NULL,
    -- Null in direct mode.
    node_id TEXT REFERENCES runtime_nodes (id),
    deployment_generation BIGINT NOT NULL CHECK (deployment_generation > 0),
    state TEXT NOT NULL CHECK (state IN ('creating', 'running', 'cleanup_pending', 'released')),
    -- Set before the create is handed to the hub, cleared by a certain "nothing was sent" (decision 35).
    create_sent_at BIGINT,
    create_settled BIGINT NOT NULL DEFAULT 0 CHECK (create_settled IN (0, 1)),
    created_at BIGINT NOT NULL,
    kept_at BIGINT NOT NULL,
    cleanup_requested_at BIGINT,
    released_at BIGINT,
    observation_error TEXT NOT NULL DEFAULT '',
    provider_id TEXT NOT NULL DEFAULT '',
    compute_phase TEXT NOT NULL DEFAULT 'disabled' CHECK (compute_phase IN
        ('disabled', 'running', 'quiescing', 'suspending', 'suspended', 'restoring', 'waking')),
    compute_phase_changed_at BIGINT,
    compute_revision BIGINT NOT NULL DEFAULT 0,
    compute_state TEXT NOT NULL DEFAULT '{}',
    -- Whether compute_state holds a snapshot.
    compute_snapshot BIGINT NOT NULL DEFAULT 0 CHECK (compute_snapshot IN (0, 1)),
    compute_activity_at BIGINT,
    compute_wake_requested BIGINT NOT NULL DEFAULT 0 CHECK (compute_wake_requested IN (0, 1)),
    compute_retained_until BIGINT,
    CHECK ((state = 'released') = (released_at IS NOT NULL)),
    CHECK (state <> 'released' OR create_settled = 1)
);
CREATE INDEX runtime_allocations_node ON runtime_allocations (node_id) WHERE released_at IS NULL;

CREATE TABLE turns (
    id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES sessions (id),
    environment_id TEXT NOT NULL REFERENCES environments (id),
    -- Position in its Session, from 1.
    position BIGINT NOT NULL CHECK (position > 0),
    status TEXT NOT NULL CHECK (status IN
        ('queued', 'in_progress', 'waiting', 'completed', 'failed', 'cancelled')),
    -- JSON array of strings.
    args TEXT NOT NULL,
    -- JSON string.
    directory TEXT NOT NULL DEFAULT '""',
    stdin BYTEA,
    timeout_ms BIGINT NOT NULL,
    -- The `Idempotency-Key` of the event, with the digest of its body.
    idempotency_key TEXT,
    request_sha256 TEXT,
    -- Set in the commit before the command is handed to the hub; once set the command is never sent again.
    dispatched BIGINT NOT NULL DEFAULT 0 CHECK (dispatched IN (0, 1)),
    cancel_requested BIGINT NOT NULL DEFAULT 0 CHECK (cancel_requested IN (0, 1)),
    stdout BYTEA,
    stderr BYTEA,
    exit_code BIGINT,
    error_code TEXT,
    created_at BIGINT NOT NULL,
    started_at BIGINT,
    completed_at BIGINT,
    UNIQUE (session_id, position),
    UNIQUE (session_id, idempotency_key),
    CHECK ((idempotency_key IS NULL) = (request_sha256 IS NULL)),
    CHECK ((status IN ('completed', 'failed', 'cancelled')) = (completed_at IS NOT NULL)),
    CHECK ((status = 'completed') = (exit_code IS NOT NULL)),
    CHECK ((status = 'failed') = (error_code IS NOT NULL))
);
CREATE INDEX turns_open ON turns (environment_id) WHERE completed_at IS NULL;

-- Deployment §8.3: the last measured use of each sandbox.
CREATE TABLE runtime_observations (
    id TEXT PRIMARY KEY,
    allocation_id TEXT NOT NULL UNIQUE REFERENCES runtime_allocations (id),
    project_id TEXT NOT NULL REFERENCES projects (id),
    session_id TEXT NOT NULL REFERENCES sessions (id),
    -- The whole observation object as it is answered.
    observation TEXT NOT NULL,
    observed_at BIGINT NOT NULL
);
