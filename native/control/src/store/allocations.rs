//! What the owner reads and writes of one environment (deployment §4.3, §5.2, §11.2).
//!
//! Every write locks the Session and proves the owner's epoch in the transaction that records the effect.

use palisade_core::admin::node::AllocationDiagnostic;
use palisade_core::deployment::contract::Provider;
use palisade_core::lifecycle::{Allocation, Attempt, Change, Environment, Facts, NodeState, Turn};
use palisade_core::limits::CONFIRM_INTERVAL_MS;
use palisade_core::units::{Digest, Generation, Id, OwnerEpoch};
use palisade_core::wire::payload::Reference;
use sqlx::any::AnyRow;

use super::commands::Outputs;
use super::compute::Held;
use super::{Columns, Result, Store, StoreError, Timestamp, Tx};

/// One environment as one transaction read it.
#[derive(Debug, Clone)]
pub struct Work {
    /// Its Session.
    pub session: Id,
    /// The Session's tenant.
    pub tenant: Id,
    /// The environment.
    pub environment: Id,
    /// Where it was placed, while the placement is not released.
    pub placement: Option<Placed>,
    /// Its allocation, released or not.
    pub allocation: Option<Allocated>,
    /// Its compute, where that can be suspended.
    pub compute: Option<Held>,
    /// The database's clock when this was read.
    pub read_at: Timestamp,
    /// Whether the Session was deleted.
    deleted: bool,
    status: Environment,
    admission_open: bool,
    turn: Option<Turn>,
    last_seen_ms: Option<u64>,
    stale: bool,
}

/// A placement, with the provider of its generation.
#[derive(Debug, Clone, Copy)]
pub struct Placed {
    /// Which node.
    pub node: Id,
    /// Which generation.
    pub generation: Generation,
    /// Which provider that generation is for.
    pub provider: Provider,
}

/// An allocation's row.
#[derive(Debug, Clone, Copy)]
pub struct Allocated {
    /// Its identifier.
    pub id: Id,
    /// The device inside.
    pub device: Id,
    /// The installation that owns the resource.
    pub installation: Id,
    /// When it was reserved.
    pub created_at: Timestamp,
    /// Where it stands.
    pub state: Allocation,
}

/// A change of the owner and what belongs to it.
#[derive(Debug, Clone, Copy)]
pub struct Concluded<'a> {
    /// Facts to write, in order.
    pub changes: &'a [Change],
    /// Native identity, once it was verified.
    pub provider_id: &'a str,
    /// Result of a completed Turn.
    pub outputs: Option<Outputs<'a>>,
}

const UNFINISHED: &str = "SELECT e.id FROM environments e JOIN sessions s ON s.id = e.session_id \
     JOIN runtime_deployment d ON d.singleton = 1 \
     LEFT JOIN runtime_placements p ON p.environment_id = e.id \
     LEFT JOIN runtime_allocations a ON a.environment_id = e.id \
     LEFT JOIN runtime_nodes n ON n.id = p.node_id \
     WHERE e.id IN (SELECT environment_id FROM runtime_placements WHERE released_at IS NULL \
       UNION SELECT environment_id FROM runtime_allocations WHERE state <> 'released' \
       UNION SELECT environment_id FROM turns WHERE completed_at IS NULL) \
     AND s.environment_type = 'openai_hosted' AND (\
     a.state IN ('creating', 'cleanup_pending') \
     OR (a.id IS NULL AND p.released_at IS NULL AND p.node_id IS NOT NULL AND e.status = 'pending') \
     OR (a.state = 'running' AND (s.deleted_at IS NOT NULL OR e.status IN ('failed', 'expired'))) \
     OR (a.state = 'running' AND n.connection_id IS NOT NULL AND (\
       (a.compute_phase IN ('disabled', 'running') AND a.kept_at <= $2) \
       OR (d.idle_seconds > 0 AND (a.compute_phase NOT IN ('running', 'suspended') \
         OR (a.compute_phase = 'running' AND (a.compute_snapshot = 1 \
           OR a.compute_activity_at <= $1 - d.idle_seconds * 1000)))))) \
     OR EXISTS (SELECT 1 FROM turns t WHERE t.environment_id = e.id AND t.completed_at IS NULL))";

