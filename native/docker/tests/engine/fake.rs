//! A scripted engine: HTTP on a socket, a few objects in memory, every call on record, and faults on demand.

use std::collections::{BTreeMap, HashMap};

use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use palisade_core::units::Id;
use palisade_core::wire::payload::Reference;
use palisade_docker::{DockerProvider, Resources};
use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio::sync::Notify;

pub(crate) const IMAGE: &str = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
pub(crate) const INSTALLATION: [u8; 16] = [1; 16];
pub(crate) const SMALL: Option<Resources> = Some(Resources { cpus: 1, memory_mib: 512 });

/// What happens to one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// It is carried out, and the connection ends without an answer.
    Cut,
    /// It is carried out and answered when released.
    Hang,
    /// It is not carried out.
    Refuse(u16),
}

/// A running engine with a provider in front of it.
pub(crate) struct Fake {
    pub(crate) provider: DockerProvider,
    shared: Arc<Shared>,
    directory: tempfile::TempDir,
    server: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    hanging: Notify,
    released: Notify,
}

/// What the engine has; a test changes it as it likes.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) containers: BTreeMap<String, Value>,
    pub(crate) volumes: BTreeMap<String, Value>,
    pub(crate) calls: Vec<String>,
    pub(crate) troubles: HashMap<String, Trouble>,
    pub(crate) info: Value,
    pub(crate) api_version: String,
    pub(crate) image_id: String,
    /// Merged into `HostConfig` of every container that is created.
    pub(crate) drift: Value,
    /// What `exec` inspection answers.
    pub(crate) exec: Value,
    pub(crate) stats: Value,
    created: usize,
}

impl Fake {
    /// Call within a runtime: the engine is a task of it.
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("engine.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let shared = Arc::new(Shared { state: Mutex::new(State::healthy()), ..Shared::default() });
        let server = tokio::spawn(serve(listener, shared.clone()));
        let provider = provider(&directory, SMALL);
        Self { provider, shared, directory, server }
    }

    /// Another provider of the same installation, as after a restart of the node.
    pub(crate) fn restarted(&self) -> DockerProvider {
        provider(&self.directory, SMALL)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap()
    }

    /// The calls since the last time.
    pub(crate) fn take_calls(&self) -> Vec<String> {
        std::mem::take(&mut self.state().calls)
    }

    pub(crate) fn trouble(&self, call: &str, trouble: Trouble) {
        self.state().troubles.insert(call.to_owned(), trouble);
    }

    /// Ends when a hanging call has arrived.
    pub(crate) async fn hanging(&self) {
        self.shared.hanging.notified().await;
    }

    pub(crate) fn release(&self) {
        self.shared.released.notify_one();
    }

