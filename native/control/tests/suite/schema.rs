//! The schema: every earlier state of it moves on with its data, and what never changes is refused by the database.

use std::collections::BTreeMap;

use palisade_control::store::{Store, migrate};
use rstest::rstest;
use sqlx::migrate::Migrator;
use sqlx::{AnyConnection, Connection as _, Executor as _};

use crate::contents::{Rows, rows_of, tables};
use crate::support::Database::{self, Postgres, Sqlite};
use crate::support::{Fixture, Home, claim, selection};

static MIGRATIONS: Migrator = sqlx::migrate!("./migrations");

/// One row of everything, in the columns that every state of the schema has.
const DATA: &[&str] = &[
    "UPDATE runtime_deployment SET installation_id = '94be54a1-138c-4f30-bc87-b13686272dbe', generation = 7, \
     owner_epoch = 4",
    "INSERT INTO runtime_deployment_generations VALUES (5, 'docker', '{}', '{}', '{}', 1)",
    "INSERT INTO runtime_nodes (id, installation_id, name, backend_fingerprint, credential_sha256, max_active, \
     max_retained, specification_digest, deployment_generation, core_url, ready_generation, created_at) \
     VALUES ('n', '94be54a1-138c-4f30-bc87-b13686272dbe', 'node', 'f', 'c', 2, 2, 'd', 5, 'https://core.example', 5, 1)",
    "INSERT INTO runtime_node_enrollments (token_sha256, id, installation_id, created_at, expires_at, max_active) \
     VALUES ('t', 'e', 'i', 1, 2, 3)",
    "INSERT INTO runtime_node_generation_status (node_id, generation, specification_digest, connection_id, owner_epoch, \
     state, observed_at) VALUES ('n', 5, 'd', 'c', 4, 'ready', 1)",
    "INSERT INTO node_host_history_samples VALUES ('n', 1, 0.5, 2, 3)",
    "INSERT INTO admin_audit_log (id, created_at, admin_credential_id, actor_label, action, resource_type, resource_id, \
     request_id, trace_id) VALUES ('a', 1, 'key', 'core key', 'change', 'sandbox_deployment', 'i', 'r', 't')",
    "INSERT INTO projects VALUES ('p', 'tenant', 'name', 1, NULL)",
    "INSERT INTO project_keys VALUES ('k', 'p', 'main', 'digest', 1, NULL)",
    "INSERT INTO sessions (id, project_id, tenant_id, environment_type, idempotency_key, created_at) \
     VALUES ('s', 'p', 'tenant', 'openai_hosted', 'once', 1)",
    "INSERT INTO environments (id, session_id, status, created_at, changed_at) VALUES ('e', 's', 'connected', 1, 1)",
    "INSERT INTO runtime_placements VALUES ('e', 'n', 5, 1, NULL)",
    "INSERT INTO runtime_allocations (id, environment_id, device_id, provider_key, node_id, deployment_generation, state, \
     create_settled, created_at, kept_at) VALUES ('l', 'e', 'v', 'i', 'n', 5, 'running', 1, 1, 1)",
    "INSERT INTO turns (id, session_id, environment_id, position, status, args, timeout_ms, created_at) \
     VALUES ('u', 's', 'e', 1, 'queued', '[\"true\"]', 1, 1)",
    "INSERT INTO runtime_observations VALUES ('o', 'l', 'p', 's', '{}', 1)",
];

/// One row of what only later states have, with the first of them.
const LATER_DATA: &[(i64, &str)] = &[(4, "INSERT INTO core_keys VALUES ('k', 'digest', 'name', 1, NULL)")];

fn versions() -> Vec<i64> {
    MIGRATIONS.iter().map(|migration| migration.version).collect()
}

