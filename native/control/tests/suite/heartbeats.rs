//! Heartbeats of many nodes in one transaction: what befalls one node befalls no other.

use axum::http::Method;
use palisade_control::store::Refused;
use palisade_core::session::hub::presence::Connected;
use palisade_core::units::{Digest, Generation, Id, OwnerEpoch};
use palisade_core::wire::payload::{Checkpoint, Diagnostic, Health, Observation, ObservedState};
use rstest::rstest;
use tokio::task::JoinSet;

use crate::support::Database::{self, Postgres, Sqlite};
use crate::support::Fixture;

/// A node and its connection.
#[derive(Clone, Copy)]
struct Link {
    node: Id,
    by: Connected,
}

/// A Core with connected nodes, and the digest of its target.
struct Fleet {
    fixture: Fixture,
    links: Vec<Link>,
    target: Digest,
}

impl Fleet {
    async fn new(database: Database, nodes: usize) -> Self {
        let fixture = Fixture::new(database).await;
        fixture.select().await;
        let mut links = Vec::new();
        for number in 0..nodes {
            let node = fixture.enroll(&format!("node-{number}")).await;
            let link = Link { node: node.id, by: connection(fixture.lease.epoch) };
            fixture.core.store().connect_node(link.node, link.by).await.unwrap();
            links.push(link);
        }
        let (_, view) = fixture.admin(Method::GET, "/core/v1/sandbox/deployment", "").await;
        let target = Digest::parse(view["specification_digest"].as_str().unwrap()).unwrap();
        Self { fixture, links, target }
    }

    /// A heartbeat that says this of generation 1, in a task of its own.
    fn report(&self, link: Link, digest: Digest, state: ObservedState<'static>) -> Reporting {
        let observation = Observation { generation: Generation::FIRST, specification_digest: digest, state };
        let (store, health) = (self.fixture.core.store().clone(), health(vec![observation]));
        tokio::spawn(async move { store.record_health(link.node, link.by, &health).await })
    }

    async fn ready_nodes(&self) -> i64 {
        let query = "SELECT CAST(COUNT(*) AS TEXT) FROM runtime_node_generation_status WHERE state = 'ready'";
        self.fixture.text(query).await.parse().unwrap()
    }
}

fn connection(owner_epoch: OwnerEpoch) -> Connected {
    Connected { connection_id: Id::from_random(rand::random()), owner_epoch }
}

type Reporting = tokio::task::JoinHandle<Result<Vec<Generation>, Refused>>;

const READY: ObservedState<'static> = ObservedState::Ready { checkpoint: None };

