//! What operators rely on: which schema is served, what readiness tells, one name for a request, and backups.

use std::path::Path;

use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use palisade_control::health::Status;
use palisade_control::store::{BackupError, Location, OpenError, Ownership, Store, backup, migrate};
use palisade_control::{Options, ServeError, Server, http};
use palisade_core::limits::HUB_BYTES_MAX;
use palisade_core::units::{Digest, Id};
use rstest::rstest;
use sqlx::migrate::Migrator;
use sqlx::{AnyConnection, Connection as _, Executor as _};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::gate::Gate;
use crate::support::Database::{self, Postgres, Sqlite};
use crate::support::{Fixture, Home, KEY, ask, core, selection};

static MIGRATIONS: Migrator = sqlx::migrate!("./migrations");

const DEPLOYMENT: &str = "/core/v1/sandbox/deployment";

/// What a Core on this database is told.
fn options(home: &Home) -> Options {
    Options {
        listen: "127.0.0.1:0".parse().unwrap(),
        store: home.location.clone(),
        public_url: None,
        admin_key_file: None,
        admin_key_digests: Some(format!("[\"{}\"]", Digest::of(KEY.as_bytes()))),
        metrics_listen: None,
        body_budget_bytes: HUB_BYTES_MAX,
        node_payload: None,
        credential_key_file: None,
        credential_key: None,
    }
}

async fn refused(home: &Home) -> OpenError {
    match Server::start(options(home)).await {
        Err(ServeError::Open(error)) => error,
        Err(other) => panic!("core refuses for another reason: {other}"),
        Ok(_) => panic!("core must refuse the database"),
    }
}

/// Core serves its own schema and no other; an older one is migrated by a command of its own, which says what it did.
#[rstest]
#[tokio::test]
async fn core_serves_its_own_schema_and_no_other(#[values(Sqlite, Postgres)] database: Database) {
    let home = Home::new(database).await;
    let newest = MIGRATIONS.iter().last().unwrap().version;
    let mut connection = AnyConnection::connect(&home.url()).await.unwrap();
    MIGRATIONS.run_to(newest - 1, &mut connection).await.unwrap();
    let older = refused(&home).await;
    assert!(matches!(older, OpenError::Older { found, needed } if (found, needed) == (newest - 1, newest)), "{older}");

    let migrated = migrate(&home.location).await.unwrap();
    assert_eq!((migrated.from, migrated.to), (newest - 1, newest));
    assert_eq!(migrated.applied.iter().map(|step| step.version).collect::<Vec<_>>(), [newest]);
    assert!(migrate(&home.location).await.unwrap().applied.is_empty(), "a second time there is nothing to do");
    drop(Server::start(options(&home)).await.unwrap());

    let unknown = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
                   SELECT version + 1000, description, success, checksum, execution_time FROM _sqlx_migrations \
                   WHERE version = 1";
    connection.execute(unknown).await.unwrap();
    connection.close().await.unwrap();
    assert!(matches!(refused(&home).await, OpenError::Newer { found: 1001, .. }));
    assert!(matches!(migrate(&home.location).await, Err(OpenError::Newer { .. })));
}

/// D 22. Nobody migrates a database under the Core that owns it; its owner is named to whoever looks.
#[tokio::test]
async fn a_database_is_not_migrated_under_a_running_core() {
    let home = Home::new(Postgres).await;
    let stop = CancellationToken::new();
    let server = Server::start(options(&home)).await.unwrap();
    let running = tokio::spawn(server.run(stop.clone()));
    let beside = Store::beside(&home.location).await.unwrap();
    assert!(matches!(beside.ownership(&home.location).await.unwrap(), Ownership::Held(by) if by.contains("process")));
    assert!(matches!(migrate(&home.location).await, Err(OpenError::Owned)));
    stop.cancel();
    running.await.unwrap().unwrap();
    // PostgreSQL frees the lock of a closed connection on its own time.
    while migrate(&home.location).await.is_err() {
        tokio::task::yield_now().await;
    }
    assert_eq!(beside.ownership(&home.location).await.unwrap(), Ownership::Free);
    beside.close().await;
}

