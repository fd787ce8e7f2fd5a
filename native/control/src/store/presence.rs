//! What the connection of a node does to the store (deployment §4.5, §4.6; wire §5.5, §7.3).
//!
//! Each function is one transaction: it reads what [`presence`] decides by, and writes what that decided. None retries: a
//! failure closes the connection, and the node comes again.

use std::collections::BTreeMap;

use palisade_core::deployment::Deployment;
use palisade_core::deployment::capacity::Capacity;
use palisade_core::deployment::contract::Mode;
use palisade_core::deployment::node::Node;
use palisade_core::session::hub::presence::{self, Authority, Change, Connected, Standing, Status};
use palisade_core::units::{Digest, Generation, Id, OwnerEpoch};
use palisade_core::wire::payload::{self, Checkpoint, Health, Identity, ObservedState};
use sqlx::any::AnyRow;
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

impl From<presence::Refused> for Refused {
    fn from(refused: presence::Refused) -> Self {
        match refused {
            presence::Refused::Mismatch(_) => Self::Mismatch,
            presence::Refused::Foreign
            | presence::Refused::Fenced(_)
            | presence::Refused::LowerEpoch(_)
            | presence::Refused::Stale
            | presence::Refused::Unconfigured => Self::Rejected,
        }
    }
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

impl Enrolled {
    /// See [`Tx::check_identity`]; `stored` is the digest of the specification of its generation, where that is stored.
    pub(super) fn check(&self, deployment: &Deployment, stored: Option<Digest>) -> Result<(), Refused> {
        let consistent = self.generation.get() <= deployment.generation
            && stored.is_none_or(|digest| digest == self.specification_digest);
        if consistent { Ok(()) } else { Err(Refused::Mismatch) }
    }
}

impl Store {
    /// Accepts a node's credential, given by digest: the credential first, then the deployment (W 174).
    pub async fn authenticate_node(&self, id: Id, credential: Digest) -> Result<Authenticated, Refused> {
        self.read().await?.authenticate_node(id, credential).await
    }

    /// [`Store::connect_node`] in a transaction of its own, which may wait for the node's row.
    pub(super) async fn connect_alone(&self, node: Id, by: Connected) -> Result<(), Refused> {
        let mut tx = self.write_ahead().await?;
        tx.lock_node(node).await?;
        // The deployment is only read: a node whose row is held must not hold up the others (W 66).
        let authority = tx.deployment().await?.authority();
        let standing = tx.standing(node).await?.ok_or(Refused::Rejected)?;
        let now = tx.now().await?;
        let change = presence::connect(&authority, &standing, by, now)?;
        tx.apply(node, [change], now).await?;
        Ok(tx.commit().await?)
    }

    /// [`Store::disconnect_node`] in a transaction of its own, which may wait for the node's row.
    pub(super) async fn disconnect_alone(&self, node: Id, by: Connected) -> Result<()> {
        let mut tx = self.write_ahead().await?;
        tx.lock_node(node).await?;
        let Some(standing) = tx.standing(node).await? else { return Ok(()) };
        let now = tx.now().await?;
        tx.apply(node, presence::disconnect(&standing, by), now).await?;
        tx.commit().await
    }

    /// The installation's current owner epoch; `None` before the first owner.
    pub async fn owner_epoch(&self) -> Result<Option<OwnerEpoch>> {
        Ok(self.read().await?.deployment().await?.owner_epoch)
    }
}

impl Tx {
    /// See [`Store::authenticate_node`].
    async fn authenticate_node(&mut self, id: Id, credential: Digest) -> Result<Authenticated, Refused> {
        let enrolled = self.enrolled(id, credential).await?;
        let deployment = self.deployment().await?;
        let node = self.node(id, enrolled.installation).await?.ok_or(Refused::Rejected)?;
        let identity = identity(id, &enrolled, &deployment, (node.max_active, node.max_retained))?;
        self.check_identity(&deployment, &enrolled).await?;
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
        accept(&row, credential)
    }