fn health(generations: Vec<Observation<'static>>) -> Health<'static> {
    Health {
        observed_at: jiff::Timestamp::now().to_string().into(),
        active_operations: 0,
        cpu_utilization: None,
        total_memory_bytes: None,
        effective_cpu_cores: None,
        cpu_count: None,
        available_memory_bytes: None,
        available_disk_bytes: None,
        generations,
    }
}

/// D 81. A heartbeat is all or nothing, also beside others: a foreign digest and an outdated connection are refused
/// alone.
#[rstest]
#[tokio::test]
async fn a_refused_heartbeat_takes_no_other_with_it(#[values(Sqlite, Postgres)] database: Database) {
    let fleet = Fleet::new(database, 4).await;
    let outdated = Link { by: connection(fleet.fixture.lease.epoch), ..fleet.links[2] };
    let reporting = [
        fleet.report(fleet.links[0], fleet.target, READY),
        fleet.report(fleet.links[1], Digest::of(b"foreign"), READY),
        fleet.report(outdated, fleet.target, READY),
        fleet.report(fleet.links[3], fleet.target, READY),
    ];
    let mut outcomes = Vec::new();
    for report in reporting {
        outcomes.push(report.await.unwrap());
    }
    assert!(matches!(outcomes[0].as_deref(), Ok([Generation::FIRST])), "{outcomes:?}");
    assert!(matches!(outcomes[1], Err(Refused::Mismatch)), "{outcomes:?}");
    assert!(matches!(outcomes[2], Err(Refused::Rejected)), "{outcomes:?}");
    assert!(matches!(outcomes[3].as_deref(), Ok([Generation::FIRST])), "{outcomes:?}");
    assert_eq!(fleet.ready_nodes().await, 2);
    let seen = "SELECT CAST(COUNT(*) AS TEXT) FROM runtime_nodes WHERE health_observed_at IS NOT NULL";
    assert_eq!(fleet.fixture.text(seen).await, "2", "of a refused heartbeat nothing is recorded");
}

/// What a node says twice is stored once; what it says anew is stored at once.
#[rstest]
#[tokio::test]
async fn an_observation_is_stored_when_it_changes(#[values(Sqlite, Postgres)] database: Database) {
    let fleet = Fleet::new(database, 1).await;
    let since = "SELECT CAST(MAX(observed_at) AS TEXT) FROM runtime_node_generation_status";
    fleet.report(fleet.links[0], fleet.target, READY).await.unwrap().unwrap();
    fleet.fixture.execute("UPDATE runtime_node_generation_status SET observed_at = 7").await;
    fleet.report(fleet.links[0], fleet.target, READY).await.unwrap().unwrap();
    assert_eq!(fleet.fixture.text(since).await, "7");
    let failed = ObservedState::Failed { diagnostic: Some(Diagnostic::ProviderUnavailable) };
    fleet.report(fleet.links[0], fleet.target, failed).await.unwrap().unwrap();
    assert_ne!(fleet.fixture.text(since).await, "7");
    assert_eq!(fleet.ready_nodes().await, 0);
    // The same word on a new connection is a new word.
    let next = Link { by: connection(fleet.fixture.lease.epoch), ..fleet.links[0] };
    fleet.fixture.core.store().connect_node(next.node, next.by).await.unwrap();
    let failed = ObservedState::Failed { diagnostic: Some(Diagnostic::ProviderUnavailable) };
    fleet.report(next, fleet.target, failed).await.unwrap().unwrap();
    let stored = fleet.fixture.text("SELECT MAX(connection_id) FROM runtime_node_generation_status").await;
    assert_eq!(stored, next.by.connection_id.to_string());
}

/// What a connection asks later is recorded later, also in one transaction: the end is not overtaken by the beginning.
#[rstest]
#[tokio::test]
async fn the_end_of_a_connection_stays_its_end(#[values(Sqlite, Postgres)] database: Database) {
    let fleet = Fleet::new(database, 1).await;
    let (store, node) = (fleet.fixture.core.store(), fleet.links[0].node);
    let next = connection(fleet.fixture.lease.epoch);
    let (connected, ended) = tokio::join!(store.connect_node(node, next), store.disconnect_node(node, next));
    assert!(connected.is_ok() && ended.is_ok());
    let connected = "SELECT CAST(COUNT(*) AS TEXT) FROM runtime_nodes WHERE connection_id IS NOT NULL";
    assert_eq!(fleet.fixture.text(connected).await, "0");
}

/// W 66. A node whose row somebody holds does not hold up the heartbeats that are recorded beside its own.
#[tokio::test]
async fn a_held_row_keeps_no_other_node_waiting() {
    let fleet = Fleet::new(Postgres, 2).await;
    let mut held = fleet.fixture.core.store().write().await.unwrap();
    held.lock_node(fleet.links[0].node).await.unwrap();
    let waiting = fleet.report(fleet.links[0], fleet.target, READY);
    let beside = fleet.report(fleet.links[1], fleet.target, READY);
    assert!(beside.await.unwrap().is_ok());
    assert!(!waiting.is_finished());
    drop(held);
    assert!(waiting.await.unwrap().is_ok());
}

/// However many requests wait to write, a heartbeat has at most one of them before it, and readers find a connection.
#[rstest]
#[tokio::test]
async fn heartbeats_go_before_a_crowd_of_requests(#[values(Sqlite, Postgres)] database: Database) {
    let fleet = Fleet::new(database, 1).await;
    let store = fleet.fixture.core.store();
    let mut running = vec![store.write().await.unwrap()];
    if matches!(database, Postgres) {
        for _ in 1..palisade_control::limits::WRITERS_MAX {
            running.push(store.write().await.unwrap());
        }
    }
    let mut crowd = JoinSet::new();
    for _ in 0..100 {
        let store = store.clone();
        crowd.spawn(async move { store.write().await.map(drop) });
    }
    tokio::task::yield_now().await;
    assert!(store.read().await.is_ok(), "a reader finds a connection");
    let heartbeat = fleet.report(fleet.links[0], fleet.target, READY);
    if matches!(database, Sqlite) {
        drop(running.pop());
    }
    // PostgreSQL locks rows one by one: there it is recorded beside the transactions that run.
    assert!(heartbeat.await.unwrap().is_ok());
    assert!(matches!(database, Sqlite) || crowd.try_join_next().is_none(), "the crowd still waits");
    drop(running);
    assert!(crowd.join_all().await.into_iter().all(|begun| begun.is_ok()));
}

/// A value that the database cannot hold fails the heartbeat of its node and no other.
#[tokio::test]
async fn a_heartbeat_that_cannot_be_stored_fails_alone() {
    let fleet = Fleet::new(Postgres, 2).await;
    // PostgreSQL holds no U+0000 in a text.
    let checkpoint = Checkpoint { artifact_domain: "\0".into(), execution_class: "class".into() };
    let poison = fleet.report(fleet.links[0], fleet.target, ObservedState::Ready { checkpoint: Some(checkpoint) });
    let beside = fleet.report(fleet.links[1], fleet.target, READY);
    assert!(matches!(poison.await.unwrap(), Err(Refused::Store(_))));
    assert!(beside.await.unwrap().is_ok());
}

/// More heartbeats than one transaction takes are all recorded.
#[tokio::test]
async fn a_crowd_is_recorded_in_several_groups() {
    let fleet = Fleet::new(Sqlite, 3).await;
    let crowd: Vec<_> = (0..3 * palisade_control::limits::GATHERED_MAX)
        .map(|number| fleet.report(fleet.links[number % 3], fleet.target, READY))
        .collect();
    for report in crowd {
        report.await.unwrap().unwrap();
    }
}

/// More hosts than one transaction samples are all sampled, and as many old samples go as new ones come.
#[rstest]
#[tokio::test]
async fn every_host_of_a_large_fleet_is_sampled(#[values(Sqlite, Postgres)] database: Database) {
    let fleet = Fleet::new(database, 2).await;
    let kept = fleet.links[0].node;
    for link in &fleet.links {
        fleet.report(*link, fleet.target, READY).await.unwrap().unwrap();
    }
    // Copies of the first node under other identifiers.
    let mut tx = fleet.fixture.core.store().write().await.unwrap();
    for number in 0..2 * palisade_control::limits::HOSTS_SAMPLED_MAX {
        let copy = format!(
            "INSERT INTO runtime_nodes (id, installation_id, name, backend_fingerprint, credential_sha256, max_active, \
             max_retained, specification_digest, deployment_generation, core_url, connection_id, connected_epoch, \
             last_seen_at, health_observed_at, active_operations, created_at) SELECT '{number:08x}' || substr(id, 9), \
             installation_id, name, backend_fingerprint, credential_sha256, max_active, max_retained, \
             specification_digest, deployment_generation, core_url, connection_id, connected_epoch, last_seen_at, \
             health_observed_at, active_operations, created_at FROM runtime_nodes WHERE id = '{kept}'"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(copy)).execute(&mut *tx).await.unwrap();
    }
    for second in 0..2 * palisade_control::limits::HISTORY_PRUNED_MAX {
        let old = format!("INSERT INTO node_host_history_samples (node_id, observed_at) VALUES ('{kept}', {second})");
        sqlx::raw_sql(sqlx::AssertSqlSafe(old)).execute(&mut *tx).await.unwrap();
    }
    tx.commit().await.unwrap();
    fleet.fixture.core.store().keep_up(fleet.fixture.lease.epoch).await.unwrap();
    let sampled = fleet.fixture.text("SELECT CAST(COUNT(*) AS TEXT) FROM node_host_history_samples").await;
    assert_eq!(sampled, (2 * palisade_control::limits::HOSTS_SAMPLED_MAX + 2).to_string());
}
