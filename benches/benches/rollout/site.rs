//! One installation on this host: a Core, two releases, and a node of the first.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bollard::Docker;
use bollard::models::NetworkCreateRequest;
use bollard::query_parameters::RemoveImageOptions;
use palisade_core::distribution::catalogue::{IMAGE, IMAGE_UNPACKED, SECCOMP};
use palisade_core::units::Digest;
use palisade_node::Register;
use palisade_release::{Contents, Inputs, Release, Source, build, checkout, engine, publish};
use reqwest::{Client, Method};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::between::Between;
use crate::core::{KEY, Process};

const DEPLOYMENT: &str = "/core/v1/sandbox/deployment";
/// Long enough for anything that is not stuck.
const PATIENCE: Duration = Duration::from_secs(200);

/// Everything that was made for the measurement; [`Site::clear`] removes what is in the engine.
pub(crate) struct Site {
    folder: TempDir,
    docker: Docker,
    http: Client,
    between: Arc<Between>,
    origin: String,
    installation: Option<String>,
    /// Images that nobody else uses.
    images: Vec<Release>,
    _core: Process,
}

impl Site {
    pub(crate) async fn new() -> anyhow::Result<Self> {
        let docker = Docker::connect_with_unix_defaults()?.negotiate_version().await;
        let docker = docker.context("no Docker engine answers: run scripts/start-docker")?;
        let folder = tempfile::tempdir()?;
        for name in ["root", "root/runtime", "payload"] {
            DirBuilder::new().mode(0o700).create(folder.path().join(name))?;
        }
        let between = Between::listen().await?;
        let (payload, data) = (folder.path().join("payload"), folder.path().join("data"));
        let (core, origin) = Process::core(&payload, &data, &between.url)?;
        between.reaches(&origin);
        let (http, images) = (Client::builder().no_proxy().build()?, Vec::new());
        Ok(Self { folder, docker, http, between, origin, installation: None, images, _core: core })
    }

    /// ROOT of the node.
    fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    /// The records of the generations.
    pub(crate) fn records(&self) -> PathBuf {
        self.root().join("state/node/generations")
    }

    async fn ask(&self, method: Method, path: &str, body: Value) -> anyhow::Result<Value> {
        let request = self.http.request(method, format!("{}{path}", self.origin)).bearer_auth(KEY);
        let request = if body.is_null() { request } else { request.json(&body) };
        let response = request.send().await?;
        let status = response.status();
        let body: Value = response.json().await?;
        ensure!(status.is_success(), "{path}: {status} {body}");
        Ok(body)
    }

    /// Builds a release and publishes it. `more` bytes of chance make its image another one, and that much larger.
    pub(crate) fn release(&mut self, commit: &str, more: usize) -> anyhow::Result<Release> {
        let path = |name: &str| self.folder.path().join(format!("{name}-{}", &commit[..1]));
        let mut bytes = std::fs::read(checkout::guest()?)?;
        let mut chance = vec![0; more];
        rand::fill(&mut chance[..]);
        bytes.extend(chance);
        private(&path("guest"), &bytes)?;
        let inputs = Inputs {
            source: Source::new(commit, commit).context("two identifiers")?,
            busybox: checkout::BUSYBOX.into(),
            node_program: checkout::guest()?,
            guest: path("guest"),
            artifact_base_url: String::new(),
        };
        let release = build(&inputs, &path("release"))?;
        publish(&release, &self.folder.path().join("payload"), Contents::Complete)?;
        self.images.push(Release::open(&path("release"))?);
        Ok(release)
    }

    /// Selects a release.
    pub(crate) async fn select(&self, expected: u64, release: &Release) -> anyhow::Result<Value> {
        let selection = json!({
            "expected_generation": expected, "provider": "docker",
            "resources": {"cpus": 1, "memory_mib": 512}, "runtime": release.runtime(),
        });
        self.ask(if expected == 0 { Method::POST } else { Method::PUT }, DEPLOYMENT, selection).await
    }