const WORK: &str = "SELECT s.id AS session_id, s.tenant_id, s.deleted_at, e.status, p.node_id, p.deployment_generation, \
     p.released_at AS placement_released_at, a.id AS allocation_id, a.device_id, a.provider_key, a.state, \
     a.create_sent_at, a.create_settled, a.created_at, a.kept_at, n.last_seen_at, n.max_active, d.admission_paused, \
     CASE WHEN d.generation = p.deployment_generation THEN d.provider_kind ELSE g.provider_kind END \
     AS provider_kind, d.idle_seconds, d.retention_seconds, a.compute_phase, a.compute_phase_changed_at, \
     a.compute_revision, a.compute_state, a.compute_activity_at, a.compute_retained_until, \
     CASE WHEN a.compute_phase = 'suspended' THEN (SELECT COUNT(*) FROM runtime_placements o \
       LEFT JOIN runtime_allocations b ON b.environment_id = o.environment_id WHERE o.node_id = p.node_id \
       AND o.released_at IS NULL AND (b.id IS NULL OR b.compute_phase <> 'suspended')) ELSE 0 END AS active \
     FROM environments e JOIN sessions s ON s.id = e.session_id \
     JOIN runtime_deployment d ON d.singleton = 1 \
     LEFT JOIN runtime_placements p ON p.environment_id = e.id \
     LEFT JOIN runtime_allocations a ON a.environment_id = e.id \
     LEFT JOIN runtime_nodes n ON n.id = p.node_id \
     LEFT JOIN runtime_deployment_generations g ON g.generation = p.deployment_generation \
     WHERE e.id = $1";

impl Work {
    /// The reference of the allocation.
    #[must_use]
    pub fn reference(&self) -> Option<Reference> {
        let allocation = self.allocation?.id;
        Some(Reference { tenant: self.tenant, environment: self.environment, allocation })
    }

    /// Whether its allocation is to go.
    #[must_use]
    pub const fn is_ending(&self) -> bool {
        match &self.allocation {
            Some(allocation) => matches!(allocation.state, Allocation::CleanupPending { .. }),
            None => false,
        }
    }

    /// What the lifecycle decides by. `live` and `ready` are what the hub says of the placement now, and `expired` is what
    /// the owner's clock says of the time until which the compute is kept.
    #[must_use]
    pub fn facts(&self, live: bool, ready: bool, expired: bool) -> Facts {
        let node = match (live, ready) {
            (true, true) => NodeState::Ready,
            (true, false) => NodeState::Unready,
            (false, _) => NodeState::Offline { away_ms: self.last_seen_ms.unwrap_or(u64::MAX) },
        };
        Facts {
            admission_open: self.admission_open,
            session_deleted: self.deleted,
            environment: self.status,
            node,
            allocation: self.allocation.map_or(Allocation::None, |allocation| allocation.state),
            compute: self.compute.as_ref().map(|held| held.facts(expired)),
            stale: self.stale,
            turn: self.turn,
        }
    }
}

impl Store {
    /// The environments for which there is something to do now. Looks only at what is still open: ended ones stay as
    /// records, and their number grows for ever. What is kept until a time is told by [`Store::retained`].
    pub async fn unfinished_environments(&self) -> Result<Vec<Id>> {
        let mut tx = self.read().await?;
        let now = tx.now().await?;
        let rows = sqlx::query(UNFINISHED)
            .bind(now.0)
            .bind(now.0.saturating_sub(i64::try_from(CONFIRM_INTERVAL_MS).expect("a small number")))
            .fetch_all(&mut *tx)
            .await?;
        rows.iter().map(|row| row.id("id")).collect()
    }

    /// Reads one environment; `None` when there is no such one.
    pub async fn work(&self, environment: Id) -> Result<Option<Work>> {
        let mut tx = self.read().await?;
        let now = tx.now().await?;
        let row = sqlx::query(WORK).bind(environment.to_string()).fetch_optional(&mut *tx).await?;
        let Some(row) = row else { return Ok(None) };
        let turn = tx.next_turn(environment, now).await?;
        read_work(&row, environment, turn, now).map(Some)
    }

    /// Reserves the allocation of an unreleased placement. `false`: somebody changed a fact in between.
    pub async fn reserve_allocation(&self, epoch: OwnerEpoch, work: &Work, fresh: (Id, Id)) -> Result<bool> {
        let mut tx = self.write().await?;
        tx.lock_session(work.session).await?;
        let deployment = tx.fence(epoch).await?;
        let Some(installation) = deployment.installation.filter(|_| !deployment.admission_paused) else {
            return Ok(false);
        };
        let now = tx.now().await?;
        let reserved = sqlx::query(
            "INSERT INTO runtime_allocations (id, environment_id, device_id, provider_key, node_id, \
             deployment_generation, state, created_at, kept_at) \
             SELECT $2, e.id, $3, $4, p.node_id, p.deployment_generation, 'creating', $5, $5 \
             FROM environments e JOIN sessions s ON s.id = e.session_id \
             JOIN runtime_placements p ON p.environment_id = e.id \
             WHERE e.id = $1 AND e.status = 'pending' AND s.deleted_at IS NULL AND p.released_at IS NULL \
             ON CONFLICT (environment_id) DO NOTHING",
        )
        .bind(work.environment.to_string())
        .bind(fresh.0.to_string())
        .bind(fresh.1.to_string())
        .bind(installation.to_string())
        .bind(now.0)
        .execute(&mut *tx)
        .await?
        .rows_affected();
        tx.commit().await?;
        Ok(reserved == 1)
    }

