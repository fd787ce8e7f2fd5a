//! Nodes: enrollment commands, administration, machine routes (deployment §1.6–§1.13, wire §9).

use axum::http::{Method, StatusCode};
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::Database::{self, Postgres, Sqlite};
use crate::support::{Fixture, NewNode, ask, code, selection};

const NODES: &str = "/core/v1/sandbox/nodes";
const TOKENS: &str = "/core/v1/sandbox/enrollment-tokens";
const DEPLOYMENT: &str = "/core/v1/sandbox/deployment";

async fn fixture(database: Database) -> Fixture {
    let fixture = Fixture::new(database).await;
    fixture.select().await;
    fixture
}

async fn digest(fixture: &Fixture) -> String {
    let (_, view) = fixture.admin(Method::GET, DEPLOYMENT, "").await;
    view["specification_digest"].as_str().unwrap().to_owned()
}

/// Reads the configuration as a registered node.
async fn configuration(fixture: &Fixture, node: &NewNode, query: &str) -> (StatusCode, Value) {
    let path = format!("/api/v1/sandbox-node/configuration{query}");
    let bearer = format!("Bearer {}", node.credential);
    let id = node.id.to_string();
    ask(&fixture.core, Method::GET, &path, &[("authorization", &bearer), ("x-oac-node-id", &id)], "").await
}

async fn identity(fixture: &Fixture, node: &NewNode) -> (StatusCode, Value) {
    fixture.machine(Method::GET, &format!("identity?node_id={}", node.id), &node.credential, "").await
}

