//! An installation on a real Docker engine: Core, a published release or two, and a node with its folder.

use std::collections::{BTreeMap, HashMap};
use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use bollard::Docker;
use bollard::query_parameters::{
    ListContainersOptionsBuilder, ListVolumesOptionsBuilder, RemoveContainerOptionsBuilder, RemoveImageOptions,
    RemoveVolumeOptions,
};
use palisade_core::distribution::catalogue::{IMAGE, IMAGE_UNPACKED, SECCOMP};
use palisade_core::units::Digest;
use palisade_release::{Contents, Inputs, Release, Source, engine};
use reqwest::{Client, Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

const KEY: &str = "core-key-of-the-rollout-test";
/// Long enough for anything that is not stuck, on a machine that does other things as well.
const PATIENCE: Duration = Duration::from_secs(150);
/// Core releases what a lost creation may have made five minutes after nothing was seen of it.
const RELEASE_PATIENCE: Duration = Duration::from_secs(400);

/// A process that is killed when the test ends.
pub(crate) struct Program(Child);

impl Program {
    pub(crate) fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What must stay as it is while the node of a sandbox comes and goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sandbox {
    pub(crate) allocation: String,
    pub(crate) running: Option<bool>,
    process: Option<i64>,
    started: Option<String>,
    restarts: Option<i64>,
}

pub(crate) struct World {
    folder: TempDir,
    origin: String,
    http: Client,
    pub(crate) docker: Docker,
    /// Both identities of the images that no other test has a use for.
    images: Mutex<Vec<[String; 2]>>,
    _core: Program,
}

fn palisade(log: &Path, arguments: &[&str]) -> Command {
    let log = OpenOptions::new().create(true).append(true).mode(0o600).open(log).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_palisade"));
    command.args(arguments).stderr(log).stdout(Stdio::piped()).stdin(Stdio::null());
    command
}

fn private(path: &Path, content: &[u8]) {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).unwrap().write_all(content).unwrap();
}

impl World {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("palisade-rollout-").tempdir().unwrap();
        for name in ["root", "root/runtime", "root/images"] {
            std::fs::DirBuilder::new().mode(0o700).create(folder.path().join(name)).unwrap();
        }
        private(&folder.path().join("key"), KEY.as_bytes());
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let arguments = [
            "core",
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--data",
            &path("core"),
            "--admin-key-file",
            &path("key"),
            "--node-payload",
            &path("payload"),
        ];
        let mut core = palisade(&folder.path().join("core.log"), &arguments).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(core.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let origin = line.trim().rsplit_once(" on ").expect("core says where it listens").1.to_owned();
        let docker = Docker::connect_with_unix_defaults().unwrap().negotiate_version().await;
        let docker = docker.expect("no Docker engine answers on /var/run/docker.sock: run scripts/start-docker");
        Self { folder, origin, http: Client::new(), docker, images: Mutex::default(), _core: Program(core) }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) async fn ask(&self, method: Method, path: &str, bearer: &str, body: Value) -> (StatusCode, Value) {
        let request = self.http.request(method, format!("{}{path}", self.origin)).bearer_auth(bearer);
        let request = request.header("OpenAI-Beta", "agents=v1");
        let request = if body.is_null() { request } else { request.json(&body) };
        let response = request.send().await.unwrap();
        let (status, bytes) = (response.status(), response.bytes().await.unwrap());
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    pub(crate) async fn core(&self, method: Method, path: &str, body: Value) -> Value {
        let (status, body) = self.ask(method, path, KEY, body).await;
        assert!(status.is_success(), "{path}: {status} {body}");
        body
    }

    pub(crate) async fn until<T>(&self, what: &str, look: impl AsyncFnMut() -> Option<T>) -> T {
        self.within(PATIENCE, what, look).await
    }

    async fn within<T>(&self, patience: Duration, what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
        let found = tokio::time::timeout(patience, async {
            loop {
                if let Some(found) = look().await {
                    return found;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        found.await.unwrap_or_else(|_| panic!("{what} did not happen; the node says:\n{}", self.log()))
    }

    pub(crate) fn log(&self) -> String {
        let log = std::fs::read_to_string(self.path("node.log")).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// Builds a release and publishes it. Another ending of the guest program makes another image, which goes with this.
    pub(crate) fn release(&self, commit: &str, ending: &[u8]) -> Release {
        let guest = self.path(&format!("guest-{}", &commit[..1]));
        let mut bytes = std::fs::read(palisade_release::checkout::guest().unwrap()).unwrap();
        bytes.extend_from_slice(ending);
        private(&guest, &bytes);
        let inputs = Inputs {
            source: Source::new(commit, commit).unwrap(),
            busybox: palisade_release::checkout::BUSYBOX.into(),
            node_program: guest.clone(),
            guest,
            artifact_base_url: String::new(),
        };
        let release = palisade_release::build(&inputs, &self.path(&format!("release-{}", &commit[..1]))).unwrap();
        if !ending.is_empty() {
            let runtime = release.runtime();
            self.images.lock().unwrap().push([runtime.image_id.clone(), runtime.image_manifest_digest.clone()]);
        }
        palisade_release::publish(&release, &self.path("payload"), Contents::Complete).unwrap();
        release
    }

    pub(crate) async fn select(&self, expected: u64, release: &Release) -> Value {
        self.select_with(expected, release, 512).await
    }

    /// Selects a release, with this much memory for each sandbox.
    pub(crate) async fn select_with(&self, expected: u64, release: &Release, memory_mib: u64) -> Value {
        let selection = json!({
            "expected_generation": expected, "provider": "docker",
            "resources": {"cpus": 1, "memory_mib": memory_mib}, "runtime": release.runtime(),
        });
        let method = if expected == 0 { Method::POST } else { Method::PUT };
        self.core(method, "/core/v1/sandbox/deployment", selection).await
    }

    /// What an installer leaves below ROOT.
    pub(crate) async fn install(&self, view: &Value, release: &Release) {
        let image = engine::ensure(&self.docker, release).await.unwrap();
        let installation = view["installation_id"].as_str().unwrap();
        let seccomp = std::fs::read(release.seccomp()).unwrap();
        private(&self.path("root").join(SECCOMP), &seccomp);
        let configuration = json!({
            "installation_id": installation, "provider": "docker", "core_url": format!("{}/api/v1", self.origin),
            "specification": view["specification"], "generation": view["generation"],
            "native": {
                "host": "unix:///var/run/docker.sock", "image": image, "network": format!("oac-node-{installation}"),
                "seccomp_file": self.path("root").join(SECCOMP),
            },
        });
        private(&self.path("root/provider.json"), configuration.to_string().as_bytes());
        let archive = &release.manifest().artifacts[IMAGE];
        let record = json!({
            "installation_id": installation, "source_commit": release.runtime().source_commit,
            "sha256": {
                SECCOMP: Digest::of(&seccomp), IMAGE: archive.sha256, IMAGE_UNPACKED: archive.unpacked_sha256.unwrap(),
            },
        });
        private(&self.path("root/runtime-artifacts.json"), record.to_string().as_bytes());
        let network =
            bollard::models::NetworkCreateRequest { name: format!("oac-node-{installation}"), ..Default::default() };
        self.docker.create_network(network).await.unwrap();
    }

    fn installation(&self) -> Option<String> {
        let provider = std::fs::read(self.path("root/provider.json")).ok()?;
        let provider: Value = serde_json::from_slice(&provider).unwrap();
        Some(provider["installation_id"].as_str().unwrap().to_owned())
    }

    /// Every container with the installation's label.
    async fn containers(&self, installation: &str) -> Vec<String> {
        let label = format!("io.oac.installation={installation}");
        let filters = HashMap::from([("label", vec![label.as_str()])]);
        let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
        let found = self.docker.list_containers(Some(options)).await.unwrap();
        found.into_iter().map(|container| container.id.unwrap()).collect()
    }

    /// Every volume with the installation's label.
    pub(crate) async fn volumes(&self, installation: &str) -> Vec<String> {
        let label = format!("io.oac.installation={installation}");
        let filters = HashMap::from([("label", vec![label.as_str()])]);
        let options = ListVolumesOptionsBuilder::new().filters(&filters).build();
        let found = self.docker.list_volumes(Some(options)).await.unwrap().volumes.unwrap_or_default();
        found.into_iter().map(|volume| volume.name).collect()
    }

    /// Every sandbox of the installation that the engine has, by its container.
    pub(crate) async fn sandboxes(&self) -> BTreeMap<String, Sandbox> {
        let mut found = BTreeMap::new();
        for id in self.containers(&self.installation().unwrap()).await {
            let container = match self.docker.inspect_container(&id, None).await {
                Err(bollard::errors::Error::DockerResponseServerError { status_code: 404, .. }) => continue,
                container => container.unwrap(),
            };
            let state = container.state.unwrap();
            let labels = container.config.and_then(|config| config.labels).unwrap();
            let sandbox = Sandbox {
                allocation: labels["io.oac.allocation"].clone(),
                running: state.running,
                process: state.pid,
                started: state.started_at,
                restarts: container.restart_count,
            };
            found.insert(id, sandbox);
        }
        found
    }

    /// Removes whatever carries the installation's label from the engine, with its network, and the images of this test.
    pub(crate) async fn clear(&self) {
        if let Some(installation) = self.installation() {
            for container in self.containers(&installation).await {
                let options = RemoveContainerOptionsBuilder::new().force(true).build();
                let _ = self.docker.remove_container(&container, Some(options)).await;
            }
            for volume in self.volumes(&installation).await {
                let _ = self.docker.remove_volume(&volume, None::<RemoveVolumeOptions>).await;
            }
            let _ = self.docker.remove_network(&format!("oac-node-{installation}")).await;
        }
        let images = std::mem::take(&mut *self.images.lock().unwrap());
        for [id, manifest] in images {
            if let Ok(Some(image)) = engine::resolve(&self.docker, &id, &manifest).await {
                let _ = self.docker.remove_image(&image, None::<RemoveImageOptions>, None).await;
            }
        }
    }

    pub(crate) async fn register(&self) {
        let issued = self.core(Method::POST, "/core/v1/sandbox/enrollment-tokens", json!({"max_active": 64})).await;
        private(&self.path("token"), issued["token"].as_str().unwrap().as_bytes());
        let path = |name: &str| self.path(name).to_str().unwrap().to_owned();
        let arguments = [
            "node",
            "register",
            "--config",
            &path("root/provider.json"),
            "--state-dir",
            &path("root/state/node"),
            "--core-url",
            &self.origin,
            "--enrollment-token-file",
            &path("token"),
        ];
        let registered = palisade(&self.path("node.log"), &arguments).output().unwrap();
        assert!(registered.status.success(), "{}", self.log());
    }

    pub(crate) fn node(&self) -> Program {
        let path = |name: &str| self.path(name).to_str().unwrap().to_owned();
        let arguments =
            ["node", "run", "--config", &path("root/provider.json"), "--state-dir", &path("root/state/node")];
        Program(palisade(&self.path("node.log"), &arguments).spawn().unwrap())
    }

    /// Waits until the doctor finds nothing that keeps the node from working. A node that was just started again is not
    /// connected yet, whatever Core says of its last connection.
    pub(crate) async fn healthy(&self) {
        let root = self.path("root");
        let arguments = ["node", "doctor", "--root", root.to_str().unwrap()];
        self.until("health", async || {
            let said = palisade(&self.path("doctor.log"), &arguments).output().unwrap();
            said.status.success().then_some(())
        })
        .await;
    }

    /// Waits until the node is ready for this generation.
    pub(crate) async fn ready(&self, generation: u64) {
        self.until(&format!("readiness for generation {generation}"), async || {
            let deployment = self.core(Method::GET, "/core/v1/sandbox/deployment", Value::Null).await;
            (deployment["generation"] == generation && deployment["rollout"]["nodes"]["ready"] == 1).then_some(())
        })
        .await;
    }

    /// A session with a sandbox that runs.
    pub(crate) async fn session(&self, key: &str) -> String {
        let session = self.new_session(key).await;
        self.connected(key, &session).await;
        session
    }

    pub(crate) async fn new_session(&self, key: &str) -> String {
        let body = json!({"environment": {"type": "openai_hosted"}});
        let (status, body) = self.ask(Method::POST, "/v1/agents/sessions", key, body).await;
        assert_eq!(status, StatusCode::CREATED, "{body}");
        body["id"].as_str().unwrap().to_owned()
    }

    /// Waits until the creation of a sandbox has come to whatever end; gives it.
    pub(crate) async fn settled(&self, key: &str, session: &str) -> String {
        self.until("the end of a creation", async || {
            let (_, body) = self.ask(Method::GET, &format!("/v1/agents/sessions/{session}"), key, Value::Null).await;
            let status = body["environment"]["status"].as_str()?;
            (status != "pending").then(|| status.to_owned())
        })
        .await
    }

    pub(crate) async fn connected(&self, key: &str, session: &str) {
        self.until("a connected sandbox", async || {
            let (_, body) = self.ask(Method::GET, &format!("/v1/agents/sessions/{session}"), key, Value::Null).await;
            (body["environment"]["status"] == "connected").then_some(())
        })
        .await;
    }

    /// A project and its key.
    pub(crate) async fn project(&self) -> (String, String) {
        let project = self.core(Method::POST, "/core/v1/projects", json!({"name": "p"})).await;
        let project = project["id"].as_str().unwrap().to_owned();
        let key = self.core(Method::POST, &format!("/core/v1/projects/{project}/keys"), json!({"name": "k"})).await;
        (project, key["key"].as_str().unwrap().to_owned())
    }

    /// What `palisade node generations` tells of a generation; nothing when it tells nothing.
    pub(crate) fn state(&self, generation: u64) -> Option<String> {
        let root = self.path("root");
        let arguments = ["node", "generations", "--json", "--root", root.to_str().unwrap()];
        let said = palisade(&self.path("generations.log"), &arguments).output().unwrap();
        let told: Value = serde_json::from_slice(&said.stdout).unwrap();
        let found = told.as_array().unwrap().iter().find(|held| held["generation"] == generation)?;
        Some(found["state"].as_str().unwrap().to_owned())
    }

    /// How often the node's log has a line with both of these.
    pub(crate) fn logged(&self, what: &str, also: &str) -> usize {
        let log = std::fs::read_to_string(self.path("node.log")).unwrap_or_default();
        log.lines().filter(|line| line.contains(what) && line.contains(also)).count()
    }

    /// Runs a command in a sandbox to its end.
    pub(crate) async fn run(&self, key: &str, session: &str) {
        let turn = self.message(key, session).await;
        let path = format!("/v1/agents/sessions/{session}/turns");
        self.until("the end of a command", async || {
            let (_, turns) = self.ask(Method::GET, &path, key, Value::Null).await;
            let turn = turns["data"].as_array()?.iter().find(|found| found["id"] == turn)?.clone();
            (turn["status"] == "completed").then_some(())
        })
        .await;
    }

    /// Posts a command; gives its Turn.
    pub(crate) async fn message(&self, key: &str, session: &str) -> Value {
        let message = json!({"type": "message", "command": {"args": ["true"]}, "timeout_ms": 60_000});
        let path = format!("/v1/agents/sessions/{session}/events");
        let (status, body) = self.ask(Method::POST, &path, key, message).await;
        assert_eq!(status, StatusCode::CREATED, "{body}");
        body["id"].clone()
    }

    pub(crate) async fn archive(&self, project: &str, session: &str) {
        self.begin_archive(project, session).await;
        self.archived(project, session).await;
    }

    pub(crate) async fn begin_archive(&self, project: &str, session: &str) {
        let path = format!("/core/v1/projects/{project}/sessions/{session}/archive");
        let deployment = self.core(Method::GET, "/core/v1/sandbox/deployment", Value::Null).await;
        self.core(Method::POST, &path, json!({"expected_generation": deployment["generation"]})).await;
    }

    /// Waits until the sandbox of a session is gone.
    pub(crate) async fn archived(&self, project: &str, session: &str) {
        let path = format!("/core/v1/projects/{project}/sessions/{session}/archive");
        self.within(RELEASE_PATIENCE, "the release of a sandbox", async || {
            let archive = self.core(Method::GET, &path, Value::Null).await;
            (archive["state"] == "released").then_some(())
        })
        .await;
    }
}