    /// Records that a create is about to be handed over (decision 35). `false`: it must not be.
    pub async fn record_attempt(&self, epoch: OwnerEpoch, work: &Work, credential: Digest) -> Result<bool> {
        let Some(allocation) = work.allocation else { return Ok(false) };
        let mut tx = self.write().await?;
        tx.lock_session(work.session).await?;
        tx.fence(epoch).await?;
        let now = tx.now().await?;
        let recorded = sqlx::query(
            "UPDATE runtime_allocations SET create_sent_at = $2, device_credential_sha256 = $3 \
             WHERE id = $1 AND state = 'creating' AND create_sent_at IS NULL",
        )
        .bind(allocation.id.to_string())
        .bind(now.0)
        .bind(credential.to_string())
        .execute(&mut *tx)
        .await?
        .rows_affected();
        tx.commit().await?;
        Ok(recorded == 1)
    }

    /// Writes what an outcome changes, all of it or nothing.
    pub async fn conclude(&self, epoch: OwnerEpoch, work: &Work, concluded: Concluded<'_>) -> Result<()> {
        let mut tx = self.write().await?;
        tx.lock_session(work.session).await?;
        tx.fence(epoch).await?;
        let now = tx.now().await?;
        for change in concluded.changes {
            tx.change(work, *change, &concluded, now).await?;
        }
        tx.commit().await
    }
}

impl Tx {
    async fn change(&mut self, work: &Work, change: Change, with: &Concluded<'_>, now: Timestamp) -> Result<()> {
        match change {
            Change::TurnCompleted(turn) => self.complete_turn(turn, with.outputs.as_ref(), now).await,
            Change::TurnFailed(turn, error) => self.fail_turn(turn, error.code(), now).await,
            Change::TurnRequeued(turn) => self.requeue_turn(turn, now).await,
            Change::AttemptCleared => {
                let cleared = "SET create_sent_at = NULL, kept_at = $2 WHERE id = $1 AND create_settled = 0";
                self.alter(work, cleared, now).await
            }
            Change::Running => self.record_running(work, with.provider_id, now).await,
            Change::Settled => self.alter(work, "SET create_settled = 1, kept_at = $2 WHERE id = $1", now).await,
            Change::Looked(diagnostic) => self.record_look(work, diagnostic, now).await,
            Change::CleanupRequested => self.request_cleanup(work, now).await,
            Change::Released => self.release(work, now).await,
        }
    }

    /// One statement on the allocation; `$1` is its id, `$2` the time.
    async fn alter(&mut self, work: &Work, change: &'static str, now: Timestamp) -> Result<()> {
        let Some(allocation) = work.allocation else { return Ok(()) };
        sqlx::query(sqlx::AssertSqlSafe(format!("UPDATE runtime_allocations {change}")))
            .bind(allocation.id.to_string())
            .bind(now.0)
            .execute(&mut **self)
            .await?;
        Ok(())
    }

    async fn alter_environment(&mut self, work: &Work, change: &'static str, now: Timestamp) -> Result<()> {
        sqlx::query(sqlx::AssertSqlSafe(format!("UPDATE environments SET changed_at = $2, {change}")))
            .bind(work.environment.to_string())
            .bind(now.0)
            .execute(&mut **self)
            .await?;
        Ok(())
    }

    /// Running settles the creation, also when a cleanup was requested in the meantime.
    async fn record_running(&mut self, work: &Work, provider_id: &str, now: Timestamp) -> Result<()> {
        let Some(allocation) = work.allocation else { return Ok(()) };
        sqlx::query("UPDATE runtime_allocations SET create_settled = 1, provider_id = $2 WHERE id = $1")
            .bind(allocation.id.to_string())
            .bind(provider_id)
            .execute(&mut **self)
            .await?;
        let running = "SET state = 'running', kept_at = $2 WHERE id = $1 AND state = 'creating'";
        self.alter(work, running, now).await?;
        let connected = "status = 'connected', initialization = 'complete' WHERE id = $1 AND status = 'pending'";
        self.alter_environment(work, connected, now).await
    }

    /// A diagnostic is no more than that: it neither releases nor replaces anything.
    async fn record_look(&mut self, work: &Work, seen: AllocationDiagnostic, now: Timestamp) -> Result<()> {
        let Some(allocation) = work.allocation else { return Ok(()) };
        sqlx::query(
            "UPDATE runtime_allocations SET observation_error = $2, kept_at = $3 WHERE id = $1 AND state = 'running'",
        )
        .bind(allocation.id.to_string())
        .bind(seen.name())
        .bind(now.0)
        .execute(&mut **self)
        .await?;
        Ok(())
    }

