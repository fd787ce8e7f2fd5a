//! The engine's calls, each bounded by itself.

use std::time::Instant;

use bollard::errors::Error;
use bollard::exec::{CreateExecOptions, StartExecOptions, StartExecResults};
use bollard::models::{
    ContainerCreateBody, ContainerInspectResponse, ContainerStatsResponse, ExecInspectResponse, SystemInfo, Volume,
    VolumeCreateRequest,
};
use bollard::query_parameters::{
    CreateContainerOptions, RemoveContainerOptionsBuilder, RemoveVolumeOptions, StartContainerOptions,
    StatsOptionsBuilder, UploadToContainerOptionsBuilder,
};
use bollard::{API_DEFAULT_VERSION, ClientVersion, Docker, body_full};
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::sync::OnceCell;

use crate::limits::{API_VERSION_MIN, UNBOUNDED_SECS};

/// Why a call to the engine did not succeed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EngineError {
    /// The engine answered with a refusal.
    #[error("the engine answered {code}: {message}")]
    Refused { code: u16, message: String },
    /// No answer will come: not connected, cut off, or not understood.
    #[error("the engine cannot be reached: {0}")]
    Lost(String),
    /// No answer came in time; the call may still be carried out.
    #[error("the engine did not answer in time")]
    TimedOut,
    /// The engine is older than API 1.41.
    #[error("the engine speaks API {0}, expected 1.41 or later; install a newer engine")]
    TooOld(String),
}

impl EngineError {
    pub(crate) const fn is_status(&self, expected: u16) -> bool {
        matches!(self, Self::Refused { code, .. } if *code == expected)
    }
}

impl EngineError {
    /// What may be said of a failed call whose request holds a command: the engine's own words may quote it.
    pub(crate) fn without_words(&self) -> String {
        match self {
            Self::Refused { code, .. } => format!("the engine answered {code}"),
            Self::Lost(_) => "the engine cannot be reached".to_owned(),
            Self::TimedOut | Self::TooOld(_) => self.to_string(),
        }
    }
}

impl From<Error> for EngineError {
    fn from(error: Error) -> Self {
        match error {
            Error::DockerResponseServerError { status_code, message } => Self::Refused { code: status_code, message },
            Error::RequestTimeoutError => Self::TimedOut,
            other => Self::Lost(other.to_string()),
        }
    }
}

/// How long a call may take.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wait {
    /// Until then.
    Until(Instant),
    /// Until the engine answers: for calls of a creation, which are never cancelled (decision 34).
    Answer,
}

/// One engine behind a local socket.
#[derive(Debug)]
pub(crate) struct Engine {
    socket: String,
    client: OnceCell<Docker>,
}

impl Engine {
    /// `host` is `unix://` with an absolute path; nothing is called yet, and no environment variable is read.
    pub(crate) fn new(host: &str) -> Self {
        Self { socket: host.to_owned(), client: OnceCell::new() }
    }

    pub(crate) async fn call<T, F>(&self, wait: Wait, call: impl FnOnce(Docker) -> F + Send) -> Result<T, EngineError>
    where
        F: Future<Output = Result<T, Error>> + Send,
    {
        let answer = async {
            let docker = self.client.get_or_try_init(|| connect(&self.socket)).await?.clone();
            Ok(call(docker).await?)
        };
        match wait {
            Wait::Answer => answer.await,
            Wait::Until(deadline) => {
                tokio::time::timeout_at(deadline.into(), answer).await.unwrap_or(Err(EngineError::TimedOut))
            }
        }
    }

    pub(crate) async fn ping(&self, wait: Wait) -> Result<(), EngineError> {
        self.call(wait, |docker| async move { docker.ping().await.map(drop) }).await
    }

    pub(crate) async fn info(&self, wait: Wait) -> Result<SystemInfo, EngineError> {
        self.call(wait, |docker| async move { docker.info().await }).await
    }

    /// The engine's own identity of the image that `selector` names; empty when it has none.
    pub(crate) async fn image_id(&self, selector: &str, wait: Wait) -> Result<String, EngineError> {
        let image = self.call(wait, |docker| async move { docker.inspect_image(selector).await }).await?;
        Ok(image.id.unwrap_or_default())
    }

