//! A Core with an owner on a fresh store, and requests to its router.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use palisade_control::hub::{Hub, Records};
use palisade_control::store::{Location, Store};
use palisade_control::{Core, CoreKeys, Execution, Lease, http, owner};
use palisade_core::limits::HUB_BYTES_MAX;
use palisade_core::units::Id;
use serde_json::Value;
use sqlx::{Connection as _, Executor as _};
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::ServiceExt as _;

use crate::contract;

/// The Core key of every fixture.
pub(crate) const KEY: &str = "core-key-of-the-test-suite";
/// The public URL of every fixture.
pub(crate) const PUBLIC_URL: &str = "https://core.example";
const DEPLOYMENT: &str = "/core/v1/sandbox/deployment";
/// Long enough for anything that is not stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// Which database a test runs on.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Database {
    /// A file in a temporary directory.
    Sqlite,
    /// A schema of its own on a real server.
    Postgres,
}

/// A store that is removed at the end.
pub(crate) struct Home {
    /// Where it is.
    pub(crate) location: Location,
    guard: Guard,
}

enum Guard {
    Directory { _directory: tempfile::TempDir },
    Schema(String),
}

/// A Core that owns execution.
pub(crate) struct Fixture {
    /// The Core.
    pub(crate) core: Core,
    /// Its lease.
    pub(crate) lease: Lease,
    _home: Home,
}

impl Home {
    /// A fresh, empty place.
    pub(crate) async fn new(database: Database) -> Self {
        sqlx::any::install_default_drivers();
        match database {
            Database::Sqlite => {
                let directory = tempfile::tempdir().unwrap();
                let location = Location::Directory(directory.path().to_owned());
                Self { location, guard: Guard::Directory { _directory: directory } }
            }
            Database::Postgres => {
                // A schema of its own: creating databases makes the server write out everything it has.
                let name = format!("palisade_test_{:032x}", rand::random::<u128>());
                administer(&format!("CREATE SCHEMA {name}")).await;
                let location =
                    Location::Url(format!("{}?options[search_path]={name}&application_name={name}", server_url()));
                Self { location, guard: Guard::Schema(name) }
            }
        }
    }
}

impl Home {
    /// Where a driver finds the database, which [`Store::open`] need not have made.
    pub(crate) fn url(&self) -> String {
        match &self.location {
            Location::Directory(directory) => format!("sqlite://{}?mode=rwc", directory.join("palisade.db").display()),
            Location::Url(url) => url.clone(),
        }
    }

    /// Ends the database connection by which a Core owns execution.
    pub(crate) async fn end_owner(&self) {
        let Guard::Schema(name) = &self.guard else { panic!("only PostgreSQL has such a connection") };
        administer(&format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity JOIN pg_locks USING (pid) \
             WHERE application_name = '{name}' AND locktype = 'advisory'"
        ))
        .await;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let Self::Schema(name) = self else { return };
        // The test's runtime stands still here, so its connections must be ended from outside.
        let statement = format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{name}'; \
             DROP SCHEMA {name} CASCADE"
        );
        let dropping = std::thread::spawn(move || {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap()
                .block_on(administer(&statement));
        });
        dropping.join().expect("the test's schema can be dropped");
    }
}

fn server_url() -> String {
    std::env::var("PALISADE_TEST_DATABASE_URL")
        .unwrap_or_else(|_| "postgres://palisade:palisade@localhost:5432/postgres".to_owned())
}

async fn administer(statement: &str) {
    let mut connection = sqlx::AnyConnection::connect(&server_url())
        .await
        .unwrap_or_else(|error| panic!("PostgreSQL must answer at PALISADE_TEST_DATABASE_URL: {error}"));
    connection.execute(sqlx::AssertSqlSafe(statement.to_owned())).await.unwrap();
}

impl Fixture {
    /// A claimed, unconfigured installation.
    pub(crate) async fn new(database: Database) -> Self {
        let home = Home::new(database).await;
        let store = Store::open(&home.location).await.unwrap();
        let lease = claim(&store).await;
        let core = core(store, Some(lease));
        Self { core, lease, _home: home }
    }

    /// The same store, without the right to execute.
    pub(crate) fn standby(&self) -> Core {
        core(self.core.store().clone(), None)
    }

