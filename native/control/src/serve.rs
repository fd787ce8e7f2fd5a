//! Running Core as a process.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use axum::serve::ListenerExt as _;
use palisade_core::deployment::origin::Origin;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use crate::execution::Owner;
use crate::hub::{Hub, Records};
use crate::keys::{CoreKeys, KeysError};
use crate::limits::{BODY_BUDGET_MIN_BYTES, CLOSE_WAIT, DRAIN, HISTORY_INTERVAL};
use crate::metrics::Measured;
use crate::payload::{self, Payload};
use crate::store::{Location, OpenError, OwnerLock, Store, StoreError};
use crate::{Confirmation, Core, InvalidSealKey, SealKey, http, metrics, owner, service};

/// What `palisade core serve` was told.
#[derive(Debug)]
pub struct Options {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where the store is.
    pub store: Location,
    /// The origin under which nodes reach this Core; absent: `http://` and the address it listens on.
    pub public_url: Option<String>,
    /// A file with Core keys, one a line.
    pub admin_key_file: Option<PathBuf>,
    /// A JSON array of SHA-256 digests of Core keys, from `OAC_CORE_KEY_SHA256S`.
    pub admin_key_digests: Option<String>,
    /// Where metrics are served without a key; absent: nowhere.
    pub metrics_listen: Option<SocketAddr>,
    /// Bodies that may be in flight on the connections of the nodes, in bytes (decision 30); at least
    /// [`BODY_BUDGET_MIN_BYTES`].
    pub body_budget_bytes: u64,
    /// The folder with the files that nodes download, which `palisade release publish` fills; absent: none are served.
    pub node_payload: Option<PathBuf>,
    /// A file with the key that provider credentials are sealed with; at most one of this and the next.
    pub credential_key_file: Option<PathBuf>,
    /// That key itself, from `OAC_CORE_CREDENTIAL_KEY`.
    pub credential_key: Option<SealKey>,
}