    pub(crate) async fn container(
        &self,
        name: &str,
        wait: Wait,
    ) -> Result<Option<ContainerInspectResponse>, EngineError> {
        found(self.call(wait, |docker| async move { docker.inspect_container(name, None).await }).await)
    }

    pub(crate) async fn volume(&self, name: &str, wait: Wait) -> Result<Option<Volume>, EngineError> {
        found(self.call(wait, |docker| async move { docker.inspect_volume(name).await }).await)
    }

    pub(crate) async fn create_volume(&self, request: VolumeCreateRequest) -> Result<Volume, EngineError> {
        self.call(Wait::Answer, |docker| async move { docker.create_volume(request).await }).await
    }

    /// The new container's identity.
    pub(crate) async fn create_container(&self, name: &str, body: ContainerCreateBody) -> Result<String, EngineError> {
        let options = CreateContainerOptions { name: Some(name.to_owned()), ..Default::default() };
        let created =
            self.call(Wait::Answer, |docker| async move { docker.create_container(Some(options), body).await }).await?;
        Ok(created.id)
    }

    pub(crate) async fn upload(&self, id: &str, path: &str, archive: Vec<u8>) -> Result<(), EngineError> {
        let options = UploadToContainerOptionsBuilder::default().path(path).build();
        let body = body_full(Bytes::from(archive));
        self.call(Wait::Answer, |docker| async move { docker.upload_to_container(id, Some(options), body).await }).await
    }

    pub(crate) async fn start(&self, id: &str) -> Result<(), EngineError> {
        self.call(Wait::Answer, |docker| async move { docker.start_container(id, None::<StartContainerOptions>).await })
            .await
    }

    pub(crate) async fn remove_container(&self, id: &str, wait: Wait) -> Result<(), EngineError> {
        let options = RemoveContainerOptionsBuilder::default().force(true).build();
        self.call(wait, |docker| async move { docker.remove_container(id, Some(options)).await }).await
    }

    pub(crate) async fn remove_volume(&self, name: &str, wait: Wait) -> Result<(), EngineError> {
        self.call(wait, |docker| async move { docker.remove_volume(name, None::<RemoveVolumeOptions>).await }).await
    }

    /// The identity of a new exec, which does not run yet.
    pub(crate) async fn create_exec(
        &self,
        id: &str,
        options: CreateExecOptions<String>,
        wait: Wait,
    ) -> Result<String, EngineError> {
        Ok(self.call(wait, |docker| async move { docker.create_exec(id, options).await }).await?.id)
    }

    pub(crate) async fn start_exec(&self, exec: &str, wait: Wait) -> Result<StartExecResults, EngineError> {
        let options = StartExecOptions { output_capacity: Some(64 * 1024), ..Default::default() };
        self.call(wait, |docker| async move { docker.start_exec(exec, Some(options)).await }).await
    }

    pub(crate) async fn exec(&self, exec: &str, wait: Wait) -> Result<ExecInspectResponse, EngineError> {
        self.call(wait, |docker| async move { docker.inspect_exec(exec).await }).await
    }

    /// One sample, without the second one that the engine otherwise takes a second later.
    pub(crate) async fn stats(&self, id: &str, wait: Wait) -> Result<ContainerStatsResponse, EngineError> {
        let options = StatsOptionsBuilder::default().stream(false).one_shot(true).build();
        self.call(wait, |docker| async move {
            let mut samples = Box::pin(docker.stats(id, Some(options)));
            samples.next().await.unwrap_or(Err(Error::RequestTimeoutError))
        })
        .await
    }
}

/// A client that speaks the newest API that both sides know, and never gives up by itself.
async fn connect(socket: &str) -> Result<Docker, EngineError> {
    let docker = Docker::connect_with_unix(socket, UNBOUNDED_SECS, API_DEFAULT_VERSION)?.negotiate_version().await?;
    let ClientVersion { major_version, minor_version } = docker.client_version();
    if (major_version, minor_version) < API_VERSION_MIN {
        return Err(EngineError::TooOld(format!("{major_version}.{minor_version}")));
    }
    Ok(docker)
}

fn found<T>(answer: Result<T, EngineError>) -> Result<Option<T>, EngineError> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_status(404) => Ok(None),
        Err(error) => Err(error),
    }
}
