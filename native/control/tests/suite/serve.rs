//! Core as a process: listening, ownership, stopping, a database that goes away, a full disk.

use std::os::unix::fs::PermissionsExt as _;

use axum::http::{Method, StatusCode};
use palisade_control::store::{Location, Store};
use palisade_control::{Core, Options, SealKey, ServeError, Server};
use rstest::rstest;
use sqlx::Executor as _;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::gate::Gate;
use crate::support::Database::{self, Postgres, Sqlite};
use crate::support::{Fixture, Home, KEY, admin, code, selection};

const DEPLOYMENT: &str = "/core/v1/sandbox/deployment";

/// A first selection of E2B.
const E2B: &str = r#"{"expected_generation":0,"provider":"e2b","credential":{"api_key":"key"},
    "configuration":{"template":"base:94be54a1-138c-4f30-bc87-b13686272dbe"}}"#;

/// A Core that runs as a process does.
struct Running {
    core: Core,
    stop: CancellationToken,
    ended: JoinHandle<Result<(), ServeError>>,
}

impl Running {
    async fn start(store: Location) -> Self {
        let keys = tempfile::NamedTempFile::new().unwrap();
        let server = Server::start(options(store, keys.path())).await.unwrap();
        let (core, stop) = (server.core().clone(), CancellationToken::new());
        let ended = tokio::spawn(server.run(stop.clone()));
        Self { core, stop, ended }
    }

    /// The epoch of the lease, once there is one.
    async fn owns(&self) -> u64 {
        let lease = self.core.execution().clone().changed(None).await.unwrap();
        lease.epoch.get()
    }

    /// Waits until the lease is lost.
    async fn yields(&self) {
        let lease = self.core.execution().lease();
        assert_eq!(self.core.execution().clone().changed(lease).await, None);
    }

    /// Selects this many CPUs as the generation after `generation`.
    async fn put(&self, generation: u64, cpus: u32) -> StatusCode {
        admin(&self.core, Method::PUT, DEPLOYMENT, &selection(generation, cpus)).await.0
    }

    async fn stop(self) {
        self.stop.cancel();
        self.ended.await.unwrap().unwrap();
    }
}

#[expect(clippy::disallowed_methods, reason = "a throw-away file of a test")]
fn options(store: Location, keys: &std::path::Path) -> Options {
    std::fs::write(keys, KEY).unwrap();
    Options {
        listen: "127.0.0.1:0".parse().unwrap(),
        store,
        public_url: None,
        admin_key_file: Some(keys.to_owned()),
        admin_key_digests: None,
        metrics_listen: None,
        body_budget_bytes: palisade_core::limits::HUB_BYTES_MAX,
        node_payload: None,
        credential_key_file: None,
        credential_key: None,
    }
}

/// D 19. D 50. A Core on loopback serves Docker and refuses E2B, stops when it is asked, and comes back under a higher
/// epoch.
#[rstest]
#[tokio::test]
async fn a_core_stops_and_comes_back(#[values(Sqlite, Postgres)] database: Database) {
    let home = Home::new(database).await;
    for epoch in 1..=2 {
        let running = Running::start(home.location.clone()).await;
        assert!(running.core.public_url().starts_with("http://127.0.0.1:"));
        // PostgreSQL frees the lock of a closed connection on its own time; a standby waits for it.
        assert_eq!(running.owns().await, epoch);
        if epoch == 1 {
            let (status, body) = admin(&running.core, Method::POST, DEPLOYMENT, E2B).await;
            assert_eq!((status, code(&body)), (StatusCode::CONFLICT, "sandbox_configuration_error"));
        }
        let (status, view) = admin(&running.core, Method::POST, DEPLOYMENT, &selection(epoch - 1, 2)).await;
        assert_eq!((status, &view["owner_epoch"]), (StatusCode::OK, &serde_json::json!(epoch)), "{view}");
        running.stop().await;
    }
}

