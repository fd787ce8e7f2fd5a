//! Resets of the deployment through the API and the owner (deployment §1.3, §1.4, §4.2).

use axum::http::{Method, StatusCode};
use palisade_control::owner;
use rstest::rstest;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::support::Database::{self, Postgres, Sqlite};
use crate::support::{Fixture, NewNode, admin, code, selection};

const VIEW: &str = "/core/v1/sandbox/deployment";
const RESET: &str = "/core/v1/sandbox/deployment/reset";
const CANCEL: &str = "/core/v1/sandbox/deployment/reset?expected_generation=1";

async fn configured(database: Database) -> (Fixture, NewNode) {
    let fixture = Fixture::new(database).await;
    fixture.select().await;
    let node = fixture.enroll("one").await;
    (fixture, node)
}

async fn start(fixture: &Fixture, clear: &str) -> Value {
    let body = json!({"expected_generation": 1, "clear": clear}).to_string();
    let (status, view) = fixture.admin(Method::POST, RESET, &body).await;
    assert_eq!(status, StatusCode::OK, "{view}");
    view
}

async fn audits(fixture: &Fixture) -> Vec<String> {
    let mut tx = fixture.core.store().read().await.unwrap();
    sqlx::query_scalar("SELECT action FROM admin_audit_log WHERE action LIKE 'reset%' ORDER BY created_at, action DESC")
        .fetch_all(&mut *tx)
        .await
        .unwrap()
}

/// D 57. D 61. A start answers the view with the deadline exactly an hour later; a repetition keeps it and records
/// nothing; an escalation keeps both times; `auto` afterwards is refused.
#[rstest]
#[tokio::test]
async fn a_reset_keeps_its_times_whoever_repeats_it(#[values(Sqlite, Postgres)] database: Database) {
    let (fixture, _) = configured(database).await;
    let first = start(&fixture, "auto").await["reset"].clone();
    let time = |value: &Value| palisade_core::admin::time::Timestamp::parse(value.as_str().unwrap()).unwrap().0;
    assert_eq!(time(&first["deadline_at"]) - time(&first["requested_at"]), 3_600_000);
    assert_eq!((&first["clear"], &first["forced_at"]), (&json!("auto"), &Value::Null));

    let body = json!({"expected_generation": 1, "clear": "auto", "deadline_seconds": 300}).to_string();
    let (status, again) = fixture.admin(Method::POST, RESET, &body).await;
    assert_eq!((status, &again["reset"]), (StatusCode::OK, &first));
    let forced = start(&fixture, "force").await["reset"].clone();
    assert_eq!((&forced["requested_at"], &forced["deadline_at"]), (&first["requested_at"], &first["deadline_at"]));
    assert!(forced["forced_at"].is_string());
    assert_eq!(start(&fixture, "force").await["reset"], forced);

    let body = json!({"expected_generation": 1, "clear": "auto"}).to_string();
    let (status, refused) = fixture.admin(Method::POST, RESET, &body).await;
    assert_eq!((status, code(&refused)), (StatusCode::CONFLICT, "sandbox_reset_in_progress"));
    assert_eq!(audits(&fixture).await, ["reset_start", "reset_force"]);
}

