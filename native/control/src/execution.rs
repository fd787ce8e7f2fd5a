//! Who owns execution: exactly one Core process, told apart by an epoch that only grows (deployment §3.6).

use palisade_core::units::{Id, OwnerEpoch};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::limits::{LEASE_INTERVAL, LEASE_WAIT};
use crate::store::{OwnerLock, Result, Store, StoreError};

/// The right to change lifecycles, under one epoch of one installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// Give this to [`crate::store::Tx::fence`].
    pub epoch: OwnerEpoch,
    /// The installation that was claimed.
    pub installation: Id,
}

/// The lease that this process holds, or does not hold at the moment. Clones share it.
#[derive(Debug, Clone)]
pub struct Execution(watch::Sender<Option<Lease>>);

impl Execution {
    /// The lease, unless another process is the owner or the database is gone: then lifecycle writes are refused
    /// with 503 `execution_unavailable`.
    #[must_use]
    pub fn lease(&self) -> Option<Lease> {
        *self.0.borrow()
    }

    /// Waits until the lease is another than `seen`, and returns it.
    pub async fn changed(&self, seen: Option<Lease>) -> Option<Lease> {
        let mut leases = self.0.subscribe();
        let changed = leases.wait_for(|lease| *lease != seen).await;
        *changed.expect("the sender is held by `self`")
    }

    /// The owner raised the epoch itself, with the end of a reset: it stays the owner.
    pub(crate) fn advance(&self, from: Lease, epoch: OwnerEpoch) {
        self.replace(from, Some(Lease { epoch, ..from }));
    }

    /// The owner does not know which epoch holds: the lease ends, and is claimed again.
    pub(crate) fn abandon(&self, lease: Lease) {
        self.replace(lease, None);
    }

    fn replace(&self, from: Lease, to: Option<Lease>) {
        self.0.send_if_modified(|lease| {
            let current = *lease == Some(from);
            if current {
                *lease = to;
            }
            current
        });
    }

    /// A lease that nobody keeps, for tests.
    #[must_use]
    pub fn fixed(lease: Option<Lease>) -> Self {
        Self(watch::Sender::new(lease))
    }
}

/// Becomes the owner whenever nobody else is, and publishes the lease, until `stop`.
pub(crate) struct Owner {
    store: Store,
    execution: Execution,
}

impl Owner {
    pub(crate) fn new(store: Store) -> (Self, Execution) {
        let execution = Execution::fixed(None);
        (Self { store, execution: execution.clone() }, execution)
    }

    /// One attempt to become the owner. The lock must be kept, and proved again and again.
    pub(crate) async fn claim(&self) -> Result<Option<OwnerLock>> {
        let Some(lock) = self.store.acquire_ownership().await? else { return Ok(None) };
        let mut tx = self.store.write().await?;
        tx.lock_deployment().await?;
        let deployment = tx.claim(Id::from_random(rand::random())).await?;
        tx.commit().await?;
        let epoch = deployment.owner_epoch.filter(|_| deployment.web_managed);
        let (Some(epoch), Some(installation)) = (epoch, deployment.installation) else {
            return Err(StoreError::Corrupt { column: "owner_epoch" });
        };
        tracing::info!(epoch = epoch.get(), %installation, "this process owns execution");
        self.execution.0.send_replace(Some(Lease { epoch, installation }));
        Ok(Some(lock))
    }

    /// Keeps the lease, or asks for it, until `stop`.
    pub(crate) async fn keep(self, mut lock: Option<OwnerLock>, stop: CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(LEASE_INTERVAL)).await.is_some() {
            lock = match lock {
                Some(held) if self.execution.lease().is_some() => self.prove(held).await,
                // Given up before it is asked for again.
                Some(_) => None,
                None => self.ask().await,
            };
        }
        self.execution.0.send_replace(None);
    }

    /// [`Owner::claim`] by a standby: a database that does not answer is asked again.
    async fn ask(&self) -> Option<OwnerLock> {
        match tokio::time::timeout(LEASE_WAIT, self.claim()).await {
            Ok(Ok(lock)) => return lock,
            Ok(Err(error)) => tracing::warn!(%error, "cannot become the owner"),
            Err(_) => tracing::warn!("cannot become the owner: the database did not answer"),
        }
        None
    }

    async fn prove(&self, mut lock: OwnerLock) -> Option<OwnerLock> {
        match tokio::time::timeout(LEASE_WAIT, lock.prove()).await {
            Ok(Ok(())) => Some(lock),
            Ok(Err(error)) => self.lose(&error.to_string()),
            Err(_) => self.lose("the database did not answer"),
        }
    }

    fn lose(&self, reason: &str) -> Option<OwnerLock> {
        tracing::error!(reason, "the execution lease is lost");
        self.execution.0.send_replace(None);
        None
    }
}