/// D 32. Ready, standby and unavailable are told apart, and a database that comes back makes Core ready again.
#[tokio::test]
async fn readiness_tells_owner_standby_and_a_lost_database_apart() {
    let home = Home::new(Postgres).await;
    let gate = Gate::open(&home.location).await;
    let fixture = Fixture::new(Sqlite).await;
    let told = async |core: &palisade_control::Core| {
        let (status, body) = ask(core, Method::GET, "/readyz", &[], "").await;
        (status, body["status"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(told(&fixture.core).await, (StatusCode::OK, "ready".to_owned()));
    assert_eq!(told(&fixture.standby()).await, (StatusCode::SERVICE_UNAVAILABLE, "standby".to_owned()));

    let store = Store::open(&gate.before(&home.location)).await.unwrap();
    let behind = core(store, Some(fixture.lease));
    assert_eq!(behind.status().await, Status::Ready);
    gate.shut(false);
    while behind.status().await != Status::Unavailable {
        tokio::task::yield_now().await;
    }
    let (status, body) = ask(&behind, Method::GET, "/healthz", &[], "").await;
    assert_eq!((status, &body["status"]), (StatusCode::OK, &"live".into()), "the process lives all the same");
    gate.reopen();
    while behind.status().await != Status::Ready {
        tokio::task::yield_now().await;
    }
}

/// D 32. A database that answers and takes no writes is not ready: nothing could be recorded.
#[rstest]
#[tokio::test]
async fn a_database_that_takes_no_writes_is_unavailable(#[values(Sqlite, Postgres)] database: Database) {
    let home = Home::new(database).await;
    let serving = core(Store::open(&home.location).await.unwrap(), None);
    assert_eq!(serving.status().await, Status::Standby);
    let refusing = match &home.location {
        Location::Directory(_) => {
            // One connection writes.
            let mut tx = serving.store().write().await.unwrap();
            tx.execute("PRAGMA query_only = ON").await.unwrap();
            core(serving.store().clone(), None)
        }
        Location::Url(url) => {
            let refusing = Location::Url(format!("{url}&options[default_transaction_read_only]=on"));
            core(Store::beside(&refusing).await.unwrap(), None)
        }
    };
    assert_eq!(refusing.status().await, Status::Unavailable);
    refusing.store().read().await.unwrap().now().await.unwrap();
}

/// The audit log names the request by which its answer names it.
#[tokio::test]
async fn the_audit_log_and_the_answer_name_a_request_alike() {
    let fixture = Fixture::new(Sqlite).await;
    fixture.select().await;
    let request =
        Request::builder().method(Method::PUT).uri(DEPLOYMENT).header("authorization", format!("Bearer {KEY}"));
    let answer = http::router(fixture.core.clone()).oneshot(request.body(Body::from(selection(1, 3))).unwrap()).await;
    let answer = answer.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    let told = answer.headers()["x-request-id"].to_str().unwrap();
    assert_eq!(fixture.text("SELECT request_id FROM admin_audit_log WHERE action = 'change'").await, told);
}

/// A backup holds one moment, however much is written meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_backup_is_one_moment_of_a_database_that_is_written_to() {
    let home = Home::new(Sqlite).await;
    let store = Store::open(&home.location).await.unwrap();
    let stop = CancellationToken::new();
    let writing = tokio::spawn(stop.clone().run_until_cancelled_owned(write_pairs(store)));
    let folder = tempfile::tempdir().unwrap();
    for number in 0..5 {
        let target = folder.path().join(format!("backup {number}"));
        let made = backup(&home.location, &target).await.unwrap();
        assert_eq!(made.bytes, std::fs::metadata(&target).unwrap().len());
        assert_eq!(projects(&target).await % 2, 0, "both of a pair, or neither");
    }
    assert!(projects(&folder.path().join("backup 4")).await > 0, "it was written to");
    stop.cancel();
    writing.await.unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 5, "nothing else is left");
}

/// Two rows in each transaction, without end.
async fn write_pairs(store: Store) {
    loop {
        let mut tx = store.write().await.unwrap();
        let now = tx.now().await.unwrap();
        for _ in 0..2 {
            tx.create_project(Id::from_random(rand::random()), "pair", now).await.unwrap();
        }
        tx.commit().await.unwrap();
    }
}

async fn projects(database: &Path) -> i64 {
    let mut connection = AnyConnection::connect(&format!("sqlite://{}?mode=ro", database.display())).await.unwrap();
    sqlx::query_scalar("SELECT COUNT(*) FROM projects").fetch_one(&mut connection).await.unwrap()
}

/// A damaged database makes no backup that somebody might trust.
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "a throw-away file of a test")]
async fn a_damaged_database_makes_no_backup() {
    let home = Home::new(Sqlite).await;
    Store::open(&home.location).await.unwrap().close().await;
    let Location::Directory(directory) = &home.location else { panic!("an embedded database") };
    let file = directory.join("palisade.db");
    let mut bytes = std::fs::read(&file).unwrap();
    let length = bytes.len();
    bytes[length / 2..length / 2 + 8192].fill(0xa5);
    std::fs::write(&file, bytes).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let error = backup(&home.location, &folder.path().join("backup")).await.unwrap_err();
    assert!(matches!(error, BackupError::Copy(_) | BackupError::Damaged(_)), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
}
