//! The phases of an allocation's compute (deployment §3.6, §4.4).
//!
//! Each write compares the revision, the phase and everything that could speak against it in the transaction that writes,
//! under the locks of Session and deployment. A timer only wakes whoever asks.

use palisade_core::admin::node::ComputePhase;
use palisade_core::deployment::Deployment;
use palisade_core::deployment::admission::{Placement, check_restore};
use palisade_core::lifecycle::compute::{Change, State};
use palisade_core::units::{Id, OwnerEpoch};

use super::held::{Held, Policy};
use super::work::Work;
use super::{Columns, Result, Store, Timestamp, Tx};

impl Store {
    /// Stores the next state of `work`'s compute. `None`: a fact that speaks against it changed in between.
    pub async fn set_compute(&self, epoch: OwnerEpoch, work: &Work, next: State) -> Result<Option<Held>> {
        self.advance_compute(epoch, work, |_, _| Some(next)).await
    }

    /// Stores that the operation of `work`'s compute is about to be handed over, in the commit before it is.
    pub async fn hand_over(&self, epoch: OwnerEpoch, work: &Work, fresh: Id) -> Result<Option<Held>> {
        self.advance_compute(epoch, work, |state, now| state.handed(fresh, now.0)).await
    }

    async fn advance_compute(
        &self,
        epoch: OwnerEpoch,
        work: &Work,
        next: impl FnOnce(&State, Timestamp) -> Option<State> + Send,
    ) -> Result<Option<Held>> {
        let Some(held) = &work.compute else { return Ok(None) };
        let mut tx = self.write().await?;
        tx.lock_session(work.session).await?;
        let deployment = tx.fence(epoch).await?;
        let now = tx.now().await?;
        let Some(next) = next(&held.state, now) else { return Ok(None) };
        if !tx.may_advance(work, held, next.phase(), &deployment, now).await? {
            return Ok(None);
        }
        let stored = tx.store_compute(work, held, next, now).await?;
        if stored.is_some() {
            tx.commit().await?;
        }
        Ok(stored)
    }

    /// Ends an environment whose compute was kept for long enough. `false`: it is not that any more.
    pub async fn expire(&self, epoch: OwnerEpoch, work: &Work) -> Result<bool> {
        let Some(held) = &work.compute else { return Ok(false) };
        let mut tx = self.write().await?;
        tx.lock_session(work.session).await?;
        tx.fence(epoch).await?;
        let now = tx.now().await?;
        let expired = sqlx::query(
            "UPDATE runtime_allocations SET state = 'cleanup_pending', cleanup_requested_at = $2, \
             device_revoked_at = COALESCE(device_revoked_at, $2) WHERE environment_id = $1 AND state = 'running' \
             AND compute_revision = $3 AND compute_retained_until = $4",
        )
        .bind(work.environment.to_string())
        .bind(now.0)
        .bind(held.revision)
        .bind(held.retained_until.map(|until| until.0))
        .execute(&mut *tx)
        .await?
        .rows_affected();
        if expired == 0 {
            return Ok(false);
        }
        tx.end_environment(work.environment, "expired", "retention_passed", now).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Gives up what cannot be restored, with what of it is to be removed.
    pub async fn give_up(&self, epoch: OwnerEpoch, work: &Work, last: State) -> Result<bool> {
        let Some(held) = &work.compute else { return Ok(false) };
        let mut tx = self.write().await?;
        tx.lock_session(work.session).await?;
        tx.fence(epoch).await?;
        let now = tx.now().await?;
        if tx.store_compute(work, held, last, now).await?.is_none() {
            return Ok(false);
        }
        sqlx::query(
            "UPDATE runtime_allocations SET state = 'cleanup_pending', cleanup_requested_at = $2, \
             device_revoked_at = COALESCE(device_revoked_at, $2) WHERE environment_id = $1 AND state = 'running'",
        )
        .bind(work.environment.to_string())
        .bind(now.0)
        .execute(&mut *tx)
        .await?;
        tx.end_environment(work.environment, "failed", "restore_failed", now).await?;
        tx.commit().await?;
        Ok(true)
    }
}

impl Tx {
    /// Everything that may have changed since `held` was read, except its revision.
    async fn may_advance(
        &mut self,
        work: &Work,
        held: &Held,
        to: ComputePhase,
        deployment: &Deployment,
        now: Timestamp,
    ) -> Result<bool> {
        let from = held.state.phase();
        match (from, to) {
            (ComputePhase::Running, ComputePhase::Quiescing) => {
                Ok(self.idle(work, held.policy, now).await? && self.open_turns(work.session).await? == 0)
            }
            (ComputePhase::Quiescing, ComputePhase::Suspending) => Ok(self.open_turns(work.session).await? == 0),
            (ComputePhase::Suspended, ComputePhase::Restoring) => self.may_restore(work, deployment, now).await,
            _ => Ok(true),
        }
    }