    /// Whether an enrollment identity is still consistent: of the current generation or an older one, and with its
    /// digest where the specification is still stored. A collected generation keeps it valid.
    pub async fn check_identity(&mut self, deployment: &Deployment, enrolled: &Enrolled) -> Result<(), Refused> {
        let stored = self.specification(deployment, enrolled.generation).await?;
        enrolled.check(deployment, stored.map(|specification| specification.digest()))
    }

    /// Adds the digests of the `named` generations that are kept for a node.
    pub(super) async fn learn(
        &mut self,
        deployment: &Deployment,
        authority: &mut Authority,
        node: &Standing,
        named: impl Iterator<Item = Generation>,
    ) -> Result<()> {
        for generation in named {
            if authority.needs(node, generation) && !authority.digests.contains_key(&generation) {
                let specification = self.specification(deployment, generation).await?;
                authority.digests.extend(specification.map(|specification| (generation, specification.digest())));
            }
        }
        Ok(())
    }

    pub(super) async fn apply(
        &mut self,
        node: Id,
        changes: impl IntoIterator<Item = Change>,
        now: Timestamp,
    ) -> Result<()> {
        for change in changes {
            match change {
                Change::Connected(by, at) => self.store_connection(node, by, at).await?,
                Change::Disconnected => self.clear_connection(node).await?,
                Change::Heard(at) => self.store_heard(node, at).await?,
                Change::Observed(status) => self.store_observation(node, &status, now).await?,
                Change::Forgotten(generation) => self.forget_observation(node, generation).await?,
                Change::Pinned(generation) => self.store_pin(node, generation).await?,
            }
        }
        Ok(())
    }

    async fn store_connection(&mut self, node: Id, by: Connected, at: Timestamp) -> Result<()> {
        sqlx::query(
            "UPDATE runtime_nodes SET connection_id = $2, connected_epoch = $3, last_seen_at = $4 WHERE id = $1",
        )
        .bind(node.to_string())
        .bind(by.connection_id.to_string())
        .bind(epoch(by.owner_epoch))
        .bind(at.0)
        .execute(&mut **self)
        .await?;
        Ok(())
    }

    async fn clear_connection(&mut self, node: Id) -> Result<()> {
        sqlx::query("UPDATE runtime_nodes SET connection_id = NULL WHERE id = $1")
            .bind(node.to_string())
            .execute(&mut **self)
            .await?;
        Ok(())
    }

    async fn store_heard(&mut self, node: Id, at: Timestamp) -> Result<()> {
        sqlx::query("UPDATE runtime_nodes SET last_seen_at = $2 WHERE id = $1")
            .bind(node.to_string())
            .bind(at.0)
            .execute(&mut **self)
            .await?;
        Ok(())
    }

    /// What nodes measured, each once, with the time at which they were heard: one statement writes all.
    pub(super) async fn store_health(&mut self, reports: &BTreeMap<Id, &Health<'_>>, heard: Timestamp) -> Result<()> {
        let Some(any) = reports.last_key_value() else { return Ok(()) };
        // A few lengths only, so that the database keeps the statements it has prepared. A row that is given twice is
        // the same row; an eighth of a power of two keeps those few.
        let places = reports.len().next_multiple_of((reports.len().next_power_of_two() / 8).max(1));
        let query = format!(
            "UPDATE runtime_nodes SET last_seen_at = $1, health_observed_at = v.column2, \
             active_operations = v.column3, cpu_count = v.column4, effective_cpu_cores = v.column5, \
             cpu_utilization = v.column6, total_memory_bytes = v.column7, available_memory_bytes = v.column8, \
             available_disk_bytes = v.column9 FROM (VALUES {}) AS v WHERE runtime_nodes.id = v.column1",
            (0..places).map(health_row).collect::<Vec<_>>().join(", ")
        );
        let padded = reports.iter().chain(std::iter::repeat(any)).take(places);
        let query = sqlx::query(sqlx::AssertSqlSafe(query)).bind(heard.0);
        let query = padded.fold(query, |query, (node, health)| {
            query
                .bind(node.to_string())
                .bind(instant(&health.observed_at))
                .bind(i64::from(health.active_operations))
                .bind(integer(health.cpu_count))
                .bind(health.effective_cpu_cores)
                .bind(health.cpu_utilization)
                .bind(integer(health.total_memory_bytes))
                .bind(integer(health.available_memory_bytes))
                .bind(integer(health.available_disk_bytes))
        });
        query.execute(&mut **self).await?;
        Ok(())
    }

