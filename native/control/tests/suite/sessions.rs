//! Projects, sessions, their admission and their end (deployment §1.14, §5.1, §8.3, §11.2).

use std::time::Duration;

use axum::http::{Method, StatusCode};
use palisade_core::units::Digest;
use rstest::rstest;
use serde_json::{Value, json};

use crate::public::{HOSTED, Public, SESSIONS};
use crate::support::Database::{self, Postgres, Sqlite};
use crate::support::{Fixture, KEY, code, selection};

fn refusal(answer: &(StatusCode, Value)) -> (u16, &str) {
    (answer.0.as_u16(), code(&answer.1))
}

/// D 12. D 86. A project key opens no administrative path, and the Core key opens nothing below `/v1`, not even when a
/// project has the same key.
#[rstest]
#[tokio::test]
async fn core_keys_and_project_keys_are_apart(#[values(Sqlite, Postgres)] database: Database) {
    let public = Public::new(database).await;
    let node = public.fixture.enroll("one").await;
    let token = public.fixture.token("{}").await;
    let paths = [
        "/core/v1/sandbox/deployment",
        "/core/v1/sandbox/nodes",
        "/core/v1/sandbox/enrollment-tokens",
        "/core/v1/projects",
        "/core/v1/nothing",
    ];
    for path in paths {
        for bearer in [&public.key, &node.credential, &token] {
            for method in [Method::GET, Method::POST] {
                let answer = public.call_as(bearer, method, path, &[], "{}").await;
                assert_eq!(refusal(&answer), (401, "invalid_admin_key"), "{path}");
            }
        }
    }
    let project = &public.project;
    let digest = Digest::of(KEY.as_bytes());
    public
        .fixture
        .execute(&format!(
            "INSERT INTO project_keys (id, project_id, name, key_sha256, created_at) \
             VALUES ('collision', '{project}', 'same', '{digest}', 0)"
        ))
        .await;
    for bearer in [KEY, &node.credential, &token, "pk_0"] {
        for (method, path) in [(Method::GET, SESSIONS.to_owned()), (Method::POST, SESSIONS.to_owned())] {
            let answer = public.call_as(bearer, method, &path, &[], HOSTED).await;
            assert_eq!(refusal(&answer), (401, "invalid_api_key"));
        }
    }
    for retired in ["/core/v1/sandbox/enroll", "/core/v1/sandbox/node/identity", "/core/v1/sandbox/node/configuration"]
    {
        assert_eq!(refusal(&public.core(Method::POST, retired, "{}").await), (404, "not_found"), "{retired}");
    }
}

/// D 12. The key comes first, then the beta header, then the body.
#[rstest]
#[tokio::test]
async fn public_requests_need_the_beta_header(#[values(Sqlite, Postgres)] database: Database) {
    let (public, _) = Public::with_node(database).await;
    let bearer = format!("Bearer {}", public.key);
    let without = public.ask(Method::POST, SESSIONS, &[("authorization", &bearer)], "[]".to_owned()).await;
    assert_eq!(refusal(&without), (400, "invalid_request_error"));
    assert_eq!(without.1["error"]["param"], "OpenAI-Beta");
    let other = [("authorization", bearer.as_str()), ("openai-beta", "agents=v2")];
    assert_eq!(public.ask(Method::GET, SESSIONS, &other, String::new()).await.0, StatusCode::BAD_REQUEST);
    let nobody = public.ask(Method::GET, SESSIONS, &[("openai-beta", "agents=v1")], String::new()).await;
    assert_eq!(refusal(&nobody), (401, "invalid_api_key"));
    let listed = [("authorization", bearer.as_str()), ("openai-beta", "x=1, agents=v1")];
    assert_eq!(public.ask(Method::GET, SESSIONS, &listed, String::new()).await.0, StatusCode::OK);
}

