//! What the node asks of the engine, asked without a node.
//!
//! The container and its files are copied from a sandbox that the node made, so that both sides make the same thing.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bollard::Docker;
use bollard::container::LogOutput;
use bollard::exec::{CreateExecOptions, StartExecResults};
use bollard::models::{ContainerCreateBody, ContainerInspectResponse, VolumeCreateRequest};
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, DownloadFromContainerOptionsBuilder, RemoveContainerOptionsBuilder,
    RemoveVolumeOptions, StartContainerOptions, UploadToContainerOptionsBuilder,
};
use futures_util::{StreamExt as _, TryStreamExt as _};
use tokio::io::AsyncWriteExt as _;

/// Which calls are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Calls {
    /// Every call of the contract (node-host §7.4, §7.5).
    All,
    /// Only those that change something or run the command.
    Fewest,
}

/// A sandbox to make again and again.
pub(crate) struct Template {
    docker: Docker,
    body: ContainerCreateBody,
    image: String,
    /// Where an archive is unpacked, and the archive.
    files: Vec<(&'static str, Vec<u8>)>,
}

impl Template {
    /// Copies the sandbox in `container`.
    pub(crate) async fn of(docker: Docker, container: &str) -> anyhow::Result<Self> {
        let ContainerInspectResponse { config, host_config, image, .. } =
            docker.inspect_container(container, None).await?;
        let config = config.context("a container has a configuration")?;
        let body = ContainerCreateBody {
            image: config.image,
            user: config.user,
            working_dir: config.working_dir,
            entrypoint: config.entrypoint,
            labels: config.labels,
            host_config,
            ..Default::default()
        };
        let mut files = Vec::new();
        for (directory, path) in [("/home", "/home/runtime"), ("/environment", "/environment/workspace")] {
            let options = DownloadFromContainerOptionsBuilder::new().path(path).build();
            let chunks: Vec<_> = docker.download_from_container(container, Some(options)).try_collect().await?;
            files.push((directory, chunks.concat()));
        }
        Ok(Self { docker, body, image: image.context("a container has an image")?, files })
    }

    /// Makes a sandbox; gives how long it took, and the container.
    pub(crate) async fn create(&self, calls: Calls) -> anyhow::Result<(Duration, String)> {
        let name = format!("oac-runtime-{:032x}", rand::random::<u128>());
        let volumes = [format!("{name}-home"), format!("{name}-environment")];
        let (docker, started) = (&self.docker, Instant::now());
        if calls == Calls::All {
            ensure!(docker.inspect_container(&name, None).await.is_err(), "a random name is new");
            for volume in &volumes {
                ensure!(docker.inspect_volume(volume).await.is_err(), "a random name is new");
            }
        }
        for volume in &volumes {
            let labels = self.body.labels.clone();
            let request = VolumeCreateRequest { name: Some(volume.clone()), labels, ..Default::default() };
            docker.create_volume(request).await?;
        }
        let options = CreateContainerOptionsBuilder::new().name(&name).build();
        let id = docker.create_container(Some(options), self.named(&volumes)).await?.id;
        self.look(&id, calls).await?;
        for (directory, archive) in &self.files {
            let options = UploadToContainerOptionsBuilder::new().path(directory).build();
            docker.upload_to_container(&id, Some(options), bollard::body_full(archive.clone().into())).await?;
        }
        docker.start_container(&id, None::<StartContainerOptions>).await?;
        self.look(&id, calls).await?;
        Ok((started.elapsed(), id))
    }

    async fn look(&self, id: &str, calls: Calls) -> anyhow::Result<()> {
        if calls == Calls::All {
            self.docker.inspect_container(id, None).await?;
            self.docker.inspect_image(&self.image).await?;
        }
        Ok(())
    }

    fn named(&self, volumes: &[String; 2]) -> ContainerCreateBody {
        let mut body = self.body.clone();
        let mounts = body.host_config.as_mut().and_then(|host| host.mounts.as_mut());
        for (mount, volume) in mounts.into_iter().flatten().zip(volumes) {
            mount.source = Some(volume.clone());
        }
        body
    }

    /// Runs a command to its end; gives how long it took.
    pub(crate) async fn run(&self, container: &str, args: &[&str], calls: Calls) -> anyhow::Result<Duration> {
        let started = Instant::now();
        if calls == Calls::All {
            self.docker.inspect_container(container, None).await?;
        }
        let options = CreateExecOptions {
            cmd: Some(args.iter().map(|&text| text.to_owned()).collect()),
            user: self.body.user.clone(),
            attach_stdin: Some(false),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            ..Default::default()
        };
        let exec = self.docker.create_exec(container, options).await?.id;
        let StartExecResults::Attached { mut output, mut input } = self.docker.start_exec(&exec, None).await? else {
            anyhow::bail!("the engine detached")
        };
        input.shutdown().await?;
        let mut bytes = Vec::new();
        while let Some(part) = output.next().await {
            bytes.extend_from_slice(&LogOutput::into_bytes(part?));
        }
        while self.docker.inspect_exec(&exec).await?.running != Some(false) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        ensure!(!bytes.is_empty(), "the command prints something");
        Ok(started.elapsed())
    }

    /// Removes a sandbox with both of its volumes.
    pub(crate) async fn remove(&self, container: &str) -> anyhow::Result<()> {
        let name = self.docker.inspect_container(container, None).await?.name.context("a container has a name")?;
        let name = name.trim_start_matches('/');
        let force = RemoveContainerOptionsBuilder::new().force(true).build();
        self.docker.remove_container(container, Some(force)).await?;
        for volume in ["home", "environment"] {
            self.docker.remove_volume(&format!("{name}-{volume}"), None::<RemoveVolumeOptions>).await?;
        }
        Ok(())
    }
}
