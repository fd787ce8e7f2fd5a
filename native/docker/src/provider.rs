//! The provider: which operation is carried out where.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use bollard::models::ContainerInspectResponse;
use palisade_core::operation::{Declaration, Operation, Support};
use palisade_core::outcome::{Answer, Failed, Failure};
use palisade_core::units::Generation;
use palisade_core::wire::payload::{Checkpoint, Info, Reference};
use palisade_provider::workspace::Policy;
use palisade_provider::{Context, NotReady, Provider, absent_receipt, flattened};
use tracing::warn;

use crate::configuration::{Configuration, Refused, Settings};
use crate::container::{drift, is_running, status};
use crate::engine::{Engine, EngineError, Wait};
use crate::name::{Names, owns};
use crate::settlement::{Look, Settlement};

/// Reason code of the nine checkpoint methods.
const NO_CHECKPOINTS: &str = "docker_does_not_support_checkpoints";
/// Reason code of the two preparation methods.
const NO_PREPARATION: &str = "docker_does_not_support_preparation_cache";

/// Sandboxes of one deployment generation in one Docker engine.
#[derive(Clone)]
pub struct DockerProvider(Arc<Docker>);

/// What every operation works with.
pub(crate) struct Docker {
    pub(crate) settings: Settings,
    pub(crate) engine: Engine,
    pub(crate) settlement: Settlement,
    declaration: Declaration,
}

impl DockerProvider {
    /// Checks the configuration and reads the seccomp profile; calls no engine.
    ///
    /// # Errors
    /// The first broken rule of node-host §7.1.
    pub fn new(configuration: Configuration<'_>) -> Result<Self, Refused> {
        let settings = Settings::check(configuration)?;
        let engine = Engine::new(&settings.host);
        Ok(Self(Arc::new(Docker { settings, engine, settlement: Settlement::default(), declaration: declaration() })))
    }

    /// The engine's socket, whose [`fingerprint`](crate::fingerprint) identifies the backend.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.0.settings.host
    }
}

fn declaration() -> Declaration {
    let unsupported = |reason: &str| Support::Unsupported { reason: reason.to_owned() };
    Declaration::of_groups(&Support::Supported, &unsupported(NO_CHECKPOINTS), &unsupported(NO_PREPARATION))
        .expect("the reasons are reason codes")
}

#[async_trait]
impl Provider for DockerProvider {
    fn declaration(&self) -> &Declaration {
        &self.0.declaration
    }

    async fn execute(
        &self,
        context: Context,
        operation: Operation<'static>,
    ) -> Result<Answer<'static>, Failed<'static>> {
        let method = operation.method();
        match operation {
            Operation::Create(bootstrap) => {
                Policy::NoStorage.bind(method.name(), context.reference, bootstrap.workspace.as_ref()).await?;
                self.0.clone().create(context, *bootstrap).await
            }
            Operation::GetInfo | Operation::Renew => self.0.info(context).await,
            Operation::Kill => self.0.kill(context).await,
            Operation::RunCommand(command) => {
                // A task of its own: the command is stopped at its deadline also when nobody waits any more.
                let docker = self.0.clone();
                let run = tokio::spawn(async move { docker.run_command(context, command).await });
                let result = run.await.unwrap_or(Err(Failure::CommandUnconfirmed))?;
                Ok(Answer::Command(result))
            }
            Operation::Observe(target) => Ok(Answer::Sample(self.0.observe(context, &target).await?)),
            Operation::Initial
            | Operation::NewCompute { .. }
            | Operation::GetCompute(_)
            | Operation::KillCompute(_)
            | Operation::ResumeCompute(_)
            | Operation::RunCommandCompute { .. }
            | Operation::Suspend(_)
            | Operation::Resume(_)
            | Operation::DeleteSnapshot(_) => Err(unsupported(method.name(), NO_CHECKPOINTS)),
            Operation::RestorePreparation(_) | Operation::SavePreparation(_) => {
                Err(unsupported(method.name(), NO_PREPARATION))
            }
        }
    }

    async fn probe(&self) -> Result<Option<Checkpoint<'static>>, NotReady> {
        self.0.probe().await.map(|()| None)
    }

    fn generation(&self) -> Generation {
        self.0.settings.generation
    }
}

fn unsupported(method: &str, reason: &str) -> Failed<'static> {
    Failure::Unsupported { method: method.to_owned(), reason: reason.to_owned() }.into()
}

impl Docker {
    pub(crate) fn names(&self, reference: Reference) -> Names {
        Names::of(self.settings.installation, reference)
    }

    /// The sandbox's container; `None` when there is none.
    ///
    /// # Errors
    /// `ownership` for somebody else's, `unconfirmed` when the engine does not say.
    pub(crate) async fn owned_container(
        &self,
        reference: Reference,
        wait: Wait,
    ) -> Result<Option<ContainerInspectResponse>, Failure> {
        let names = self.names(reference);
        let container = self.engine.container(&names.container, wait).await.map_err(unconfirmed)?;
        match container {
            Some(container) if !self.owns_container(reference, &container) => Err(Failure::Ownership),
            other => Ok(other),
        }
    }

    fn owns_container(&self, reference: Reference, container: &ContainerInspectResponse) -> bool {
        let labels = container.config.as_ref().and_then(|config| config.labels.as_ref());
        container.id.as_ref().is_some_and(|id| !id.is_empty()) && owns(self.settings.installation, reference, labels)
    }

