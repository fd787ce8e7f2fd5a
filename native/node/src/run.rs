//! `palisade node run` (node-host §4.3).

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use palisade_core::generation::Table;
use palisade_core::session::node::Node;
use palisade_core::units::{Id, Malformed, OwnerEpoch};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::configuration::{Configuration, ConfigurationError};
use crate::connection::{Connections, End};
use crate::dial::{Dialer, Internet, Stream};
use crate::discovery::{DiscoveryError, Local};
use crate::enrollment::{Enrollment, EnrollmentError};
use crate::files;
use crate::generations::{Build, Keeper, Layout, Preparer};
use crate::health;
use crate::host::{Dial, Host, Sampler, Work};
use crate::identity::{IdentityError, State, Stored};
use crate::origin::Origin;
use crate::worker;

/// What the operator says. All paths are absolute.
#[derive(Debug, Clone)]
pub struct Run {
    /// The provider configuration (node-host §1.9 I2).
    pub config: PathBuf,
    /// The private state of a registered node.
    pub state_dir: PathBuf,
    /// Core's origin, only to be compared with the stored one.
    pub core_url: Option<String>,
}

/// How a node ended (wire §4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitStatus {
    /// It was asked to stop.
    Stopped,
    /// Core itself rejected the credential; a restart cannot help.
    CredentialRejected,
    /// Everything else; a service manager restarts it.
    Failed,
}

impl ExitStatus {
    /// 0, 78 or 1.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Stopped => 0,
            Self::CredentialRejected => 78,
            Self::Failed => 1,
        }
    }
}

/// Why a node did not start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// `--core-url` is no origin.
    #[error("the core url is refused: {0}")]
    CoreUrl(#[from] Malformed),
    /// Configuration and state are not where those of one installation are.
    #[error(
        "--config and --state-dir do not belong together: expected provider.json in the root of the installation, and \
         state/node below the same root"
    )]
    Layout,
    /// `--config` is refused.
    #[error(transparent)]
    Configuration(#[from] ConfigurationError),
    /// The private state is refused.
    #[error(transparent)]
    State(#[from] IdentityError),
    /// What is recorded of the generations cannot be believed as a whole.
    #[error(transparent)]
    Generations(#[from] DiscoveryError),
    /// Core did not confirm the identity.
    #[error(transparent)]
    Enrollment(#[from] EnrollmentError),
    /// The operating system refused something that every node needs.
    #[error("the node cannot start: {0}")]
    System(#[from] io::Error),
}

impl RunError {
    /// What the failed start means for the process.
    #[must_use]
    pub const fn status(&self) -> ExitStatus {
        match self {
            Self::Enrollment(EnrollmentError::Unauthorized { .. }) => ExitStatus::CredentialRejected,
            Self::CoreUrl(_)
            | Self::Layout
            | Self::Configuration(_)
            | Self::State(_)
            | Self::Generations(_)
            | Self::Enrollment(_)
            | Self::System(_) => ExitStatus::Failed,
        }
    }
}

/// Serves Core until SIGTERM or SIGINT, or until Core rejects the credential. A start that fails is logged.
pub async fn run(options: Run) -> ExitStatus {
    match start(&options).await {
        Ok(status) => status,
        Err(error) => {
            tracing::error!(%error, "the node did not start");
            error.status()
        }
    }
}

async fn start(options: &Run) -> Result<ExitStatus, RunError> {
    let stop = stop_on_signal()?;
    let started = start_with(options, Arc::new(Configuration::backend), Preparer::this_program);
    let connections = tokio::select! {
        connections = started => connections?,
        () = stop.cancelled() => return Ok(ExitStatus::Stopped),
    };
    Ok(match connections.run(stop).await {
        End::Stopped => ExitStatus::Stopped,
        End::Credential => ExitStatus::CredentialRejected,
    })
}

/// Everything up to the first dial, with the provider of the host or of a test.
pub(crate) async fn start_with(
    options: &Run,
    build: Arc<Build>,
    preparer: impl FnOnce(PathBuf, Id) -> Preparer,
) -> Result<Connections<Machine>, RunError> {
    let layout = Layout::of(&options.config, &options.state_dir).ok_or(RunError::Layout)?;
    let core_url = options.core_url.as_deref().map(Origin::parse).transpose()?;
    let configuration = Configuration::load(&options.config)?;
    files::require_private_directory(layout.root()).map_err(IdentityError::from)?;
    let state = State::open(&options.state_dir)?;
    let mut stored = state.registered()?;
    stored.require_enrolled(&configuration)?;
    if let Some(core_url) = &core_url {
        stored.require_core_url(core_url)?;
    }
    configuration.warn_of_another_core(&stored.core_url);
    let local = Local::discover(state.directory(), &configuration, &stored, build.as_ref())?;
    Enrollment::new(&stored.core_url)?.refresh(&state, &mut stored).await?;

    let node = Node::new(stored.identity.on_the_wire(), stored.owner_epoch, Table::new(local.found));
    let keeper = Keeper {
        preparer: preparer(layout.root().to_owned(), configuration.installation()),
        layout,
        base: Arc::new(configuration),
        fingerprint: stored.identity.backend_fingerprint,
        build,
    };
    let host = Machine::new(state, stored)?;
    Ok(Connections::new(node, host, local.providers).keeping(local.recorded).preparing_with(keeper))
}

fn stop_on_signal() -> io::Result<CancellationToken> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stop = CancellationToken::new();
    let asked = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => tracing::info!("stopping on SIGTERM"),
            _ = interrupt.recv() => tracing::info!("stopping on SIGINT"),
        }
        asked.cancel();
    });
    Ok(stop)
}

/// This host: its private state and its way to Core.
pub(crate) struct Machine {
    dialer: Arc<Dialer<Internet>>,
    /// Held for the whole life of the process: the lock is in it.
    state: Arc<Mutex<(State, Stored)>>,
    directory: PathBuf,
}

impl Machine {
    fn new(state: State, stored: Stored) -> io::Result<Self> {
        let node_id = stored.identity.node_id.to_string();
        let (core_url, credential) = (stored.core_url.as_str(), stored.credential.as_str());
        let dialer = Dialer::new(Internet::towards(core_url), core_url, &node_id, credential)?;
        let directory = state.directory().to_owned();
        Ok(Self { dialer: Arc::new(dialer), state: Arc::new(Mutex::new((state, stored))), directory })
    }
}

impl Host for Machine {
    type Stream = Stream;

    fn dial(&self) -> Dial<Stream> {
        let dialer = Arc::clone(&self.dialer);
        Box::pin(async move { dialer.dial().await })
    }

    fn sampler(&self) -> Box<Sampler> {
        let mut sampler = health::Sampler::new(&self.directory);
        worker::beside(move || sampler.sample().health(0, Vec::new()))
    }

    fn store_epoch(&self, epoch: OwnerEpoch) -> Work<bool> {
        let state = Arc::clone(&self.state);
        let storing = tokio::task::spawn_blocking(move || {
            let mut guard = state.lock().unwrap_or_else(PoisonError::into_inner);
            let (state, stored) = &mut *guard;
            let recorded = state.record_epoch(stored, epoch);
            recorded.inspect_err(|error| tracing::error!(%error, "the owner epoch could not be stored")).is_ok()
        });
        Box::pin(async { storing.await.unwrap_or(false) })
    }

    fn random(&self) -> u64 {
        rand::random()
    }
}

#[cfg(test)]
mod tests;