    /// Another process becomes the owner.
    pub(crate) async fn usurp(&self) -> Lease {
        claim(self.core.store()).await
    }

    /// Asks with the Core key.
    pub(crate) async fn admin(&self, method: Method, path: &str, body: &str) -> (StatusCode, Value) {
        admin(&self.core, method, path, body).await
    }

    /// Selects Docker as generation 1.
    pub(crate) async fn select(&self) {
        let (status, body) = self.admin(Method::POST, DEPLOYMENT, &selection(0, 2)).await;
        assert_eq!(status, StatusCode::OK, "{body}");
    }

    /// Issues an enrollment token.
    pub(crate) async fn token(&self, body: &str) -> String {
        let (status, body) = self.admin(Method::POST, "/core/v1/sandbox/enrollment-tokens", body).await;
        assert_eq!(status, StatusCode::CREATED, "{body}");
        body["token"].as_str().unwrap().to_owned()
    }

    /// Enrolls a node of this name with the current target.
    pub(crate) async fn enroll(&self, name: &str) -> NewNode {
        let node = NewNode::new(name);
        let token = self.token("{}").await;
        let (_, view) = self.admin(Method::GET, DEPLOYMENT, "").await;
        let body =
            node.enrollment(view["generation"].as_u64().unwrap(), view["specification_digest"].as_str().unwrap());
        let (status, body) = self.machine(Method::POST, "enroll", &token, &body).await;
        assert_eq!(status, StatusCode::CREATED, "{body}");
        node
    }

    /// Asks a machine route with a credential or token.
    pub(crate) async fn machine(&self, method: Method, path: &str, bearer: &str, body: &str) -> (StatusCode, Value) {
        let path = format!("/api/v1/sandbox-node/{path}");
        ask(&self.core, method, &path, &[(header::AUTHORIZATION.as_str(), &format!("Bearer {bearer}"))], body).await
    }

    /// Changes the store behind Core's back.
    pub(crate) async fn execute(&self, statement: &str) {
        let mut tx = self.core.store().write().await.unwrap();
        tx.execute(sqlx::AssertSqlSafe(statement.to_owned())).await.unwrap();
        tx.commit().await.unwrap();
    }

    /// A Session whose sandbox is placed on a node and not allocated.
    pub(crate) async fn place(&self, node: &NewNode, name: &str) -> Id {
        let [project, tenant, session, environment] = [(); 4].map(|()| Id::from_random(rand::random()));
        let node = node.id;
        for statement in [
            format!("INSERT INTO projects VALUES ('{project}', '{tenant}', '{name}', 1, NULL)"),
            format!(
                "INSERT INTO sessions VALUES ('{session}', '{project}', '{tenant}', 'openai_hosted', NULL, 1, NULL)"
            ),
            format!(
                "INSERT INTO environments (id, session_id, status, created_at, changed_at) \
                 VALUES ('{environment}', '{session}', 'pending', 1, 1)"
            ),
            format!("INSERT INTO runtime_placements VALUES ('{environment}', '{node}', 1, 1, NULL)"),
        ] {
            self.execute(&statement).await;
        }
        environment
    }

    /// A placement on the node, and a sandbox of it that runs there.
    pub(crate) async fn run_sandbox(&self, node: &NewNode) {
        let environment = self.place(node, "p").await;
        let [allocation, device] = [(); 2].map(|()| Id::from_random(rand::random()));
        let (installation, at) = (self.lease.installation, node.id);
        self.execute(&format!(
            "INSERT INTO runtime_allocations (id, environment_id, device_id, provider_key, node_id, \
             deployment_generation, state, create_sent_at, create_settled, created_at, kept_at) VALUES ('{allocation}', \
             '{environment}', '{device}', '{installation}', '{at}', 1, 'running', 1, 1, 1, 1)"
        ))
        .await;
    }

    /// The owner works until this is dropped.
    pub(crate) fn own(&self) -> DropGuard {
        let stop = CancellationToken::new();
        tokio::spawn(owner::run(self.core.clone(), stop.clone()));
        stop.drop_guard()
    }

    /// The deployment as operators see it.
    pub(crate) async fn view(&self) -> Value {
        self.admin(Method::GET, DEPLOYMENT, "").await.1
    }