    /// Whether one of the sandbox's volumes is there.
    ///
    /// # Errors
    /// `ownership` for somebody else's, `unconfirmed` when the engine does not say.
    pub(crate) async fn owned_volume(&self, reference: Reference, name: &str, wait: Wait) -> Result<bool, Failure> {
        match self.engine.volume(name, wait).await.map_err(unconfirmed)? {
            None => Ok(false),
            Some(volume) if owns(self.settings.installation, reference, Some(&volume.labels)) => Ok(true),
            Some(_) => Err(Failure::Ownership),
        }
    }

    /// What the sandbox's container is now; its absence is a receipt only as [`Settlement`] allows.
    pub(crate) async fn info(&self, context: Context) -> Result<Answer<'static>, Failed<'static>> {
        let Context { reference, deadline } = context;
        let container = match self.owned_container(reference, Wait::Until(deadline)).await {
            Ok(container) => container,
            Err(failure) => {
                let look = if failure == Failure::Ownership { Look::Present } else { Look::Unreachable };
                self.settlement.look(reference, look, Instant::now());
                return Err(failure.into());
            }
        };
        match container {
            Some(container) => {
                self.settlement.look(reference, Look::Present, Instant::now());
                Ok(Answer::Info(self.present(context, &container).await?))
            }
            None if self.settlement.is_running(reference) => Err(Failure::NotFound.into()),
            None => self.absent(context).await,
        }
    }

    /// The observation of a container that looks as it was created.
    pub(crate) async fn present(
        &self,
        context: Context,
        container: &ContainerInspectResponse,
    ) -> Result<Info<'static>, Failure> {
        self.qualify(container, Wait::Until(context.deadline)).await?;
        Ok(observed(context.reference, container))
    }

    /// # Errors
    /// `invalid` for drifted configuration, `unconfirmed` when the engine does not say.
    pub(crate) async fn qualify(&self, container: &ContainerInspectResponse, wait: Wait) -> Result<(), Failure> {
        let image_id = match self.engine.image_id(&self.settings.image, wait).await {
            Err(error) if error.is_status(404) => String::new(),
            answer => answer.map_err(unconfirmed)?,
        };
        match drift(&self.settings, container, &image_id) {
            None => Ok(()),
            Some(difference) => {
                warn!(container = container.id.as_deref(), difference, "a sandbox's configuration drifted");
                Err(Failure::Invalid)
            }
        }
    }

    async fn absent(&self, context: Context) -> Result<Answer<'static>, Failed<'static>> {
        let Context { reference, deadline } = context;
        let mut look = Look::Absent;
        for name in self.names(reference).volumes() {
            match self.engine.volume(name, Wait::Until(deadline)).await {
                Ok(None) => {}
                Ok(Some(_)) => look = Look::Present,
                Err(error) => {
                    self.settlement.look(reference, Look::Unreachable, Instant::now());
                    return Err(unconfirmed(error).into());
                }
            }
        }
        if self.settlement.look(reference, look, Instant::now()) {
            Ok(Answer::Info(absent_receipt(reference)))
        } else {
            Err(Failure::NotFound.into())
        }
    }

    /// Removes what belongs to the sandbox, after all of it was seen to, and sees it gone.
    async fn kill(&self, context: Context) -> Result<Answer<'static>, Failed<'static>> {
        let Context { reference, deadline } = context;
        let wait = Wait::Until(deadline);
        if !self.settlement.until_ended(reference, deadline).await {
            return Err(Failure::Unconfirmed.into());
        }
        let names = self.names(reference);
        let container = self.owned_container(reference, wait).await?;
        let mut volumes = Vec::new();
        for name in names.volumes() {
            if self.owned_volume(reference, name, wait).await? {
                volumes.push(name);
            }
        }
        if let Some(id) = container.and_then(|container| container.id) {
            gone(self.engine.remove_container(&id, wait).await)?;
        }
        for name in volumes {
            gone(self.engine.remove_volume(name, wait).await)?;
        }
        self.confirm_gone(&names, wait).await?;
        Ok(Answer::Done)
    }

    async fn confirm_gone(&self, names: &Names, wait: Wait) -> Result<(), Failure> {
        if self.engine.container(&names.container, wait).await.map_err(unconfirmed)?.is_some() {
            return Err(Failure::Unconfirmed);
        }
        for name in names.volumes() {
            if self.engine.volume(name, wait).await.map_err(unconfirmed)?.is_some() {
                return Err(Failure::Unconfirmed);
            }
        }
        Ok(())
    }
}

/// The observation of a container; a running process is not more than the bootstrap's last step.
pub(crate) fn observed(reference: Reference, container: &ContainerInspectResponse) -> Info<'static> {
    Info {
        reference: flattened(reference),
        provider_id: container.id.clone().unwrap_or_default().into(),
        state: status(container).into(),
        bootstrap_complete: is_running(container),
        create_settled: false,
    }
}

/// A removal that found nothing, or another removal at work, is left to the confirmation.
fn gone(answer: Result<(), EngineError>) -> Result<(), Failure> {
    match answer {
        Err(EngineError::Refused { code: 404, .. }) => Ok(()),
        Err(EngineError::Refused { code: 409, message }) if message.contains("already in progress") => Ok(()),
        other => other.map_err(unconfirmed),
    }
}

/// Whatever the engine did not say clearly is unknown.
#[allow(clippy::needless_pass_by_value, reason = "used as the last step of an error's way")]
pub(crate) fn unconfirmed(error: EngineError) -> Failure {
    warn!(%error, "a call to the Docker engine failed");
    Failure::Unconfirmed
}