/// D 70. A token's capacity is bounded, reaches configuration, identity and node; an administrator's change reaches all
/// reads, and a refused one writes nothing.
#[rstest]
#[tokio::test]
async fn approved_capacity_reaches_every_read(#[values(Sqlite, Postgres)] database: Database) {
    let fixture = fixture(database).await;
    for (body, param) in [(r#"{"max_active":0}"#, "max_active"), (r#"{"max_active":1000001}"#, "max_active")] {
        let (status, answer) = fixture.admin(Method::POST, TOKENS, body).await;
        assert_eq!((status, code(&answer)), (StatusCode::BAD_REQUEST, "invalid_node_capacity"));
        assert_eq!(answer["error"]["param"], param);
        assert_eq!(answer["error"]["details"], json!({"min": 1, "max": 1_000_000}));
    }
    let token = fixture.token(r#"{"max_active":5}"#).await;
    let (status, read) = fixture.machine(Method::GET, "configuration", &token, "").await;
    assert_eq!((status, &read["max_active"], &read["generation"]), (StatusCode::OK, &json!(5), &json!(1)));
    assert_eq!(read["specification_digest"], digest(&fixture).await);

    let node = NewNode::new("one");
    let body = node.enrollment(1, &digest(&fixture).await);
    let (status, answer) = fixture.machine(Method::POST, "enroll", &token, &body).await;
    assert_eq!((status, &answer["max_active"]), (StatusCode::CREATED, &json!(5)));
    assert_eq!(answer.as_object().unwrap().len(), 7);

    let path = format!("{NODES}/{}", node.id);
    let change = json!({"name": "renamed", "max_active": 7, "max_retained": 1}).to_string();
    let (status, answer) = fixture.admin(Method::PATCH, &path, &change).await;
    assert_eq!((status, answer), (StatusCode::OK, json!({"id": node.id, "updated": true})));
    let refused = json!({"name": "again", "max_active": 0, "max_retained": 1}).to_string();
    assert_eq!(fixture.admin(Method::PATCH, &path, &refused).await.0, StatusCode::BAD_REQUEST);
    let (_, shown) = fixture.admin(Method::GET, &path, "").await;
    assert_eq!((&shown["name"], &shown["max_active"]), (&json!("renamed"), &json!(7)));
    assert_eq!(identity(&fixture, &node).await.1["max_active"], 7);
    assert_eq!(configuration(&fixture, &node, "").await.1["max_active"], 7);
}

/// D 71. Docker's retained limit equals the active one in token, configuration, identity, list and update, for old rows
/// too.
#[rstest]
#[tokio::test]
async fn the_retained_limit_of_docker_follows_the_active_one(#[values(Sqlite, Postgres)] database: Database) {
    let fixture = fixture(database).await;
    let token = fixture.token(r#"{"max_active":3,"max_retained":9}"#).await;
    assert_eq!(fixture.machine(Method::GET, "configuration", &token, "").await.1["max_retained"], 3);
    let node = fixture.enroll("one").await;
    fixture.execute("UPDATE runtime_nodes SET max_active = 4, max_retained = 40").await;
    assert_eq!(identity(&fixture, &node).await.1["max_retained"], 4);
    assert_eq!(configuration(&fixture, &node, "").await.1["max_retained"], 4);
    assert_eq!(fixture.admin(Method::GET, NODES, "").await.1["data"][0]["max_retained"], 4);
    let path = format!("{NODES}/{}", node.id);
    let change = json!({"name": "one", "max_active": 6, "max_retained": 0}).to_string();
    assert_eq!(fixture.admin(Method::PATCH, &path, &change).await.0, StatusCode::OK);
    assert_eq!(fixture.count("SELECT max_retained FROM runtime_nodes").await, 6);
}

/// D 72. W 174. A missing or wrong credential is 401 on configuration, identity and enroll, before deployment, query and
/// body are looked at, and every refusal leaves the token unused.
#[rstest]
#[tokio::test]
async fn a_credential_is_judged_first(#[values(Sqlite, Postgres)] database: Database) {
    let fixture = Fixture::new(database).await;
    for path in ["configuration?generation=x", "identity", "identity?node_id=x&node_id=y"] {
        let route = format!("/api/v1/sandbox-node/{path}");
        let (status, answer) = ask(&fixture.core, Method::GET, &route, &[], "").await;
        assert_eq!((status, code(&answer)), (StatusCode::UNAUTHORIZED, "invalid_node_credential"), "{path}");
    }
    let (status, _) = ask(&fixture.core, Method::POST, "/api/v1/sandbox-node/enroll", &[], "{").await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    let node = NewNode::new("one");
    let unknown = "0".repeat(64);
    let body = node.enrollment(1, &"2".repeat(64));
    assert_eq!(fixture.machine(Method::POST, "enroll", &unknown, &body).await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(fixture.machine(Method::GET, "configuration", &unknown, "").await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(identity(&fixture, &node).await.0, StatusCode::UNAUTHORIZED);

    fixture.select().await;
    let token = fixture.token("{}").await;
    for (body, expected) in [
        ("{", "invalid_request"),
        (&body.replace("\"docker\"", "\"microsandbox\""), "invalid_request"),
        (&body, "sandbox_specification_mismatch"),
        (&node.enrollment(2, &digest(&fixture).await), "sandbox_specification_mismatch"),
    ] {
        let (_, answer) = fixture.machine(Method::POST, "enroll", &token, body).await;
        assert_eq!(code(&answer), expected);
    }
    let body = node.enrollment(1, &digest(&fixture).await);
    assert_eq!(fixture.machine(Method::POST, "enroll", &token, &body).await.0, StatusCode::CREATED);
}

/// W 178. Before initialization a bad credential is 401 and a good token is 503; a token of another installation is 401.
#[rstest]
#[tokio::test]
async fn a_token_of_another_installation_is_no_token(#[values(Sqlite, Postgres)] database: Database) {
    let fixture = fixture(database).await;
    let token = fixture.token("{}").await;
    fixture
        .execute("UPDATE runtime_node_enrollments SET installation_id = '94be54a1-138c-4f30-bc87-b13686272dbe'")
        .await;
    assert_eq!(fixture.machine(Method::GET, "configuration", &token, "").await.0, StatusCode::UNAUTHORIZED);
    let body = NewNode::new("one").enrollment(1, &digest(&fixture).await);
    assert_eq!(fixture.machine(Method::POST, "enroll", &token, &body).await.0, StatusCode::UNAUTHORIZED);
    fixture.execute("UPDATE runtime_deployment SET installation_id = NULL").await;
    for (method, path) in [(Method::GET, "configuration"), (Method::POST, "enroll")] {
        let (status, answer) = fixture.machine(method.clone(), path, &token, &body).await;
        assert_eq!((status, code(&answer)), (StatusCode::SERVICE_UNAVAILABLE, "runtime_node_unavailable"));
        let (status, _) = fixture.machine(method, path, &"0".repeat(64), &body).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED);
    }
}

/// D 73. A store that fails is unavailable, never a rejection: the node must come again.
#[rstest]
#[tokio::test]
async fn a_failed_store_rejects_nobody(#[values(Sqlite, Postgres)] database: Database) {
    let fixture = fixture(database).await;
    let node = fixture.enroll("one").await;
    let token = fixture.token("{}").await;
    let body = NewNode::new("two").enrollment(1, &digest(&fixture).await);
    fixture.core.store().close().await;
    for (status, answer) in [
        identity(&fixture, &node).await,
        configuration(&fixture, &node, "").await,
        fixture.machine(Method::POST, "enroll", &token, &body).await,
    ] {
        assert_eq!((status, code(&answer)), (StatusCode::SERVICE_UNAVAILABLE, "runtime_node_unavailable"));
    }
}

/// D 74. D 87. W 180. Another address keeps the token and registers nothing; none at all is named before the token is
/// read; then the token works.
#[rstest]
#[tokio::test]
async fn an_address_mismatch_keeps_the_token(#[values(Sqlite, Postgres)] database: Database) {
    let fixture = fixture(database).await;
    let node = NewNode::new("one");
    let body = node.enrollment(1, &digest(&fixture).await);
    let absent = body.replace(r#""core_url":"https://core.example","#, "");
    assert_ne!(absent, body);
    for body in [absent, body.replace("https://core.example", "")] {
        let (status, answer) = fixture.machine(Method::POST, "enroll", &"0".repeat(64), &body).await;
        assert_eq!((status, code(&answer)), (StatusCode::BAD_REQUEST, "invalid_request_error"));
        assert_eq!(answer["error"]["param"], "core_url");
    }
    let token = fixture.token("{}").await;
    let elsewhere = body.replace("https://core.example", "https://other.example");
    let (status, answer) = fixture.machine(Method::POST, "enroll", &token, &elsewhere).await;
    assert_eq!((status, code(&answer)), (StatusCode::CONFLICT, "sandbox_node_address_mismatch"));
    assert_eq!(fixture.count("SELECT COUNT(*) FROM runtime_nodes").await, 0);
    assert_eq!(fixture.machine(Method::POST, "enroll", &token, &body).await.0, StatusCode::CREATED);
}

/// D 75. A consumed token is refused and identity recovers; an id stays taken after removal; the refused id keeps the
/// token.
#[rstest]
#[tokio::test]
async fn an_enrollment_is_not_replayed(#[values(Sqlite, Postgres)] database: Database) {
    let fixture = fixture(database).await;
    let (node, token) = (NewNode::new("one"), fixture.token("{}").await);
    let body = node.enrollment(1, &digest(&fixture).await);
    let (_, first) = fixture.machine(Method::POST, "enroll", &token, &body).await;
    assert_eq!(fixture.machine(Method::POST, "enroll", &token, &body).await.0, StatusCode::UNAUTHORIZED);
    let (status, recovered) = identity(&fixture, &node).await;
    assert_eq!(status, StatusCode::OK);
    for (member, value) in first.as_object().unwrap() {
        assert_eq!(recovered[member], *value, "{member}");
    }
    assert_eq!((&recovered["connected"], &recovered["provider_ready"]), (&json!(false), &json!(false)));

    let path = format!("{NODES}/{}", node.id.to_string().to_uppercase());
    let (status, removed) = fixture.admin(Method::DELETE, &path, "").await;
    assert_eq!((status, removed), (StatusCode::OK, json!({"id": node.id, "deleted": true})));
    assert_eq!(identity(&fixture, &node).await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(fixture.admin(Method::GET, &path, "").await.0, StatusCode::NOT_FOUND);
    let token = fixture.token("{}").await;
    let (status, answer) = fixture.machine(Method::POST, "enroll", &token, &body).await;
    assert_eq!((status, code(&answer)), (StatusCode::CONFLICT, "idempotency_conflict"));
    let fresh = NewNode::new("two").enrollment(1, &digest(&fixture).await);
    assert_eq!(fixture.machine(Method::POST, "enroll", &token, &fresh).await.0, StatusCode::CREATED);
}

/// D 72. An expired token is no token, by the clock of the database; issued tokens are stored as digests only.
#[rstest]
#[tokio::test]
async fn a_token_lives_ten_minutes(#[values(Sqlite, Postgres)] database: Database) {
    let fixture = fixture(database).await;
    let token = fixture.token("{}").await;
    assert_eq!(fixture.count("SELECT expires_at - created_at FROM runtime_node_enrollments").await, 600_000);
    assert_eq!(fixture.text("SELECT token_sha256 FROM runtime_node_enrollments").await.len(), 64);
    assert_ne!(fixture.text("SELECT token_sha256 FROM runtime_node_enrollments").await, token);
    fixture.execute("UPDATE runtime_node_enrollments SET expires_at = created_at").await;
    assert_eq!(fixture.machine(Method::GET, "configuration", &token, "").await.0, StatusCode::UNAUTHORIZED);
}

/// D 76. An update and a removal are refused by code and field, in order; nothing is written.
#[rstest]
#[tokio::test]
async fn node_updates_have_bounds(#[values(Sqlite, Postgres)] database: Database) {
    let fixture = fixture(database).await;
    let node = fixture.enroll("one").await;
    let path = format!("{NODES}/{}", node.id);
    let unknown = format!("{NODES}/94be54a1-138c-4f30-bc87-b13686272dbe");
    let (good, bad) =
        (r#"{"name":"n","max_active":1,"max_retained":1}"#, r#"{"name":" ","max_active":0,"max_retained":1}"#);
    for (path, body, status, expected) in [
        (path.as_str(), bad, 400, "invalid_name"),
        (&path, r#"{"name":"n","max_active":0,"max_retained":1}"#, 400, "invalid_node_capacity"),
        (&path, r#"{"name":"n"}"#, 400, "invalid_request"),
        ("/core/v1/sandbox/nodes/one", good, 400, "invalid_request"),
        ("/core/v1/sandbox/nodes/%ff", good, 400, "invalid_request"),
        ("/core/v1/sandbox/nodes/one", bad, 400, "invalid_name"),
        (&unknown, good, 404, "not_found_error"),
    ] {
        let (answered, answer) = fixture.admin(Method::PATCH, path, body).await;
        assert_eq!((answered.as_u16(), code(&answer)), (status, expected), "{path} {body}");
    }
    for (path, status) in [("/core/v1/sandbox/nodes/one", 400), (unknown.as_str(), 404)] {
        assert_eq!(fixture.admin(Method::DELETE, path, "").await.0.as_u16(), status);
        assert_eq!(fixture.admin(Method::GET, path, "").await.0.as_u16(), status);
        assert_eq!(fixture.admin(Method::GET, &format!("{path}/allocations"), "").await.0.as_u16(), status);
    }
    let (_, shown) = fixture.admin(Method::GET, &path, "").await;
    assert_eq!((&shown["name"], &shown["max_active"]), (&json!("one"), &json!(2)));
    assert_eq!(fixture.admin(Method::GET, &format!("{path}/allocations"), "").await.1, json!({"data": []}));
}

/// D 77. A machine's name is judged by the same rule.
#[rstest]
#[tokio::test]
async fn a_nameless_node_does_not_enroll(#[values(Sqlite, Postgres)] database: Database) {
    let fixture = fixture(database).await;
    let token = fixture.token("{}").await;
    for name in [String::new(), " \t".to_owned(), "a\nb".to_owned(), "x".repeat(129)] {
        let body = NewNode::new(&name).enrollment(1, &digest(&fixture).await);
        let (status, answer) = fixture.machine(Method::POST, "enroll", &token, &body).await;
        assert_eq!((status, code(&answer)), (StatusCode::BAD_REQUEST, "invalid_request"), "{name:?}");
    }
    let body = NewNode::new("a\tb").enrollment(1, &digest(&fixture).await);
    assert_eq!(fixture.machine(Method::POST, "enroll", &token, &body).await.0, StatusCode::CREATED);
}

/// D 79. Machine routes take canonical identifiers, exact digests and credentials of the right form only.
#[rstest]
#[tokio::test]
async fn malformed_identities_do_not_enroll(#[values(Sqlite, Postgres)] database: Database) {
    let fixture = fixture(database).await;
    let token = fixture.token("{}").await;
    let good = NewNode::new("one");
    let body = good.enrollment(1, &digest(&fixture).await);
    for (from, to) in [
        (good.id.to_string(), good.id.to_string().to_uppercase()),
        (good.id.to_string(), "00000000-0000-0000-0000-000000000000".to_owned()),
        (good.credential.clone(), "short".to_owned()),
        (good.credential.clone(), format!("{} ", good.credential)),
        ("1".repeat(64), "1".repeat(63)),
        ("1".repeat(64), "G".repeat(64)),
    ] {
        let changed = body.replace(&from, &to);
        assert_ne!(changed, body);
        let (status, answer) = fixture.machine(Method::POST, "enroll", &token, &changed).await;
        assert_eq!((status, code(&answer)), (StatusCode::BAD_REQUEST, "invalid_request"), "{changed}");
    }
}

/// D 84. A target change leaves the owner epoch, and a registered node reads an older generation that it still serves.
/// D 83. Removing the node frees the generation that only its pin kept.
#[rstest]
#[tokio::test]
async fn a_pin_keeps_its_generation(#[values(Sqlite, Postgres)] database: Database) {
    let fixture = fixture(database).await;
    let node = fixture.enroll("one").await;
    let older = digest(&fixture).await;
    let (_, view) = fixture.admin(Method::PUT, DEPLOYMENT, &selection(1, 4)).await;
    assert_eq!((&view["owner_epoch"], &view["generation"]), (&json!(fixture.lease.epoch.get()), &json!(2)));
    let (status, read) = configuration(&fixture, &node, "?generation=1").await;
    assert_eq!((status, read["specification_digest"].as_str()), (StatusCode::OK, Some(older.as_str())));
    assert_eq!(configuration(&fixture, &node, "").await.1["generation"], 2);
    for (query, status, expected) in [
        ("?generation=3", 409, "sandbox_specification_mismatch"),
        ("?generation=0", 400, "invalid_request"),
        ("?generation=01", 400, "invalid_request"),
        ("?generation=9223372036854775808", 400, "invalid_request"),
        ("?generation=1&generation=1", 400, "invalid_request"),
    ] {
        let (answered, answer) = configuration(&fixture, &node, query).await;
        assert_eq!((answered.as_u16(), code(&answer)), (status, expected), "{query}");
    }
    let token = fixture.token("{}").await;
    let (status, _) = fixture.machine(Method::GET, "configuration?generation=1", &token, "").await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);

    fixture.admin(Method::PUT, DEPLOYMENT, &selection(2, 8)).await;
    assert_eq!(fixture.count("SELECT COUNT(*) FROM runtime_deployment_generations").await, 1);
    assert_eq!(fixture.admin(Method::DELETE, &format!("{NODES}/{}", node.id), "").await.0, StatusCode::OK);
    fixture.core.store().keep_up(fixture.lease.epoch).await.unwrap();
    assert_eq!(fixture.count("SELECT COUNT(*) FROM runtime_deployment_generations").await, 0);
}

/// D 86. Core keys, project keys and tokens open only their own routes; retired routes are unknown.
#[rstest]
#[tokio::test]
async fn authorities_do_not_mix(#[values(Sqlite, Postgres)] database: Database) {
    let fixture = fixture(database).await;
    let node = fixture.enroll("one").await;
    let token = fixture.token("{}").await;
    for bearer in [&token, &node.credential] {
        let headers = [("authorization", format!("Bearer {bearer}"))];
        let headers = headers.each_ref().map(|(name, value)| (*name, value.as_str()));
        for path in [DEPLOYMENT, NODES, TOKENS, "/core/v1/sandbox/anything"] {
            let (status, answer) = ask(&fixture.core, Method::GET, path, &headers, "").await;
            assert_eq!((status, code(&answer)), (StatusCode::UNAUTHORIZED, "invalid_admin_key"));
        }
    }
    let (status, _) = fixture.machine(Method::GET, "configuration", crate::support::KEY, "").await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
}

/// D 88. W 179. A node cannot submit its capacity, and the old node routes do not exist.
#[rstest]
#[tokio::test]
async fn a_node_cannot_choose_its_capacity(#[values(Sqlite, Postgres)] database: Database) {
    let fixture = fixture(database).await;
    let token = fixture.token("{}").await;
    let body = NewNode::new("one").enrollment(1, &digest(&fixture).await);
    for member in [r#""max_active":9,"#, r#""max_retained":9,"#] {
        let body = body.replacen('{', &format!("{{{member}"), 1);
        let (status, answer) = fixture.machine(Method::POST, "enroll", &token, &body).await;
        assert_eq!((status, code(&answer)), (StatusCode::BAD_REQUEST, "invalid_request"));
    }
    for path in ["/core/v1/sandbox/enroll", "/core/v1/sandbox/node/identity", "/core/v1/sandbox/node/configuration"] {
        assert_eq!(fixture.admin(Method::GET, path, "").await.0, StatusCode::NOT_FOUND);
    }
    let large = format!("{}{body}", " ".repeat(16_384));
    assert_eq!(fixture.machine(Method::POST, "enroll", &token, &large).await.0, StatusCode::PAYLOAD_TOO_LARGE);
}

/// W 207. The four measurements are accepted, derive what the token leaves unset, and are refused when null or out of
/// range.
#[rstest]
#[tokio::test]
async fn measurements_derive_the_capacity(#[values(Sqlite, Postgres)] database: Database) {
    let fixture = fixture(database).await;
    let token = fixture.token("{}").await;
    let body = NewNode::new("one").enrollment(1, &digest(&fixture).await);
    let measured = |members: &str| body.replacen('{', &format!("{{{members},"), 1);
    for members in [
        r#""cpu_count":null"#,
        r#""cpu_count":-1"#,
        r#""cpu_count":2.0"#,
        r#""effective_cpu_cores":0"#,
        r#""total_memory_bytes":0"#,
        r#""available_disk_bytes":9007199254740992"#,
    ] {
        let (status, answer) = fixture.machine(Method::POST, "enroll", &token, &measured(members)).await;
        assert_eq!((status, code(&answer)), (StatusCode::BAD_REQUEST, "invalid_request"), "{members}");
    }
    let members = r#""cpu_count":9,"effective_cpu_cores":9,"total_memory_bytes":68719476736,"available_disk_bytes":0"#;
    let (status, answer) = fixture.machine(Method::POST, "enroll", &token, &measured(members)).await;
    assert_eq!((status, &answer["max_active"]), (StatusCode::CREATED, &json!(4)), "{answer}");
}

/// W 177. Every refusal of a machine route is the JSON envelope with a type, and repeats no credential.
#[rstest]
#[tokio::test]
async fn refusals_never_repeat_a_credential(#[values(Sqlite, Postgres)] database: Database) {
    let fixture = fixture(database).await;
    let node = fixture.enroll("one").await;
    let body = node.enrollment(1, &"2".repeat(64)).replace("docker", "podman");
    let token = fixture.token("{}").await;
    for (method, path, bearer) in [
        (Method::POST, "enroll", &token),
        (Method::POST, "enroll", &node.credential),
        (Method::GET, "configuration?generation=1", &token),
        (Method::GET, "identity?node_id=x", &node.credential),
    ] {
        let (status, answer) = fixture.machine(method, path, bearer, &body).await;
        let text = answer.to_string();
        assert!(status.is_client_error() && answer["error"]["type"].is_string(), "{path} {text}");
        assert!(!text.contains(&node.credential) && !text.contains(&token), "{path}");
        assert!(answer["error"].get("details").is_none());
    }
}

/// A node that holds a sandbox is not removed, online or not.
#[rstest]
#[tokio::test]
async fn a_node_in_use_is_not_removed(#[values(Sqlite, Postgres)] database: Database) {
    let fixture = fixture(database).await;
    let node = fixture.enroll("one").await;
    fixture.place(&node, "placed").await;
    let path = format!("{NODES}/{}", node.id);
    let (status, answer) = fixture.admin(Method::DELETE, &path, "").await;
    assert_eq!((status, code(&answer)), (StatusCode::CONFLICT, "runtime_node_in_use"));
    let (_, shown) = fixture.admin(Method::GET, &path, "").await;
    assert_eq!((&shown["retained"], &shown["reserved"], &shown["active"]), (&json!(1), &json!(1), &json!(1)));
    let (_, view) = fixture.admin(Method::GET, DEPLOYMENT, "").await;
    assert_eq!(view["resources"], json!({"allocations": 0, "pending": 1}));
    fixture.admin(Method::PUT, DEPLOYMENT, &selection(1, 4)).await;
    let (_, view) = fixture.admin(Method::GET, DEPLOYMENT, "").await;
    assert_eq!(view["rollout"]["previous_generation_sandboxes"], 1);
}

/// During a reset a management write is refused after 400 and 404 and before in-use, and so is an enrollment; a
/// registered node still reads its configuration (decision 20).
#[rstest]
#[tokio::test]
async fn a_reset_refuses_management_writes(#[values(Sqlite, Postgres)] database: Database) {
    let fixture = fixture(database).await;
    let node = fixture.enroll("one").await;
    let token = fixture.token("{}").await;
    fixture.place(&node, "placed").await;
    fixture
        .execute(
            "UPDATE runtime_deployment SET admission_paused = 1, reset_clear = 'auto', reset_requested_at = 1, \
             reset_deadline_at = 2, reset_audit = '{}'",
        )
        .await;
    let path = format!("{NODES}/{}", node.id);
    let update = r#"{"name":"n","max_active":1,"max_retained":1}"#;
    let body = NewNode::new("two").enrollment(1, &digest_of(1));
    for (status, answer) in [
        fixture.admin(Method::PATCH, &path, update).await,
        fixture.admin(Method::DELETE, &path, "").await,
        fixture.admin(Method::POST, TOKENS, "{}").await,
        fixture.admin(Method::PUT, DEPLOYMENT, &selection(1, 4)).await,
        fixture.machine(Method::POST, "enroll", &token, &body).await,
        fixture.machine(Method::GET, "configuration", &token, "").await,
    ] {
        assert_eq!((status, code(&answer)), (StatusCode::CONFLICT, "sandbox_reset_in_progress"));
    }
    assert_eq!(configuration(&fixture, &node, "").await.0, StatusCode::OK);
}

fn digest_of(digit: u8) -> String {
    digit.to_string().repeat(64)
}
