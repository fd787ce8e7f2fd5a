//! What each piece of work cannot do without: its queries, on one connection of the same driver, with nothing around them.
//! Rows are fetched and not looked at.

use palisade_core::units::Id;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, AssertSqlSafe, Executor as _};

use crate::world::World;

const DEPLOYMENT: &str = "SELECT installation_id, web_managed, provider_kind, generation, owner_epoch, specification, \
     provider_config, provider_metadata, admission_paused, reset_clear, reset_requested_at, reset_deadline_at, \
     reset_forced_at FROM runtime_deployment WHERE singleton = 1";
/// What the choice of a node looks at.
const CANDIDATES: &str = "SELECT n.id, n.core_url, n.max_active, n.max_retained, n.ready_generation, n.connection_id, \
     n.connected_epoch, n.last_seen_at, placed.retained, placed.active FROM runtime_nodes n LEFT JOIN (\
       SELECT p.node_id, COUNT(*) AS retained, \
       COUNT(*) FILTER (WHERE a.id IS NULL OR a.compute_phase <> 'suspended') AS active FROM runtime_placements p \
       LEFT JOIN runtime_allocations a ON a.environment_id = p.environment_id WHERE p.released_at IS NULL \
       GROUP BY p.node_id) placed ON placed.node_id = n.id WHERE n.installation_id = $1 AND n.removed_at IS NULL";
const STATUSES: &str = "SELECT node_id, generation, connection_id, owner_epoch, state, diagnostic \
     FROM runtime_node_generation_status";
/// What a node of a list shows.
const NODES: &str = "SELECT n.id, n.installation_id, n.name, n.core_url, n.enrollment_id, n.created_at, n.max_active, \
     n.max_retained, n.ready_generation, n.connection_id, n.connected_epoch, n.last_seen_at, n.health_observed_at, \
     n.cpu_count, n.effective_cpu_cores, n.cpu_utilization, n.total_memory_bytes, n.available_memory_bytes, \
     n.available_disk_bytes, placed.retained, placed.active, placed.reserved, held.cleanup_pending, held.running, \
     held.snapshots FROM runtime_nodes n LEFT JOIN (\
       SELECT p.node_id, COUNT(*) AS retained, COUNT(*) FILTER (WHERE a.id IS NULL) AS reserved, \
       COUNT(*) FILTER (WHERE a.id IS NULL OR a.compute_phase <> 'suspended') AS active FROM runtime_placements p \
       LEFT JOIN runtime_allocations a ON a.environment_id = p.environment_id WHERE p.released_at IS NULL \
       GROUP BY p.node_id) placed ON placed.node_id = n.id LEFT JOIN (\
       SELECT node_id, COUNT(*) FILTER (WHERE state = 'cleanup_pending') AS cleanup_pending, \
       COUNT(*) FILTER (WHERE state = 'running' AND compute_phase IN ('running', 'disabled')) AS running, \
       COUNT(*) FILTER (WHERE compute_snapshot = 1) AS snapshots FROM runtime_allocations WHERE state <> 'released' \
       GROUP BY node_id) held ON held.node_id = n.id WHERE n.installation_id = $1 AND n.removed_at IS NULL";
/// What a heartbeat brings: the node, its time, five numbers and two measurements.
const VALUES: [&str; 9] =
    ["TEXT", "BIGINT", "BIGINT", "BIGINT", "BIGINT", "BIGINT", "BIGINT", "DOUBLE PRECISION", "DOUBLE PRECISION"];
/// What the view of the deployment counts of nodes.
const PRESENCE: &str = "SELECT id, ready_generation, connection_id, connected_epoch, last_seen_at FROM runtime_nodes \
     WHERE installation_id = $1 AND removed_at IS NULL";
const COUNTED: &str = "SELECT (SELECT COUNT(*) FROM runtime_allocations WHERE state <> 'released') AS allocations, \
     (SELECT COUNT(*) FROM environments e JOIN sessions s ON s.id = e.session_id WHERE e.status = 'pending' \
       AND s.deleted_at IS NULL AND NOT EXISTS (SELECT 1 FROM runtime_allocations a WHERE a.environment_id = e.id)) \
       AS pending, \
     (SELECT COUNT(*) FROM runtime_allocations WHERE state <> 'released' AND deployment_generation <> $1) AS previous, \
     (SELECT COUNT(*) FROM runtime_placements p WHERE p.released_at IS NULL AND p.deployment_generation <> $1 \
       AND NOT EXISTS (SELECT 1 FROM runtime_allocations a WHERE a.environment_id = p.environment_id)) AS previous_placed";

/// The next sessions that a reset may archive.
const PAGE: &str = "SELECT s.id, s.project_id FROM sessions s JOIN environments e ON e.session_id = s.id \
     LEFT JOIN runtime_allocations a ON a.environment_id = e.id WHERE s.id > $1 AND s.deleted_at IS NULL \
     AND s.environment_type = 'openai_hosted' AND e.status NOT IN ('failed', 'expired') \
     AND (a.state IN ('creating', 'running') OR (a.id IS NULL AND e.status = 'pending')) ORDER BY s.id LIMIT 32";

