//! The execution lease: who lost it changes nothing (deployment §3.6).

use std::path::Path;

use axum::http::{Method, StatusCode};
use palisade_control::store::StoreError;
use palisade_control::store::allocations::Concluded;
use palisade_control::store::work::Work;
use palisade_core::lifecycle::{Change, TurnError};
use palisade_core::units::{Digest, Id};
use rstest::rstest;

use crate::contents::contents;
use crate::public::{HOSTED, Public, SESSIONS};
use crate::support::Database::{self, Postgres, Sqlite};
use crate::support::{NewNode, code, selection};

const DEPLOYMENT: &str = "/core/v1/sandbox/deployment";
const RESET: &str = "/core/v1/sandbox/deployment/reset";

/// What lifecycle writes work on: one environment of each kind.
struct World {
    public: Public,
    running: String,
    bare: String,
    turn: Id,
    work: Vec<Work>,
}

impl World {
    async fn new(database: Database) -> Self {
        let (public, node) = Public::with_node(database).await;
        let (running, bare) = (public.session().await, public.session().await);
        let work = Self::fill(&public, &node, &running).await;
        let turn = public.fixture.text("SELECT id FROM turns WHERE status = 'in_progress'").await;
        Self { public, running, bare, turn: Id::parse(&turn).unwrap(), work }
    }

    async fn fill(public: &Public, node: &NewNode, running: &str) -> Vec<Work> {
        public.allocate(running, node, "running").await;
        let message = r#"{"type":"message","command":{"args":["cat"],"stdin":"AAAA"}}"#;
        for _ in 0..2 {
            let (status, _) = public.post(&format!("{SESSIONS}/{running}/events"), message).await;
            assert_eq!(status, StatusCode::CREATED);
        }
        public.fixture.execute("UPDATE turns SET status = 'in_progress', dispatched = 1 WHERE position = 1").await;
        let query = "SELECT id FROM environments ORDER BY id";
        let store = public.fixture.core.store();
        let mut tx = store.read().await.unwrap();
        let environments: Vec<String> = sqlx::query_scalar(query).fetch_all(&mut *tx).await.unwrap();
        drop(tx);
        let mut work = Vec::new();
        for environment in environments {
            work.push(store.work(Id::parse(&environment).unwrap()).await.unwrap().unwrap());
        }
        work
    }

    /// Every write that the owner makes in the store, under the lease that it had.
    async fn write_as_the_past_owner(&self) -> Vec<(String, Result<(), StoreError>)> {
        let (store, epoch) = (self.public.fixture.core.store(), self.public.fixture.lease.epoch);
        let mut outcomes = vec![("keep_up".to_owned(), store.keep_up(epoch).await)];
        for work in &self.work {
            let fresh = [(); 2].map(|()| Id::from_random(rand::random()));
            outcomes.push(("reserve".into(), store.reserve_allocation(epoch, work, fresh.into()).await.map(drop)));
            if work.allocation.is_some() {
                let attempt = store.record_attempt(epoch, work, Digest::of(b"credential")).await;
                outcomes.push(("attempt".into(), attempt.map(drop)));
            }
            outcomes.push(("start".into(), store.start_turn(epoch, work, self.turn).await.map(drop)));
            let abandoned = store.abandon_turn(epoch, work, self.turn, TurnError::Unconfirmed.code()).await;
            outcomes.push(("abandon".into(), abandoned));
            for change in self.changes() {
                let concluded = Concluded { changes: &[change], provider_id: "x", outputs: None };
                outcomes.push((format!("{change:?}"), store.conclude(epoch, work, concluded).await));
            }
        }
        outcomes
    }

    fn changes(&self) -> [Change; 8] {
        [
            Change::TurnCompleted(self.turn),
            Change::TurnFailed(self.turn, TurnError::Unconfirmed),
            Change::TurnRequeued(self.turn),
            Change::AttemptCleared,
            Change::Running,
            Change::Settled,
            Change::CleanupRequested,
            Change::Released,
        ]
    }

