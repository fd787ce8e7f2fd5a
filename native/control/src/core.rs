//! What every route, socket and loop of one Core process shares.

use std::sync::{Arc, OnceLock};

use tokio::sync::Notify;

use crate::confirm::Confirmation;
use crate::execution::Execution;
use crate::health::Probe;
use crate::hub::Hub;
use crate::keys::CoreKeys;
use crate::metrics::Metrics;
use crate::payload::Payload;
use crate::seal::SealKey;
use crate::store::Store;

/// Shared state; clones share it. It is the state of the axum router.
#[derive(Debug, Clone)]
pub struct Core(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    store: Store,
    keys: CoreKeys,
    public_url: String,
    execution: Execution,
    hub: Hub,
    owner: Notify,
    probe: Probe,
    metrics: Metrics,
    seal: Option<SealKey>,
    confirmation: Confirmation,
    payload: OnceLock<Payload>,
}

impl Core {
    /// Puts the parts together. `public_url` is the origin that nodes dial, without a trailing slash.
    #[must_use]
    pub fn new(store: Store, keys: CoreKeys, public_url: String, execution: Execution, hub: Hub) -> Self {
        Self::with_providers(store, keys, public_url, execution, hub, None, Confirmation::default())
    }

    /// [`Core::new`] with what providers of direct mode need: a key to seal their credentials with, and somebody who asks
    /// them.
    #[must_use]
    pub fn with_providers(
        store: Store,
        keys: CoreKeys,
        public_url: String,
        execution: Execution,
        hub: Hub,
        seal: Option<SealKey>,
        confirmation: Confirmation,
    ) -> Self {
        let store = store.under(&public_url);
        let metrics = Metrics::new(&store, &hub);
        Self(Arc::new(Shared {
            store,
            keys,
            public_url,
            execution,
            hub,
            owner: Notify::new(),
            probe: Probe::default(),
            metrics,
            seal,
            confirmation,
            payload: OnceLock::new(),
        }))
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.0.store
    }

    /// What credentials are sealed with, if they can be.
    #[must_use]
    pub fn seal(&self) -> Option<&SealKey> {
        self.0.seal.as_ref()
    }

    /// Who asks providers of direct mode.
    #[must_use]
    pub fn confirmation(&self) -> &Confirmation {
        &self.0.confirmation
    }

    /// The folder of the files that nodes download, if there is one.
    #[must_use]
    pub fn payload(&self) -> Option<&Payload> {
        self.0.payload.get()
    }

    /// Names that folder, once.
    #[must_use]
    pub fn offering(self, payload: Payload) -> Self {
        // A second folder would be a second truth: the first one stays.
        let _ = self.0.payload.set(payload);
        self
    }

    /// The accepted Core keys.
    #[must_use]
    pub fn keys(&self) -> &CoreKeys {
        &self.0.keys
    }

    /// The origin under which nodes reach this Core, exactly as they name it when they enroll.
    #[must_use]
    pub fn public_url(&self) -> &str {
        &self.0.public_url
    }

    /// The execution lease of this process.
    #[must_use]
    pub fn execution(&self) -> &Execution {
        &self.0.execution
    }

    /// The connections of the nodes.
    #[must_use]
    pub fn hub(&self) -> &Hub {
        &self.0.hub
    }

    /// What this process measures.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    pub(crate) fn probe(&self) -> &Probe {
        &self.0.probe
    }

    /// Tells the owner loop that there is something to do. Never lost: a call before the loop waits counts.
    pub fn wake_owner(&self) {
        self.0.owner.notify_one();
    }

    /// Waits for [`Core::wake_owner`]; only the owner loop calls this.
    pub async fn owner_woken(&self) {
        self.0.owner.notified().await;
    }
}
