//! A Core that listens on a real port, and a project that calls it.

use axum::http::{Method, StatusCode};
use palisade_control::http;
use palisade_core::units::Id;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::contract;
use crate::support::{Database, Fixture, KEY, NewNode};

/// Path of the sessions.
pub(crate) const SESSIONS: &str = "/v1/agents/sessions";
/// The body of every new session.
pub(crate) const HOSTED: &str = r#"{"environment":{"type":"openai_hosted"}}"#;

/// A Core on a real port, with one project.
pub(crate) struct Public {
    /// The Core behind the port.
    pub(crate) fixture: Fixture,
    /// The project.
    pub(crate) project: String,
    /// A key of the project.
    pub(crate) key: String,
    origin: String,
    client: reqwest::Client,
}

impl Public {
    /// Selects Docker and serves; no node is enrolled.
    pub(crate) async fn new(database: Database) -> Self {
        let fixture = Fixture::new(database).await;
        fixture.select().await;
        Self::serve(fixture).await
    }

    /// [`Public::new`] with one node that serves the target and has room for two sandboxes.
    pub(crate) async fn with_node(database: Database) -> (Self, NewNode) {
        let public = Self::new(database).await;
        let node = public.fixture.enroll("one").await;
        public.observe(&node, "ready").await;
        (public, node)
    }

    /// Serves any fixture.
    pub(crate) async fn serve(fixture: Fixture) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let router = http::router(fixture.core.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let mut public = Self { fixture, project: String::new(), key: String::new(), origin, client };
        (public.project, public.key) = public.create_project("first").await;
        public
    }

    /// Creates a project with a key.
    pub(crate) async fn create_project(&self, name: &str) -> (String, String) {
        let (status, project) = self.core(Method::POST, "/core/v1/projects", &json!({"name": name}).to_string()).await;
        assert_eq!(status, StatusCode::CREATED, "{project}");
        let project = project["id"].as_str().unwrap().to_owned();
        let path = format!("/core/v1/projects/{project}/keys");
        let (status, key) = self.core(Method::POST, &path, r#"{"name":"main"}"#).await;
        assert_eq!(status, StatusCode::CREATED, "{key}");
        (project, key["key"].as_str().unwrap().to_owned())
    }

    /// Asks with the Core key.
    pub(crate) async fn core(&self, method: Method, path: &str, body: &str) -> (StatusCode, Value) {
        self.ask(method, path, &[("authorization", &format!("Bearer {KEY}"))], body.to_owned()).await
    }

    /// Asks as the project.
    pub(crate) async fn get(&self, path: &str) -> (StatusCode, Value) {
        self.call(Method::GET, path, &[], "").await
    }

    /// Posts as the project.
    pub(crate) async fn post(&self, path: &str, body: &str) -> (StatusCode, Value) {
        self.call(Method::POST, path, &[], body).await
    }

    /// Asks as the project, with more headers.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<String>,
    ) -> (StatusCode, Value) {
        self.call_as(&self.key, method, path, headers, body).await
    }

    /// Asks with any bearer and the beta header.
    pub(crate) async fn call_as(
        &self,
        bearer: &str,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<String>,
    ) -> (StatusCode, Value) {
        let bearer = format!("Bearer {bearer}");
        let mut all = vec![("authorization", bearer.as_str()), ("openai-beta", "agents=v1")];
        all.extend_from_slice(headers);
        self.ask(method, path, &all, body.into()).await
    }

    /// Asks with exactly these headers.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> (StatusCode, Value) {
        let mut request = self.client.request(method.clone(), format!("{}{path}", self.origin)).body(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let bytes = response.bytes().await.unwrap();
        contract::check(&method, path, &contract::Answer::new(status, &headers, &bytes));
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    /// What came back of a GET, whole.
    pub(crate) async fn raw(&self, path: &str, bearer: &str) -> reqwest::Response {
        self.client.get(format!("{}{path}", self.origin)).bearer_auth(bearer).send().await.unwrap()
    }

    /// Creates a session that must be accepted.
    pub(crate) async fn session(&self) -> String {
        let (status, session) = self.post(SESSIONS, HOSTED).await;
        assert_eq!(status, StatusCode::CREATED, "{session}");
        session["id"].as_str().unwrap().to_owned()
    }

    /// Puts a node online, saying this of generation 1.
    pub(crate) async fn observe(&self, node: &NewNode, state: &'static str) {
        let mut tx = self.fixture.core.store().write().await.unwrap();
        let now = tx.now().await.unwrap();
        let connection = Id::from_random(rand::random()).to_string();
        sqlx::query(
            "UPDATE runtime_nodes SET connection_id = $2, connected_epoch = $3, last_seen_at = $4 WHERE id = $1",
        )
        .bind(node.id.to_string())
        .bind(&connection)
        .bind(1_i64)
        .bind(now.0)
        .execute(&mut *tx)
        .await
        .unwrap();
        sqlx::query(
            "INSERT INTO runtime_node_generation_status \
             (node_id, generation, specification_digest, connection_id, owner_epoch, state, observed_at) \
             VALUES ($1, 1, $2, $3, 1, $4, $5)",
        )
        .bind(node.id.to_string())
        .bind("0".repeat(64))
        .bind(&connection)
        .bind(state)
        .bind(now.0)
        .execute(&mut *tx)
        .await
        .unwrap();
        tx.commit().await.unwrap();
    }

    /// Gives a session an allocation in this state, as the owner would.
    pub(crate) async fn allocate(&self, session: &str, node: &NewNode, state: &str) {
        let installation = self.fixture.lease.installation;
        let (allocation, device) = (Id::from_random(rand::random()), Id::from_random(rand::random()));
        let node = node.id;
        self.fixture
            .execute(&format!(
                "INSERT INTO runtime_allocations (id, environment_id, device_id, provider_key, node_id, \
                 deployment_generation, state, create_settled, created_at, kept_at) \
                 SELECT '{allocation}', e.id, '{device}', '{installation}', '{node}', 1, '{state}', 1, 1000, 1000 \
                 FROM environments e WHERE e.session_id = '{session}'"
            ))
            .await;
    }
}
