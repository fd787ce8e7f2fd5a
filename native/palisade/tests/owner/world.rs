//! A Core, its nodes, and a client with sessions.

use std::time::Duration;

use palisade_core::units::Id;
use palisade_core::wire::payload::Reference;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::core::{Core, log};
use crate::home::{Database, Home};
use crate::node::Node;

/// Long enough for anything that is not stuck, on a machine that does other things as well.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// One installation with one node.
pub(crate) struct World {
    pub(crate) home: Home,
    pub(crate) core: Core,
    pub(crate) node: Node,
    pub(crate) project: String,
    key: String,
}

impl World {
    /// A selection of `provider`, and a node with room for this many active and retained sandboxes.
    pub(crate) async fn new(database: Database, provider: &str, capacity: (u32, u32)) -> Self {
        let home = Home::new(database).await;
        let core = Core::start(&home, "core", None, &[]).await;
        let (status, body) = core.admin(Method::POST, "/core/v1/sandbox/deployment", selection(0, provider)).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        let node = Node::enroll(&core, capacity.0, capacity.1).await;
        node.ready(&core).await;
        let (_, project) = core.admin(Method::POST, "/core/v1/projects", json!({"name": "p"})).await;
        let project = project["id"].as_str().unwrap().to_owned();
        let keys = format!("/core/v1/projects/{project}/keys");
        let (_, key) = core.admin(Method::POST, &keys, json!({"name": "k"})).await;
        let key = key["key"].as_str().unwrap().to_owned();
        Self { home, core, node, project, key }
    }

    /// SIGKILL, and another process on the same store and address.
    pub(crate) async fn restart(&mut self) {
        let origin = self.core.origin().to_owned();
        self.core.kill();
        self.core = Core::start(&self.home, "core", Some(&origin), &[]).await;
        self.node.ready(&self.core).await;
    }

    /// The policy of the selection, in seconds.
    pub(crate) async fn policy(&self, idle: u64, retention: u64) {
        let statement = format!("UPDATE runtime_deployment SET idle_seconds = {idle}, retention_seconds = {retention}");
        self.home.execute(&statement).await;
    }

    pub(crate) async fn public(&self, method: Method, path: &str, body: Value) -> (StatusCode, Value) {
        self.core.ask(method, &format!("/v1/agents/sessions{path}"), &self.key, body).await.unwrap()
    }

    pub(crate) async fn session(&self) -> String {
        let (status, body) = self.public(Method::POST, "", json!({"environment": {"type": "openai_hosted"}})).await;
        assert_eq!(status, StatusCode::CREATED, "{body}");
        body["id"].as_str().unwrap().to_owned()
    }

    /// A session whose sandbox runs.
    pub(crate) async fn running(&self) -> String {
        let session = self.session().await;
        self.status(&session, "connected").await;
        session
    }

    pub(crate) async fn status(&self, session: &str, wanted: &str) {
        self.until(&format!("{session} is {wanted}"), async || {
            let (_, body) = self.public(Method::GET, &format!("/{session}"), Value::Null).await;
            (body["environment"]["status"] == wanted).then_some(())
        })
        .await;
    }

    /// Posts a command that prints `word`; gives its Turn.
    pub(crate) async fn message(&self, session: &str, word: &str) -> String {
        let stdin = base64_simd::STANDARD.encode_to_string(word);
        let message = json!({"type": "message", "command": {"args": ["cat"], "stdin": stdin}, "timeout_ms": 60_000});
        let (status, body) = self.public(Method::POST, &format!("/{session}/events"), message).await;
        assert_eq!(status, StatusCode::CREATED, "{body}");
        body["id"].as_str().unwrap().to_owned()
    }

    /// Waits until a Turn has this status, and gives it.
    pub(crate) async fn turn(&self, session: &str, turn: &str, wanted: &str) -> Value {
        self.until(&format!("turn {turn} is {wanted}"), async || {
            let (_, body) = self.public(Method::GET, &format!("/{session}/turns"), Value::Null).await;
            let found = body["data"].as_array()?.iter().find(|entry| entry["id"] == turn)?.clone();
            (found["status"] == wanted).then_some(found)
        })
        .await
    }

    /// Runs a command to its end; gives what it printed.
    pub(crate) async fn run(&self, session: &str, word: &str) -> String {
        let turn = self.message(session, word).await;
        self.turn(session, &turn, "completed").await["stdout"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn archive(&self, session: &str) {
        let (status, body) =
            self.core.admin(Method::POST, &self.archive_path(session), json!({"expected_generation": 1})).await;
        assert_eq!(status, StatusCode::OK, "{body}");
    }

    pub(crate) async fn released(&self, session: &str) {
        self.until(&format!("{session} is released"), async || {
            let (_, body) = self.core.admin(Method::GET, &self.archive_path(session), Value::Null).await;
            (body["state"] == "released").then_some(())
        })
        .await;
    }

    fn archive_path(&self, session: &str) -> String {
        format!("/core/v1/projects/{}/sessions/{session}/archive", self.project)
    }

    /// The one allocation of a session as operators see it; `null` when it is released.
    pub(crate) async fn allocation(&self, session: &str) -> Value {
        self.allocation_by(&self.core, session).await
    }

    /// [`World::allocation`] as another Core knows it.
    pub(crate) async fn allocation_by(&self, core: &Core, session: &str) -> Value {
        let path = format!("/core/v1/sandbox/nodes/{}/allocations", self.node.id);
        let (_, list) = core.admin(Method::GET, &path, Value::Null).await;
        let found = list["data"].as_array().unwrap().iter().find(|entry| entry["session_id"] == session);
        found.cloned().unwrap_or_default()
    }

    /// Waits until the compute of a session is in this phase.
    pub(crate) async fn phase(&self, session: &str, wanted: &str) {
        self.until(&format!("compute of {session} is {wanted}"), async || {
            (self.allocation(session).await["compute_phase"] == wanted).then_some(())
        })
        .await;
    }

    /// How the node calls the sandbox of a session.
    pub(crate) async fn reference(&self, session: &str) -> Reference {
        let allocation = self.allocation(session).await;
        let id = |name: &str| Id::parse(allocation[name].as_str().unwrap()).unwrap();
        Reference { tenant: id("tenant_id"), environment: id("environment_id"), allocation: id("id") }
    }

    pub(crate) async fn until<T>(&self, what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
        let found = timeout(PATIENCE, async {
            loop {
                if let Some(found) = look().await {
                    return found;
                }
                sleep(Duration::from_millis(25)).await;
            }
        });
        found.await.unwrap_or_else(|_| panic!("it never happens that {what}: {}", log(&self.home, "core")))
    }
}

/// A selection as the generation after `expected_generation`.
pub(crate) fn selection(expected_generation: u64, provider: &str) -> Value {
    let hex = |digit: &str, length| digit.repeat(length);
    let mut selection = json!({
        "expected_generation": expected_generation, "provider": provider,
        "resources": {"cpus": 1, "memory_mib": 512},
        "runtime": {
            "source_commit": hex("a", 40), "image_id": format!("sha256:{}", hex("b", 64)),
            "image_manifest_digest": format!("sha256:{}", hex("c", 64)),
            "microsandbox_ref": format!("oac-runtime@sha256:{}", hex("d", 64)),
            "runtime_sha256": hex("e", 64), "firmware_sha256": hex("f", 64),
        },
    });
    if provider == "microsandbox" {
        selection["resources"]["root_disk_mib"] = json!(1024);
        selection["resources"]["environment_disk_mib"] = json!(1024);
    }
    selection
}