    /// Every route that changes a lifecycle.
    async fn ask_the_past_owner(&self) -> Vec<(String, (StatusCode, serde_json::Value))> {
        let public = &self.public;
        let archive = format!("/core/v1/projects/{}/sessions/{}/archive", public.project, self.running);
        let mut answers = Vec::new();
        for (method, path, body) in [
            (Method::POST, DEPLOYMENT, selection(1, 3)),
            (Method::PUT, DEPLOYMENT, selection(1, 3)),
            (Method::POST, RESET, r#"{"expected_generation":1,"clear":"force"}"#.to_owned()),
            (Method::DELETE, &format!("{RESET}?expected_generation=1"), String::new()),
            (Method::POST, &archive, r#"{"expected_generation":1}"#.to_owned()),
        ] {
            answers.push((format!("{method} {path}"), public.core(method, path, &body).await));
        }
        answers.push(("create".into(), public.post(SESSIONS, HOSTED).await));
        let bare = format!("{SESSIONS}/{}", self.bare);
        answers.push(("delete".into(), public.call(Method::DELETE, &bare, &[], "").await));
        answers
    }
}

/// D 22. D 63. E26. Whoever lost the lease changes nothing any more, with whatever it writes: each lifecycle write proves
/// the epoch in its own transaction. The database is the same afterwards, byte for byte.
#[rstest]
#[tokio::test]
async fn no_lifecycle_write_survives_the_loss_of_the_lease(#[values(Sqlite, Postgres)] database: Database) {
    let world = World::new(database).await;
    world.public.fixture.usurp().await;
    let store = world.public.fixture.core.store();
    let before = contents(store).await;
    for (write, outcome) in world.write_as_the_past_owner().await {
        assert!(matches!(outcome, Err(StoreError::Fenced)), "{write}: {outcome:?}");
    }
    for (route, (status, body)) in world.ask_the_past_owner().await {
        assert_eq!((status.as_u16(), code(&body)), (503, "execution_unavailable"), "{route}");
    }
    assert_eq!(contents(store).await, before);
}

/// Writes that need no lease (deployment §3.6): nodes, tokens and presence serialise at the deployment's row; projects,
/// keys and what a client puts into its own session belong to no lifecycle; the claim makes the lease.
const UNFENCED: &[&str] = &[
    "http/nodes.rs issue",
    "http/nodes.rs update",
    "http/nodes.rs remove",
    "http/machine.rs register",
    "api/projects.rs create",
    "api/projects.rs create_key",
    "api/projects.rs revoke_key",
    "api/events.rs queue",
    "api/events.rs cancel",
    "execution.rs claim",
    "store/heartbeats.rs record_group",
    "store/heartbeats.rs record_alone",
    "store/presence.rs connect_alone",
    "store/presence.rs disconnect_alone",
    "store/open.rs write_bytes",
];

/// A function that begins a transaction which writes proves the lease in it, or stands in the list above. So a new
/// lifecycle write is fenced, or somebody has said why it need not be.
#[test]
fn every_transaction_that_writes_is_fenced_or_listed() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut fenced, mut unfenced) = (0, Vec::new());
    for file in rust_files(&source) {
        let text = std::fs::read_to_string(&file).unwrap();
        let name = file.strip_prefix(&source).unwrap().display().to_string();
        for (function, body) in functions(&text) {
            if ![".write().await", ".write_ahead()", ".write_bytes("].iter().any(|begin| body.contains(begin)) {
                continue;
            }
            if body.contains(".fence(") {
                fenced += 1;
            } else {
                unfenced.push(format!("{name} {function}"));
            }
        }
    }
    let unexpected: Vec<_> = unfenced.iter().filter(|found| !UNFENCED.contains(&found.as_str())).collect();
    assert!(unexpected.is_empty(), "these write without the lease: {unexpected:?}");
    let gone: Vec<_> = UNFENCED.iter().filter(|listed| !unfenced.iter().any(|found| found == *listed)).collect();
    assert!(gone.is_empty(), "these are not there any more: {gone:?}");
    assert!(fenced >= 14, "only {fenced} fenced writes were found: is the source read right?");
}

fn rust_files(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

/// Names of functions with what follows them up to the next function; comments and tests are left out.
fn functions(text: &str) -> Vec<(String, String)> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let mut found: Vec<(String, String)> = Vec::new();
    for line in lines {
        if let Some((_, rest)) = line.split_once("fn ").filter(|(before, _)| is_signature(before)) {
            let name = rest.split(['(', '<']).next().unwrap_or_default().trim();
            found.push((name.to_owned(), String::new()));
        }
        if let Some((_, body)) = found.last_mut() {
            body.push_str(line);
            body.push('\n');
        }
    }
    found
}

/// Whether what stands before `fn` is all that may.
fn is_signature(before: &str) -> bool {
    before.split_whitespace().all(|word| ["async", "const"].contains(&word) || word.starts_with("pub"))
}
