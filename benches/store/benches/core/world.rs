//! A Core that owns execution, on one of the two stores, with a large fleet in it.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use palisade_control::hub::{Hub, Records};
use palisade_control::store::{Location, Store};
use palisade_control::{Core, CoreKeys, Execution, Lease, http};
use palisade_core::units::Id;
use serde_json::Value;
use sqlx::{AnyConnection, AssertSqlSafe, Connection as _, Executor as _};
use std::sync::Arc;
use tower::ServiceExt as _;

const KEY: &str = "core-key-of-the-benchmark";
const URL: &str = "https://core.example";

/// A fleet on a store.
pub(crate) struct World {
    pub(crate) core: Core,
    pub(crate) lease: Lease,
    pub(crate) nodes: Vec<Id>,
    pub(crate) project_key: String,
    pub(crate) sqlite: bool,
    /// Where a bare connection finds the same database.
    pub(crate) url: String,
    router: Router,
    home: Home,
}

enum Home {
    Folder { _folder: tempfile::TempDir },
    Schema { server: String, name: String },
}

impl World {
    /// A fleet of this many nodes with this many sandboxes each, on PostgreSQL at a URL or else on SQLite.
    pub(crate) async fn new(server: Option<&str>, nodes: usize, sandboxes: usize) -> anyhow::Result<Self> {
        sqlx::any::install_default_drivers();
        let (location, url, home) = match server {
            None => {
                let folder = tempfile::tempdir()?;
                let url = format!("sqlite://{}?mode=rwc", folder.path().join("palisade.db").display());
                (Location::Directory(folder.path().to_owned()), url, Home::Folder { _folder: folder })
            }
            Some(server) => {
                let name = format!("palisade_bench_{:032x}", rand::random::<u128>());
                administer(server, &format!("CREATE SCHEMA {name}")).await?;
                let url = format!("{server}?options[search_path]={name}");
                (Location::Url(url.clone()), url, Home::Schema { server: server.to_owned(), name })
            }
        };
        let store = Store::open(&location).await?;
        let mut tx = store.write().await?;
        let claimed = tx.claim(Id::from_random(rand::random())).await?;
        tx.commit().await?;
        let lease = Lease {
            epoch: claimed.owner_epoch.context("claimed")?,
            installation: claimed.installation.context("claimed")?,
        };
        let execution = Execution::fixed(Some(lease));
        let hub = Hub::new(Arc::new(Records::new(store.clone(), execution.clone())));
        let core = Core::new(store, CoreKeys::read(Some(KEY), None)?, URL.to_owned(), execution, hub);
        let router = http::router(core.clone());
        let sqlite = server.is_none();
        let mut world = Self { core, lease, nodes: Vec::new(), project_key: String::new(), sqlite, url, router, home };
        world.select().await?;
        let project = world.create_project().await?;
        world.fill(&project, nodes, sandboxes).await?;
        Ok(world)
    }

    async fn select(&self) -> anyhow::Result<()> {
        let selection = serde_json::json!({
            "expected_generation": 0, "provider": "docker", "resources": {"cpus": 2, "memory_mib": 4096},
            "runtime": {
                "source_commit": "a".repeat(40), "image_id": format!("sha256:{}", "b".repeat(64)),
                "image_manifest_digest": format!("sha256:{}", "c".repeat(64)),
                "microsandbox_ref": format!("oac-runtime@sha256:{}", "d".repeat(64)),
                "runtime_sha256": "e".repeat(64), "firmware_sha256": "f".repeat(64),
            },
        });
        self.admin(Method::POST, "/core/v1/sandbox/deployment", &selection.to_string()).await.map(drop)
    }