/// A bare connection.
pub(crate) struct Bare {
    connection: AnyConnection,
    sqlite: bool,
    installation: String,
    project: String,
    tenant: String,
    key: String,
}

impl Bare {
    pub(crate) async fn of(world: &World) -> anyhow::Result<Self> {
        let mut connection = world.bare().await?;
        let (project, tenant, key): (String, String, String) = sqlx::query_as(
            "SELECT p.id, p.tenant_id, k.key_sha256 FROM projects p JOIN project_keys k ON k.project_id = p.id",
        )
        .fetch_one(&mut connection)
        .await?;
        let installation = world.lease.installation.to_string();
        Ok(Self { connection, sqlite: world.sqlite, installation, project, tenant, key })
    }

    const fn begin(&self) -> &'static str {
        if self.sqlite { "BEGIN IMMEDIATE" } else { "BEGIN" }
    }

    const fn snapshot(&self) -> &'static str {
        if self.sqlite { "BEGIN" } else { "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" }
    }

    fn locked(&self, query: &str) -> String {
        format!("{query}{}", if self.sqlite { "" } else { " FOR UPDATE" })
    }

    async fn run(&mut self, statement: &str) -> anyhow::Result<()> {
        Ok(self.connection.execute(AssertSqlSafe(statement.to_owned())).await.map(drop)?)
    }

    async fn rows(&mut self, query: &str) -> anyhow::Result<Vec<AnyRow>> {
        Ok(sqlx::query(AssertSqlSafe(query.to_owned())).fetch_all(&mut self.connection).await?)
    }

    async fn rows_for(&mut self, query: &'static str, id: String) -> anyhow::Result<Vec<AnyRow>> {
        Ok(sqlx::query(query).bind(id).fetch_all(&mut self.connection).await?)
    }

    /// Key, lock, candidates, three rows, commit.
    pub(crate) async fn create(&mut self) -> anyhow::Result<()> {
        let key = self.key.clone();
        self.rows_for(
            "SELECT p.id, p.tenant_id FROM project_keys k JOIN projects p ON p.id = k.project_id WHERE k.key_sha256 = $1",
            key,
        )
        .await?;
        self.run(self.begin()).await?;
        let lock = self.locked(DEPLOYMENT);
        self.rows(&lock).await?;
        let nodes = self.rows_for(CANDIDATES, self.installation.clone()).await?;
        self.rows(STATUSES).await?;
        let node: String = sqlx::Row::try_get(&nodes[0], 0)?;
        let [session, environment] = [(); 2].map(|()| Id::from_random(rand::random()).to_string());
        sqlx::query(
            "INSERT INTO sessions (id, project_id, tenant_id, environment_type, created_at) \
             VALUES ($1, $2, $3, 'openai_hosted', 1)",
        )
        .bind(session.clone())
        .bind(self.project.clone())
        .bind(self.tenant.clone())
        .execute(&mut self.connection)
        .await?;
        sqlx::query("INSERT INTO environments (id, session_id, status, created_at, changed_at) VALUES ($1, $2, 'pending', 1, 1)")
            .bind(environment.clone())
            .bind(session)
            .execute(&mut self.connection)
            .await?;
        sqlx::query("INSERT INTO runtime_placements VALUES ($1, $2, 1, 1, NULL)")
            .bind(environment)
            .bind(node)
            .execute(&mut self.connection)
            .await?;
        self.run("COMMIT").await
    }

    /// Row, counts, presence of the nodes, what they said, in one snapshot.
    pub(crate) async fn view(&mut self) -> anyhow::Result<()> {
        self.run(self.snapshot()).await?;
        self.rows(DEPLOYMENT).await?;
        sqlx::query(COUNTED).bind(1_i64).fetch_all(&mut self.connection).await?;
        self.rows_for(PRESENCE, self.installation.clone()).await?;
        self.rows(STATUSES).await?;
        self.run("COMMIT").await
    }

    /// Row, nodes with their counts, what they said, in one snapshot.
    pub(crate) async fn list(&mut self) -> anyhow::Result<()> {
        self.run(self.snapshot()).await?;
        self.rows(DEPLOYMENT).await?;
        self.rows_for(NODES, self.installation.clone()).await?;
        self.rows(STATUSES).await?;
        self.run("COMMIT").await
    }

    /// Lock, the rows of these nodes and what they said, one statement that writes all, commit.
    pub(crate) async fn heartbeats(&mut self, nodes: &[Id]) -> anyhow::Result<()> {
        self.run(self.begin()).await?;
        let lock = self.locked(DEPLOYMENT);
        self.rows(&lock).await?;
        let places: Vec<_> = (1..=nodes.len()).map(|place| format!("${place}")).collect();
        let places = places.join(", ");
        for query in [
            self.locked(&format!(
                "SELECT id, ready_generation, connection_id, connected_epoch, last_seen_at \
                 FROM runtime_nodes WHERE removed_at IS NULL AND id IN ({places})"
            )),
            format!("{STATUSES} WHERE node_id IN ({places})"),
            format!(
                "SELECT node_id, deployment_generation FROM runtime_placements WHERE released_at IS NULL \
                 AND node_id IN ({places}) UNION SELECT node_id, deployment_generation FROM runtime_allocations \
                 WHERE state <> 'released' AND node_id IN ({places})"
            ),
        ] {
            let query = sqlx::query(AssertSqlSafe(query));
            nodes.iter().fold(query, |query, id| query.bind(id.to_string())).fetch_all(&mut self.connection).await?;
        }
        let values: Vec<_> = (0..nodes.len())
            .map(|row| {
                let place = |column: usize, kind| format!("CAST(${} AS {kind})", VALUES.len() * row + column + 1);
                let places: Vec<_> = VALUES.iter().enumerate().map(|(column, kind)| place(column, kind)).collect();
                format!("({})", places.join(", "))
            })
            .collect();
        let update = format!(
            "UPDATE runtime_nodes SET last_seen_at = v.column2, health_observed_at = v.column2, \
             active_operations = v.column3, cpu_count = v.column4, total_memory_bytes = v.column5, \
             available_memory_bytes = v.column6, available_disk_bytes = v.column7, effective_cpu_cores = v.column8, \
             cpu_utilization = v.column9 FROM (VALUES {}) AS v WHERE runtime_nodes.id = v.column1",
            values.join(", ")
        );
        let query = sqlx::query(AssertSqlSafe(update));
        let query = nodes.iter().fold(query, |query, id| {
            let query = (1..=6).fold(query.bind(id.to_string()), |query, value: i64| query.bind(value));
            query.bind(16.0_f64).bind(0.5_f64)
        });
        query.execute(&mut self.connection).await?;
        self.run("COMMIT").await
    }

    /// The row, the next sessions, the end of each, and whether anything is left that the reset waits for.
    pub(crate) async fn reset_pass(&mut self, sessions: &[String]) -> anyhow::Result<()> {
        self.run(self.snapshot()).await?;
        self.rows(DEPLOYMENT).await?;
        self.rows_for(PAGE, String::new()).await?;
        self.run("COMMIT").await?;
        self.archive(sessions).await?;
        self.run(self.snapshot()).await?;
        self.rows(DEPLOYMENT).await?;
        sqlx::query(COUNTED).bind(1_i64).fetch_all(&mut self.connection).await?;
        self.run("COMMIT").await
    }

    /// For each session: its locks, what it holds and whether it is busy, its end, the record of it, commit.
    async fn archive(&mut self, sessions: &[String]) -> anyhow::Result<()> {
        let lock = self.locked("SELECT id FROM sessions WHERE id = $1");
        let deployment = self.locked(DEPLOYMENT);
        for session in sessions {
            self.run(self.begin()).await?;
            sqlx::query(AssertSqlSafe(lock.clone())).bind(session.clone()).fetch_all(&mut self.connection).await?;
            self.rows(&deployment).await?;
            let held = self
                .rows_for(
                    "SELECT e.id, e.status, s.deleted_at, a.provider_key, a.state, CASE WHEN EXISTS (SELECT 1 FROM turns t \
                     WHERE t.environment_id = e.id AND t.completed_at IS NULL AND t.status IN ('in_progress', 'waiting')) \
                     THEN 1 ELSE 0 END AS busy FROM sessions s JOIN environments e ON e.session_id = s.id \
                     LEFT JOIN runtime_allocations a ON a.environment_id = e.id WHERE s.id = $1",
                    session.clone(),
                )
                .await?;
            let environment: String = sqlx::Row::try_get(&held[0], 0)?;
            for (statement, id) in [
                ("UPDATE environments SET status = 'expired', changed_at = 1 WHERE id = $1", &environment),
                (
                    "DELETE FROM turn_inputs WHERE turn_id IN (SELECT id FROM turns WHERE session_id = $1 \
                     AND status = 'queued')",
                    session,
                ),
                (
                    "UPDATE turns SET status = 'cancelled', completed_at = 1 WHERE session_id = $1 AND status = 'queued'",
                    session,
                ),
                ("UPDATE turns SET cancel_requested = 1 WHERE session_id = $1 AND completed_at IS NULL", session),
                (
                    "UPDATE runtime_allocations SET state = 'cleanup_pending', cleanup_requested_at = 1 \
                     WHERE environment_id = $1 AND state IN ('creating', 'running')",
                    &environment,
                ),
                (
                    "INSERT INTO admin_audit_log (id, created_at, admin_credential_id, actor_label, action, resource_type, \
                     resource_id, request_id, trace_id) VALUES ($1, 1, 'k', 'core key', 'archive', 'session', 's', 'r', 't')",
                    session,
                ),
            ] {
                sqlx::query(statement).bind(id.clone()).execute(&mut self.connection).await?;
            }
            self.run("COMMIT").await?;
        }
        Ok(())
    }
}
