//! The store itself.

use std::io::Write as _;
use std::pin::pin;
use std::sync::{Arc, Mutex};

use axum::http::{Method, StatusCode};
use palisade_control::limits::LARGE_WRITE_BYTES;
use palisade_control::store::{Location, OpenError, Store, StoreError};
use palisade_core::units::{Id, OwnerEpoch};
use rstest::rstest;
use tokio::task::JoinSet;

use crate::support::Database::{self, Postgres, Sqlite};
use crate::support::{Fixture, Home, claim, selection};

#[rstest]
#[tokio::test]
async fn a_store_opens_twice_and_keeps_its_installation(#[values(Sqlite, Postgres)] database: Database) {
    let home = Home::new(database).await;
    let store = Store::open(&home.location).await.unwrap();
    let first = claim(&store).await;
    store.close().await;
    drop(store);
    let second = claim(&Store::open(&home.location).await.unwrap()).await;
    assert_eq!(second.installation, first.installation);
    assert_eq!((first.epoch.get(), second.epoch.get()), (1, 2));
}

#[rstest]
#[tokio::test]
async fn an_owner_of_the_past_is_fenced(#[values(Sqlite, Postgres)] database: Database) {
    let fixture = Fixture::new(database).await;
    fixture.usurp().await;
    let mut tx = fixture.core.store().write().await.unwrap();
    assert!(matches!(tx.fence(fixture.lease.epoch).await, Err(StoreError::Fenced)));
    assert!(tx.fence(OwnerEpoch::new(2).unwrap()).await.is_ok());
}

/// D 51. D 53. D 54. A reservation wants an unreleased placement and an open admission, takes node and generation from
/// the placement and not from the target, and is made once.
#[rstest]
#[tokio::test]
async fn a_reservation_follows_its_placement(#[values(Sqlite, Postgres)] database: Database) {
    let fixture = Fixture::new(database).await;
    fixture.select().await;
    let node = fixture.enroll("one").await;
    let environment = fixture.place(&node, "placed").await;
    let store = fixture.core.store();
    let reserve = async || {
        let work = store.work(environment).await.unwrap().unwrap();
        let fresh = [(); 2].map(|()| Id::from_random(rand::random()));
        store.reserve_allocation(fixture.lease.epoch, &work, fresh.into()).await
    };
    fixture.execute("UPDATE runtime_placements SET released_at = 1").await;
    assert!(!reserve().await.unwrap(), "released");
    fixture.execute("UPDATE runtime_placements SET released_at = NULL").await;
    fixture
        .execute(
            "UPDATE runtime_deployment SET admission_paused = 1, reset_clear = 'force', reset_requested_at = 0, \
             reset_forced_at = 0, reset_audit = '{}'",
        )
        .await;
    assert!(!reserve().await.unwrap(), "paused");
    fixture
        .execute(
            "UPDATE runtime_deployment SET admission_paused = 0, reset_clear = NULL, reset_requested_at = NULL, \
             reset_forced_at = NULL, reset_audit = NULL",
        )
        .await;
    let (status, _) = fixture.admin(Method::PUT, "/core/v1/sandbox/deployment", &selection(1, 4)).await;
    assert_eq!(status, StatusCode::OK);

    assert!(reserve().await.unwrap());
    assert!(!reserve().await.unwrap(), "a repeat reserves nothing");
    assert_eq!(fixture.count("SELECT COUNT(*) FROM runtime_allocations").await, 1);
    assert_eq!(fixture.count("SELECT deployment_generation FROM runtime_allocations").await, 1);
    assert_eq!(fixture.text("SELECT node_id FROM runtime_allocations").await, node.id.to_string());
    fixture.usurp().await;
    assert!(matches!(reserve().await, Err(StoreError::Fenced)));
}

/// D 83. Superseded selections that nothing uses go lowest first, 32 in a pass; one that a node serves stays.
#[rstest]
#[tokio::test]
async fn superseded_selections_are_collected_a_few_at_a_time(#[values(Sqlite, Postgres)] database: Database) {
    let fixture = Fixture::new(database).await;
    fixture.select().await;
    fixture.enroll("serves generation 1").await;
    for generation in 1..=40 {
        let row = format!(
            "INSERT INTO runtime_deployment_generations VALUES ({generation}, 'docker', '{{}}', '{{}}', '{{}}', 1)"
        );
        fixture.execute(&row).await;
    }
    fixture.execute("UPDATE runtime_deployment SET generation = 41").await;
    for left in ["1,34,35,36,37,38,39,40", "1", "1"] {
        fixture.core.store().keep_up(fixture.lease.epoch).await.unwrap();
        let mut tx = fixture.core.store().read().await.unwrap();
        let query = "SELECT generation FROM runtime_deployment_generations ORDER BY generation";
        let found: Vec<i64> = sqlx::query_scalar(query).fetch_all(&mut *tx).await.unwrap();
        assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>().join(","), left);
    }
}

