//! A store that breaks in the middle: what is answered, what was done, and what comes after.

use std::net::SocketAddr;
use std::pin::pin;

use axum::http::{Method, StatusCode};
use palisade_control::Core;
use palisade_control::limits::CONNECTIONS_MAX;
use palisade_control::store::{Location, Store};
use serde_json::Value;
use sqlx::{AnyConnection, AssertSqlSafe, Connection as _, Executor as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::public::{HOSTED, SESSIONS};
use crate::support::Database::{Postgres, Sqlite};
use crate::support::{Fixture, Home, admin, ask, claim, code, core, selection};

const DEPLOYMENT: &str = "/core/v1/sandbox/deployment";

/// Where the next conversation with the database is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// Nowhere.
    Nowhere,
    /// Before the database sees a statement that holds this.
    Before(&'static str),
    /// After the database has carried it out, before Core hears of it.
    After(&'static str),
    /// Nowhere, but one answer waits: the next one of the database to a statement that holds this.
    Hold(&'static str),
    /// The answer waits, until there is another cut.
    Held,
}

/// Passes Core's connections on to PostgreSQL and cuts one of them at a statement.
struct Cutter {
    address: SocketAddr,
    database: String,
    cut: watch::Sender<Cut>,
}

impl Cutter {
    async fn before(location: &Location) -> Self {
        let Location::Url(url) = location else { panic!("only PostgreSQL is reached over TCP") };
        let database = url.split_once('@').and_then(|(_, rest)| rest.split('/').next()).unwrap().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let cut = watch::Sender::new(Cut::Nowhere);
        let (behind, seen) = (database.clone(), cut.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(pass(stream, behind.clone(), seen.clone()));
            }
        });
        Self { address, database, cut }
    }

    fn behind(&self, location: &Location) -> Location {
        let Location::Url(url) = location else { panic!("only PostgreSQL is reached over TCP") };
        Location::Url(url.replacen(&self.database, &self.address.to_string(), 1))
    }

    fn at(&self, cut: Cut) {
        self.cut.send_replace(cut);
    }

    /// Returns once the database has answered what is to be held.
    async fn held(&self) {
        self.cut.subscribe().wait_for(|cut| *cut == Cut::Held).await.unwrap();
    }

    /// Whether the cut was made.
    fn is_done(&self) -> bool {
        *self.cut.borrow() == Cut::Nowhere
    }
}

async fn pass(mut stream: TcpStream, database: String, cut: watch::Sender<Cut>) {
    let mut database = TcpStream::connect(database).await.unwrap();
    let (mut asked, mut told) = (vec![0; 65_536], vec![0; 65_536]);
    loop {
        tokio::select! {
            read = stream.read(&mut asked) => {
                let Ok(read @ 1..) = read else { return };
                let asked = &asked[..read];
                let now = *cut.borrow();
                match now {
                    Cut::Before(statement) if holds(asked, statement) => {
                        cut.send_replace(Cut::Nowhere);
                        return;
                    }
                    Cut::After(statement) if holds(asked, statement) => {
                        database.write_all(asked).await.unwrap();
                        // The answer says that it is done.
                        assert!(database.read(&mut told).await.unwrap() > 0);
                        cut.send_replace(Cut::Nowhere);
                        return;
                    }
                    Cut::Hold(statement) if holds(asked, statement) => {
                        database.write_all(asked).await.unwrap();
                        let read = database.read(&mut told).await.unwrap();
                        cut.send_replace(Cut::Held);
                        cut.subscribe().wait_for(|cut| *cut != Cut::Held).await.unwrap();
                        stream.write_all(&told[..read]).await.unwrap();
                    }
                    Cut::Nowhere | Cut::Before(_) | Cut::After(_) | Cut::Hold(_) | Cut::Held => {
                        database.write_all(asked).await.unwrap();
                    }
                }
            }
            read = database.read(&mut told) => {
                let Ok(read @ 1..) = read else { return };
                if stream.write_all(&told[..read]).await.is_err() {
                    return;
                }
            }
        }
    }
}

fn holds(bytes: &[u8], statement: &str) -> bool {
    bytes.windows(statement.len()).any(|window| window == statement.as_bytes())
}

/// A Core whose database is behind a cutter.
struct World {
    core: Core,
    cutter: Cutter,
    _home: Home,
}

impl World {
    async fn new() -> Self {
        let home = Home::new(Postgres).await;
        let cutter = Cutter::before(&home.location).await;
        let store = Store::open(&cutter.behind(&home.location)).await.unwrap();
        let lease = claim(&store).await;
        let world = Self { core: core(store, Some(lease)), cutter, _home: home };
        let (status, _) = admin(&world.core, Method::POST, DEPLOYMENT, &selection(0, 2)).await;
        assert_eq!(status, StatusCode::OK);
        world
    }

    async fn generation(&self) -> u64 {
        admin(&self.core, Method::GET, DEPLOYMENT, "").await.1["generation"].as_u64().unwrap()
    }

    async fn count(&self, query: &'static str) -> i64 {
        let mut tx = self.core.store().read().await.unwrap();
        sqlx::query_scalar(query).fetch_one(&mut *tx).await.unwrap()
    }

    /// Gives a project with a key, and a node that serves.
    async fn serving(&self) -> String {
        let (_, project) = admin(&self.core, Method::POST, "/core/v1/projects", r#"{"name":"p"}"#).await;
        let path = format!("/core/v1/projects/{}/keys", project["id"].as_str().unwrap());
        let (_, key) = admin(&self.core, Method::POST, &path, r#"{"name":"k"}"#).await;
        let mut tx = self.core.store().write().await.unwrap();
        let (now, installation) = (tx.now().await.unwrap().0, tx.deployment().await.unwrap().installation.unwrap());
        let (zeros, url) = ("0".repeat(64), self.core.public_url());
        tx.execute(AssertSqlSafe(format!(
            "INSERT INTO runtime_nodes (id, installation_id, name, backend_fingerprint, credential_sha256, max_active, \
             max_retained, specification_digest, deployment_generation, core_url, connection_id, connected_epoch, \
             last_seen_at, ready_generation, created_at) VALUES ('{installation}', '{installation}', 'n', '{zeros}', \
             '{zeros}', 9, 9, '{zeros}', 1, '{url}', '{installation}', 1, {now}, 1, 1)"
        )))
        .await
        .unwrap();
        tx.execute(AssertSqlSafe(format!(
            "INSERT INTO runtime_node_generation_status (node_id, generation, specification_digest, connection_id, \
             owner_epoch, state, observed_at) VALUES ('{installation}', 1, '{zeros}', '{installation}', 1, 'ready', 1)"
        )))
        .await
        .unwrap();
        tx.commit().await.unwrap();
        key["key"].as_str().unwrap().to_owned()
    }
}

fn unknown(body: &Value) -> bool {
    code(body) == "internal_error" && body["error"]["message"].as_str().unwrap().contains("outcome is unknown")
}

/// A commit that was not confirmed is never told as a failure: it may have happened. Whoever reads learns which.
#[tokio::test]
async fn an_unconfirmed_commit_is_told_as_unknown() {
    let world = World::new().await;
    for (cut, generation) in [(Cut::Before("COMMIT"), 1), (Cut::After("COMMIT"), 2)] {
        world.cutter.at(cut);
        let (status, body) = admin(&world.core, Method::PUT, DEPLOYMENT, &selection(1, 3)).await;
        assert!(world.cutter.is_done(), "{cut:?}");
        assert_eq!((status, unknown(&body)), (StatusCode::INTERNAL_SERVER_ERROR, true), "{cut:?}: {body}");
        assert_eq!(world.generation().await, generation, "{cut:?}");
    }
    let (status, body) = admin(&world.core, Method::PUT, DEPLOYMENT, &selection(1, 3)).await;
    assert_eq!((status, code(&body)), (StatusCode::CONFLICT, "sandbox_generation_stale"));
    assert_eq!(body["error"]["details"]["current_generation"], 2);
    assert_eq!(world.count("SELECT COUNT(*) FROM admin_audit_log WHERE action = 'change'").await, 1);
}

/// What breaks before the commit has certainly not happened, and is not told as unknown.
#[tokio::test]
async fn what_breaks_before_its_commit_has_not_happened() {
    let world = World::new().await;
    // The last statement; each attempt is on a new connection, where it is sent as text.
    let statement = "INSERT INTO admin_audit_log";
    for _ in 0..2 {
        world.cutter.at(Cut::Before(statement));
        let (status, body) = admin(&world.core, Method::PUT, DEPLOYMENT, &selection(1, 3)).await;
        assert!(world.cutter.is_done(), "{statement}");
        assert_eq!((status, code(&body)), (StatusCode::INTERNAL_SERVER_ERROR, "internal_error"), "{statement}");
        assert!(!unknown(&body), "{statement}: {body}");
        assert_eq!(world.generation().await, 1, "{statement}");
    }
    let (status, _) = admin(&world.core, Method::PUT, DEPLOYMENT, &selection(1, 3)).await;
    assert_eq!(status, StatusCode::OK, "core works on by itself");
}

/// A session whose creation was not confirmed is found again by its key, and is made once.
#[tokio::test]
async fn a_repeated_key_settles_an_unconfirmed_session() {
    let world = World::new().await;
    let key = world.serving().await;
    let bearer = format!("Bearer {key}");
    for (attempt, cut, status) in
        [("lost", Cut::After("COMMIT"), StatusCode::OK), ("never made", Cut::Before("COMMIT"), StatusCode::CREATED)]
    {
        let headers = [("authorization", bearer.as_str()), ("openai-beta", "agents=v1"), ("idempotency-key", attempt)];
        world.cutter.at(cut);
        let (refused, body) = ask(&world.core, Method::POST, SESSIONS, &headers, HOSTED).await;
        assert!(world.cutter.is_done(), "{cut:?}");
        assert_eq!((refused, unknown(&body)), (StatusCode::INTERNAL_SERVER_ERROR, true), "{cut:?}: {body}");
        let (repeated, session) = ask(&world.core, Method::POST, SESSIONS, &headers, HOSTED).await;
        assert_eq!(repeated, status, "{attempt}: {session}");
    }
    for query in ["SELECT COUNT(*) FROM sessions", "SELECT COUNT(*) FROM runtime_placements"] {
        assert_eq!(world.count(query).await, 2, "{query}");
    }
}

/// A file that another process holds is a 500 that changed nothing; Core works on afterwards.
#[tokio::test]
async fn a_held_file_loses_nothing() {
    let home = Home::new(Sqlite).await;
    let store = Store::open(&home.location).await.unwrap();
    let lease = claim(&store).await;
    let core = core(store, Some(lease));
    let mut other = AnyConnection::connect(&home.url()).await.unwrap();
    other.execute("BEGIN IMMEDIATE").await.unwrap();
    let (status, body) = admin(&core, Method::POST, DEPLOYMENT, &selection(0, 2)).await;
    assert_eq!((status, code(&body)), (StatusCode::INTERNAL_SERVER_ERROR, "internal_error"), "held");
    assert_eq!(admin(&core, Method::GET, DEPLOYMENT, "").await.1["generation"], 0, "readers go on");
    other.execute("ROLLBACK").await.unwrap();
    let (status, view) = admin(&core, Method::POST, DEPLOYMENT, &selection(0, 2)).await;
    assert_eq!((status, &view["generation"]), (StatusCode::OK, &serde_json::json!(1)));
}

/// What requests that were given up left behind takes no place from those that come: each connection comes back or is
/// replaced.
#[tokio::test]
async fn requests_that_were_given_up_cost_no_connection() {
    let fixture = Fixture::new(Postgres).await;
    fixture.select().await;
    for _ in 0..3 * CONNECTIONS_MAX {
        let core = fixture.core.clone();
        let asking = tokio::spawn(async move { admin(&core, Method::PUT, DEPLOYMENT, &selection(1, 3)).await });
        tokio::task::yield_now().await;
        asking.abort();
    }
    let (_, view) = fixture.admin(Method::GET, DEPLOYMENT, "").await;
    assert!(view["generation"] == 1 || view["generation"] == 2, "{view}");
}

/// A transaction to read, given up after the database began it and before Core knows: it is not left open on its
/// connection, where the next one to write would find itself within it, unable to write.
#[tokio::test]
async fn a_transaction_that_is_given_up_while_it_begins_is_not_left_on_its_connection() {
    let world = World::new().await;
    let store = world.core.store();
    // All connections but one are taken, so that whoever comes next gets the one that was given up.
    let mut taken = Vec::new();
    for _ in 1..CONNECTIONS_MAX {
        taken.push(store.read().await.unwrap());
    }
    world.cutter.at(Cut::Hold("READ ONLY"));
    {
        let mut given_up = pin!(store.read());
        tokio::select! {
            biased;
            _ = &mut given_up => panic!("it cannot begin before the answer"),
            () = world.cutter.held() => {}
        }
    }
    world.cutter.at(Cut::Nowhere);
    let (status, body) = admin(&world.core, Method::PUT, DEPLOYMENT, &selection(1, 3)).await;
    assert_eq!((status, &body["generation"]), (StatusCode::OK, &serde_json::json!(2)), "{body}");
    drop(taken);
}