/// D 13. Unknown, absent, null and mistyped members are refused and leave nothing behind.
#[rstest]
#[tokio::test]
async fn bodies_are_strict(#[values(Sqlite, Postgres)] database: Database) {
    let (public, _) = Public::with_node(database).await;
    for body in [
        "",
        "{}",
        "[]",
        r#"{"environment":null}"#,
        r#"{"environment":{"type":"openai_hosted"},"x":1}"#,
        r#"{"environment":{"type":"openai_hosted","type":"openai_hosted"}}"#,
        r#"{"environment":{"Type":"openai_hosted"}}"#,
    ] {
        assert_eq!(refusal(&public.post(SESSIONS, body).await), (400, "invalid_request"), "{body}");
    }
    let other = public.post(SESSIONS, r#"{"environment":{"type":"none"}}"#).await;
    assert_eq!(
        (refusal(&other), &other.1["error"]["param"]),
        ((400, "invalid_request_error"), &json!("environment.type"))
    );
    let large = format!(r#"{{"environment":{{"type":"{}"}}}}"#, "x".repeat(70_000));
    assert_eq!(refusal(&public.post(SESSIONS, &large).await), (413, "request_too_large"));
    for body in ["{}", r#"{"name":null}"#, r#"{"name":"p","id":"x"}"#] {
        let answer = public.core(Method::POST, "/core/v1/projects", body).await;
        assert_eq!(refusal(&answer), (400, "invalid_request"), "{body}");
    }
    let blank = public.core(Method::POST, "/core/v1/projects", r#"{"name":" "}"#).await;
    assert_eq!(refusal(&blank), (400, "invalid_name"));
    assert_eq!(public.fixture.count("SELECT COUNT(*) FROM sessions").await, 0);
    assert_eq!(public.fixture.count("SELECT COUNT(*) FROM projects").await, 1);
}

/// D 54. A session is created with its environment and the placement of its node, and wakes the owner.
#[rstest]
#[tokio::test]
async fn a_session_is_created_placed_and_read(#[values(Sqlite, Postgres)] database: Database) {
    let (public, node) = Public::with_node(database).await;
    let (status, session) = public.post(SESSIONS, HOSTED).await;
    assert_eq!(status, StatusCode::CREATED, "{session}");
    assert_eq!((&session["status"], &session["environment"]["status"]), (&json!("idle"), &json!("pending")));
    let woken = tokio::time::timeout(Duration::from_secs(30), public.fixture.core.owner_woken()).await;
    assert!(woken.is_ok(), "the owner is woken");
    let placed = "SELECT COUNT(*) FROM runtime_placements p JOIN environments e ON e.id = p.environment_id \
         WHERE p.deployment_generation = 1 AND p.released_at IS NULL AND e.status = 'pending'";
    assert_eq!(public.fixture.count(placed).await, 1);

    let id = session["id"].as_str().unwrap();
    assert_eq!(public.get(&format!("{SESSIONS}/{id}")).await, (StatusCode::OK, session.clone()));
    assert_eq!(public.get(&format!("{SESSIONS}/{}", id.to_uppercase())).await.0, StatusCode::OK);
    assert_eq!(public.get(SESSIONS).await, (StatusCode::OK, json!({"data": [session]})));
    public.allocate(id, &node, "running").await;
    let (_, session) = public.get(&format!("{SESSIONS}/{id}")).await;
    assert_eq!(session["environment"]["status"], "connected");
    let project = &public.project;
    let inspected = public.core(Method::GET, &format!("/core/v1/projects/{project}/sessions/{id}"), "").await;
    assert_eq!(inspected, (StatusCode::OK, session.clone()));
    let listed = public.core(Method::GET, &format!("/core/v1/projects/{project}/sessions"), "").await;
    assert_eq!(listed, (StatusCode::OK, json!({"data": [session]})));
}

/// A foreign, unknown, malformed or nil identifier is 404 on every public route (decision 37).
#[rstest]
#[tokio::test]
async fn foreign_and_unknown_sessions_are_not_found(#[values(Sqlite, Postgres)] database: Database) {
    let (public, _) = Public::with_node(database).await;
    let session = public.session().await;
    let (other, foreign) = public.create_project("second").await;
    let message = r#"{"type":"message","command":{"args":["true"]}}"#;
    let unknown = "94be54a1-138c-4f30-bc87-b13686272dbe";
    for (key, id) in [
        (&foreign, session.as_str()),
        (&public.key, unknown),
        (&public.key, "00000000-0000-0000-0000-000000000000"),
        (&public.key, "x"),
    ] {
        for (method, rest, body) in [
            (Method::GET, "", ""),
            (Method::DELETE, "", ""),
            (Method::POST, "/events", message),
            (Method::GET, "/turns", ""),
            (Method::GET, "/turns/94be54a1-138c-4f30-bc87-b13686272dbe", ""),
        ] {
            let answer = public.call_as(key, method, &format!("{SESSIONS}/{id}{rest}"), &[], body).await;
            assert_eq!(refusal(&answer), (404, "not_found_error"), "{id}{rest}");
        }
    }
    for rest in ["", "/archive", "/runtime-observation"] {
        let path = |project: &str, session: &str| format!("/core/v1/projects/{project}/sessions/{session}{rest}");
        let foreign = public.core(Method::GET, &path(&other, &session), "").await;
        assert_eq!(refusal(&foreign), (404, "not_found_error"), "{rest}");
        let malformed = public.core(Method::GET, &path(&public.project, "x"), "").await;
        assert_eq!(refusal(&malformed), (400, "invalid_request"), "{rest}");
    }
    assert_eq!(public.call_as(&foreign, Method::GET, SESSIONS, &[], "").await.1, json!({"data": []}));
}

/// A repeated `Idempotency-Key` answers 200 with the same session, also when many come at once (decision 41).
#[rstest]
#[tokio::test]
async fn a_repeated_key_makes_one_session(#[values(Sqlite, Postgres)] database: Database) {
    let (public, _) = Public::with_node(database).await;
    let create = async |key: &str| public.call(Method::POST, SESSIONS, &[("idempotency-key", key)], HOSTED).await;
    let answers = tokio::join!(create("a"), create("a"), create("a"), create("a"));
    let answers = [answers.0, answers.1, answers.2, answers.3];
    let created = answers.iter().filter(|(status, _)| *status == StatusCode::CREATED).count();
    let repeated = answers.iter().filter(|(status, _)| *status == StatusCode::OK).count();
    assert_eq!((created, repeated), (1, 3), "{answers:?}");
    assert!(answers.iter().all(|(_, session)| session == &answers[0].1), "{answers:?}");
    assert_eq!(public.fixture.count("SELECT COUNT(*) FROM sessions").await, 1);
    assert_eq!(create("b").await.0, StatusCode::CREATED);
    // The node is full now; a repeat still answers.
    assert_eq!(create("a").await, (StatusCode::OK, answers[0].1.clone()));
    for key in ["", "\u{e9}", &"k".repeat(256)] {
        let answer = public.call(Method::POST, SESSIONS, &[("idempotency-key", key)], HOSTED).await;
        assert_eq!(refusal(&answer), (400, "invalid_request_error"), "{key}");
    }
    let twice = [("idempotency-key", "c"), ("idempotency-key", "d")];
    assert_eq!(public.call(Method::POST, SESSIONS, &twice, HOSTED).await.0, StatusCode::BAD_REQUEST);
}

/// D 48. D 49. Every refusal of admission has its answer and leaves no session, environment or placement.
#[rstest]
#[tokio::test]
async fn a_refused_session_leaves_nothing_behind(#[values(Sqlite, Postgres)] database: Database) {
    let public = Public::serve(Fixture::new(database).await).await;
    let create = || async { public.post(SESSIONS, HOSTED).await };
    assert_eq!(refusal(&create().await), (503, "execution_unavailable"), "unconfigured");
    public.fixture.select().await;
    assert_eq!(refusal(&create().await), (503, "runtime_node_unavailable"), "no node");
    let node = public.fixture.enroll("one").await;
    assert_eq!(refusal(&create().await), (503, "runtime_node_unavailable"), "offline");
    public.observe(&node, "preparing").await;
    assert_eq!(refusal(&create().await), (503, "sandbox_nodes_preparing"), "preparing");
    public.fixture.execute("UPDATE runtime_node_generation_status SET state = 'ready'").await;
    public
        .fixture
        .execute(
            "UPDATE runtime_deployment SET admission_paused = 1, reset_clear = 'auto', reset_requested_at = 0, \
             reset_deadline_at = 1, reset_audit = '{}'",
        )
        .await;
    assert_eq!(refusal(&create().await), (503, "sandbox_reset_in_progress"), "reset");
    public
        .fixture
        .execute(
            "UPDATE runtime_deployment SET admission_paused = 0, reset_clear = NULL, reset_requested_at = NULL, \
             reset_deadline_at = NULL, reset_audit = NULL",
        )
        .await;
    for table in ["sessions", "environments", "runtime_placements"] {
        let rows = match table {
            "sessions" => public.fixture.count("SELECT COUNT(*) FROM sessions").await,
            "environments" => public.fixture.count("SELECT COUNT(*) FROM environments").await,
            _ => public.fixture.count("SELECT COUNT(*) FROM runtime_placements").await,
        };
        assert_eq!(rows, 0, "{table}");
    }
    public.session().await;
    public.session().await;
    assert_eq!(refusal(&create().await), (503, "runtime_node_unavailable"), "full");
    public.fixture.usurp().await;
    assert_eq!(refusal(&create().await), (503, "execution_unavailable"), "fenced");
    assert_eq!(public.fixture.count("SELECT COUNT(*) FROM sessions").await, 2);
}

/// D 49. Sessions that are asked for at once never exceed the node's room.
#[rstest]
#[tokio::test]
async fn concurrent_sessions_share_the_room(#[values(Sqlite, Postgres)] database: Database) {
    let (public, _) = Public::with_node(database).await;
    let create = || public.post(SESSIONS, HOSTED);
    let answers = tokio::join!(create(), create(), create(), create(), create());
    let answers = [answers.0, answers.1, answers.2, answers.3, answers.4];
    let created = answers.iter().filter(|(status, _)| *status == StatusCode::CREATED).count();
    assert_eq!(created, 2, "{answers:?}");
    assert_eq!(public.fixture.count("SELECT COUNT(*) FROM runtime_placements").await, 2);
}

/// An idle session is deleted with 202 and gives its room back; a busy one is not.
#[rstest]
#[tokio::test]
async fn only_an_idle_session_is_deleted(#[values(Sqlite, Postgres)] database: Database) {
    let (public, node) = Public::with_node(database).await;
    let (bare, running) = (public.session().await, public.session().await);
    public.allocate(&running, &node, "running").await;
    public.post(&format!("{SESSIONS}/{running}/events"), r#"{"type":"message","command":{"args":["true"]}}"#).await;
    let delete = |id: String| {
        let public = &public;
        async move { public.call(Method::DELETE, &format!("{SESSIONS}/{id}"), &[], "").await }
    };
    assert_eq!(refusal(&delete(running.clone()).await), (409, "session_busy"));
    public.post(&format!("{SESSIONS}/{running}/events"), r#"{"type":"cancel"}"#).await;
    for id in [bare, running] {
        let (status, answer) = delete(id.clone()).await;
        assert_eq!((status, &answer["deleted"]), (StatusCode::ACCEPTED, &json!(true)));
        assert_eq!(refusal(&delete(id.clone()).await), (404, "not_found_error"));
        assert_eq!(public.get(&format!("{SESSIONS}/{id}")).await.0, StatusCode::NOT_FOUND);
    }
    assert_eq!(public.get(SESSIONS).await.1, json!({"data": []}));
    let released = "SELECT COUNT(*) FROM runtime_placements WHERE released_at IS NOT NULL";
    assert_eq!(public.fixture.count(released).await, 1, "the one without an allocation");
    let cleanup = "SELECT COUNT(*) FROM runtime_allocations WHERE state = 'cleanup_pending' AND device_revoked_at > 0";
    assert_eq!(public.fixture.count(cleanup).await, 1);
}

/// D 66. D 68. An archive checks the deployment, ends the environment, cancels its work and requests the cleanup.
#[rstest]
#[tokio::test]
async fn a_session_is_archived_once(#[values(Sqlite, Postgres)] database: Database) {
    let (public, node) = Public::with_node(database).await;
    let (bare, running) = (public.session().await, public.session().await);
    public.allocate(&running, &node, "running").await;
    let events = format!("{SESSIONS}/{running}/events");
    let message = r#"{"type":"message","command":{"args":["true"]}}"#;
    public.post(&events, message).await;
    let project = public.project.clone();
    let path = |session: &str| format!("/core/v1/projects/{project}/sessions/{session}/archive");

    for body in ["{}", r#"{"expected_generation":0}"#, r#"{"expected_generation":1,"clear":"auto"}"#] {
        assert_eq!(
            refusal(&public.core(Method::POST, &path(&running), body).await),
            (400, "invalid_request"),
            "{body}"
        );
    }
    let large = format!(r#"{{"expected_generation":1{}}}"#, " ".repeat(4096));
    assert_eq!(refusal(&public.core(Method::POST, &path(&running), &large).await), (413, "request_too_large"));
    let stale = public.core(Method::POST, &path(&running), r#"{"expected_generation":2}"#).await;
    assert_eq!(refusal(&stale), (409, "sandbox_generation_stale"));
    assert_eq!(stale.1["error"]["details"], json!({"current_generation": 1}));
    assert_eq!(public.core(Method::GET, &path(&running), "").await.1["state"], "active");

    for (session, state) in [(&running, "cleanup_pending"), (&bare, "released")] {
        for _ in 0..2 {
            let answer = public.core(Method::POST, &path(session), r#"{"expected_generation":1}"#).await;
            assert_eq!((answer.0, &answer.1["state"]), (StatusCode::OK, &json!(state)), "{}", answer.1);
            assert_eq!(public.core(Method::GET, &path(session), "").await, answer);
        }
    }
    let audited = "SELECT COUNT(*) FROM admin_audit_log WHERE action = 'archive'";
    assert_eq!(public.fixture.count(audited).await, 2, "once for each session");
    assert_eq!(public.fixture.count("SELECT COUNT(*) FROM turns WHERE status = 'cancelled'").await, 1);
    assert_eq!(public.get(&format!("{SESSIONS}/{bare}")).await.1["environment"]["status"], "expired");
    assert_eq!(refusal(&public.post(&events, message).await), (409, "environment_unavailable"));
    let statement = "UPDATE runtime_allocations SET state = 'released', released_at = 1";
    public.fixture.execute(statement).await;
    assert_eq!(public.core(Method::GET, &path(&running), "").await.1["state"], "released");
}

/// D 68. A live allocation of another installation is not archived.
#[rstest]
#[tokio::test]
async fn a_foreign_allocation_is_not_archived(#[values(Sqlite, Postgres)] database: Database) {
    let (public, node) = Public::with_node(database).await;
    let session = public.session().await;
    public.allocate(&session, &node, "running").await;
    public
        .fixture
        .execute("UPDATE runtime_allocations SET provider_key = '94be54a1-138c-4f30-bc87-b13686272dbe'")
        .await;
    let path = format!("/core/v1/projects/{}/sessions/{session}/archive", public.project);
    let answer = public.core(Method::POST, &path, r#"{"expected_generation":1}"#).await;
    assert_eq!(refusal(&answer), (409, "sandbox_deployment_conflict"));
    let running = "SELECT COUNT(*) FROM runtime_allocations WHERE state = 'running'";
    assert_eq!(public.fixture.count(running).await, 1);
}

/// An observation without values says why (deployment §8.3).
#[rstest]
#[tokio::test]
async fn an_observation_says_why_it_has_no_values(#[values(Sqlite, Postgres)] database: Database) {
    let (public, node) = Public::with_node(database).await;
    let session = public.session().await;
    let path = format!("/core/v1/projects/{}/sessions/{session}/runtime-observation", public.project);
    let (status, pending) = public.core(Method::GET, &path, "").await;
    assert_eq!(status, StatusCode::OK, "{pending}");
    assert_eq!((&pending["status"], &pending["reason"]), (&json!("unavailable"), &json!("allocation_pending")));
    assert_eq!((&pending["id"], &pending["object"]), (&json!(session), &json!("agent.runtime_observation")));
    public.allocate(&session, &node, "creating").await;
    assert_eq!(public.core(Method::GET, &path, "").await.1["reason"], "runtime_not_running");
    public.fixture.execute("UPDATE runtime_allocations SET state = 'running'").await;
    let (_, silent) = public.core(Method::GET, &path, "").await;
    assert_eq!((&silent["reason"], &silent["allocation_created_at"]), (&json!("sample_unavailable"), &json!(1)));
}

/// Keys are told apart, counted and revoked; only their digests are stored.
#[rstest]
#[tokio::test]
async fn a_revoked_key_opens_nothing(#[values(Sqlite, Postgres)] database: Database) {
    let public = Public::new(database).await;
    let keys = format!("/core/v1/projects/{}/keys", public.project);
    let (_, second) = public.core(Method::POST, &keys, r#"{"name":"second"}"#).await;
    let (key, id) = (second["key"].as_str().unwrap(), second["id"].as_str().unwrap());
    assert_eq!(public.core(Method::GET, "/core/v1/projects", "").await.1["data"][0]["active_key_count"], 2);
    assert_eq!(public.call_as(key, Method::GET, SESSIONS, &[], "").await.0, StatusCode::OK);
    assert_eq!(public.core(Method::DELETE, &format!("{keys}/{id}"), "").await.0, StatusCode::OK);
    assert_eq!(refusal(&public.core(Method::DELETE, &format!("{keys}/{id}"), "").await), (404, "not_found_error"));
    assert_eq!(refusal(&public.call_as(key, Method::GET, SESSIONS, &[], "").await), (401, "invalid_api_key"));
    assert_eq!(public.get(SESSIONS).await.0, StatusCode::OK);
    let unknown = "/core/v1/projects/94be54a1-138c-4f30-bc87-b13686272dbe/keys";
    assert_eq!(refusal(&public.core(Method::POST, unknown, r#"{"name":"x"}"#).await), (404, "not_found_error"));
    let plain = public.fixture.text("SELECT key_sha256 FROM project_keys WHERE name = 'second'").await;
    assert_eq!(plain, Digest::of(key.as_bytes()).to_string());
}

/// D 49. Another target generation is admitted where it is served.
#[rstest]
#[tokio::test]
async fn a_session_is_placed_on_the_serving_generation(#[values(Sqlite, Postgres)] database: Database) {
    let (public, _) = Public::with_node(database).await;
    let changed = public.core(Method::PUT, "/core/v1/sandbox/deployment", &selection(1, 4)).await;
    assert_eq!((changed.0, &changed.1["generation"]), (StatusCode::OK, &json!(2)));
    public.session().await;
    let placed = "SELECT COUNT(*) FROM runtime_placements WHERE deployment_generation = 1";
    assert_eq!(public.fixture.count(placed).await, 1, "the generation that the node serves");
}
