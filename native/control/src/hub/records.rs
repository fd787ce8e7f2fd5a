//! What a connection asks of Core's records.

use async_trait::async_trait;
use palisade_core::session::hub::presence::Connected;
use palisade_core::units::{Digest, Generation, Id, OwnerEpoch};
use palisade_core::wire::payload::{Deployment, GenerationReference, Health, Identity, Retention};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::Execution;
use crate::store::{Refused, Store, StoreError};

/// How long a storage call may take: until `deadline`, at most five seconds away, or until it is cancelled.
#[derive(Debug, Clone)]
pub struct Bounds {
    /// When it must have returned.
    pub deadline: Instant,
    /// Set when it should return at once.
    pub cancel: CancellationToken,
}

/// The call failed, was refused or was cancelled. It may have had its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("core's records could not be read or written")]
pub struct Failed;

/// Why a credential was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// Unknown, removed, revoked, foreign or inconsistent: 401.
    #[error("the node credential was rejected")]
    Rejected,
    /// Nobody could say: 503.
    #[error(transparent)]
    Failed(#[from] Failed),
}

/// What a retention exchange is answered with, in the order asked.
pub type Retained = (Vec<Retention>, Deployment);

/// Core's records of nodes (wire §5.5, §7.3, deployment §4.5). A call returns soon after it was cancelled. What its
/// transaction may still do then is for this connection only, and nothing once [`NodeStore::disconnect`] has returned.
#[async_trait]
pub trait NodeStore: Send + Sync + 'static {
    /// The identity of the node that owns `credential`, with the capacity that Core approved.
    async fn authenticate(&self, bounds: &Bounds, node: Id, credential: &str) -> Result<Identity<'static>, Denied>;

    /// The owner epoch, while this process owns execution.
    async fn owner_epoch(&self, bounds: &Bounds) -> Result<OwnerEpoch, Failed>;

    /// Records presence; refused below the current or the stored epoch.
    async fn connect(&self, bounds: &Bounds, node: Id, connection: Connected) -> Result<(), Failed>;

    /// Records health and observations of the current connection and promotes the serving pin; gives the reported
    /// generations that Core keeps for this node.
    async fn record(
        &self,
        bounds: &Bounds,
        node: Id,
        connection: Connected,
        health: &Health<'static>,
    ) -> Result<Vec<Generation>, Failed>;

    /// The target, with this node's serving pin.
    async fn deployment(&self, bounds: &Bounds, node: Id) -> Result<Deployment, Failed>;

    /// Decides what the node must keep; deletes the observations of what it need not.
    async fn retain(
        &self,
        bounds: &Bounds,
        node: Id,
        connection: Connected,
        references: &[GenerationReference],
    ) -> Result<Retained, Failed>;

    /// Clears presence when connection and epoch still match. Waits for the node's row, so that an uncertain
    /// [`NodeStore::connect`] cannot outlive it.
    async fn disconnect(&self, bounds: &Bounds, node: Id, connection: Connected) -> Result<(), Failed>;
}

/// The records in Core's own store.
#[derive(Debug, Clone)]
pub struct Records {
    store: Store,
    execution: Execution,
}

impl Records {
    /// Records that are written only while this process owns execution.
    #[must_use]
    pub const fn new(store: Store, execution: Execution) -> Self {
        Self { store, execution }
    }

    /// The store.
    #[must_use]
    pub const fn store(&self) -> &Store {
        &self.store
    }

    /// The epoch of this process's lease.
    pub fn epoch(&self) -> Result<OwnerEpoch, Failed> {
        self.execution.lease().map(|lease| lease.epoch).ok_or(Failed)
    }
}

#[async_trait]
impl NodeStore for Records {
    async fn authenticate(&self, bounds: &Bounds, node: Id, credential: &str) -> Result<Identity<'static>, Denied> {
        let known = bounds.ask(self.store.identify_node(node, Digest::of(credential.as_bytes()))).await?;
        known.ok_or(Denied::Rejected)
    }

    async fn owner_epoch(&self, _: &Bounds) -> Result<OwnerEpoch, Failed> {
        self.epoch()
    }

    async fn connect(&self, bounds: &Bounds, node: Id, connection: Connected) -> Result<(), Failed> {
        bounds.ask(self.store.connect_node(node, connection)).await?.ok_or(Failed)
    }

    async fn record(
        &self,
        bounds: &Bounds,
        node: Id,
        connection: Connected,
        health: &Health<'static>,
    ) -> Result<Vec<Generation>, Failed> {
        bounds.ask(self.store.record_health(node, connection, health)).await?.ok_or(Failed)
    }

    async fn deployment(&self, bounds: &Bounds, node: Id) -> Result<Deployment, Failed> {
        bounds.ask(self.store.announcement(node)).await?.ok_or(Failed)
    }

    async fn retain(
        &self,
        bounds: &Bounds,
        node: Id,
        connection: Connected,
        references: &[GenerationReference],
    ) -> Result<Retained, Failed> {
        bounds.ask(self.store.retain_for_node(node, connection, references)).await?.ok_or(Failed)
    }

    async fn disconnect(&self, bounds: &Bounds, node: Id, connection: Connected) -> Result<(), Failed> {
        bounds.run(self.store.disconnect_node(node, connection)).await
    }
}

impl Bounds {
    /// [`Bounds::run`] for what may be refused: `None` says that the node was.
    async fn ask<T>(&self, work: impl Future<Output = Result<T, Refused>>) -> Result<Option<T>, Failed> {
        let settled = async {
            match work.await {
                Ok(value) => Ok(Some(value)),
                Err(Refused::Rejected | Refused::Mismatch) => Ok(None),
                Err(Refused::Store(error)) => Err(error),
            }
        };
        self.run(settled).await
    }

    /// Runs a store transaction to its end, its bound or its cancellation. An interrupted transaction rolls back.
    pub async fn run<T>(&self, work: impl Future<Output = Result<T, StoreError>>) -> Result<T, Failed> {
        tokio::select! {
            done = work => done.map_err(|error| {
                tracing::warn!(%error, "a storage call of a connection failed");
                Failed
            }),
            () = self.cancel.cancelled() => Err(Failed),
            () = tokio::time::sleep_until(self.deadline) => Err(Failed),
        }
    }
}
