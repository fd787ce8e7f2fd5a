//! What the connection of a node does to the store (deployment §4.5, §4.6; wire §5.5, §7.3).
//!
//! Each function is one transaction. None retries: a failure closes the connection, and the node comes again.

use palisade_core::deployment::Deployment;
use palisade_core::deployment::capacity::Capacity;
use palisade_core::deployment::contract::Mode;
use palisade_core::deployment::node::{Node, ObservedState as State};
use palisade_core::deployment::retention::{self, Verdict};
use palisade_core::units::{Digest, Generation, Id, OwnerEpoch};
use palisade_core::wire::payload::{
    self, Checkpoint, GenerationReference, Health, Identity, Observation, ObservedState, Retention,
};
use subtle::ConstantTimeEq as _;

use super::generations::signed;
use super::{Columns, Result, Store, StoreError, Timestamp, Tx};

/// Why the store refused what a node asked.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The node is unknown or removed, its credential is wrong, or its connection is not the current one: 401.
    #[error("the node's credential or connection is not accepted")]
    Rejected,
    /// A generation of the node does not have the digest that Core has: 409 `sandbox_specification_mismatch`.
    #[error("a generation of the node has another specification digest")]
    Mismatch,
    /// The store failed; says nothing about the node.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<sqlx::Error> for Refused {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

/// A node whose credential was accepted.
#[derive(Debug, Clone, PartialEq)]
pub struct Authenticated {
    /// Its enrollment identity with the approved capacity.
    pub identity: Identity<'static>,
    /// What it holds and said, as of this transaction.
    pub node: Node,
    /// The deployment, as of this transaction.
    pub deployment: Deployment,
    /// The database's clock, as of this transaction.
    pub now: Timestamp,
}

/// The immutable enrollment identity of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Enrolled {
    /// Where it enrolled.
    pub installation: Id,
    /// Its own namespace digest.
    pub backend_fingerprint: Digest,
    /// The generation it enrolled with.
    pub generation: Generation,
    /// That generation's digest.
    pub specification_digest: Digest,
}

/// The connection that a call belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// The node.
    pub node: Id,
    /// The connection.
    pub connection: Id,
    /// The epoch it was opened under.
    pub epoch: OwnerEpoch,
}

impl Store {
    /// Accepts a node's credential, given by digest: the credential first, then the deployment (W 174).
    pub async fn authenticate_node(&self, id: Id, credential: Digest) -> Result<Authenticated, Refused> {
        self.read().await?.authenticate_node(id, credential).await
    }

    /// Records a new connection. Refused when the node has seen a higher epoch, or the epoch is not the current one.
    pub async fn connect_node(&self, link: Link) -> Result<(), Refused> {
        let mut tx = self.write().await?;
        // The deployment is only read: a node whose row is held must not hold up the others (W 66).
        let deployment = tx.deployment().await?;
        tx.lock_node(link.node).await?;
        let now = tx.now().await?;
        let connected = sqlx::query(
            "UPDATE runtime_nodes SET connection_id = $2, connected_epoch = $3, last_seen_at = $4 \
             WHERE id = $1 AND removed_at IS NULL AND installation_id = $5 \
             AND (connected_epoch IS NULL OR connected_epoch <= $3)",
        )
        .bind(link.node.to_string())
        .bind(link.connection.to_string())
        .bind(epoch(link.epoch))
        .bind(now.0)
        .bind(deployment.installation.map(|id| id.to_string()))
        .execute(&mut *tx)
        .await?;
        if connected.rows_affected() == 0 || deployment.owner_epoch != link.epoch.get() {
            return Err(Refused::Rejected);
        }
        Ok(tx.commit().await?)
    }

