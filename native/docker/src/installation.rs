//! What an installation asks of its engine besides sandboxes: the Runtime image and the network (node-host §5.6, §1.7).
//!
//! - Never is an image found by a tag, nor removed, nor believed under a name that is not one of the release's two.
//! - Never is a network removed here.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use bollard::models::NetworkCreateRequest;
use bollard::query_parameters::{ImportImageOptionsBuilder, InspectNetworkOptions};
use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use palisade_core::distribution::manifest::PLATFORM;
use tokio::fs::File;
use tokio::io::AsyncReadExt as _;

use crate::engine::{Engine, EngineError, Wait};
use crate::limits::{IMPORT_CHUNK_BYTES, QUESTION_SECS};

/// One engine, for the installation of a host.
#[derive(Debug)]
pub struct Installation {
    engine: Engine,
}

/// Why the engine did not do or say what was asked.
#[derive(Debug, thiserror::Error)]
pub enum InstallationError {
    /// The engine itself.
    #[error("{0}; check that the engine runs and may be used")]
    Engine(String),
    /// The archive could not be read.
    #[error("{path}: {error}", path = .0.display(), error = .1)]
    Archive(std::path::PathBuf, io::Error),
}

/// What the engine has under the release's two identities.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Image {
    /// The release's image, under this identity: what configurations name.
    There(String),
    /// Nothing.
    Absent,
    /// Something else, or for another platform: never to be used.
    Foreign,
}

/// What an engine says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// Its version, such as `20.10.24`.
    pub version: String,
    /// CPUs that it may use; 0 when it does not say.
    pub cpus: u64,
    /// Memory that it may use, in bytes; 0 when it does not say.
    pub memory_bytes: u64,
}

impl From<EngineError> for InstallationError {
    fn from(error: EngineError) -> Self {
        Self::Engine(error.to_string())
    }
}

impl Installation {
    /// `host` is `unix://` with an absolute path; nothing is called yet.
    #[must_use]
    pub fn new(host: &str) -> Self {
        Self { engine: Engine::new(host) }
    }

    /// Who the engine is, and what it has.
    ///
    /// # Errors
    /// An engine that does not answer.
    pub async fn about(&self) -> Result<About, InstallationError> {
        let info = self.engine.info(soon()).await?;
        Ok(About {
            version: info.server_version.unwrap_or_default(),
            cpus: info.ncpu.and_then(|cpus| cpus.try_into().ok()).unwrap_or(0),
            memory_bytes: info.mem_total.and_then(|bytes| bytes.try_into().ok()).unwrap_or(0),
        })
    }

    /// Asks for the image's configuration digest, then for its manifest digest; the first answer decides.
    ///
    /// # Errors
    /// An engine that does not answer.
    pub async fn image(&self, identities: [&str; 2]) -> Result<Image, InstallationError> {
        for identity in identities {
            let asked = identity.to_owned();
            let answer = self.engine.call(soon(), |docker| async move { docker.inspect_image(&asked).await }).await;
            let found = match answer {
                Ok(found) => found,
                Err(error) if error.is_status(404) => continue,
                Err(error) => return Err(error.into()),
            };
            let id = found.id.unwrap_or_default();
            let platform = format!("{}/{}", found.os.unwrap_or_default(), found.architecture.unwrap_or_default());
            let ours = platform == PLATFORM && identities.contains(&id.as_str());
            return Ok(if ours { Image::There(id) } else { Image::Foreign });
        }
        Ok(Image::Absent)
    }

    /// Loads an archive, compressed or not. Whether the image is there afterwards is asked with [`Installation::image`].
    ///
    /// # Errors
    /// An archive that cannot be read, or an engine that refuses it.
    pub async fn load(&self, archive: &Path) -> Result<(), InstallationError> {
        let unreadable = |error| InstallationError::Archive(archive.to_owned(), error);
        let file = File::open(archive).await.map_err(unreadable)?;
        let chunks = stream::try_unfold(file, |mut file| async move {
            let mut chunk = vec![0; IMPORT_CHUNK_BYTES];
            let read = file.read(&mut chunk).await?;
            chunk.truncate(read);
            Ok::<_, io::Error>((read > 0).then_some((Bytes::from(chunk), file)))
        });
        let options = ImportImageOptionsBuilder::new().quiet(true).build();
        let body = bollard::body_try_stream(chunks);
        let load = |docker: bollard::Docker| async move {
            docker.import_image(options, body, None).map(|answer| answer.map(drop)).try_collect::<Vec<()>>().await
        };
        Ok(self.engine.call(Wait::Answer, load).await.map(drop)?)
    }

    /// Whether a network of this name exists.
    ///
    /// # Errors
    /// An engine that does not answer.
    pub async fn has_network(&self, name: &str) -> Result<bool, InstallationError> {
        let asked = name.to_owned();
        let inspect = |docker: bollard::Docker| async move {
            docker.inspect_network(&asked, None::<InspectNetworkOptions>).await
        };
        match self.engine.call(soon(), inspect).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_status(404) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a network of the engine's default kind.
    ///
    /// # Errors
    /// An engine that refuses or does not answer.
    pub async fn make_network(&self, name: &str) -> Result<(), InstallationError> {
        let request = NetworkCreateRequest { name: name.to_owned(), ..Default::default() };
        let create = |docker: bollard::Docker| async move { docker.create_network(request).await };
        Ok(self.engine.call(Wait::Answer, create).await.map(drop)?)
    }
}

fn soon() -> Wait {
    Wait::Until(Instant::now() + Duration::from_secs(QUESTION_SECS))
}
