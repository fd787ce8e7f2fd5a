//! What connections of nodes do to the store (wire §5.5, §7.3; deployment §4.5, §4.6).

use axum::http::Method;
use palisade_control::store::Refused;
use palisade_core::session::hub::presence::Connected;
use palisade_core::units::{Digest, Generation, Id, OwnerEpoch};
use palisade_core::wire::payload::{GenerationReference, Health, Observation, ObservedState};
use rstest::rstest;
use serde_json::json;

use crate::support::Database::{self, Postgres, Sqlite};
use crate::support::{Fixture, NewNode, selection};

const DEPLOYMENT: &str = "/core/v1/sandbox/deployment";

struct Online {
    fixture: Fixture,
    node: NewNode,
    by: Connected,
}

async fn online(database: Database) -> Online {
    let fixture = Fixture::new(database).await;
    fixture.select().await;
    let node = fixture.enroll("one").await;
    let by = Connected { connection_id: Id::from_random(rand::random()), owner_epoch: fixture.lease.epoch };
    fixture.core.store().connect_node(node.id, by).await.unwrap();
    Online { fixture, node, by }
}

impl Online {
    async fn digest(&self) -> Digest {
        let (_, view) = self.fixture.admin(Method::GET, DEPLOYMENT, "").await;
        Digest::parse(view["specification_digest"].as_str().unwrap()).unwrap()
    }

    async fn report(&self, generations: Vec<Observation<'static>>) -> Result<Vec<Generation>, Refused> {
        self.fixture.core.store().record_health(self.node.id, self.by, &health(generations)).await
    }

    async fn shown(&self) -> serde_json::Value {
        self.fixture.admin(Method::GET, &format!("/core/v1/sandbox/nodes/{}", self.node.id), "").await.1
    }
}

fn health(generations: Vec<Observation<'static>>) -> Health<'static> {
    Health {
        observed_at: jiff::Timestamp::now().to_string().into(),
        active_operations: 0,
        cpu_utilization: Some(0.25),
        total_memory_bytes: Some(100),
        effective_cpu_cores: Some(1.5),
        cpu_count: Some(2),
        available_memory_bytes: Some(40),
        available_disk_bytes: Some(7),
        generations,
    }
}

fn ready(generation: u64, digest: Digest) -> Observation<'static> {
    let state = ObservedState::Ready { checkpoint: None };
    Observation { generation: Generation::new(generation).unwrap(), specification_digest: digest, state }
}

/// D 83. The pin rises with a ready target, stays when the node goes, and keeps its generation.
#[rstest]
#[tokio::test]
async fn a_ready_target_raises_the_pin(#[values(Sqlite, Postgres)] database: Database) {
    let online = online(database).await;
    let first = online.digest().await;
    assert_eq!(online.report(vec![ready(1, first)]).await.unwrap(), [Generation::FIRST]);
    let shown = online.shown().await;
    assert_eq!((&shown["online"], &shown["provider_ready"]), (&json!(true), &json!(true)));
    assert_eq!(shown["host"]["effective_cpu_cores"], 1.5);
    online.fixture.admin(Method::PUT, DEPLOYMENT, &selection(1, 4)).await;
    let second = online.digest().await;
    online.report(vec![ready(1, first), ready(2, second)]).await.unwrap();
    assert_eq!(online.shown().await["rollout"], json!({"state": "ready", "ready_generation": 2}));
    online.fixture.core.store().disconnect_node(online.node.id, online.by).await.unwrap();
    let shown = online.shown().await;
    assert_eq!(
        (&shown["online"], &shown["rollout"]),
        (&json!(false), &json!({"state":"unknown","ready_generation":2}))
    );
}

/// D 81. A heartbeat is all or nothing: a foreign digest of a kept generation refuses it, an unknown one is skipped.
#[rstest]
#[tokio::test]
async fn a_foreign_digest_refuses_the_heartbeat(#[values(Sqlite, Postgres)] database: Database) {
    let online = online(database).await;
    let digest = online.digest().await;
    let foreign = Digest::of(b"foreign");
    assert_eq!(online.report(vec![ready(7, foreign), ready(1, digest)]).await.unwrap(), [Generation::FIRST]);
    let refused = online.report(vec![ready(1, foreign)]).await;
    assert!(matches!(refused, Err(Refused::Mismatch)));
    assert_eq!(online.shown().await["provider_ready"], true);
}

/// W 205. A node is offline exactly when its last heartbeat is 45 s old, whatever its socket does.
#[rstest]
#[tokio::test]
async fn presence_is_a_matter_of_age(#[values(Sqlite, Postgres)] database: Database) {
    let online = online(database).await;
    let digest = online.digest().await;
    online.report(vec![ready(1, digest)]).await.unwrap();
    online.fixture.execute("UPDATE runtime_nodes SET last_seen_at = last_seen_at - 30000").await;
    assert_eq!(online.shown().await["online"], true);
    online.fixture.execute("UPDATE runtime_nodes SET last_seen_at = last_seen_at - 15000").await;
    let shown = online.shown().await;
    assert_eq!((&shown["online"], &shown["provider_ready"]), (&json!(false), &json!(false)));
}