    /// Clears a connection, when it is still the current one. The epoch stays, so that no lower one comes after.
    pub async fn disconnect_node(&self, link: Link) -> Result<()> {
        let mut tx = self.write().await?;
        tx.lock_node(link.node).await?;
        sqlx::query(
            "UPDATE runtime_nodes SET connection_id = NULL \
             WHERE id = $1 AND connection_id = $2 AND connected_epoch = $3",
        )
        .bind(link.node.to_string())
        .bind(link.connection.to_string())
        .bind(epoch(link.epoch))
        .execute(&mut *tx)
        .await?;
        tx.commit().await
    }

    /// Records a heartbeat (or the health of `hello`): presence, measurements, observations and the serving pin, all or
    /// nothing. Returns the reported generations that Core keeps for this node.
    pub async fn record_health(&self, link: Link, health: &Health<'_>) -> Result<Vec<Generation>, Refused> {
        let mut tx = self.write().await?;
        let (deployment, node) = tx.linked(link).await?;
        let now = tx.now().await?;
        tx.store_health(link.node, health, now).await?;
        let mut kept = Vec::new();
        let mut pin = node.pin;
        for observation in &health.generations {
            let verdict =
                tx.judge(&deployment, &node, observation.generation, observation.specification_digest).await?;
            match verdict {
                Verdict::Forget => continue,
                Verdict::Mismatch => return Err(Refused::Mismatch),
                Verdict::Keep => kept.push(observation.generation),
            }
            tx.store_observation(link, observation, now).await?;
            pin = retention::promote(pin, observation.generation, state(&observation.state), &deployment);
        }
        if pin != node.pin {
            tx.store_pin(link.node, pin).await?;
        }
        tx.commit().await?;
        Ok(kept)
    }

    /// Decides which references the node must keep, and forgets what it said of the others (wire §7.3).
    pub async fn retain_for_node(
        &self,
        link: Link,
        references: &[GenerationReference],
    ) -> Result<(Vec<Retention>, payload::Deployment), Refused> {
        let mut tx = self.write().await?;
        let (deployment, node) = tx.linked(link).await?;
        let announced = announce(&deployment, node.pin).ok_or(Refused::Rejected)?;
        let mut retentions = Vec::with_capacity(references.len());
        for reference in references {
            let verdict = tx.judge(&deployment, &node, reference.generation, reference.specification_digest).await?;
            let keep = match verdict {
                Verdict::Keep => true,
                Verdict::Forget => false,
                Verdict::Mismatch => return Err(Refused::Mismatch),
            };
            if !keep {
                tx.forget_observation(link.node, reference.generation).await?;
            }
            retentions.push(Retention { reference: *reference, keep });
        }
        tx.commit().await?;
        Ok((retentions, announced))
    }

    /// What `welcome`, `heartbeat_ack` and `retention_ack` announce to a node: the target and the node's pin.
    pub async fn announcement(&self, node: Id) -> Result<payload::Deployment, Refused> {
        let mut tx = self.read().await?;
        let deployment = tx.deployment().await?;
        let installation = deployment.installation.ok_or(Refused::Rejected)?;
        let node = tx.node(node, installation).await?.ok_or(Refused::Rejected)?;
        announce(&deployment, node.pin).ok_or(Refused::Rejected)
    }

    /// The installation's current owner epoch; `None` before the first owner.
    pub async fn owner_epoch(&self) -> Result<Option<OwnerEpoch>> {
        Ok(OwnerEpoch::new(self.read().await?.deployment().await?.owner_epoch))
    }
}

fn announce(deployment: &Deployment, pin: Option<Generation>) -> Option<payload::Deployment> {
    let digest = deployment.specification()?.digest();
    Some(payload::Deployment {
        generation: deployment.target()?,
        specification_digest: digest,
        serving_generation: pin,
    })
}