/// D 57. D 58. What is wrong is told by code, member and bounds, and changes nothing.
#[rstest]
#[tokio::test]
async fn refused_resets_change_nothing(#[values(Sqlite, Postgres)] database: Database) {
    let (fixture, _) = configured(database).await;
    let before = fixture.view().await;
    for (body, status, expected, param) in [
        (r#"{"clear":"auto"}"#, 400, "invalid_request_error", json!("expected_generation")),
        (r#"{"expected_generation":1}"#, 400, "invalid_request_error", json!("clear")),
        (
            r#"{"expected_generation":1,"clear":"auto","deadline_seconds":299}"#,
            400,
            "invalid_request_error",
            json!("deadline_seconds"),
        ),
        ("{", 400, "invalid_request_error", Value::Null),
        (r#"{"expected_generation":0,"clear":"auto"}"#, 409, "sandbox_generation_stale", Value::Null),
    ] {
        let (answered, answer) = fixture.admin(Method::POST, RESET, body).await;
        assert_eq!((answered.as_u16(), code(&answer)), (status, expected), "{body}");
        assert_eq!(answer["error"]["param"], param, "{body}");
    }
    let large = format!(r#"{{"expected_generation":1,"clear":"{}"}}"#, "x".repeat(4096));
    let (status, answer) = fixture.admin(Method::POST, RESET, &large).await;
    assert_eq!((status, code(&answer)), (StatusCode::PAYLOAD_TOO_LARGE, "request_too_large"));
    for query in ["", "?expected_generation=", "?expected_generation=1&expected_generation=1", "?generation=1"] {
        let (status, answer) = fixture.admin(Method::DELETE, &format!("{RESET}{query}"), "").await;
        assert_eq!((status, code(&answer)), (StatusCode::BAD_REQUEST, "invalid_request_error"), "{query}");
    }
    let (status, answer) = fixture.admin(Method::DELETE, &format!("{RESET}?expected_generation=7"), "").await;
    assert_eq!((status, code(&answer)), (StatusCode::CONFLICT, "sandbox_generation_stale"));
    assert_eq!(answer["error"]["details"], json!({"current_generation": 1}));
    let (status, _) = fixture.admin(Method::GET, RESET, "").await;
    assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(fixture.view().await, before);
    let unconfigured = Fixture::new(database).await;
    let (status, answer) =
        unconfigured.admin(Method::POST, RESET, r#"{"expected_generation":0,"clear":"force"}"#).await;
    assert_eq!((status, code(&answer)), (StatusCode::CONFLICT, "sandbox_not_configured"));
}

/// D 58. D 62. A cancellation reopens admission without residue and is recorded once; without a reset it does nothing.
#[rstest]
#[tokio::test]
async fn a_cancellation_leaves_no_trace_of_the_reset(#[values(Sqlite, Postgres)] database: Database) {
    let (fixture, _) = configured(database).await;
    let before = fixture.view().await;
    start(&fixture, "auto").await;
    let (status, answer) = fixture.admin(Method::PUT, VIEW, &selection(1, 4)).await;
    assert_eq!((status, code(&answer)), (StatusCode::CONFLICT, "sandbox_reset_in_progress"));
    for _ in 0..2 {
        let (status, view) = fixture.admin(Method::DELETE, CANCEL, "").await;
        assert_eq!((status, &view), (StatusCode::OK, &before));
    }
    assert_eq!(audits(&fixture).await, ["reset_start", "reset_cancel"]);
    let (status, _) = fixture.admin(Method::PUT, VIEW, &selection(1, 4)).await;
    assert_eq!(status, StatusCode::OK);
}

/// D 63. Without the lease, under a lost one, or without its audit, there is no reset.
#[rstest]
#[tokio::test]
async fn no_reset_starts_without_lease_or_audit(#[values(Sqlite, Postgres)] database: Database) {
    let (fixture, _) = configured(database).await;
    let body = r#"{"expected_generation":1,"clear":"auto"}"#;
    for (method, path) in [(Method::POST, RESET), (Method::DELETE, CANCEL)] {
        let (status, answer) = admin(&fixture.standby(), method, path, body).await;
        assert_eq!((status, code(&answer)), (StatusCode::SERVICE_UNAVAILABLE, "execution_unavailable"));
    }
    fixture.execute("ALTER TABLE admin_audit_log RENAME TO hidden").await;
    let (status, _) = fixture.admin(Method::POST, RESET, body).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    fixture.execute("ALTER TABLE hidden RENAME TO admin_audit_log").await;
    fixture.usurp().await;
    let (status, answer) = fixture.admin(Method::POST, RESET, body).await;
    assert_eq!((status, code(&answer)), (StatusCode::SERVICE_UNAVAILABLE, "execution_unavailable"));
    assert_eq!(fixture.view().await["reset"], Value::Null);
}

/// D 60. D 61. With nothing held a reset ends: provider gone, generation and epoch one higher, nodes and tokens retired,
/// both audits by the starter, and a first selection works at once without a restart.
#[rstest]
#[tokio::test]
async fn a_reset_with_nothing_held_ends_unconfigured(#[values(Sqlite, Postgres)] database: Database) {
    let (fixture, node) = configured(database).await;
    let token = fixture.token("{}").await;
    let _owner = fixture.own();
    // The answer may already show the end of it.
    start(&fixture, "auto").await;
    let ended = fixture.until(|view| view["generation"] == 2).await;
    assert_eq!((&ended["provider"], &ended["mode"], &ended["reset"]), (&json!(""), &json!(""), &Value::Null));
    assert_eq!(ended["owner_epoch"].as_u64(), Some(fixture.lease.epoch.get() + 1));
    assert_eq!(ended.as_object().unwrap().len(), 11);
    assert_eq!(ended["installation_id"], fixture.lease.installation.to_string());
    let (_, nodes) = fixture.admin(Method::GET, "/core/v1/sandbox/nodes", "").await;
    assert_eq!(nodes["data"], json!([]));
    assert_eq!(fixture.count("SELECT COUNT(*) FROM runtime_deployment_generations").await, 0);
    for bearer in [&node.credential, &token] {
        let headers = [("authorization", format!("Bearer {bearer}")), ("x-oac-node-id", node.id.to_string())];
        let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
        let path = "/api/v1/sandbox-node/configuration";
        let (status, answer) = crate::support::ask(&fixture.core, Method::GET, path, &headers, "").await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{answer}");
    }
    assert_eq!(audits(&fixture).await, ["reset_start", "reset_complete"]);
    let (status, again) = fixture.admin(Method::POST, VIEW, &selection(2, 2)).await;
    assert_eq!((status, &again["generation"]), (StatusCode::OK, &json!(3)));
}

/// D 69. D 97. An idle sandbox is archived by the starter and released; what the view says remains adds up and names the
/// offline node; the reset then ends.
#[rstest]
#[tokio::test]
async fn an_idle_sandbox_is_archived_and_the_reset_ends(#[values(Sqlite, Postgres)] database: Database) {
    let (fixture, node) = configured(database).await;
    fixture.place(&node, "p").await;
    let reset = start(&fixture, "auto").await;
    let offline = json!([{"node_id": node.id, "name": "one", "resources": 1}]);
    let remaining = json!({"busy": 0, "idle": 1, "cleanup": 0, "on_offline_nodes": 1, "offline_nodes": offline});
    assert_eq!(reset["reset"]["remaining"], remaining);
    let _owner = fixture.own();
    fixture.until(|view| view["generation"] == 2).await;
    assert_eq!(fixture.text("SELECT status FROM environments").await, "expired");
    assert_eq!(fixture.count("SELECT COUNT(*) FROM runtime_placements WHERE released_at IS NULL").await, 0);
    let archived = "SELECT COUNT(*) FROM admin_audit_log a JOIN projects p ON p.id = a.project_id \
         WHERE a.action = 'archive' AND a.admin_credential_id = \
         (SELECT admin_credential_id FROM admin_audit_log WHERE action = 'reset_start')";
    assert_eq!(fixture.count(archived).await, 1);
}

/// A live allocation on an offline node blocks the end, also under `force`, until its cleanup is confirmed.
#[rstest]
#[tokio::test]
async fn what_an_offline_node_holds_blocks_the_end(#[values(Sqlite, Postgres)] database: Database) {
    let (fixture, node) = configured(database).await;
    fixture.run_sandbox(&node).await;
    let _owner = fixture.own();
    start(&fixture, "force").await;
    let blocked = fixture.until(|view| view["reset"]["remaining"]["cleanup"] == 1).await;
    assert_eq!(blocked["reset"]["remaining"]["on_offline_nodes"], 1);
    assert_eq!((&blocked["generation"], &blocked["resources"]["allocations"]), (&json!(1), &json!(1)));
    fixture.execute("UPDATE runtime_allocations SET state = 'released', released_at = 2").await;
    fixture.execute("UPDATE runtime_placements SET released_at = 2").await;
    fixture.until(|view| view["generation"] == 2).await;
}

/// D 67. A reset that was cancelled and started again is another one, and ends as the new one; a new owner goes on with
/// what the rows say.
#[rstest]
#[tokio::test]
async fn a_new_owner_goes_on_with_the_reset(#[values(Sqlite, Postgres)] database: Database) {
    let (fixture, node) = configured(database).await;
    fixture.place(&node, "p").await;
    start(&fixture, "auto").await;
    fixture.admin(Method::DELETE, CANCEL, "").await;
    start(&fixture, "force").await;
    let lease = fixture.usurp().await;
    let core = crate::support::core(fixture.core.store().clone(), Some(lease));
    let stop = CancellationToken::new();
    let (_guard, _) = (stop.clone().drop_guard(), tokio::spawn(owner::run(core.clone(), stop)));
    let ended = fixture.until(|view| view["generation"] == 2).await;
    assert_eq!(ended["owner_epoch"].as_u64(), Some(lease.epoch.get() + 1));
    assert_eq!(core.execution().lease().unwrap().epoch.get(), lease.epoch.get() + 1);
}