    async fn create_project(&mut self) -> anyhow::Result<String> {
        let project = self.admin(Method::POST, "/core/v1/projects", r#"{"name":"bench"}"#).await?;
        let id = project["id"].as_str().context("a project has an id")?.to_owned();
        let key = self.admin(Method::POST, &format!("/core/v1/projects/{id}/keys"), r#"{"name":"main"}"#).await?;
        key["key"].as_str().context("a key is shown once")?.clone_into(&mut self.project_key);
        Ok(id)
    }

    async fn fill(&mut self, project: &str, nodes: usize, sandboxes: usize) -> anyhow::Result<()> {
        let mut tx = self.core.store().write().await?;
        let now = tx.now().await?.0;
        let deployment = tx.deployment().await?;
        let digest = deployment.specification().context("selected")?.digest();
        let (installation, epoch) = (self.lease.installation, self.lease.epoch.get());
        for number in 0..nodes {
            let node = Id::from_random(rand::random());
            self.nodes.push(node);
            let mut made = format!(
                "INSERT INTO runtime_nodes (id, installation_id, name, backend_fingerprint, credential_sha256, max_active, \
                 max_retained, specification_digest, deployment_generation, core_url, connection_id, connected_epoch, \
                 last_seen_at, ready_generation, created_at) VALUES ('{node}', '{installation}', 'node {number}', \
                 '{digest}', '{digest}', 1000, 1000, '{digest}', 1, '{URL}', '{node}', {epoch}, {now}, 1, {now}); \
                 INSERT INTO runtime_node_generation_status (node_id, generation, specification_digest, connection_id, \
                 owner_epoch, state, observed_at) VALUES ('{node}', 1, '{digest}', '{node}', {epoch}, 'ready', {now});"
            );
            for _ in 0..sandboxes {
                made.push_str(&sandbox(project, &node.to_string(), &installation.to_string(), now));
            }
            sqlx::raw_sql(AssertSqlSafe(made)).execute(&mut *tx).await?;
        }
        tx.commit().await?;
        let mut tx = self.core.store().write().await?;
        tx.execute("ANALYZE").await?;
        Ok(tx.commit().await?)
    }

    /// The nodes are online from now on.
    pub(crate) async fn freshen(&self) -> anyhow::Result<()> {
        let mut tx = self.core.store().write().await?;
        let now = tx.now().await?.0;
        tx.execute(AssertSqlSafe(format!("UPDATE runtime_nodes SET last_seen_at = {now}"))).await?;
        Ok(tx.commit().await?)
    }

    /// Something is committed, as by the heartbeats of a Core that serves: SQLite then reads its pages again.
    pub(crate) async fn stir(&self) -> anyhow::Result<()> {
        let mut tx = self.core.store().write().await?;
        let heard = "UPDATE runtime_nodes SET last_seen_at = last_seen_at WHERE id = $1";
        sqlx::query(heard).bind(self.nodes[0].to_string()).execute(&mut *tx).await?;
        Ok(tx.commit().await?)
    }

    pub(crate) async fn admin(&self, method: Method, path: &str, body: &str) -> anyhow::Result<Value> {
        let answer = self.ask(method, path, KEY, body).await?;
        Ok(serde_json::from_slice(&answer)?)
    }

    /// One request as the route's own clients make it; the answer must be a success.
    pub(crate) async fn ask(&self, method: Method, path: &str, key: &str, body: &str) -> anyhow::Result<Vec<u8>> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", format!("Bearer {key}"))
            .header("openai-beta", "agents=v1")
            .body(Body::from(body.to_owned()))?;
        let response = self.router.clone().oneshot(request).await?;
        let status = response.status();
        let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await?;
        ensure!(status.is_success() && status != StatusCode::NO_CONTENT, "{path}: {status}");
        Ok(bytes.to_vec())
    }

    pub(crate) async fn read(&self, path: &str) -> anyhow::Result<Vec<u8>> {
        self.ask(Method::GET, path, KEY, "").await
    }

    /// A connection of the same driver, with nothing of ours around it.
    pub(crate) async fn bare(&self) -> anyhow::Result<AnyConnection> {
        let mut connection = AnyConnection::connect(&self.url).await?;
        if self.sqlite {
            connection
                .execute("PRAGMA busy_timeout = 5000; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON")
                .await?;
        }
        Ok(connection)
    }

    pub(crate) async fn count(&self, query: &str) -> anyhow::Result<i64> {
        let mut tx = self.core.store().read().await?;
        Ok(sqlx::query_scalar(AssertSqlSafe(query.to_owned())).fetch_one(&mut *tx).await?)
    }

    pub(crate) async fn end(self) -> anyhow::Result<()> {
        self.core.store().close().await;
        if let Home::Schema { server, name } = &self.home {
            administer(server, &format!("DROP SCHEMA {name} CASCADE")).await?;
        }
        Ok(())
    }
}

async fn administer(server: &str, statement: &str) -> anyhow::Result<()> {
    let mut connection = AnyConnection::connect(server).await?;
    connection.execute(AssertSqlSafe(statement.to_owned())).await?;
    Ok(connection.close().await?)
}

/// A session whose sandbox runs, with one Turn that has ended.
fn sandbox(project: &str, node: &str, installation: &str, now: i64) -> String {
    let ids: BTreeMap<_, _> = ["session", "environment", "allocation", "device", "turn"]
        .map(|name| (name, Id::from_random(rand::random()).to_string()))
        .into();
    let [session, environment] = [&ids["session"], &ids["environment"]];
    let [allocation, device, turn] = [&ids["allocation"], &ids["device"], &ids["turn"]];
    format!(
        "INSERT INTO sessions SELECT '{session}', id, tenant_id, 'openai_hosted', NULL, {now}, NULL FROM projects \
         WHERE id = '{project}'; \
         INSERT INTO environments (id, session_id, status, initialization, created_at, changed_at) \
         VALUES ('{environment}', '{session}', 'connected', 'complete', {now}, {now}); \
         INSERT INTO runtime_placements VALUES ('{environment}', '{node}', 1, {now}, NULL); \
         INSERT INTO runtime_allocations (id, environment_id, device_id, provider_key, node_id, deployment_generation, \
         state, create_settled, created_at, kept_at) VALUES ('{allocation}', '{environment}', '{device}', \
         '{installation}', '{node}', 1, 'running', 1, {now}, {now}); \
         INSERT INTO turns (id, session_id, environment_id, position, status, args, timeout_ms, exit_code, created_at, \
         completed_at) VALUES ('{turn}', '{session}', '{environment}', 1, 'completed', '[]', 1, 0, {now}, {now});"
    )
}
