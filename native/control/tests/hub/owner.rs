//! The owner loop over a real store and real sockets, with a node that a test plays by hand.

use std::net::SocketAddr;
use std::time::Duration;

use axum::http::{Method, StatusCode};
use palisade_control::{Core, owner};
use palisade_core::limits::HUB_BYTES_MAX;
use palisade_core::units::{Digest, Id};
use palisade_core::wire::Frame;
use palisade_core::wire::frame::Response;
use palisade_core::wire::payload::{Health, Identity};
use palisade_socket::{Socket, UpgradeError};
use rstest::rstest;
use serde_json::{Value, json};
use sqlx::Executor as _;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::rig::{Asked, PATIENCE, Peer, control, dial, exited, health, listen};
use crate::support::Database::{self, Postgres, Sqlite};
use crate::support::{Fixture, NewNode, ask, claim, core_with_budget};

/// A Core that owns execution, one enrolled node, one project.
struct World {
    fixture: Fixture,
    core: Core,
    address: SocketAddr,
    node: NewNode,
    digest: String,
    key: String,
    project: String,
    running: Option<(CancellationToken, JoinHandle<()>)>,
}

impl World {
    async fn new(database: Database) -> Self {
        let fixture = Fixture::new(database).await;
        fixture.select().await;
        let node = fixture.enroll("one").await;
        let (_, view) = fixture.admin(Method::GET, "/core/v1/sandbox/deployment", "").await;
        let digest = view["specification_digest"].as_str().unwrap().to_owned();
        let (_, project) = fixture.admin(Method::POST, "/core/v1/projects", r#"{"name":"p"}"#).await;
        let project = project["id"].as_str().unwrap().to_owned();
        let keys = format!("/core/v1/projects/{project}/keys");
        let (_, key) = fixture.admin(Method::POST, &keys, r#"{"name":"k"}"#).await;
        let key = key["key"].as_str().unwrap().to_owned();
        let core = fixture.core.clone();
        let address = listen(core.clone()).await;
        let mut world = Self { fixture, core, address, node, digest, key, project, running: None };
        world.start();
        world
    }

    fn start(&mut self) {
        let stop = CancellationToken::new();
        let task = tokio::spawn(owner::run(self.core.clone(), stop.clone()));
        self.running = Some((stop, task));
    }

    /// Another process takes over the same store, as after a SIGKILL.
    async fn restart(&mut self) {
        self.restart_with(HUB_BYTES_MAX).await;
    }

    /// [`World::restart`] with this many bytes for the bodies in flight.
    async fn restart_with(&mut self, bytes: u64) {
        let (_, task) = self.running.take().unwrap();
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
        self.core.hub().close();
        let lease = claim(self.core.store()).await;
        self.core = core_with_budget(self.core.store().clone(), Some(lease), bytes);
        self.address = listen(self.core.clone()).await;
        self.start();
    }

    async fn connect(&self) -> Peer {
        self.connect_as(&self.node).await
    }

    async fn connect_as(&self, node: &NewNode) -> Peer {
        let socket = self.dial_free(node).await;
        let mut peer = Peer::new(socket, node.id);
        peer.identity = Identity {
            node_id: node.id.to_string().into(),
            installation_id: self.fixture.lease.installation.to_string().into(),
            provider: "docker".into(),
            backend_fingerprint: "1".repeat(64).into(),
            deployment_generation: 1,
            specification_digest: self.digest.clone().into(),
            max_active: 2,
            max_retained: 2,
        };
        let mut health: Health<'static> = health(&[(1, true)]);
        health.generations[0].specification_digest = Digest::parse(&self.digest).unwrap();
        let identity = peer.identity.clone();
        peer.send(Frame::Hello { identity, health }).await;
        let Some(Frame::Welcome(welcome)) = peer.next(control).await else { panic!("expected a welcome") };
        (peer.connection_id, peer.owner_epoch) = (welcome.connection_id, welcome.owner_epoch);
        let mut changes = self.core.hub().changes().unwrap();
        while !self.core.hub().is_live(node.id) {
            changes.changed().await.unwrap();
        }
        peer
    }

    /// Dials until the identity is free: the disconnect of an earlier connection may still run.
    async fn dial_free(&self, node: &NewNode) -> Socket<TcpStream> {
        loop {
            match dial(self.address, node.id, &node.credential).await {
                Ok(socket) => return socket,
                Err(UpgradeError::Refused(answer)) if answer.status == 409 => sleep(Duration::from_millis(20)).await,
                Err(error) => panic!("{error}"),
            }
        }
    }

    async fn public(&self, method: Method, path: &str, body: Value) -> (StatusCode, Value) {
        let bearer = format!("Bearer {}", self.key);
        let headers = [("authorization", bearer.as_str()), ("openai-beta", "agents=v1")];
        let body = if body.is_null() { String::new() } else { body.to_string() };
        ask(&self.core, method, path, &headers, &body).await
    }

    async fn session(&self) -> String {
        let hosted = json!({"environment": {"type": "openai_hosted"}});
        let (status, body) = self.public(Method::POST, "/v1/agents/sessions", hosted).await;
        assert_eq!(status, StatusCode::CREATED, "{body}");
        body["id"].as_str().unwrap().to_owned()
    }

    async fn message(&self, session: &str, word: &str) -> String {
        self.message_within(session, word, 30_000).await
    }

    async fn message_within(&self, session: &str, word: &str, timeout_ms: u64) -> String {
        let command = json!({"args": ["/bin/echo", word]});
        let message = json!({"type": "message", "command": command, "timeout_ms": timeout_ms});
        let (status, body) = self.public(Method::POST, &format!("/v1/agents/sessions/{session}/events"), message).await;
        assert_eq!(status, StatusCode::CREATED, "{body}");
        body["id"].as_str().unwrap().to_owned()
    }

    async fn turn(&self, session: &str, turn: &str, wanted: &str) -> Value {
        let path = format!("/v1/agents/sessions/{session}/turns");
        self.until(&path, |body| {
            let turns = body["data"].as_array().unwrap().iter();
            turns.into_iter().find(|entry| entry["id"] == turn && entry["status"] == wanted).cloned()
        })
        .await
    }

    async fn status(&self, session: &str, wanted: &str) {
        let path = format!("/v1/agents/sessions/{session}");
        self.until(&path, |body| (body["environment"]["status"] == wanted).then(|| body.clone())).await;
    }

    async fn until(&self, path: &str, holds: impl Fn(&Value) -> Option<Value>) -> Value {
        let found = timeout(PATIENCE, async {
            loop {
                let (_, body) = self.public(Method::GET, path, Value::Null).await;
                if let Some(found) = holds(&body) {
                    return found;
                }
                sleep(Duration::from_millis(20)).await;
            }
        });
        if let Ok(found) = found.await {
            return found;
        }
        panic!("{path} stays {}", self.public(Method::GET, path, Value::Null).await.1)
    }

    async fn archive(&self, session: &str) {
        let (status, body) = self.admin(Method::POST, session, r#"{"expected_generation":1}"#).await;
        assert_eq!(status, StatusCode::OK, "{body}");
    }

    async fn admin(&self, method: Method, session: &str, body: &str) -> (StatusCode, Value) {
        let path = format!("/core/v1/projects/{}/sessions/{session}/archive", self.project);
        crate::support::admin(&self.core, method, &path, body).await
    }

    async fn released(&self, session: &str) {
        let released = timeout(PATIENCE, async {
            while self.admin(Method::GET, session, "").await.1["state"] != "released" {
                sleep(Duration::from_millis(20)).await;
            }
        });
        released.await.expect("the sandbox is released");
    }

    /// A session whose sandbox runs on `peer`.
    async fn running(&self, peer: &mut Peer) -> String {
        let session = self.session().await;
        let create = peer.request().await;
        assert_eq!(create.operation, "create");
        peer.answer(&create, create.running()).await;
        self.status(&session, "connected").await;
        session
    }
}

fn failed(code: &'static str) -> Response<'static> {
    Response { error_code: Some(code.into()), ..Response::default() }
}

fn word(asked: &Asked) -> &str {
    assert_eq!(asked.operation, "command");
    &asked.args[1]
}

/// A sandbox is created once, its Turns run in order, and an archive ends in a release.
#[rstest]
#[tokio::test]
async fn session_lives_from_create_to_release(#[values(Sqlite, Postgres)] database: Database) {
    let world = World::new(database).await;
    let mut peer = world.connect().await;
    let session = world.running(&mut peer).await;
    let (first, second) = (world.message(&session, "first").await, world.message(&session, "second").await);
    let asked = peer.request().await;
    assert_eq!(word(&asked), "first");
    peer.answer(&asked, exited(0)).await;
    let asked = peer.request().await;
    assert_eq!(word(&asked), "second", "in order");
    peer.answer(&asked, exited(3)).await;
    let turn = world.turn(&session, &first, "completed").await;
    assert_eq!((&turn["exit_code"], &turn["stdout"]), (&json!(0), &json!("out\n")));
    assert_eq!(world.turn(&session, &second, "completed").await["exit_code"], 3);
    world.archive(&session).await;
    let kill = peer.request().await;
    assert_eq!(kill.operation, "kill");
    peer.answer(&kill, Response::default()).await;
    world.released(&session).await;
}

/// E14. A Core that dies during a command reports it as unconfirmed, sends nothing again and goes on with the same sandbox.
#[rstest]
#[tokio::test]
async fn interrupted_turn_is_unconfirmed_and_not_run_twice(#[values(Sqlite, Postgres)] database: Database) {
    let mut world = World::new(database).await;
    let mut peer = world.connect().await;
    let session = world.running(&mut peer).await;
    let interrupted = world.message(&session, "once").await;
    assert_eq!(word(&peer.request().await), "once");
    world.restart().await;
    let mut peer = world.connect().await;
    let turn = world.turn(&session, &interrupted, "failed").await;
    assert_eq!(turn["error"]["code"], "command_unconfirmed");
    assert!(turn["exit_code"].is_null());
    let next = world.message(&session, "next").await;
    let asked = peer.request().await;
    assert_eq!((word(&asked), asked.sequence), ("next", 1), "nothing else came over the new connection");
    peer.answer(&asked, exited(0)).await;
    world.turn(&session, &next, "completed").await;
}

/// E14, W 41. A create whose answer was lost is observed over the next connection, never sent again.
#[rstest]
#[tokio::test]
async fn lost_create_is_observed_and_not_replayed(#[values(Sqlite, Postgres)] database: Database) {
    let mut world = World::new(database).await;
    let mut peer = world.connect().await;
    let session = world.session().await;
    assert_eq!(peer.request().await.operation, "create");
    world.restart().await;
    let mut peer = world.connect().await;
    let info = peer.request().await;
    assert_eq!((info.operation.as_str(), info.sequence), ("info", 1));
    peer.answer(&info, info.running()).await;
    world.status(&session, "connected").await;
}

/// E22, E24. Cleanup asks again until kill and the settlement of a lost create are both answered.
#[tokio::test]
async fn cleanup_asks_until_both_questions_are_answered() {
    let world = World::new(Sqlite).await;
    let mut peer = world.connect().await;
    let session = world.session().await;
    let create = peer.request().await;
    peer.answer(&create, failed("unconfirmed")).await;
    world.archive(&session).await;
    let mut asked = Vec::new();
    loop {
        let request = peer.request().await;
        asked.push(request.operation.clone());
        let kills = asked.iter().filter(|operation| *operation == "kill").count();
        let infos = asked.iter().filter(|operation| *operation == "info").count();
        match (request.operation.as_str(), kills, infos) {
            ("kill", 1, _) => peer.answer(&request, failed("unconfirmed")).await,
            ("kill", ..) => peer.answer(&request, Response::default()).await,
            ("info", _, 3..) => {
                peer.answer(&request, request.absent()).await;
                break;
            }
            ("info", ..) => peer.answer(&request, failed("not_found")).await,
            (other, ..) => panic!("{other} was sent"),
        }
    }
    world.released(&session).await;
    assert!(!asked.contains(&"create".to_owned()));
}

/// Turns of different sessions on one node run side by side.
#[tokio::test]
async fn turns_of_two_sessions_run_side_by_side() {
    let world = World::new(Sqlite).await;
    let mut peer = world.connect().await;
    let (one, two) = (world.running(&mut peer).await, world.running(&mut peer).await);
    let (first, second) = (world.message(&one, "first").await, world.message(&two, "second").await);
    let (a, b) = (peer.request().await, peer.request().await);
    assert_ne!(word(&a), word(&b), "both are out before one is answered");
    peer.answer(&b, exited(0)).await;
    peer.answer(&a, exited(0)).await;
    world.turn(&one, &first, "completed").await;
    world.turn(&two, &second, "completed").await;
}

/// Decisions 30, 40. A Turn waits in line for room and is not read before; its budget starts with its dispatch.
#[rstest]
#[tokio::test]
async fn turn_waits_in_line_for_room(#[values(Sqlite, Postgres)] database: Database) {
    let mut world = World::new(database).await;
    // Room for one answer of two streams, and not for a second one.
    world.restart_with(4 << 20).await;
    let mut peer = world.connect().await;
    let (one, two) = (world.running(&mut peer).await, world.running(&mut peer).await);
    let silent = world.message_within(&one, "silent", 1_500).await;
    assert_eq!(word(&peer.request().await), "silent");
    let waiting = world.message_within(&two, "waiting", 1_000).await;
    let asked = peer.request().await;
    assert_eq!(word(&asked), "waiting");
    assert_eq!(world.turn(&one, &silent, "failed").await["error"]["code"], "command_unconfirmed");
    peer.answer(&asked, exited(0)).await;
    world.turn(&two, &waiting, "completed").await;
}

/// Decision 40. A Turn waits in line while its node is away, and runs on the same node when that is back.
#[tokio::test]
async fn turn_waits_for_its_node() {
    let world = World::new(Sqlite).await;
    let mut peer = world.connect().await;
    let session = world.running(&mut peer).await;
    drop(peer);
    let mut changes = world.core.hub().changes().unwrap();
    while world.core.hub().is_live(world.node.id) {
        changes.changed().await.unwrap();
    }
    let turn = world.message(&session, "later").await;
    world.turn(&session, &turn, "queued").await;
    // An absent node proves nothing about its sandbox: the allocation still runs, where nobody reaches it.
    world.status(&session, "disconnected").await;
    let mut peer = world.connect().await;
    let asked = peer.request().await;
    assert_eq!(word(&asked), "later");
    peer.answer(&asked, exited(0)).await;
    world.turn(&session, &turn, "completed").await;
}

/// A cancelled Turn ends at once, and the next one is not held up by it in Core.
#[tokio::test]
async fn cancelled_turn_ends_without_its_answer() {
    let world = World::new(Sqlite).await;
    let mut peer = world.connect().await;
    let session = world.running(&mut peer).await;
    let turn = world.message(&session, "long").await;
    assert_eq!(word(&peer.request().await), "long");
    let events = format!("/v1/agents/sessions/{session}/events");
    world.public(Method::POST, &events, json!({"type": "cancel"})).await;
    world.turn(&session, &turn, "cancelled").await;
}

/// W 66. With a real row lock an opening is cancelled at five seconds; another node stays responsive, no presence remains,
/// and a reconnect stores its own connection.
#[tokio::test]
async fn blocked_opening_is_bounded() {
    let world = World::new(Postgres).await;
    let other = world.fixture.enroll("two").await;
    let mut holder = world.core.store().write().await.unwrap();
    let lock = format!("SELECT id FROM runtime_nodes WHERE id = '{}' FOR UPDATE", world.node.id);
    holder.execute(sqlx::AssertSqlSafe(lock)).await.unwrap();
    let mut blocked = Peer::new(world.dial_free(&world.node).await, world.node.id);
    blocked.identity = Identity {
        node_id: world.node.id.to_string().into(),
        installation_id: world.fixture.lease.installation.to_string().into(),
        backend_fingerprint: "1".repeat(64).into(),
        deployment_generation: 1,
        specification_digest: world.digest.clone().into(),
        ..blocked.identity.clone()
    };
    let begun = std::time::Instant::now();
    blocked.hello().await;
    let _responsive = timeout(Duration::from_secs(4), world.connect_as(&other)).await.expect("the other node connects");
    assert!(timeout(PATIENCE, blocked.ended()).await.unwrap(), "no welcome");
    let waited = begun.elapsed();
    assert!(waited >= Duration::from_millis(4_900) && waited < Duration::from_secs(7), "{waited:?}");
    drop(holder);
    let silent = world.dial_free(&world.node).await;
    let count = "SELECT COUNT(*) FROM runtime_nodes WHERE name = 'one' AND connection_id IS NOT NULL";
    assert_eq!(world.fixture.count(count).await, 0, "the cleanup has ended when the identity is free");
    drop(silent);
    let peer = world.connect().await;
    let stored = world.fixture.text("SELECT connection_id FROM runtime_nodes WHERE name = 'one'").await;
    assert_eq!(Id::parse(&stored).unwrap(), peer.connection_id);
}

/// D 59. D 62. D 69. A sandbox that works is spared in `auto`; an idle one is not. Once the stored deadline has passed, the
/// owner escalates in the starter's name, and the reset ends when both are confirmed to be gone.
#[rstest]
#[tokio::test]
async fn a_reset_spares_what_works_until_its_deadline(#[values(Sqlite, Postgres)] database: Database) {
    let world = World::new(database).await;
    let mut peer = world.connect().await;
    let (busy, idle) = (world.running(&mut peer).await, world.running(&mut peer).await);
    let turn = world.message(&busy, "long").await;
    let command = peer.request().await;
    assert_eq!(word(&command), "long");

    let path = "/core/v1/sandbox/deployment/reset";
    let (status, body) = world.fixture.admin(Method::POST, path, r#"{"expected_generation":1,"clear":"auto"}"#).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    assert_eq!(body["reset"]["remaining"]["busy"], 1);
    let kill = peer.request().await;
    assert_eq!(kill.operation, "kill");
    peer.answer(&kill, Response::default()).await;
    world.released(&idle).await;
    assert_eq!(world.admin(Method::GET, &busy, "").await.1["state"], "active");

    world.fixture.execute("UPDATE runtime_deployment SET reset_deadline_at = reset_requested_at").await;
    let archived = timeout(PATIENCE, async {
        while world.admin(Method::GET, &busy, "").await.1["state"] != "cleanup_pending" {
            sleep(Duration::from_millis(20)).await;
        }
    });
    archived.await.expect("the busy sandbox is archived after the deadline");
    peer.answer(&command, exited(0)).await;
    let kill = peer.request().await;
    assert_eq!(kill.operation, "kill");
    peer.answer(&kill, Response::default()).await;
    let ended = timeout(PATIENCE, async {
        while world.fixture.admin(Method::GET, "/core/v1/sandbox/deployment", "").await.1["generation"] != 2 {
            sleep(Duration::from_millis(20)).await;
        }
    });
    ended.await.expect("the reset ends");
    let actions =
        "SELECT COUNT(*) FROM admin_audit_log WHERE action IN ('reset_start', 'reset_deadline', 'reset_complete')";
    assert_eq!(world.fixture.count(actions).await, 3);
    assert_eq!(world.fixture.count("SELECT COUNT(DISTINCT admin_credential_id) FROM admin_audit_log").await, 1);
    let query = "SELECT COUNT(*) FROM turns WHERE completed_at IS NULL";
    assert_eq!(world.fixture.count(query).await, 0, "{turn}");
}
