//! What one transaction reads of an environment, for the owner to decide by (deployment §4.3, §4.4, §11.2).

use palisade_core::deployment::contract::Provider;
use palisade_core::lifecycle::{Allocation, Attempt, Environment, Facts, NodeState, Turn};
use palisade_core::limits::CONFIRM_INTERVAL_MS;
use palisade_core::units::{Generation, Id};
use palisade_core::wire::payload::Reference;
use sqlx::any::AnyRow;

use super::held::Held;
use super::{Columns, Result, Store, StoreError, Timestamp};

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

    /// What is kept until a time, with that time.
    pub async fn retained(&self) -> Result<(Vec<(Id, Timestamp)>, Timestamp)> {
        let mut tx = self.read().await?;
        let rows = sqlx::query(
            "SELECT environment_id, compute_retained_until FROM runtime_allocations WHERE state <> 'released' \
             AND state = 'running' AND compute_retained_until IS NOT NULL",
        )
        .fetch_all(&mut *tx)
        .await?;
        let retained = rows.iter().map(|row| Ok((row.id("environment_id")?, row.time("compute_retained_until")?)));
        Ok((retained.collect::<Result<_>>()?, tx.now().await?))
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
        last_seen_ms: row.time_opt("last_seen_at")?.map(|seen| now.since(seen)),
        stale: row.time_opt("kept_at")?.is_some_and(|kept| now.since(kept) >= CONFIRM_INTERVAL_MS),
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
        Some(sent) => Attempt::Handed { ago_ms: now.since(sent) },
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