    async fn idle(&mut self, work: &Work, policy: Policy, now: Timestamp) -> Result<bool> {
        let row = sqlx::query("SELECT compute_activity_at FROM runtime_allocations WHERE environment_id = $1")
            .bind(work.environment.to_string())
            .fetch_one(&mut **self)
            .await?;
        let used = row.time_opt("compute_activity_at")?;
        Ok(used.is_some_and(|used| now.since(used) >= policy.idle.saturating_mul(1000)))
    }

    /// On its own node and nowhere else, with nobody taking the last place meanwhile.
    async fn may_restore(&mut self, work: &Work, deployment: &Deployment, now: Timestamp) -> Result<bool> {
        let (Some(placed), Some(installation)) = (work.placement, deployment.installation) else { return Ok(false) };
        self.lock_node(placed.node).await?;
        let Some(node) = self.node(placed.node, installation).await? else { return Ok(false) };
        let at = Placement { node: placed.node, generation: placed.generation };
        Ok(check_restore(at, deployment, &[node], now).is_ok())
    }

    /// Writes one state over the one that was read. What is learnt while everything is to go changes no phase.
    async fn store_compute(&mut self, work: &Work, held: &Held, next: State, now: Timestamp) -> Result<Option<Held>> {
        let (from, to, text) = (held.state.phase(), next.phase(), next.encode());
        let retained_until = retained_until(held, to, now);
        let change = Change { from, to, state: &text, retained_until, idle_seconds: held.policy.idle };
        if let Err(refused) = change.check() {
            tracing::error!(environment = %work.environment, %refused, "a phase of compute was refused");
            return Ok(None);
        }
        let written = sqlx::query(
            "UPDATE runtime_allocations SET compute_phase = $2, compute_state = $3, compute_snapshot = $4, \
             compute_retained_until = $5, compute_revision = compute_revision + 1, \
             compute_phase_changed_at = CASE WHEN compute_phase = $2 THEN compute_phase_changed_at ELSE $6 END \
             WHERE environment_id = $1 AND compute_revision = $7 AND compute_phase = $8 \
             AND (state = 'running' OR (state = 'cleanup_pending' AND compute_phase = $2)) \
             AND EXISTS (SELECT 1 FROM environments e WHERE e.id = $1 AND e.initialization = 'complete')",
        )
        .bind(work.environment.to_string())
        .bind(name(to))
        .bind(text)
        .bind(i64::from(next.holds_snapshot()))
        .bind(retained_until.map(|until| until.0))
        .bind(now.0)
        .bind(held.revision)
        .bind(name(from))
        .execute(&mut **self)
        .await?
        .rows_affected();
        let handed_ms = next.handed_at().map(|at| now.since(Timestamp(at)));
        let since_ms = if from == to { held.since_ms } else { 0 };
        let revision = held.revision + 1;
        let stored = Held { revision, state: next, retained_until, since_ms, handed_ms, ..held.clone() };
        Ok((written == 1).then_some(stored))
    }

    /// Ends an environment that has not ended yet.
    async fn end_environment(&mut self, id: Id, status: &str, code: &str, now: Timestamp) -> Result<()> {
        sqlx::query(
            "UPDATE environments SET status = $2, failure_code = $3, changed_at = $4 \
             WHERE id = $1 AND status IN ('pending', 'connected', 'disconnected')",
        )
        .bind(id.to_string())
        .bind(status)
        .bind(code)
        .bind(now.0)
        .execute(&mut **self)
        .await?;
        Ok(())
    }
}

/// It counts from when it was idle, and again from when it is restored.
fn retained_until(held: &Held, to: ComputePhase, now: Timestamp) -> Option<Timestamp> {
    let from = held.state.phase();
    let fresh = i64::try_from(held.policy.retention.saturating_mul(1000)).unwrap_or(i64::MAX);
    let fresh = Timestamp(now.0.saturating_add(fresh));
    match (from, to) {
        (_, ComputePhase::Running | ComputePhase::Disabled) => None,
        (ComputePhase::Running, _) | (ComputePhase::Suspended, ComputePhase::Restoring) => Some(fresh),
        _ => held.retained_until,
    }
}

fn name(phase: ComputePhase) -> &'static str {
    match phase {
        ComputePhase::Disabled => "disabled",
        ComputePhase::Running => "running",
        ComputePhase::Quiescing => "quiescing",
        ComputePhase::Suspending => "suspending",
        ComputePhase::Suspended => "suspended",
        ComputePhase::Restoring => "restoring",
        ComputePhase::Waking => "waking",
    }
}
