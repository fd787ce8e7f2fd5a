//! Core as a process: listening, ownership, stopping, a full disk.

use axum::http::{Method, StatusCode};
use palisade_control::store::Location;
use palisade_control::{Options, ServeError, Server};
use rstest::rstest;
use sqlx::Executor as _;
use tokio_util::sync::CancellationToken;

use crate::support::Database::{self, Postgres, Sqlite};
use crate::support::{Fixture, Home, KEY, admin, code, selection};

#[expect(clippy::disallowed_methods, reason = "a throw-away file of a test")]
fn options(store: Location, keys: &std::path::Path) -> Options {
    std::fs::write(keys, KEY).unwrap();
    Options {
        listen: "127.0.0.1:0".parse().unwrap(),
        store,
        public_url: None,
        admin_key_file: Some(keys.to_owned()),
        admin_key_digests: None,
    }
}

/// D 19. A Core on loopback serves Docker, stops when it is asked, and comes back under a higher epoch.
#[rstest]
#[tokio::test]
async fn a_core_stops_and_comes_back(#[values(Sqlite, Postgres)] database: Database) {
    let home = Home::new(database).await;
    let keys = tempfile::NamedTempFile::new().unwrap();
    for epoch in 1..=2 {
        let server = Server::start(options(home.location.clone(), keys.path())).await.unwrap();
        let (core, stop) = (server.core().clone(), CancellationToken::new());
        assert_eq!(core.public_url(), format!("http://{}", server.address()));
        // PostgreSQL frees the lock of a closed connection on its own time; a standby waits for it.
        let running = tokio::spawn(server.run(stop.clone()));
        let lease = core.execution().clone().changed(None).await.unwrap();
        assert_eq!(lease.epoch.get(), epoch);
        let (status, view) = admin(&core, Method::POST, "/core/v1/sandbox/deployment", &selection(epoch - 1, 2)).await;
        assert_eq!((status, &view["owner_epoch"]), (StatusCode::OK, &serde_json::json!(epoch)), "{view}");
        stop.cancel();
        running.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_core_without_a_key_or_with_a_bad_url_does_not_start() {
    let home = Home::new(Sqlite).await;
    let keys = tempfile::NamedTempFile::new().unwrap();
    let bare = Options { admin_key_file: None, ..options(home.location.clone(), keys.path()) };
    assert!(matches!(Server::start(bare).await, Err(ServeError::Keys(_))));
    let url = Some("https://core.example/path".to_owned());
    let bad = Options { public_url: url, ..options(home.location.clone(), keys.path()) };
    assert!(matches!(Server::start(bad).await, Err(ServeError::PublicUrl)));
}

/// On a full disk nothing is half written: the write is refused with 500, reads go on, and room heals it.
#[tokio::test]
async fn a_full_disk_loses_nothing() {
    let fixture = Fixture::new(Sqlite).await;
    fixture.select().await;
    let limit_pages = async |pages: i64| {
        // The limit belongs to a connection: hold all of the pool at once, so that none is left out.
        let mut held = Vec::new();
        for _ in 0..palisade_control::limits::CONNECTIONS_MAX {
            let mut tx = fixture.core.store().read().await.unwrap();
            tx.execute(sqlx::AssertSqlSafe(format!("PRAGMA max_page_count = {pages}"))).await.unwrap();
            held.push(tx);
        }
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