/// D 22. Of two Cores on one database one acts. When its lease is lost the other takes over under a higher epoch, and
/// what the first one still decides changes nothing.
#[tokio::test]
async fn a_standby_takes_over_when_the_lease_is_lost() {
    let home = Home::new(Postgres).await;
    let first = Running::start(home.location.clone()).await;
    assert_eq!(first.owns().await, 1);
    let (status, _) = admin(&first.core, Method::POST, DEPLOYMENT, &selection(0, 2)).await;
    assert_eq!(status, StatusCode::OK);
    let second = Running::start(home.location.clone()).await;
    assert_eq!(second.core.execution().lease(), None);
    assert_eq!(second.put(1, 3).await, StatusCode::SERVICE_UNAVAILABLE);

    home.end_owner().await;
    first.yields().await;
    let epoch = tokio::select! { epoch = first.owns() => epoch, epoch = second.owns() => epoch };
    assert_eq!(epoch, 2);
    let (owner, standby) = if second.core.execution().lease().is_some() { (second, first) } else { (first, second) };
    assert_eq!(standby.put(1, 4).await, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(owner.put(1, 5).await, StatusCode::OK);
    let (_, view) = admin(&standby.core, Method::GET, DEPLOYMENT, "").await;
    assert_eq!((&view["generation"], &view["owner_epoch"]), (&serde_json::json!(2), &serde_json::json!(2)));

    owner.stop().await;
    assert_eq!(standby.owns().await, 3);
    standby.stop().await;
}

/// The key that credentials are sealed with comes from a file or from elsewhere, not from both; what is none is refused
/// before anything is opened, and nothing shows it.
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "a throw-away file of a test")]
async fn a_credential_key_is_read_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("credential-key");
    let told = |key: Option<&str>, file: Option<&std::path::Path>| {
        let mut options = options(Location::Directory(folder.path().join("data")), &folder.path().join("keys"));
        options.credential_key = key.map(|key| SealKey::parse(key).unwrap());
        options.credential_key_file = file.map(std::path::Path::to_owned);
        assert!(!format!("{options:?}").contains("0a0a"));
        options
    };
    let key = "0a".repeat(32);
    std::fs::write(&file, "0A").unwrap();
    let malformed = Server::start(told(None, Some(&file))).await.err().unwrap();
    assert!(matches!(malformed, ServeError::SealKey(_)), "{malformed}");
    std::fs::write(&file, format!("{key}\n")).unwrap();
    let both = Server::start(told(Some(&key), Some(&file))).await.err().unwrap();
    assert!(matches!(both, ServeError::TwoSealKeys), "{both}");
    let absent = Server::start(told(None, Some(&folder.path().join("absent")))).await.err().unwrap();
    assert!(matches!(absent, ServeError::SealKeyFile { .. }), "{absent}");
    assert!(!folder.path().join("data").exists());
    for options in [told(Some(&key), None), told(None, Some(&file))] {
        let server = Server::start(options).await.unwrap();
        assert!(server.core().seal().is_some());
        server.core().store().close().await;
    }
}

/// Two installations in schemas of one database have an owner each.
#[tokio::test]
async fn every_installation_of_a_database_has_its_own_owner() {
    let (one, other) = (Home::new(Postgres).await, Home::new(Postgres).await);
    let (one, other) = (Running::start(one.location.clone()).await, Running::start(other.location.clone()).await);
    assert!(one.core.execution().lease().is_some() && other.core.execution().lease().is_some());
    one.stop().await;
    other.stop().await;
}

/// D 32. A database that goes away under a running Core stops execution and hides no failure; when it answers again
/// Core owns execution again, under a higher epoch, and nothing is lost.
#[rstest]
#[tokio::test]
async fn a_lost_database_is_survived(#[values(true, false)] hangs: bool) {
    let home = Home::new(Postgres).await;
    let gate = Gate::open(&home.location).await;
    let running = Running::start(gate.before(&home.location)).await;
    assert_eq!(running.owns().await, 1);
    let (status, _) = admin(&running.core, Method::POST, DEPLOYMENT, &selection(0, 2)).await;
    assert_eq!(status, StatusCode::OK);

    gate.shut(hangs);
    running.yields().await;
    let (status, body) = admin(&running.core, Method::PUT, DEPLOYMENT, &selection(1, 3)).await;
    assert_eq!((status, code(&body)), (StatusCode::SERVICE_UNAVAILABLE, "execution_unavailable"));
    let (status, body) = admin(&running.core, Method::GET, DEPLOYMENT, "").await;
    assert_eq!((status, code(&body)), (StatusCode::INTERNAL_SERVER_ERROR, "internal_error"));

    gate.reopen();
    assert_eq!(running.owns().await, 2);
    // A few connections of the pool may still have to be found dead.
    let mut attempts = 0..20;
    while running.put(1, 3).await != StatusCode::OK {
        attempts.next().expect("the store is written again");
    }
    let (_, view) = admin(&running.core, Method::GET, DEPLOYMENT, "").await;
    assert_eq!(view["generation"], 2);
    running.stop().await;
}

