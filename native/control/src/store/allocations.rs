//! What the owner writes of the allocation of one environment (deployment §4.3, §5.2, §11.2).
//!
//! Every write locks the Session and proves the owner's epoch in the transaction that records the effect.

use palisade_core::admin::node::AllocationDiagnostic;
use palisade_core::lifecycle::Change;
use palisade_core::units::{Digest, Id, OwnerEpoch};

use super::commands::Outputs;
use super::work::Work;
use super::{Result, Store, Timestamp, Tx};

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

impl Store {
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