    /// What an installer leaves below ROOT, and the registration.
    pub(crate) async fn install(&mut self, view: &Value, release: &Release) -> anyhow::Result<()> {
        let image = engine::ensure(&self.docker, release).await?;
        let installation = view["installation_id"].as_str().context("it is configured")?;
        let (root, seccomp) = (self.root(), std::fs::read(release.seccomp())?);
        private(&root.join(SECCOMP), &seccomp)?;
        let network = format!("oac-node-{installation}");
        let configuration = json!({
            "installation_id": installation, "provider": "docker", "core_url": format!("{}/api/v1", self.between.url),
            "specification": view["specification"], "generation": view["generation"],
            "native": {
                "host": "unix:///var/run/docker.sock", "image": image, "network": network,
                "seccomp_file": root.join(SECCOMP),
            },
        });
        private(&root.join("provider.json"), configuration.to_string().as_bytes())?;
        let archive = &release.manifest().artifacts[IMAGE];
        let record = json!({
            "installation_id": installation, "source_commit": release.runtime().source_commit,
            "sha256": {
                SECCOMP: Digest::of(&seccomp), IMAGE: archive.sha256, IMAGE_UNPACKED: archive.unpacked_sha256,
            },
        });
        private(&root.join("runtime-artifacts.json"), record.to_string().as_bytes())?;
        self.installation = Some(installation.to_owned());
        self.docker.create_network(NetworkCreateRequest { name: network, ..Default::default() }).await?;
        let token = self.folder.path().join("token");
        let issued = self.ask(Method::POST, "/core/v1/sandbox/enrollment-tokens", json!({"max_active": 4})).await?;
        private(&token, issued["token"].as_str().context("a token")?.as_bytes())?;
        palisade_node::register(Register {
            config: root.join("provider.json"),
            state_dir: root.join("state/node"),
            core_url: self.between.url.clone(),
            name: "bench".to_owned(),
            enrollment_token_file: token,
            allow_insecure_origin: false,
        })
        .await?;
        Ok(())
    }

    /// Starts the node.
    pub(crate) fn node(&self) -> anyhow::Result<Process> {
        Process::start(&["as-node", self.root().to_str().context("a path of letters")?])
    }

    /// When Core last heard of the node, by its database's clock.
    pub(crate) async fn last_seen(&self) -> anyhow::Result<Option<palisade_core::admin::time::Timestamp>> {
        let nodes = self.ask(Method::GET, "/core/v1/sandbox/nodes", Value::Null).await?;
        let seen = nodes["data"][0]["last_seen_at"].as_str();
        Ok(seen.and_then(palisade_core::admin::time::Timestamp::parse))
    }

    /// Waits for something.
    pub(crate) async fn until(
        &self,
        what: &str,
        mut look: impl AsyncFnMut() -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let found = tokio::time::timeout(PATIENCE, async {
            while !look().await? {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            anyhow::Ok(())
        });
        found.await.with_context(|| format!("{what} did not happen"))?
    }

    /// Whether the node is ready for this generation.
    pub(crate) async fn is_ready(&self, generation: u64) -> anyhow::Result<bool> {
        let view = self.ask(Method::GET, DEPLOYMENT, Value::Null).await?;
        Ok(view["generation"] == generation && view["rollout"]["nodes"]["ready"] == 1)
    }

    /// Removes from the engine what nobody else uses.
    pub(crate) async fn clear(&self) {
        if let Some(installation) = &self.installation {
            let _ = self.docker.remove_network(&format!("oac-node-{installation}")).await;
        }
        for release in &self.images {
            let runtime = release.runtime();
            let known = engine::resolve(&self.docker, &runtime.image_id, &runtime.image_manifest_digest).await;
            if let Ok(Some(image)) = known {
                let _ = self.docker.remove_image(&image, None::<RemoveImageOptions>, None).await;
            }
        }
    }
}

fn private(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    let mut options = OpenOptions::new();
    Ok(options.write(true).create_new(true).mode(0o600).open(path)?.write_all(content)?)
}