impl Tx {
    /// See [`Store::authenticate_node`].
    async fn authenticate_node(&mut self, id: Id, credential: Digest) -> Result<Authenticated, Refused> {
        let enrolled = self.enrolled(id, credential).await?;
        let deployment = self.deployment().await?;
        let provider = deployment.provider().filter(|provider| provider.rule().mode == Mode::Nodes);
        let own = deployment.installation == Some(enrolled.installation);
        let provider = provider.filter(|_| own).ok_or(Refused::Rejected)?;
        self.check_identity(&deployment, &enrolled).await?;
        let node = self.node(id, enrolled.installation).await?.ok_or(Refused::Rejected)?;
        let capacity = Capacity::reported(provider, node.max_active, node.max_retained);
        let identity = Identity {
            node_id: id.to_string().into(),
            installation_id: enrolled.installation.to_string().into(),
            provider: provider.name().into(),
            backend_fingerprint: enrolled.backend_fingerprint.to_string().into(),
            deployment_generation: enrolled.generation.get(),
            specification_digest: enrolled.specification_digest.to_string().into(),
            max_active: capacity.max_active.into(),
            max_retained: capacity.max_retained.into(),
        };
        Ok(Authenticated { identity, node, deployment, now: self.now().await? })
    }

    /// The enrollment identity behind a node credential, given by digest. Looks at no deployment.
    pub async fn enrolled(&mut self, id: Id, credential: Digest) -> Result<Enrolled, Refused> {
        let row = sqlx::query(
            "SELECT installation_id, credential_sha256, backend_fingerprint, deployment_generation, \
             specification_digest FROM runtime_nodes WHERE id = $1 AND removed_at IS NULL",
        )
        .bind(id.to_string())
        .fetch_optional(&mut **self)
        .await?
        .ok_or(Refused::Rejected)?;
        if !bool::from(row.digest("credential_sha256")?.as_bytes().ct_eq(credential.as_bytes())) {
            return Err(Refused::Rejected);
        }
        Ok(Enrolled {
            installation: row.id("installation_id")?,
            backend_fingerprint: row.digest("backend_fingerprint")?,
            generation: row.generation("deployment_generation")?,
            specification_digest: row.digest("specification_digest")?,
        })
    }

    /// Whether an enrollment identity is still consistent: of the current generation or an older one, and with its
    /// digest where the specification is still stored. A collected generation keeps it valid.
    pub async fn check_identity(&mut self, deployment: &Deployment, enrolled: &Enrolled) -> Result<(), Refused> {
        let stored = self.specification(deployment, enrolled.generation).await?;
        let consistent = enrolled.generation.get() <= deployment.generation
            && stored.is_none_or(|specification| specification.digest() == enrolled.specification_digest);
        if consistent { Ok(()) } else { Err(Refused::Mismatch) }
    }

    /// Locks the deployment and the node of a live connection, and reads both.
    async fn linked(&mut self, link: Link) -> Result<(Deployment, Node), Refused> {
        let deployment = self.lock_deployment().await?;
        self.lock_node(link.node).await?;
        let installation = deployment.installation.ok_or(Refused::Rejected)?;
        let node = self.node(link.node, installation).await?.ok_or(Refused::Rejected)?;
        let current = node.presence.connection == Some(link.connection)
            && node.presence.epoch == Some(link.epoch)
            && deployment.owner_epoch == link.epoch.get();
        if current { Ok((deployment, node)) } else { Err(Refused::Rejected) }
    }

    async fn judge(
        &mut self,
        deployment: &Deployment,
        node: &Node,
        generation: Generation,
        digest: Digest,
    ) -> Result<Verdict> {
        let kept = retention::is_kept_for(node, generation, deployment);
        let stored = if kept { self.specification(deployment, generation).await? } else { None };
        Ok(retention::judge(kept, stored.map(|specification| specification.digest()), digest))
    }