    /// The first such view.
    pub(crate) async fn until(&self, holds: impl Fn(&Value) -> bool) -> Value {
        let look = async {
            loop {
                let view = self.view().await;
                if holds(&view) {
                    return view;
                }
                sleep(Duration::from_millis(50)).await;
            }
        };
        if let Ok(view) = timeout(PATIENCE, look).await {
            return view;
        }
        panic!("never seen: {}", self.view().await)
    }

    /// The one text that a query gives.
    pub(crate) async fn text(&self, query: &'static str) -> String {
        let mut tx = self.core.store().read().await.unwrap();
        sqlx::query_scalar(query).fetch_one(&mut *tx).await.unwrap()
    }

    /// The one integer that a query gives.
    pub(crate) async fn count(&self, query: &'static str) -> i64 {
        let mut tx = self.core.store().read().await.unwrap();
        sqlx::query_scalar(query).fetch_one(&mut *tx).await.unwrap()
    }
}

/// The code of an error answer.
pub(crate) fn code(body: &Value) -> &str {
    body["error"]["code"].as_str().unwrap_or_default()
}

/// A node that is not enrolled yet.
pub(crate) struct NewNode {
    pub(crate) id: Id,
    pub(crate) credential: String,
    pub(crate) name: String,
}

impl NewNode {
    pub(crate) fn new(name: &str) -> Self {
        let credential = format!("{:032x}", rand::random::<u128>()).repeat(2);
        Self { id: Id::from_random(rand::random()), credential, name: name.to_owned() }
    }

    /// The body of its enrollment.
    pub(crate) fn enrollment(&self, generation: u64, digest: &str) -> String {
        serde_json::json!({
            "node_id": self.id, "credential": self.credential, "name": self.name, "provider": "docker",
            "backend_fingerprint": "1".repeat(64), "deployment_generation": generation,
            "specification_digest": digest, "core_url": PUBLIC_URL,
        })
        .to_string()
    }
}

/// A Docker selection with this many CPUs.
pub(crate) fn selection(expected_generation: u64, cpus: u32) -> String {
    serde_json::json!({
        "expected_generation": expected_generation,
        "provider": "docker",
        "resources": {"cpus": cpus, "memory_mib": 4096},
        "runtime": {
            "source_commit": "a".repeat(40),
            "image_id": format!("sha256:{}", "b".repeat(64)),
            "image_manifest_digest": format!("sha256:{}", "c".repeat(64)),
            "microsandbox_ref": format!("oac-runtime@sha256:{}", "d".repeat(64)),
            "runtime_sha256": "e".repeat(64),
            "firmware_sha256": "f".repeat(64),
        },
    })
    .to_string()
}

/// Asks with the Core key.
pub(crate) async fn admin(core: &Core, method: Method, path: &str, body: &str) -> (StatusCode, Value) {
    ask(core, method, path, &[(header::AUTHORIZATION.as_str(), &format!("Bearer {KEY}"))], body).await
}

pub(crate) fn core(store: Store, lease: Option<Lease>) -> Core {
    core_with_budget(store, lease, HUB_BYTES_MAX)
}

/// [`core`] with this many bytes for the bodies in flight.
pub(crate) fn core_with_budget(store: Store, lease: Option<Lease>, bytes: u64) -> Core {
    let keys = CoreKeys::read(Some(KEY), None).unwrap();
    let execution = Execution::fixed(lease);
    let hub = Hub::with_budget(Arc::new(Records::new(store.clone(), execution.clone())), bytes);
    Core::new(store, keys, PUBLIC_URL.to_owned(), execution, hub)
}

/// Claims the installation as a starting owner does.
pub(crate) async fn claim(store: &Store) -> Lease {
    let mut tx = store.write().await.unwrap();
    let deployment = tx.claim(Id::from_random(rand::random())).await.unwrap();
    tx.commit().await.unwrap();
    Lease { epoch: deployment.owner_epoch.unwrap(), installation: deployment.installation.unwrap() }
}

/// One request to a Core's router. The answer is JSON, or `null` when it is empty.
pub(crate) async fn ask(
    core: &Core,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (StatusCode, Value) {
    let mut request = Request::builder().method(method.clone()).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::from(body.to_owned())).unwrap();
    let response = http::router(core.clone()).oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let status = parts.status;
    let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    contract::check(&method, path, &contract::Answer::new(status, &parts.headers, &bytes));
    (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}