/// E26. An owner that the database hears nothing of any more is replaced, although no packet says that it is gone.
#[tokio::test]
async fn an_owner_that_is_not_heard_is_replaced() {
    let home = Home::new(Postgres).await;
    let gate = Gate::open(&home.location).await;
    let silent = Running::start(gate.before(&home.location)).await;
    assert_eq!(silent.owns().await, 1);
    let standby = Running::start(home.location.clone()).await;
    assert_eq!(standby.core.execution().lease(), None);
    // In the middle of a transaction that holds the deployment's row against everybody.
    let mut held = silent.core.store().write().await.unwrap();
    held.lock_deployment().await.unwrap();
    gate.shut(true);
    assert_eq!(standby.owns().await, 2);
    let (status, _) = admin(&standby.core, Method::POST, DEPLOYMENT, &selection(0, 2)).await;
    assert_eq!(status, StatusCode::OK);
    drop(held);
    standby.stop().await;
    silent.stop().await;
}

/// A Core whose database answers nothing any more stops when it is asked to.
#[tokio::test]
async fn a_core_stops_although_its_database_hangs() {
    let home = Home::new(Postgres).await;
    let gate = Gate::open(&home.location).await;
    let running = Running::start(gate.before(&home.location)).await;
    running.owns().await;
    gate.shut(true);
    running.yields().await;
    running.stop().await;
}

/// The reason why a store does not open is that of the database, not that a pool gave up.
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "a throw-away file of a test")]
async fn a_store_that_does_not_open_says_why() {
    let home = Home::new(Sqlite).await;
    let Location::Directory(directory) = &home.location else { panic!("SQLite lives in a directory") };
    std::fs::write(directory.join("palisade.db"), "this is no database".repeat(100)).unwrap();
    let nobody = Location::Url("postgres://palisade@127.0.0.1:1/palisade".to_owned());
    for (location, reason) in [(home.location.clone(), "not a database"), (nobody, "refused")] {
        let error = Store::open(&location).await.unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}

/// What Core keeps is readable for its own user only, also in a directory that others may read.
#[tokio::test]
async fn the_embedded_store_is_private() {
    let home = Home::new(Sqlite).await;
    let Location::Directory(directory) = &home.location else { panic!("SQLite lives in a directory") };
    let _store = Store::open(&home.location).await.unwrap();
    let mut seen = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", entry.path());
        seen += 1;
    }
    assert!(seen >= 3, "lock, database and log, but {seen}");
}

/// D 78. A public URL is an origin, kept without its slash.
#[tokio::test]
async fn a_core_without_a_key_or_with_a_bad_url_does_not_start() {
    let home = Home::new(Sqlite).await;
    let keys = tempfile::NamedTempFile::new().unwrap();
    let bare = Options { admin_key_file: None, ..options(home.location.clone(), keys.path()) };
    assert!(matches!(Server::start(bare).await, Err(ServeError::Keys(_))));
    for url in [
        "",
        "core.example",
        "ftp://core.example",
        "https://",
        "https://Core.example",
        "https://core.example//",
        "https://core.example/path",
        "https://core.example?query",
        "https://user@core.example",
        "https://core.example:0",
    ] {
        let bad = Options { public_url: Some(url.to_owned()), ..options(home.location.clone(), keys.path()) };
        assert!(matches!(Server::start(bad).await, Err(ServeError::PublicUrl)), "{url}");
    }
    let slash = Some("https://core.example/".to_owned());
    let good = Options { public_url: slash, ..options(home.location.clone(), keys.path()) };
    assert_eq!(Server::start(good).await.unwrap().core().public_url(), "https://core.example");
}

/// On a full disk nothing is half written: the write is refused with 500, reads go on, and room heals it.
#[tokio::test]
async fn a_full_disk_loses_nothing() {
    let fixture = Fixture::new(Sqlite).await;
    fixture.select().await;
    // The limit belongs to a connection, and one connection writes.
    let limit_pages = async |pages: i64| {
        let mut tx = fixture.core.store().write().await.unwrap();
        tx.execute(sqlx::AssertSqlSafe(format!("PRAGMA max_page_count = {pages}"))).await.unwrap();
    };
    limit_pages(1).await;
    let mut refused = None;
    for _ in 0..2000 {
        let (status, body) = fixture.admin(Method::POST, "/core/v1/sandbox/enrollment-tokens", "{}").await;
        if status != StatusCode::CREATED {
            refused = Some((status, code(&body).to_owned()));
            break;
        }
    }
    let before = fixture.count("SELECT COUNT(*) FROM runtime_node_enrollments").await;
    assert_eq!(refused, Some((StatusCode::INTERNAL_SERVER_ERROR, "internal_error".to_owned())));
    assert_eq!(fixture.admin(Method::GET, "/core/v1/sandbox/deployment", "").await.0, StatusCode::OK);
    limit_pages(1_000_000).await;
    fixture.token("{}").await;
    assert_eq!(fixture.count("SELECT COUNT(*) FROM runtime_node_enrollments").await, before + 1);
}
