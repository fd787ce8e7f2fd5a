//! Admission under real concurrency (deployment §5.1): two hundred sessions asked for at once over HTTP, against four
//! nodes of mixed generation, capacity, load, readiness and reach, beside a model that is written for itself.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use axum::http::{Method, StatusCode};
use palisade_core::units::Id;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use rstest::rstest;
use tokio::task::JoinSet;

use crate::public::{HOSTED, Public, SESSIONS};
use crate::support::Database::{self, Postgres, Sqlite};
use crate::support::{Fixture, PUBLIC_URL, code, selection};

/// Sessions asked for at once.
const CROWD: usize = 200;
/// Nodes of a round.
const NODES: usize = 4;

/// Rounds of one run; `PALISADE_ADMISSION_ROUNDS` makes it a long one.
fn rounds() -> u64 {
    std::env::var("PALISADE_ADMISSION_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(5)
}

/// A node as the model knows it.
#[derive(Debug, Clone)]
struct Modelled {
    id: String,
    pin: Option<u64>,
    /// What it says of generations 1 and 2, the target.
    says: [Option<&'static str>; 2],
    online: bool,
    reachable: bool,
    max_active: u64,
    max_retained: u64,
    /// Sandboxes that count as active, and those that are suspended.
    running: u64,
    suspended: u64,
}

impl Modelled {
    fn random(dice: &mut StdRng) -> Self {
        let max_active = dice.random_range(1..=70);
        let word = |dice: &mut StdRng| {
            [None, Some("ready"), Some("ready"), Some("preparing"), Some("failed")][dice.random_range(0..5)]
        };
        Self {
            id: Id::from_random(dice.random()).to_string(),
            pin: [None, Some(1), Some(1), Some(2), Some(2)][dice.random_range(0..5)],
            says: [word(dice), word(dice)],
            online: dice.random_range(0..8) > 0,
            reachable: dice.random_range(0..8) > 0,
            max_active,
            max_retained: max_active + dice.random_range(0..40),
            running: dice.random_range(0..=3.min(max_active)),
            suspended: dice.random_range(0..4),
        }
    }

    fn free(&self) -> bool {
        self.running < self.max_active && self.running + self.suspended < self.max_retained
    }

    fn serves(&self) -> bool {
        let said = self.pin.and_then(|pin| self.says[usize::try_from(pin).unwrap() - 1]);
        self.online && self.reachable && self.free() && said == Some("ready")
    }
}

/// Where the next sandbox goes by the rules of the specification, one after another; else what is answered.
fn place(nodes: &mut [Modelled]) -> Result<(), &'static str> {
    let mut best: Option<usize> = None;
    for (index, node) in nodes.iter().enumerate().filter(|(_, node)| node.serves()) {
        let better = best.is_none_or(|best| {
            let best = &nodes[best];
            node.pin > best.pin
                || (node.pin == best.pin && node.running < best.running)
                || (node.pin == best.pin && node.running == best.running && node.id < best.id)
        });
        if better {
            best = Some(index);
        }
    }
    if let Some(best) = best {
        nodes[best].running += 1;
        return Ok(());
    }
    let preparing = |node: &Modelled| node.online && node.reachable && node.free() && node.says[1] == Some("preparing");
    Err(if nodes.iter().any(preparing) { "sandbox_nodes_preparing" } else { "runtime_node_unavailable" })
}

/// D 49. D 54. Of two hundred sessions that come at once each goes where the rules say, none beyond a node's room, none
/// past a free node, and each refusal says why and leaves no row.
#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_is_placed_by_the_rules(#[values(Sqlite, Postgres)] database: Database) {
    let fixture = Fixture::new(database).await;
    fixture.select().await;
    fixture.enroll("keeps generation 1").await;
    let (status, _) = fixture.admin(Method::PUT, "/core/v1/sandbox/deployment", &selection(1, 3)).await;
    assert_eq!(status, StatusCode::OK);
    let public = Arc::new(Public::serve(fixture).await);
    for round in 0..rounds() {
        play(&public, round).await;
    }
}

async fn play(public: &Arc<Public>, seed: u64) {
    let mut dice = StdRng::seed_from_u64(seed);
    let mut nodes: Vec<_> = (0..NODES).map(|_| Modelled::random(&mut dice)).collect();
    retire(public).await;
    for node in &nodes {
        introduce(public, node, &mut dice).await;
    }
    let before = rows(public).await;
    let mut expected = BTreeMap::<String, usize>::new();
    for _ in 0..CROWD {
        let outcome = place(&mut nodes).err().unwrap_or("created").to_owned();
        *expected.entry(outcome).or_default() += 1;
    }
    let mut crowd = JoinSet::new();
    for _ in 0..CROWD {
        let public = Arc::clone(public);
        crowd.spawn(async move { public.post(SESSIONS, HOSTED).await });
    }
    let mut answered = BTreeMap::<String, usize>::new();
    for (status, body) in crowd.join_all().await {
        let outcome = if status == StatusCode::CREATED { "created" } else { code(&body) };
        *answered.entry(outcome.to_owned()).or_default() += 1;
    }
    assert_eq!(answered, expected, "round {seed}: {nodes:#?}");
    for node in &nodes {
        assert_eq!(held(public, node).await, (node.running, node.running + node.suspended), "round {seed}: {node:#?}");
    }
    let created = i64::try_from(expected.get("created").copied().unwrap_or_default()).unwrap();
    assert_eq!(rows(public).await, before.map(|rows| rows + created), "round {seed}");
}