    async fn store_observation(&mut self, node: Id, status: &Status, now: Timestamp) -> Result<()> {
        let Status { by, said } = status;
        let (state, diagnostic, checkpoint) = columns(&said.state);
        sqlx::query(
            "INSERT INTO runtime_node_generation_status (node_id, generation, specification_digest, connection_id, \
             owner_epoch, state, diagnostic, artifact_domain, execution_class, observed_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (node_id, generation) DO UPDATE SET \
             specification_digest = excluded.specification_digest, connection_id = excluded.connection_id, \
             owner_epoch = excluded.owner_epoch, state = excluded.state, diagnostic = excluded.diagnostic, \
             artifact_domain = excluded.artifact_domain, execution_class = excluded.execution_class, \
             observed_at = excluded.observed_at",
        )
        .bind(node.to_string())
        .bind(signed(said.generation))
        .bind(said.specification_digest.to_string())
        .bind(by.connection_id.to_string())
        .bind(epoch(by.owner_epoch))
        .bind(state)
        .bind(diagnostic)
        .bind(checkpoint.map(|tokens| tokens.artifact_domain.to_string()))
        .bind(checkpoint.map(|tokens| tokens.execution_class.to_string()))
        .bind(now.0)
        .execute(&mut **self)
        .await?;
        Ok(())
    }

    async fn store_pin(&mut self, node: Id, pin: Generation) -> Result<()> {
        sqlx::query("UPDATE runtime_nodes SET ready_generation = $2 WHERE id = $1")
            .bind(node.to_string())
            .bind(signed(pin))
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

/// The enrollment identity in a node's row, for whoever has its credential.
pub(super) fn accept(row: &AnyRow, credential: Digest) -> Result<Enrolled, Refused> {
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

/// The identity of a node of this installation, with its stored limits for active and for retained sandboxes.
pub(super) fn identity(
    id: Id,
    enrolled: &Enrolled,
    deployment: &Deployment,
    (max_active, max_retained): (u32, u32),
) -> Result<Identity<'static>, Refused> {
    let provider = deployment.provider().filter(|provider| provider.rule().mode == Mode::Nodes);
    let own = deployment.installation == Some(enrolled.installation);
    let provider = provider.filter(|_| own).ok_or(Refused::Rejected)?;
    let capacity = Capacity::reported(provider, max_active, max_retained);
    Ok(Identity {
        node_id: id.to_string().into(),
        installation_id: enrolled.installation.to_string().into(),
        provider: provider.name().into(),
        backend_fingerprint: enrolled.backend_fingerprint.to_string().into(),
        deployment_generation: enrolled.generation.get(),
        specification_digest: enrolled.specification_digest.to_string().into(),
        max_active: capacity.max_active.into(),
        max_retained: capacity.max_retained.into(),
    })
}

/// Places of one row of measurements; the first place of the statement is the time.
fn health_row(row: usize) -> String {
    const TYPES: [&str; 9] =
        ["TEXT", "BIGINT", "BIGINT", "BIGINT", "DOUBLE PRECISION", "DOUBLE PRECISION", "BIGINT", "BIGINT", "BIGINT"];
    let first = 2 + row * TYPES.len();
    let places: Vec<_> = (first..).zip(TYPES).map(|(place, kind)| format!("CAST(${place} AS {kind})")).collect();
    format!("({})", places.join(", "))
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