    /// Puts a sandbox there, with the labels of `owner`.
    pub(crate) fn put(&self, name: &str, owner: Reference) {
        let mut state = self.state();
        let labels = labels(owner);
        for volume in ["home", "environment"] {
            state.volumes.insert(format!("{name}-{volume}"), volume_body(&format!("{name}-{volume}"), &labels));
        }
        let config = json!({"Memory": 512_u64 << 20, "NanoCpus": 1_000_000_000_u64});
        state.containers.insert(name.to_owned(), container_body("c0", name, &labels, &config, "running"));
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn provider(directory: &tempfile::TempDir, resources: Option<Resources>) -> DockerProvider {
    let profile = crate::lab::profile_in(directory.path());
    let socket = directory.path().join("engine.sock");
    let installation = Id::from_random(INSTALLATION);
    crate::lab::provider_at(socket.to_str().unwrap(), installation, IMAGE, profile.path(), resources)
}

pub(crate) fn labels(owner: Reference) -> Value {
    json!({
        "io.oac.installation": Id::from_random(INSTALLATION),
        "io.oac.tenant": owner.tenant,
        "io.oac.environment": owner.environment,
        "io.oac.allocation": owner.allocation,
    })
}

fn volume_body(name: &str, labels: &Value) -> Value {
    json!({"Name": name, "Driver": "local", "Mountpoint": "/m", "Scope": "local", "Labels": labels, "Options": {}})
}

fn container_body(id: &str, name: &str, labels: &Value, host_config: &Value, status: &str) -> Value {
    json!({
        "Id": id,
        "Name": format!("/{name}"),
        "Image": IMAGE,
        "State": {"Status": status, "Running": status == "running", "StartedAt": "2026-10-01T07:00:02Z"},
        "Config": {"Labels": labels},
        "HostConfig": host_config,
    })
}

async fn serve(listener: UnixListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let shared = shared.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| answer(shared.clone(), request));
            // A cut connection is an error here, and exactly what was asked for.
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the connection is cut")]
struct CutOff;

async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, CutOff> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let path = head.uri.path().to_owned();
    let path = path
        .strip_prefix("/v1.")
        .and_then(|rest| rest.split_once('/'))
        .map_or(path.clone(), |(_, rest)| format!("/{rest}"));
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let query = head.uri.query().unwrap_or_default().to_owned();
    let call = name_of(&head.method, &path, &query, &body);
    let trouble = {
        let mut state = shared.state.lock().unwrap();
        if path != "/version" {
            state.calls.push(call.clone());
        }
        state.troubles.remove(&call)
    };
    if let Some(Trouble::Refuse(code)) = trouble {
        return Ok(respond(code, &json!({"message": "refused by the script"})));
    }
    let (code, answer) = carry_out(&mut shared.state.lock().unwrap(), &head.method, &path, &query, &body);
    match trouble {
        Some(Trouble::Cut) => Err(CutOff),
        Some(Trouble::Hang) => {
            shared.hanging.notify_one();
            shared.released.notified().await;
            Ok(respond(code, &answer))
        }
        Some(Trouble::Refuse(_)) | None => Ok(respond(code, &answer)),
    }
}

fn respond(code: u16, body: &Value) -> Response<Full<Bytes>> {
    let bytes = if body.is_null() { Bytes::new() } else { body.to_string().into() };
    Response::builder()
        .status(StatusCode::from_u16(code).unwrap())
        .header("content-type", "application/json")
        .body(Full::new(bytes))
        .unwrap()
}

/// What the provider did, in words.
fn name_of(method: &Method, path: &str, query: &str, body: &Value) -> String {
    let part = |name: &str| name.rsplit('-').next().unwrap_or_default().to_owned();
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match (method.as_str(), parts.as_slice()) {
        ("GET", ["containers", _, "json"]) => "inspect container".to_owned(),
        ("GET", ["volumes", name]) => format!("inspect {}", part(name)),
        ("GET", ["images", _, "json"]) => "inspect image".to_owned(),
        ("GET", ["containers", _, "stats"]) => format!("stats {query}"),
        ("GET", ["exec", _, "json"]) => "inspect exec".to_owned(),
        ("POST", ["volumes", "create"]) => format!("create {}", part(body["Name"].as_str().unwrap_or_default())),
        ("POST", ["containers", "create"]) => "create container".to_owned(),
        ("POST", ["containers", _, "exec"]) => "create exec".to_owned(),
        ("POST", ["exec", _, "start"]) => "start exec".to_owned(),
        ("POST", ["containers", _, "start"]) => "start container".to_owned(),
        ("PUT", ["containers", _, "archive"]) => format!("upload {query}"),
        ("DELETE", ["containers", _]) => "remove container".to_owned(),
        ("DELETE", ["volumes", name]) => format!("remove {}", part(name)),
        (method, _) => format!("{method} {path}"),
    }
}

fn carry_out(state: &mut State, method: &Method, path: &str, query: &str, body: &Value) -> (u16, Value) {
    let missing = || (404, json!({"message": "no such object"}));
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match (method.as_str(), parts.as_slice()) {
        ("GET", ["version"]) => (200, json!({"ApiVersion": state.api_version})),
        ("GET", ["_ping"]) => (200, json!("OK")),
        ("GET", ["info"]) => (200, state.info.clone()),
        ("GET", ["images", _, "json"]) if state.image_id.is_empty() => missing(),
        ("GET", ["images", _, "json"]) => (200, json!({"Id": state.image_id})),
        ("GET", ["containers", name, "json"]) => {
            state.container(name).map_or_else(missing, |found| (200, found.clone()))
        }
        ("GET", ["volumes", name]) => state.volumes.get(*name).map_or_else(missing, |found| (200, found.clone())),
        ("GET", ["containers", _, "stats"]) => (200, state.stats.clone()),
        ("GET", ["exec", _, "json"]) => (200, state.exec.clone()),
        ("POST", ["volumes", "create"]) => {
            let name = body["Name"].as_str().unwrap_or_default().to_owned();
            let volume = state.volumes.entry(name.clone()).or_insert_with(|| volume_body(&name, &body["Labels"]));
            (201, volume.clone())
        }
        ("POST", ["containers", "create"]) => state.create(query, body),
        ("POST", ["containers", _, "exec"]) => (201, json!({"Id": "e0"})),
        ("POST", ["exec", _, "start"]) => (500, json!({"message": "the script has no processes"})),
        ("POST", ["containers", id, "start"]) => match state.container(id) {
            Some(container) => {
                container["State"]["Status"] = "running".into();
                (204, Value::Null)
            }
            None => missing(),
        },
        ("PUT", ["containers", _, "archive"]) => (200, Value::Null),
        ("DELETE", ["containers", id]) => {
            let id = (*id).to_owned();
            state.containers.retain(|name, container| *name != id && container["Id"] != id.as_str());
            (204, Value::Null)
        }
        ("DELETE", ["volumes", name]) => match state.volumes.remove(*name) {
            Some(_) => (204, Value::Null),
            None => missing(),
        },
        _ => (501, json!({"message": "the script does not know this call"})),
    }
}

impl State {
    fn healthy() -> Self {
        Self {
            api_version: "1.41".to_owned(),
            image_id: IMAGE.to_owned(),
            info: json!({
                "MemTotal": 8_u64 << 30, "NCPU": 4, "MemoryLimit": true, "CpuCfsPeriod": true, "CpuCfsQuota": true,
            }),
            exec: json!({"Running": false, "ExitCode": 0, "Pid": 7}),
            ..Self::default()
        }
    }

    fn container(&mut self, name: &str) -> Option<&mut Value> {
        self.containers.iter_mut().find(|(key, found)| *key == name || found["Id"] == name).map(|(_, found)| found)
    }

    fn create(&mut self, query: &str, body: &Value) -> (u16, Value) {
        let name = query.split('&').find_map(|pair| pair.strip_prefix("name=")).unwrap_or_default().to_owned();
        if self.containers.contains_key(&name) {
            return (409, json!({"message": "the name is in use"}));
        }
        self.created += 1;
        let id = format!("c{}", self.created);
        let mut config = body["HostConfig"].clone();
        for (member, value) in self.drift.as_object().into_iter().flatten() {
            config[member] = value.clone();
        }
        let created = container_body(&id, &name, &body["Labels"], &config, "created");
        self.containers.insert(name, created);
        (201, json!({"Id": id, "Warnings": []}))
    }
}