/// The nodes of the round before take nothing any more.
async fn retire(public: &Public) {
    public.fixture.execute("UPDATE runtime_nodes SET connection_id = NULL").await;
}

/// Active and retained sandboxes of a node, counted from its rows.
async fn held(public: &Public, node: &Modelled) -> (u64, u64) {
    let (_, shown) = public.core(Method::GET, &format!("/core/v1/sandbox/nodes/{}", node.id), "").await;
    (shown["active"].as_u64().unwrap(), shown["retained"].as_u64().unwrap())
}

async fn rows(public: &Public) -> [i64; 3] {
    [
        public.fixture.count("SELECT COUNT(*) FROM sessions").await,
        public.fixture.count("SELECT COUNT(*) FROM environments").await,
        public.fixture.count("SELECT COUNT(*) FROM runtime_placements").await,
    ]
}

async fn introduce(public: &Public, node: &Modelled, dice: &mut StdRng) {
    let fixture = &public.fixture;
    let (installation, id, epoch) = (fixture.lease.installation, &node.id, fixture.lease.epoch.get());
    let mut tx = fixture.core.store().read().await.unwrap();
    let now = tx.now().await.unwrap().0;
    drop(tx);
    // Ahead: a slow machine must not put a node offline in the middle of a round.
    let seen = if node.online { now + 40_000 } else { now - 45_000 };
    let url = if node.reachable { PUBLIC_URL } else { "https://another.example" };
    let pin = node.pin.map_or("NULL".to_owned(), |pin| pin.to_string());
    let mut statements = vec![format!(
        "INSERT INTO runtime_nodes (id, installation_id, name, backend_fingerprint, credential_sha256, max_active, \
         max_retained, specification_digest, deployment_generation, core_url, connection_id, connected_epoch, \
         last_seen_at, ready_generation, created_at) VALUES ('{id}', '{installation}', 'node', '{zeros}', '{zeros}', {}, {}, \
         '{zeros}', 1, '{url}', '{installation}', {epoch}, {seen}, {pin}, 1)",
        node.max_active,
        node.max_retained,
        zeros = "0".repeat(64),
    )];
    for (generation, state) in (1..).zip(node.says) {
        statements.extend(state.map(|state| {
            format!(
                "INSERT INTO runtime_node_generation_status (node_id, generation, specification_digest, connection_id, \
                 owner_epoch, state, observed_at) VALUES ('{id}', {generation}, '{}', '{installation}', {epoch}, \
                 '{state}', 1)",
                "0".repeat(64)
            )
        }));
    }
    let phases = std::iter::repeat_n("running", usize::try_from(node.running).unwrap())
        .chain(std::iter::repeat_n("suspended", usize::try_from(node.suspended).unwrap()));
    for phase in phases {
        statements.extend(sandbox(public, id, phase, dice));
    }
    let mut tx = fixture.core.store().write().await.unwrap();
    sqlx::raw_sql(sqlx::AssertSqlSafe(statements.join(";"))).execute(&mut *tx).await.unwrap();
    tx.commit().await.unwrap();
}

/// A sandbox that is there already: half of the running ones are placed and have no allocation yet.
fn sandbox(public: &Public, node: &str, phase: &str, dice: &mut StdRng) -> Vec<String> {
    let [session, environment, allocation, device] = [(); 4].map(|()| Id::from_random(dice.random()).to_string());
    let (project, installation) = (&public.project, public.fixture.lease.installation);
    let mut made = vec![
        format!(
            "INSERT INTO sessions SELECT '{session}', id, tenant_id, 'openai_hosted', NULL, 1, NULL FROM projects \
             WHERE id = '{project}'"
        ),
        format!(
            "INSERT INTO environments (id, session_id, status, created_at, changed_at) \
             VALUES ('{environment}', '{session}', 'connected', 1, 1)"
        ),
        format!("INSERT INTO runtime_placements VALUES ('{environment}', '{node}', 1, 1, NULL)"),
    ];
    if phase == "suspended" || dice.random() {
        made.push(format!(
            "INSERT INTO runtime_allocations (id, environment_id, device_id, provider_key, node_id, \
             deployment_generation, state, create_settled, created_at, kept_at, compute_phase) VALUES ('{allocation}', \
             '{environment}', '{device}', '{installation}', '{node}', 1, 'running', 1, 1, 1, '{phase}')"
        ));
    }
    made
}

/// The model decides what the rules say for the cases that decide most.
#[test]
fn the_model_prefers_the_newest_then_the_emptiest_then_the_first() {
    let node = |id: &str, pin, running| Modelled {
        id: id.to_owned(),
        pin: Some(pin),
        says: [Some("ready"); 2],
        online: true,
        reachable: true,
        max_active: 2,
        max_retained: 2,
        running,
        suspended: 0,
    };
    let mut order = String::new();
    let mut nodes = [node("c", 1, 0), node("b", 2, 0), node("a", 2, 1)];
    for _ in 0..6 {
        let before = nodes.clone();
        match place(&mut nodes) {
            Ok(()) => {
                let chosen = nodes.iter().zip(&before).find(|(now, then)| now.running > then.running).unwrap().0;
                write!(order, "{}", chosen.id).unwrap();
            }
            Err(code) => assert_eq!(code, "runtime_node_unavailable"),
        }
    }
    assert_eq!(order, "babcc");
}