#[rstest]
#[tokio::test]
async fn the_clock_of_the_database_is_near_ours(#[values(Sqlite, Postgres)] database: Database) {
    let fixture = Fixture::new(database).await;
    let now = fixture.core.store().read().await.unwrap().now().await.unwrap();
    let ours = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    assert!(ours.abs_diff(now.0.try_into().unwrap()) < 60_000);
}

/// However many large writes wait, the next small one has at most one of them before it.
#[tokio::test]
async fn a_small_write_overtakes_large_ones() {
    let fixture = Fixture::new(Sqlite).await;
    let first = fixture.core.store().write_bytes(LARGE_WRITE_BYTES).await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut writes = JoinSet::new();
    for bytes in [LARGE_WRITE_BYTES, LARGE_WRITE_BYTES, 0] {
        let (store, order) = (fixture.core.store().clone(), Arc::clone(&order));
        writes.spawn(async move {
            let _tx = store.write_bytes(bytes).await.unwrap();
            order.lock().unwrap().push(bytes);
        });
        tokio::task::yield_now().await;
    }
    drop(first);
    writes.join_all().await;
    assert_eq!(*order.lock().unwrap(), [0, LARGE_WRITE_BYTES, LARGE_WRITE_BYTES]);
}

/// Large writes leave the connections to the others.
#[tokio::test]
async fn large_writes_take_one_connection() {
    let fixture = Fixture::new(Postgres).await;
    let store = fixture.core.store();
    let first = store.write_bytes(LARGE_WRITE_BYTES).await.unwrap();
    let mut second = pin!(store.write_bytes(LARGE_WRITE_BYTES));
    tokio::select! {
        biased;
        _ = &mut second => panic!("two large writes run"),
        small = store.write_bytes(LARGE_WRITE_BYTES - 1) => drop(small.unwrap()),
    }
    drop(first);
    second.await.unwrap();
}

#[tokio::test]
async fn a_data_directory_serves_one_process() {
    let home = Home::new(Sqlite).await;
    let store = Store::open(&home.location).await.unwrap();
    assert!(matches!(Store::open(&home.location).await, Err(OpenError::InUse { .. })));
    drop(store);
    assert!(Store::open(&home.location).await.is_ok());
}

/// Whoever opens it, and whatever the database says of itself: the operator learns which file it is about.
#[tokio::test]
async fn a_damaged_database_is_refused_with_its_path() {
    let home = Home::new(Sqlite).await;
    let Location::Directory(directory) = &home.location else { panic!("SQLite has a directory") };
    let file = directory.join("palisade.db");
    let nonsense = "this is no database ".repeat(500);
    std::fs::File::create(&file).unwrap().write_all(nonsense.as_bytes()).unwrap();
    for refused in [Store::open(&home.location).await, Store::beside(&home.location).await] {
        let told = refused.unwrap_err().to_string();
        assert!(told.contains(file.to_str().unwrap()) && told.contains("not a database"), "{told}");
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap().len(), 10_000, "it is as it was");
}

/// Promise 15. The first page is sound, and the rest is not: the operator learns which file that is, too.
#[tokio::test]
async fn a_database_that_is_damaged_further_on_is_refused_with_its_path() {
    let home = Home::new(Sqlite).await;
    Store::open(&home.location).await.unwrap().close().await;
    let Location::Directory(directory) = &home.location else { panic!("SQLite has a directory") };
    let file = directory.join("palisade.db");
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[4096..].fill(0x5a);
    std::fs::File::create(&file).unwrap().write_all(&bytes).unwrap();
    let told = Store::open(&home.location).await.unwrap_err().to_string();
    assert!(told.contains(file.to_str().unwrap()) && told.contains("malformed"), "{told}");
}

#[tokio::test]
async fn a_refused_database_url_is_not_repeated() {
    let refused = Store::open(&Location::Url("mysql://someone:hunter2@localhost/x".to_owned())).await.unwrap_err();
    assert!(!refused.to_string().contains("hunter2"));
    let unreachable = Location::Url("postgres://someone:hunter2@127.0.0.1:1/x".to_owned());
    let refused = Store::open(&unreachable).await.unwrap_err();
    assert!(!format!("{refused} {refused:?} {unreachable:?}").contains("hunter2"));
}

#[rstest]
#[tokio::test]
async fn unknown_paths_and_methods_are_named(#[values(Sqlite)] database: Database) {
    let fixture = Fixture::new(database).await;
    let (status, body) = fixture.admin(Method::GET, "/core/v1/nothing", "").await;
    assert_eq!((status, body["error"]["code"].as_str()), (StatusCode::NOT_FOUND, Some("not_found")));
}