    async fn store_health(&mut self, node: Id, health: &Health<'_>, now: Timestamp) -> Result<()> {
        sqlx::query(
            "UPDATE runtime_nodes SET last_seen_at = $2, health_observed_at = $3, active_operations = $4, \
             cpu_count = $5, effective_cpu_cores = $6, cpu_utilization = $7, total_memory_bytes = $8, \
             available_memory_bytes = $9, available_disk_bytes = $10 WHERE id = $1",
        )
        .bind(node.to_string())
        .bind(now.0)
        .bind(instant(&health.observed_at))
        .bind(i64::from(health.active_operations))
        .bind(integer(health.cpu_count))
        .bind(health.effective_cpu_cores)
        .bind(health.cpu_utilization)
        .bind(integer(health.total_memory_bytes))
        .bind(integer(health.available_memory_bytes))
        .bind(integer(health.available_disk_bytes))
        .execute(&mut **self)
        .await?;
        Ok(())
    }

    async fn store_observation(&mut self, link: Link, observation: &Observation<'_>, now: Timestamp) -> Result<()> {
        let (state, diagnostic, checkpoint) = columns(&observation.state);
        sqlx::query(
            "INSERT INTO runtime_node_generation_status (node_id, generation, specification_digest, connection_id, \
             owner_epoch, state, diagnostic, artifact_domain, execution_class, observed_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (node_id, generation) DO UPDATE SET \
             specification_digest = excluded.specification_digest, connection_id = excluded.connection_id, \
             owner_epoch = excluded.owner_epoch, state = excluded.state, diagnostic = excluded.diagnostic, \
             artifact_domain = excluded.artifact_domain, execution_class = excluded.execution_class, \
             observed_at = excluded.observed_at",
        )
        .bind(link.node.to_string())
        .bind(signed(observation.generation))
        .bind(observation.specification_digest.to_string())
        .bind(link.connection.to_string())
        .bind(epoch(link.epoch))
        .bind(state)
        .bind(diagnostic)
        .bind(checkpoint.map(|tokens| tokens.artifact_domain.to_string()))
        .bind(checkpoint.map(|tokens| tokens.execution_class.to_string()))
        .bind(now.0)
        .execute(&mut **self)
        .await?;
        Ok(())
    }

    async fn store_pin(&mut self, node: Id, pin: Option<Generation>) -> Result<()> {
        sqlx::query("UPDATE runtime_nodes SET ready_generation = $2 WHERE id = $1")
            .bind(node.to_string())
            .bind(pin.map(signed))
            .execute(&mut **self)
            .await?;
        Ok(())
    }

    async fn forget_observation(&mut self, node: Id, generation: Generation) -> Result<()> {
        sqlx::query("DELETE FROM runtime_node_generation_status WHERE node_id = $1 AND generation = $2")
            .bind(node.to_string())
            .bind(signed(generation))
            .execute(&mut **self)
            .await?;
        Ok(())
    }
}

const fn state(state: &ObservedState<'_>) -> State {
    match state {
        ObservedState::Ready { .. } => State::Ready,
        ObservedState::Preparing { .. } => State::Preparing,
        ObservedState::Failed { .. } => State::Failed,
    }
}

fn columns<'a>(state: &'a ObservedState<'a>) -> (&'static str, &'static str, Option<&'a Checkpoint<'a>>) {
    match state {
        ObservedState::Ready { checkpoint } => ("ready", "", checkpoint.as_ref()),
        ObservedState::Preparing { diagnostic } => {
            ("preparing", diagnostic.map_or("", payload::Diagnostic::code), None)
        }
        ObservedState::Failed { diagnostic } => ("failed", diagnostic.map_or("", payload::Diagnostic::code), None),
    }
}

/// An owner epoch as the schema holds it.
pub(crate) fn epoch(epoch: OwnerEpoch) -> i64 {
    i64::try_from(epoch.get()).expect("an epoch is at most 2^63 - 1")
}

fn integer(value: Option<u64>) -> Option<i64> {
    value.and_then(|value| i64::try_from(value).ok())
}

/// The sample's own time; the decoder has checked its form, and what is no time is unknown.
fn instant(text: &str) -> Option<i64> {
    text.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_millisecond)
}