/// W 206. A removed node's heartbeat is rejected, and its credential is worth nothing afterwards.
#[rstest]
#[tokio::test]
async fn a_removed_node_is_rejected(#[values(Sqlite, Postgres)] database: Database) {
    let online = online(database).await;
    let path = format!("/core/v1/sandbox/nodes/{}", online.node.id);
    assert!(online.fixture.admin(Method::DELETE, &path, "").await.0.is_success());
    assert!(matches!(online.report(vec![]).await, Err(Refused::Rejected)));
    let credential = Digest::of(online.node.credential.as_bytes());
    let store = online.fixture.core.store();
    assert!(matches!(store.authenticate_node(online.node.id, credential).await, Err(Refused::Rejected)));
    assert!(matches!(store.connect_node(online.node.id, online.by).await, Err(Refused::Rejected)));
}

/// D 85. An administrator's limits reach a connected node's identity without ending its connection.
#[rstest]
#[tokio::test]
async fn an_approval_does_not_interrupt_a_connection(#[values(Sqlite, Postgres)] database: Database) {
    let online = online(database).await;
    let path = format!("/core/v1/sandbox/nodes/{}", online.node.id);
    let update = r#"{"name":"one","max_active":9,"max_retained":9}"#;
    assert!(online.fixture.admin(Method::PATCH, &path, update).await.0.is_success());
    assert!(online.report(vec![]).await.is_ok());
    let credential = Digest::of(online.node.credential.as_bytes());
    let known = online.fixture.core.store().authenticate_node(online.node.id, credential).await.unwrap();
    assert_eq!((known.identity.max_active, known.identity.max_retained), (9, 9));
}

/// Presence belongs to one connection and epoch: a replaced or outdated one changes nothing.
#[rstest]
#[tokio::test]
async fn an_outdated_connection_changes_nothing(#[values(Sqlite, Postgres)] database: Database) {
    let online = online(database).await;
    let store = online.fixture.core.store();
    let node = online.node.id;
    let other = Connected { connection_id: Id::from_random(rand::random()), ..online.by };
    assert!(matches!(store.record_health(node, other, &health(vec![])).await, Err(Refused::Rejected)));
    store.disconnect_node(node, other).await.unwrap();
    assert!(online.report(vec![]).await.is_ok());

    let next = online.fixture.usurp().await;
    assert!(matches!(online.report(vec![]).await, Err(Refused::Rejected)));
    assert!(matches!(store.connect_node(node, other).await, Err(Refused::Rejected)), "an old epoch");
    let ahead = Connected { owner_epoch: OwnerEpoch::new(next.epoch.get() + 1).unwrap(), ..other };
    assert!(matches!(store.connect_node(node, ahead).await, Err(Refused::Rejected)), "an epoch nobody has");
    store.connect_node(node, Connected { owner_epoch: next.epoch, ..other }).await.unwrap();
}

/// D 84. Core keeps the target, the pin and what a node holds; it forgets what was said of the rest.
#[rstest]
#[tokio::test]
async fn retention_keeps_what_is_needed(#[values(Sqlite, Postgres)] database: Database) {
    let online = online(database).await;
    let first = online.digest().await;
    online.fixture.place(&online.node, "placed").await;
    online.report(vec![ready(1, first)]).await.unwrap();
    online.fixture.admin(Method::PUT, DEPLOYMENT, &selection(1, 4)).await;
    let second = online.digest().await;
    online.report(vec![ready(2, second)]).await.unwrap();
    let reference = |generation, specification_digest| GenerationReference {
        generation: Generation::new(generation).unwrap(),
        specification_digest,
    };
    let store = online.fixture.core.store();
    let ask = [reference(5, first), reference(2, second), reference(1, first)];
    let (retentions, announced) = store.retain_for_node(online.node.id, online.by, &ask).await.unwrap();
    let kept: Vec<_> = retentions.iter().map(|entry| (entry.reference.generation.get(), entry.keep)).collect();
    assert_eq!(kept, [(5, false), (2, true), (1, true)]);
    assert_eq!((announced.generation.get(), announced.serving_generation), (2, Generation::new(2)));
    assert!(matches!(
        store.retain_for_node(online.node.id, online.by, &[reference(1, second)]).await,
        Err(Refused::Mismatch)
    ));
    online.fixture.execute("UPDATE runtime_placements SET released_at = 2").await;
    let (retentions, _) = store.retain_for_node(online.node.id, online.by, &[reference(1, first)]).await.unwrap();
    assert!(!retentions[0].keep);
    assert_eq!(online.fixture.count("SELECT COUNT(*) FROM runtime_node_generation_status").await, 1);
}

/// D 82. Sampling copies each online node's own observation once; reading shows complete buckets.
#[rstest]
#[tokio::test]
async fn hosts_are_sampled_once_per_observation(#[values(Sqlite, Postgres)] database: Database) {
    let online = online(database).await;
    online.report(vec![]).await.unwrap();
    let store = online.fixture.core.store();
    store.keep_up(online.by.owner_epoch).await.unwrap();
    store.keep_up(online.by.owner_epoch).await.unwrap();
    assert_eq!(online.fixture.count("SELECT COUNT(*) FROM node_host_history_samples").await, 1);
    assert_eq!(online.fixture.count("SELECT memory_used_bytes FROM node_host_history_samples").await, 60);
    let history = online.shown().await["history"].clone();
    assert_eq!((&history["resolution_seconds"], history["points"].as_array().unwrap().len()), (&json!(60), 60));
    for query in ["?range=2h", "?range=1h&range=1h", "?other=1"] {
        let path = format!("/core/v1/sandbox/nodes/{}{query}", online.node.id);
        assert_eq!(online.fixture.admin(Method::GET, &path, "").await.0.as_u16(), 400, "{query}");
    }
}
