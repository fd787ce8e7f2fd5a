//! What the Docker engine itself says about our sandboxes.

use std::collections::HashMap;
use std::io::Read as _;

use anyhow::{Context as _, ensure};
use bollard::Docker;
use bollard::models::NetworkCreateRequest;
use bollard::query_parameters::{
    DownloadFromContainerOptionsBuilder, ListContainersOptionsBuilder, ListNetworksOptionsBuilder,
    ListVolumesOptionsBuilder, RemoveContainerOptionsBuilder,
};
use futures_util::TryStreamExt as _;

use super::timeline::warn;

pub(crate) struct Engine {
    pub(crate) docker: Docker,
    /// A network of our own; sandboxes reach nothing through it.
    pub(crate) network: String,
    /// Known once Core is asked.
    pub(crate) installation: Option<String>,
}

/// A container as the engine lists it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Container {
    pub(crate) id: String,
    pub(crate) environment: String,
    /// Identity of its image.
    pub(crate) image: String,
    pub(crate) state: String,
}

impl Engine {
    pub(crate) async fn connect() -> anyhow::Result<Self> {
        let docker = Docker::connect_with_unix_defaults()?.negotiate_version().await;
        let docker = docker.context("no Docker engine answers on /var/run/docker.sock: run scripts/start-docker")?;
        let network = format!("palisade-demo-{}", std::process::id());
        Ok(Self { docker, network, installation: None })
    }

    pub(crate) async fn version(&self) -> anyhow::Result<String> {
        let version = self.docker.version().await?;
        Ok(format!("{} (API {})", version.version.unwrap_or_default(), self.docker.client_version()))
    }

    pub(crate) async fn create_network(&self) -> anyhow::Result<()> {
        let request = NetworkCreateRequest { name: self.network.clone(), internal: Some(true), ..Default::default() };
        self.docker.create_network(request).await.context("cannot create the demo's network")?;
        Ok(())
    }

    /// Every container that carries our installation's label, in whatever state.
    pub(crate) async fn containers(&self) -> anyhow::Result<Vec<Container>> {
        let Some(filter) = self.filter() else { return Ok(Vec::new()) };
        let options = ListContainersOptionsBuilder::new().all(true).filters(&filter).build();
        let listed = self.docker.list_containers(Some(options)).await?;
        let mut containers: Vec<_> = listed
            .into_iter()
            .map(|container| Container {
                id: container.id.unwrap_or_default(),
                environment: container
                    .labels
                    .and_then(|mut labels| labels.remove("io.oac.environment"))
                    .unwrap_or_default(),
                image: container.image_id.unwrap_or_default(),
                state: container.state.map(|state| state.to_string()).unwrap_or_default(),
            })
            .collect();
        containers.sort();
        Ok(containers)
    }

    /// Names of every volume that carries our installation's label.
    pub(crate) async fn volumes(&self) -> anyhow::Result<Vec<String>> {
        let Some(filter) = self.filter() else { return Ok(Vec::new()) };
        let options = ListVolumesOptionsBuilder::new().filters(&filter).build();
        let listed = self.docker.list_volumes(Some(options)).await?.volumes.unwrap_or_default();
        Ok(listed.into_iter().map(|volume| volume.name).collect())
    }

    /// Whether our network exists.
    pub(crate) async fn has_network(&self) -> anyhow::Result<bool> {
        let filter = HashMap::from([("name", vec![self.network.as_str()])]);
        let options = ListNetworksOptionsBuilder::new().filters(&filter).build();
        // The engine's filter also finds names that merely contain ours, such as those of another demo.
        let listed = self.docker.list_networks(Some(options)).await?;
        Ok(listed.iter().any(|network| network.name.as_ref() == Some(&self.network)))
    }

    /// The container of one environment.
    pub(crate) async fn container_of(&self, environment: &str) -> anyhow::Result<Container> {
        let mut found: Vec<_> = self.containers().await?;
        found.retain(|container| container.environment == environment);
        ensure!(found.len() == 1, "the engine has {} containers for one environment: expected 1", found.len());
        Ok(found.remove(0))
    }

    /// A file of a sandbox, copied out by the engine; nothing runs in the sandbox. `None` when it does not exist.
    pub(crate) async fn read(&self, container: &str, path: &str) -> anyhow::Result<Option<String>> {
        let options = DownloadFromContainerOptionsBuilder::new().path(path).build();
        let chunks = self.docker.download_from_container(container, Some(options));
        let bytes = match chunks
            .try_fold(Vec::new(), |mut all, chunk| async move {
                all.extend(chunk);
                Ok(all)
            })
            .await
        {
            Ok(bytes) => bytes,
            Err(bollard::errors::Error::DockerResponseServerError { status_code: 404, .. }) => return Ok(None),
            Err(error) => return Err(error).context("the engine cannot copy a file out of a sandbox"),
        };
        let mut archive = tar::Archive::new(&bytes[..]);
        let mut text = String::new();
        archive.entries()?.next().context("the engine sent an empty archive")??.read_to_string(&mut text)?;
        Ok(Some(text))
    }

    /// Process 1 of a container, in the kernel's numbering.
    pub(crate) async fn process(&self, container: &str) -> anyhow::Result<i64> {
        let state = self.docker.inspect_container(container, None).await?.state;
        state.and_then(|state| state.pid).filter(|pid| *pid > 0).context("the engine names no process of the sandbox")
    }

    /// Whether the engine has an image of this identity.
    pub(crate) async fn has_image(&self, image: &str) -> anyhow::Result<bool> {
        match self.docker.inspect_image(image).await {
            Ok(_) => Ok(true),
            Err(bollard::errors::Error::DockerResponseServerError { status_code: 404, .. }) => Ok(false),
            Err(error) => Err(error).context("the engine cannot look for an image"),
        }
    }

    /// Removes an image that this demo alone has made.
    pub(crate) async fn remove_image(&self, image: &str) -> anyhow::Result<()> {
        let options = None::<bollard::query_parameters::RemoveImageOptions>;
        self.docker.remove_image(image, options, None).await.context("cannot remove the demo's own image")?;
        Ok(())
    }

    /// Removes whatever carries our label, and our network. Says what could not be removed.
    pub(crate) async fn clear(&self) {
        let force = || RemoveContainerOptionsBuilder::new().force(true).build();
        for container in self.containers().await.unwrap_or_default() {
            report(self.docker.remove_container(&container.id, Some(force())).await, "container", &container.id);
        }
        for volume in self.volumes().await.unwrap_or_default() {
            report(
                self.docker.remove_volume(&volume, None::<bollard::query_parameters::RemoveVolumeOptions>).await,
                "volume",
                &volume,
            );
        }
        if self.has_network().await.unwrap_or(false) {
            report(self.docker.remove_network(&self.network).await, "network", &self.network);
        }
    }

    /// `None` until the installation is known: then nothing of ours can exist.
    fn filter(&self) -> Option<HashMap<&'static str, Vec<String>>> {
        let installation = self.installation.as_ref()?;
        Some(HashMap::from([("label", vec![format!("io.oac.installation={installation}")])]))
    }
}

fn report(outcome: Result<(), bollard::errors::Error>, kind: &str, name: &str) {
    if let Err(error) = outcome {
        warn(format_args!("warning: cannot remove the {kind} {name}: {error}"));
    }
}