    async fn request_cleanup(&mut self, work: &Work, now: Timestamp) -> Result<()> {
        let requested = "SET state = 'cleanup_pending', cleanup_requested_at = $2, device_revoked_at = $2 \
                         WHERE id = $1 AND state IN ('creating', 'running')";
        self.alter(work, requested, now).await?;
        let failed = "status = 'failed', failure_code = 'provisioning_failed' \
                      WHERE id = $1 AND status IN ('pending', 'connected', 'disconnected')";
        self.alter_environment(work, failed, now).await
    }

    /// A creation that was never handed over is settled by that alone.
    async fn release(&mut self, work: &Work, now: Timestamp) -> Result<()> {
        let released = "SET state = 'released', create_settled = 1, released_at = $2 WHERE id = $1 \
                        AND state = 'cleanup_pending' AND (create_settled = 1 OR create_sent_at IS NULL)";
        self.alter(work, released, now).await?;
        sqlx::query(
            "UPDATE runtime_placements SET released_at = $2 WHERE environment_id = $1 AND released_at IS NULL \
             AND NOT EXISTS (SELECT 1 FROM runtime_allocations a WHERE a.environment_id = $1 AND a.state <> 'released')",
        )
        .bind(work.environment.to_string())
        .bind(now.0)
        .execute(&mut **self)
        .await?;
        Ok(())
    }
}

fn read_work(row: &AnyRow, environment: Id, turn: Option<Turn>, now: Timestamp) -> Result<Work> {
    Ok(Work {
        session: row.id("session_id")?,
        tenant: row.id("tenant_id")?,
        environment,
        placement: read_placement(row)?,
        allocation: read_allocation(row, now)?,
        compute: read_compute(row, now)?,
        read_at: now,
        deleted: row.time_opt("deleted_at")?.is_some(),
        status: read_status(&row.text("status")?)?,
        admission_open: !row.flag("admission_paused")?,
        turn,
        last_seen_ms: row.time_opt("last_seen_at")?.map(|seen| elapsed(seen, now)),
        stale: row.time_opt("kept_at")?.is_some_and(|kept| elapsed(kept, now) >= CONFIRM_INTERVAL_MS),
    })
}

fn read_placement(row: &AnyRow) -> Result<Option<Placed>> {
    let Some(node) = row.id_opt("node_id")? else { return Ok(None) };
    if row.time_opt("placement_released_at")?.is_some() {
        return Ok(None);
    }
    let kind = row.text_opt("provider_kind")?.unwrap_or_default();
    let provider = Provider::from_name(&kind).ok_or(StoreError::Corrupt { column: "provider_kind" })?;
    Ok(Some(Placed { node, generation: row.generation("deployment_generation")?, provider }))
}

fn read_allocation(row: &AnyRow, now: Timestamp) -> Result<Option<Allocated>> {
    let Some(id) = row.id_opt("allocation_id")? else { return Ok(None) };
    let settled = row.flag("create_settled")?;
    let attempt = match row.time_opt("create_sent_at")? {
        Some(sent) => Attempt::Handed { ago_ms: elapsed(sent, now) },
        None => Attempt::None,
    };
    let state = match row.text("state")?.as_str() {
        "creating" => Allocation::Creating(attempt),
        "running" => Allocation::Running,
        "cleanup_pending" => Allocation::CleanupPending { attempt, settled },
        "released" => Allocation::Released,
        _ => return Err(StoreError::Corrupt { column: "state" }),
    };
    let (device, installation) = (row.id("device_id")?, row.id("provider_key")?);
    Ok(Some(Allocated { id, device, installation, created_at: row.time("created_at")?, state }))
}

fn read_compute(row: &AnyRow, now: Timestamp) -> Result<Option<Held>> {
    let held = row.text_opt("state")?.is_some_and(|state| state != "released");
    if held { Held::read(row, now) } else { Ok(None) }
}

fn read_status(status: &str) -> Result<Environment> {
    match status {
        "pending" => Ok(Environment::Pending),
        "connected" => Ok(Environment::Connected),
        "disconnected" => Ok(Environment::Disconnected),
        "failed" => Ok(Environment::Failed),
        "expired" => Ok(Environment::Expired),
        _ => Err(StoreError::Corrupt { column: "status" }),
    }
}

/// Milliseconds from `then` to `now`; a clock that went back counts as no time.
pub(super) fn elapsed(then: Timestamp, now: Timestamp) -> u64 {
    u64::try_from(now.0.saturating_sub(then.0)).unwrap_or(0)
}