/// Whatever version of Core wrote a database, this one migrates it, loses no value, and works with it.
#[rstest]
#[tokio::test]
async fn every_earlier_schema_moves_on_with_its_data(#[values(Sqlite, Postgres)] database: Database) {
    for version in versions() {
        let home = Home::new(database).await;
        let mut connection = AnyConnection::connect(&home.url()).await.unwrap();
        MIGRATIONS.run_to(version, &mut connection).await.unwrap();
        let later = LATER_DATA.iter().filter(|(first, _)| *first <= version).map(|(_, statement)| statement);
        for statement in DATA.iter().chain(later) {
            connection.execute(*statement).await.unwrap_or_else(|error| panic!("{version}: {error}: {statement}"));
        }
        let mut before = BTreeMap::new();
        for table in tables() {
            let rows = rows_of(&mut connection, table).await;
            before.extend(rows.map(|rows| (table, rows)));
        }
        connection.close().await.unwrap();

        migrate(&home.location).await.unwrap();
        let store = Store::open(&home.location).await.unwrap();
        let mut tx = store.read().await.unwrap();
        for (table, rows) in &before {
            assert!(!rows.is_empty() || *table == "turn_inputs", "{version}: {table} has data");
            let now = rows_of(&mut tx, table).await.unwrap_or_default();
            assert_kept(rows, &now, &format!("{version}: {table}"));
        }
        drop(tx);
        assert_eq!(claim(&store).await.epoch.get(), 5);
        store.close().await;
        drop(store);
        Store::open(&home.location).await.unwrap();
    }
}

/// Every row is still there, with the same value in each column that there still is.
fn assert_kept(before: &Rows, now: &Rows, place: &str) {
    assert_eq!(before.len(), now.len(), "{place}");
    for (before, now) in before.iter().zip(now) {
        for (column, value) in before {
            if let Some(kept) = now.get(column) {
                assert_eq!(value, kept, "{place}.{column}");
            }
        }
    }
}

/// D 23. A superseded selection is immutable, a number is never used again, and identities never change: the database
/// itself refuses it, whoever asks.
#[rstest]
#[tokio::test]
async fn what_never_changes_is_guarded(#[values(Sqlite, Postgres)] database: Database) {
    let fixture = Fixture::new(database).await;
    fixture.select().await;
    let node = fixture.enroll("one").await;
    fixture.place(&node, "placed").await;
    fixture
        .execute(
            "INSERT INTO runtime_allocations (id, environment_id, device_id, provider_key, node_id, \
             deployment_generation, state, created_at, kept_at) \
             SELECT 'a', environment_id, 'd', 'i', node_id, 1, 'creating', 1, 1 FROM runtime_placements",
        )
        .await;
    let (status, _) = fixture.admin("PUT".parse().unwrap(), "/core/v1/sandbox/deployment", &selection(1, 3)).await;
    assert!(status.is_success());
    assert_eq!(fixture.count("SELECT COUNT(*) FROM runtime_deployment_generations").await, 1);
    for (change, reason) in [
        ("UPDATE runtime_deployment SET generation = 1", "only rise"),
        ("UPDATE runtime_deployment SET owner_epoch = owner_epoch - 1", "only rise"),
        ("DELETE FROM runtime_deployment", "never deleted"),
        ("UPDATE runtime_deployment_generations SET specification = '{}'", "never changes"),
        ("UPDATE runtime_deployment_generations SET generation = 2", "never changes"),
        ("UPDATE runtime_nodes SET deployment_generation = 2", "never changes"),
        ("UPDATE runtime_nodes SET specification_digest = 'x'", "never changes"),
        ("UPDATE runtime_nodes SET credential_sha256 = 'x'", "never changes"),
        ("DELETE FROM runtime_nodes", "stays"),
        ("UPDATE runtime_placements SET deployment_generation = 2", "keeps its node and generation"),
        ("UPDATE runtime_allocations SET deployment_generation = 2", "an allocation keeps"),
        ("UPDATE runtime_allocations SET node_id = NULL", "an allocation keeps"),
    ] {
        assert!(refused(&fixture, change).await.contains(reason), "{change}");
    }
    let removed = "UPDATE runtime_nodes SET removed_at = 1";
    fixture.execute(removed).await;
    assert!(refused(&fixture, "UPDATE runtime_nodes SET removed_at = NULL").await.contains("does not come back"));
    let again = "INSERT INTO runtime_deployment_generations SELECT * FROM runtime_deployment_generations";
    assert!(!refused(&fixture, again).await.is_empty(), "a number stands for one selection");
}

async fn refused(fixture: &Fixture, change: &'static str) -> String {
    let mut tx = fixture.core.store().write().await.unwrap();
    match tx.execute(change).await {
        Ok(done) => panic!("{change} changed {} rows", done.rows_affected()),
        Err(error) => error.to_string(),
    }
}