/// Why Core did not start or did not go on.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The key file cannot be read.
    #[error("cannot read the core key file {path}: {source}")]
    KeyFile {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The keys are unusable.
    #[error(transparent)]
    Keys(#[from] KeysError),
    /// The file with the credential key cannot be read.
    #[error("cannot read the credential key file {path}: {source}")]
    SealKeyFile {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The credential key is unusable.
    #[error(transparent)]
    SealKey(#[from] InvalidSealKey),
    /// It is unclear which credential key counts.
    #[error("two credential keys are given; expected either a file or OAC_CORE_CREDENTIAL_KEY, and not both")]
    TwoSealKeys,
    /// The budget for bodies is too small.
    #[error("the budget for bodies in flight is too small; expected at least {} MiB, so that every command fits", BODY_BUDGET_MIN_BYTES >> 20)]
    BodyBudget,
    /// The keys in the store cannot be read.
    #[error("cannot read the core keys in the store: {0}")]
    StoredKeys(StoreError),
    /// The public URL is no origin.
    #[error("the public url must be an https or http origin without path, query or user, such as https://core.example")]
    PublicUrl,
    /// The store cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The installation cannot be claimed.
    #[error("cannot claim the installation: {0}")]
    Claim(#[from] StoreError),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The listener or standard output failed.
    #[error("serving failed: {0}")]
    Serve(#[from] std::io::Error),
}

/// Serves until SIGTERM or SIGINT. Prints one line with the address on standard output once it listens.
pub async fn serve(options: Options) -> Result<(), ServeError> {
    let server = Server::start(options).await?;
    let (stop, hurry) = stop_on_signals()?;
    announce(server.address())?;
    let told = tokio::spawn(service::follow(server.core().execution().clone(), stop.clone()));
    let outcome = server.run_until(stop.clone(), hurry).await;
    stop.cancel();
    // It ends with `stop`; what it may have met is in the log.
    drop(told.await);
    outcome
}

/// A Core that listens and may own execution, and answers once it runs.
pub struct Server {
    listener: TcpListener,
    metrics: Option<TcpListener>,
    address: SocketAddr,
    core: Core,
    owner: Owner,
    lock: Option<OwnerLock>,
}

impl Server {
    /// Opens the store, listens, and claims the installation unless another process owns it.
    pub async fn start(options: Options) -> Result<Self, ServeError> {
        let keys = read_keys(&options)?;
        let seal = read_seal_key(&options)?;
        if options.body_budget_bytes < BODY_BUDGET_MIN_BYTES {
            return Err(ServeError::BodyBudget);
        }
        if keys.is_empty() {
            // Before anything is made.
            expect_stored_keys(&options.store).await?;
        }
        let store = Store::open(&options.store).await?;
        keys.reload(&store).await.map_err(ServeError::StoredKeys)?;
        let listener = bind(options.listen).await?;
        let metrics = match options.metrics_listen {
            Some(address) => Some(bind(address).await?),
            None => None,
        };
        let address = listener.local_addr()?;
        let public_url = public_url(options.public_url, address)?;
        let store = store.under(&public_url);
        let (owner, execution) = Owner::new(store.clone());
        let lock = owner.claim().await?;
        let records = Records::new(store.clone(), execution.clone());
        let records = Measured::new(records, store.times().records.clone());
        let hub = Hub::with_budget(Arc::new(records), options.body_budget_bytes);
        let nobody = Confirmation::default();
        let mut core = Core::with_providers(store, keys, public_url, execution, hub, seal, nobody);
        if let Some(payload) = options.node_payload.map(Payload::new) {
            payload.announce().await;
            core = core.offering(payload);
        }
        Ok(Self { listener, metrics, address, core, owner, lock })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The state that its routes share.
    #[must_use]
    pub const fn core(&self) -> &Core {
        &self.core
    }

    /// Where metrics are served, if anywhere.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Serves until `stop`, then lets open requests end for [`DRAIN`], closes the connections of the nodes and the store.
    pub async fn run(self, stop: CancellationToken) -> Result<(), ServeError> {
        self.run_until(stop, CancellationToken::new()).await
    }

    /// [`Server::run`] for somebody who may lose patience: after `hurry` open requests are cut off at once.
    pub async fn run_until(self, stop: CancellationToken, hurry: CancellationToken) -> Result<(), ServeError> {
        let Self { listener, metrics, core, owner, lock, .. } = self;
        if let Some(metrics) = metrics {
            // Watchers look until the end; their requests are short, and nobody waits for them.
            tokio::spawn(http::listen(metrics, metrics::routes().with_state(core.clone()), stop.clone()));
        }
        let tasks = [
            tokio::spawn(owner::run(core.clone(), stop.clone())),
            tokio::spawn(keep_up(core.clone(), stop.clone())),
            tokio::spawn(owner.keep(lock, stop.clone())),
            tokio::spawn(core.keys().clone().follow(core.store().clone(), stop.clone())),
        ];
        let listener = listener.tap_io(|stream| {
            // Requests are small and follow each other; an operating system that refuses only makes them slower.
            let _ = stream.set_nodelay(true);
        });
        let mut router = http::router(core.clone());
        if let Some(payload) = core.payload() {
            router = router.merge(payload::router(core.clone(), payload.clone()));
        }
        tokio::select! {
            () = http::listen(listener, router, stop.clone()) => {}
            () = overdue(&stop, &hurry) => tracing::warn!("open requests were cut off"),
        }
        stop.cancel();
        core.hub().close();
        core.hub().closed().await;
        for task in tasks {
            if let Err(error) = task.await {
                tracing::error!(%error, "a task ended abnormally");
            }
        }
        if tokio::time::timeout(CLOSE_WAIT, core.store().close()).await.is_err() {
            tracing::warn!("the database did not answer; its connections were cut off");
        }
        Ok(())
    }
}

fn read_seal_key(options: &Options) -> Result<Option<SealKey>, ServeError> {
    let text = match (&options.credential_key_file, &options.credential_key) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => return Err(ServeError::TwoSealKeys),
        (None, Some(key)) => return Ok(Some(key.clone())),
        (Some(path), None) => {
            let read = std::fs::read_to_string(path);
            Zeroizing::new(read.map_err(|source| ServeError::SealKeyFile { path: path.clone(), source })?)
        }
    };
    Ok(Some(SealKey::parse(&text)?))
}

fn read_keys(options: &Options) -> Result<CoreKeys, ServeError> {
    let file = options
        .admin_key_file
        .as_ref()
        .map(|path| std::fs::read_to_string(path).map_err(|source| ServeError::KeyFile { path: path.clone(), source }));
    Ok(CoreKeys::read(file.transpose()?.as_deref(), options.admin_key_digests.as_deref())?)
}

/// An origin without a trailing slash, as it is compared with what nodes were told.
fn public_url(given: Option<String>, address: SocketAddr) -> Result<String, ServeError> {
    let Some(url) = given else { return Ok(format!("http://{address}")) };
    let origin = Origin::parse(&url).map(|_| url.trim_end_matches('/').to_owned());
    origin.ok_or(ServeError::PublicUrl)
}

/// Regular work of the owner on the store: host history, and generations that nothing uses any more.
async fn keep_up(core: Core, stop: CancellationToken) {
    while stop.run_until_cancelled(tokio::time::sleep(HISTORY_INTERVAL)).await.is_some() {
        let Some(lease) = core.execution().lease() else { continue };
        if let Some(Err(error)) = stop.run_until_cancelled(core.store().keep_up(lease.epoch)).await {
            tracing::warn!(%error, "the regular work on the store failed; it is tried again");
        }
    }
}

fn announce(address: SocketAddr) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "core is ready on http://{address}")?;
    out.flush()
}

/// Refuses a Core that nobody could administer. What a database with another schema holds is not looked at.
async fn expect_stored_keys(location: &Location) -> Result<(), ServeError> {
    let store = match Store::beside(location).await {
        Err(OpenError::Missing { .. }) => return Err(KeysError::None.into()),
        store => store?,
    };
    let schema = store.schema().await?;
    schema.usable()?;
    let stored = async { store.read().await?.core_key_digests().await };
    let none = schema.is_empty() || stored.await.map_err(ServeError::StoredKeys)?.is_empty();
    store.close().await;
    if none { Err(KeysError::None.into()) } else { Ok(()) }
}

async fn bind(address: SocketAddr) -> Result<TcpListener, ServeError> {
    TcpListener::bind(address).await.map_err(|source| ServeError::Listen { address, source })
}

/// The first signal asks for an end in order, the second one for one without patience.
fn stop_on_signals() -> std::io::Result<(CancellationToken, CancellationToken)> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let (stop, hurry) = (CancellationToken::new(), CancellationToken::new());
    let tokens = [(stop.clone(), "stopping"), (hurry.clone(), "stopping without patience")];
    tokio::spawn(async move {
        for (token, told) in tokens {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            tracing::info!("{told}");
            token.cancel();
        }
    });
    Ok((stop, hurry))
}

async fn overdue(stop: &CancellationToken, hurry: &CancellationToken) {
    stop.cancelled().await;
    // Patience that ends early and patience that ends in time come to the same.
    let _ = tokio::time::timeout(DRAIN, hurry.cancelled()).await;
}
