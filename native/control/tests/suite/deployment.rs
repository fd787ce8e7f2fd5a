//! The deployment through the API (deployment §1.1, §1.2).

use axum::http::{Method, StatusCode, header};
use rstest::rstest;
use serde_json::json;

use crate::support::Database::{self, Postgres, Sqlite};
use crate::support::{Fixture, KEY, ask, code, selection};

const PATH: &str = "/core/v1/sandbox/deployment";

/// D 12. Setup needs the Core key: no key, a foreign key, two headers and another scheme are 401 on every path.
#[rstest]
#[tokio::test]
async fn nothing_is_administered_without_the_core_key(#[values(Sqlite, Postgres)] database: Database) {
    let fixture = Fixture::new(database).await;
    let basic = format!("Basic {KEY}");
    for path in [PATH, "/core/v1", "/core/v1/", "/core/v1/nothing", "/core/v1/sandbox/nodes"] {
        for headers in [
            vec![],
            vec![(header::AUTHORIZATION.as_str(), "Bearer not-the-core-key-at-all")],
            vec![(header::AUTHORIZATION.as_str(), basic.as_str())],
        ] {
            let (status, body) = ask(&fixture.core, Method::POST, path, &headers, &selection(0, 2)).await;
            assert_eq!((status, code(&body)), (StatusCode::UNAUTHORIZED, "invalid_admin_key"), "{path}");
        }
    }
    let (_, view) = fixture.admin(Method::GET, PATH, "").await;
    assert_eq!(view["generation"], 0);
}

/// D 13. Unknown members, a missing or null generation are 400; 0 is accepted; a conflict is 409.
#[rstest]
#[tokio::test]
async fn a_first_selection_is_strict_and_answers_the_view(#[values(Sqlite, Postgres)] database: Database) {
    let fixture = Fixture::new(database).await;
    for body in [r#"{"provider":"docker"}"#, r#"{"expected_generation":null,"provider":"docker"}"#, "[]", "{", ""] {
        let (status, answer) = fixture.admin(Method::POST, PATH, body).await;
        assert_eq!((status, code(&answer)), (StatusCode::BAD_REQUEST, "invalid_request"), "{body}");
    }
    let (_, unconfigured) = fixture.admin(Method::GET, PATH, "").await;
    assert_eq!(unconfigured.as_object().unwrap().len(), 11);
    assert_eq!(unconfigured["installation_id"], fixture.lease.installation.to_string());

    let (status, view) = fixture.admin(Method::POST, PATH, &selection(0, 2)).await;
    assert_eq!(status, StatusCode::OK, "{view}");
    assert_eq!((&view["generation"], &view["provider"], &view["mode"]), (&json!(1), &json!("docker"), &json!("nodes")));
    assert_eq!(view["rollout"]["nodes"], json!({"ready":0,"preparing":0,"failed":0,"update_required":0,"unknown":0}));
    assert_eq!(view["core_url"], crate::support::PUBLIC_URL);
    let (status, again) = fixture.admin(Method::POST, PATH, &selection(1, 2)).await;
    assert_eq!((status, again), (StatusCode::OK, view));
    let (status, conflict) = fixture.admin(Method::POST, PATH, &selection(1, 4)).await;
    assert_eq!((status, code(&conflict)), (StatusCode::CONFLICT, "sandbox_deployment_conflict"));
}

/// D 14. D 15. D 16. Stale, other backend, unchanged and changed, through the API.
#[rstest]
#[tokio::test]
async fn a_change_is_judged_against_the_stored_selection(#[values(Sqlite, Postgres)] database: Database) {
    let fixture = Fixture::new(database).await;
    let (status, body) = fixture.admin(Method::PUT, PATH, &selection(0, 2)).await;
    assert_eq!((status, code(&body)), (StatusCode::CONFLICT, "sandbox_not_configured"));
    fixture.select().await;
    for method in [Method::POST, Method::PUT] {
        let (status, body) = fixture.admin(method, PATH, &selection(0, 2)).await;
        assert_eq!((status, code(&body)), (StatusCode::CONFLICT, "sandbox_generation_stale"));
        assert_eq!(body["error"]["details"], json!({"current_generation": 1}));
    }
    let microsandbox = selection(1, 2)
        .replace("docker", "microsandbox")
        .replace(r#""memory_mib":4096"#, r#""memory_mib":4096,"root_disk_mib":8192,"environment_disk_mib":8192"#);
    let (status, body) = fixture.admin(Method::PUT, PATH, &microsandbox).await;
    assert_eq!((status, code(&body)), (StatusCode::CONFLICT, "sandbox_reset_required"));
    assert_eq!(body["error"]["details"], json!({"current_provider": "docker", "requested_provider": "microsandbox"}));
    let (status, view) = fixture.admin(Method::PUT, PATH, &selection(1, 2)).await;
    assert_eq!((status, &view["generation"]), (StatusCode::OK, &json!(1)));
    let (status, view) = fixture.admin(Method::PUT, PATH, &selection(1, 4)).await;
    assert_eq!((status, &view["generation"]), (StatusCode::OK, &json!(2)));
    assert_eq!(view["specification"]["resources"]["cpus"], 4);
}

/// D 18. A validation failure names its field and bounds.
#[rstest]
#[tokio::test]
async fn a_size_out_of_bounds_is_named(#[values(Sqlite, Postgres)] database: Database) {
    let fixture = Fixture::new(database).await;
    let (status, body) = fixture.admin(Method::POST, PATH, &selection(0, 256)).await;
    assert_eq!((status, code(&body)), (StatusCode::BAD_REQUEST, "invalid_sandbox_configuration"));
    assert_eq!(body["error"]["param"], "resources.cpus");
    assert_eq!(body["error"]["details"], json!({"min": 1, "max": 255}));
}

/// D 17. An unregistered provider is refused before anything is stored or read.
#[rstest]
#[tokio::test]
async fn an_unregistered_provider_is_refused(#[values(Sqlite, Postgres)] database: Database) {
    let fixture = Fixture::new(database).await;
    fixture.core.store().close().await;
    let body = selection(7, 2).replace("docker", "podman");
    let (status, answer) = fixture.admin(Method::POST, PATH, &body).await;
    assert_eq!((status, code(&answer)), (StatusCode::BAD_REQUEST, "invalid_sandbox_configuration"));
    let (status, answer) = fixture.admin(Method::GET, PATH, "").await;
    assert_eq!((status, code(&answer)), (StatusCode::INTERNAL_SERVER_ERROR, "internal_error"));
}

/// D 20. Of twenty first selections at once exactly one wins, and every reader agrees on it.
#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_many_first_selections_wins(#[values(Sqlite, Postgres)] database: Database) {
    let fixture = Fixture::new(database).await;
    let requests = (1..=20).map(|cpus| {
        let core = fixture.core.clone();
        tokio::spawn(async move { (cpus, crate::support::admin(&core, Method::POST, PATH, &selection(0, cpus)).await) })
    });
    let mut winners = Vec::new();
    for request in requests.collect::<Vec<_>>() {
        let (cpus, (status, body)) = request.await.unwrap();
        match status {
            StatusCode::OK => winners.push(cpus),
            _ => assert_eq!((status, code(&body)), (StatusCode::CONFLICT, "sandbox_generation_stale")),
        }
    }
    let (_, view) = fixture.admin(Method::GET, PATH, "").await;
    assert_eq!(winners.len(), 1);
    assert_eq!((&view["generation"], &view["specification"]["resources"]["cpus"]), (&json!(1), &json!(winners[0])));
}

/// D 21. Of two changes at one generation one commits, the other is stale with the new generation; one audit entry.
#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_changes_commits(#[values(Sqlite, Postgres)] database: Database) {
    let fixture = Fixture::new(database).await;
    fixture.select().await;
    let change = |cpus| {
        let core = fixture.core.clone();
        async move { crate::support::admin(&core, Method::PUT, PATH, &selection(1, cpus)).await }
    };
    let (one, other) = tokio::join!(tokio::spawn(change(4)), tokio::spawn(change(8)));
    let mut statuses = [one.unwrap(), other.unwrap()];
    statuses.sort_by_key(|(status, _)| *status);
    assert_eq!(statuses[0].0, StatusCode::OK);
    assert_eq!(statuses[1].1["error"]["details"], json!({"current_generation": 2}));
    assert_eq!(fixture.count("SELECT COUNT(*) FROM admin_audit_log WHERE action = 'change'").await, 1);
}

/// D 22. Without the lease, or under a lease of the past, nothing is written; a row of another program is no target.
#[rstest]
#[tokio::test]
async fn writes_without_the_lease_change_nothing(#[values(Sqlite, Postgres)] database: Database) {
    let fixture = Fixture::new(database).await;
    let standby = fixture.standby();
    let (status, body) = crate::support::admin(&standby, Method::POST, PATH, &selection(0, 2)).await;
    assert_eq!((status, code(&body)), (StatusCode::SERVICE_UNAVAILABLE, "execution_unavailable"));
    fixture.usurp().await;
    let (status, body) = fixture.admin(Method::POST, PATH, &selection(0, 2)).await;
    assert_eq!((status, code(&body)), (StatusCode::SERVICE_UNAVAILABLE, "execution_unavailable"));
    let (_, view) = fixture.admin(Method::GET, PATH, "").await;
    assert_eq!((&view["generation"], &view["owner_epoch"]), (&json!(0), &json!(2)));

    let managed = Fixture::new(database).await;
    managed.execute("UPDATE runtime_deployment SET web_managed = 0").await;
    let (status, body) = managed.admin(Method::POST, PATH, &selection(0, 2)).await;
    assert_eq!((status, code(&body)), (StatusCode::CONFLICT, "sandbox_deployment_conflict"));
}

/// D 23. A failed audit write rolls the whole change back, retained rows included; the next change audits once and
/// retains the pinned generation.
#[rstest]
#[tokio::test]
async fn a_change_without_its_audit_is_no_change(#[values(Sqlite, Postgres)] database: Database) {
    let fixture = Fixture::new(database).await;
    fixture.select().await;
    fixture.enroll("one").await;
    let (_, before) = fixture.admin(Method::GET, PATH, "").await;
    fixture.execute("ALTER TABLE admin_audit_log RENAME TO hidden").await;
    let (status, body) = fixture.admin(Method::PUT, PATH, &selection(1, 4)).await;
    assert_eq!((status, code(&body)), (StatusCode::INTERNAL_SERVER_ERROR, "internal_error"));
    let (_, after) = fixture.admin(Method::GET, PATH, "").await;
    assert_eq!(after, before);
    assert_eq!(fixture.count("SELECT COUNT(*) FROM runtime_deployment_generations").await, 0);

    fixture.execute("ALTER TABLE hidden RENAME TO admin_audit_log").await;
    let (status, _) = fixture.admin(Method::PUT, PATH, &selection(1, 4)).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(fixture.count("SELECT COUNT(*) FROM admin_audit_log").await, 1);
    assert_eq!(fixture.count("SELECT generation FROM runtime_deployment_generations").await, 1);
}

/// D 52. E2B needs a public origin, and gets past that check on one; docker needs none (see the serving tests).
#[rstest]
#[tokio::test]
async fn e2b_on_a_public_origin_cannot_be_prepared(#[values(Sqlite, Postgres)] database: Database) {
    let fixture = Fixture::new(database).await;
    let body = json!({
        "expected_generation": 0, "provider": "e2b", "credential": {"api_key": "key"},
        "configuration": {"template": "base:94be54a1-138c-4f30-bc87-b13686272dbe"},
    });
    let (status, answer) = fixture.admin(Method::POST, PATH, &body.to_string()).await;
    assert_eq!((status, code(&answer)), (StatusCode::SERVICE_UNAVAILABLE, "execution_unavailable"));
    let (_, view) = fixture.admin(Method::GET, PATH, "").await;
    assert_eq!((&view["generation"], &view["provider"]), (&json!(0), &json!("")));
}

/// D 27. A stored specification that no longer is one is a conflict for readers.
#[rstest]
#[tokio::test]
async fn an_undecodable_selection_is_a_conflict(#[values(Sqlite, Postgres)] database: Database) {
    let fixture = Fixture::new(database).await;
    fixture.select().await;
    fixture.execute("UPDATE runtime_deployment SET specification = '{\"resources\":{}}'").await;
    let (status, body) = fixture.admin(Method::GET, PATH, "").await;
    assert_eq!((status, code(&body)), (StatusCode::CONFLICT, "sandbox_deployment_conflict"));
}

/// Bodies above the limit are 413, and discovery has its documented refusals.
#[rstest]
#[tokio::test]
async fn discovery_and_large_bodies_have_their_refusals(#[values(Sqlite, Postgres)] database: Database) {
    let fixture = Fixture::new(database).await;
    let large = format!(r#"{{"expected_generation":0,"provider":"{}"}}"#, "x".repeat(64 * 1024));
    let (status, body) = fixture.admin(Method::POST, PATH, &large).await;
    assert_eq!((status, code(&body)), (StatusCode::PAYLOAD_TOO_LARGE, "request_too_large"));
    for (provider, body, status, expected) in [
        ("docker", "{}", 400, "sandbox_operation_unsupported"),
        ("microsandbox", r#"{"query":{}}"#, 400, "sandbox_operation_unsupported"),
        ("podman", "{}", 400, "invalid_sandbox_configuration"),
        ("e2b", "{}", 503, "sandbox_verification_unconfirmed"),
        ("docker", r#"{"other":{}}"#, 400, "invalid_request"),
        ("docker", r#"{"query":null}"#, 400, "invalid_request"),
        ("docker", r#"{"query":[]}"#, 400, "invalid_request"),
    ] {
        let path = format!("/core/v1/sandbox/providers/{provider}/discovery");
        let (answered, answer) = fixture.admin(Method::POST, &path, body).await;
        assert_eq!((answered.as_u16(), code(&answer)), (status, expected), "{provider} {body}");
    }
    for path in ["/core/v1/sandbox/deployment/maintenance", "/core/v1/sandbox/enroll", "/core/v1/sandbox/node/identity"]
    {
        let (status, answer) = fixture.admin(Method::POST, path, "{}").await;
        assert_eq!((status, code(&answer)), (StatusCode::NOT_FOUND, "not_found"), "{path}");
    }
    let (status, answer) = fixture.admin(Method::PATCH, PATH, "{}").await;
    assert_eq!((status, code(&answer)), (StatusCode::METHOD_NOT_ALLOWED, "unsupported_operation"));
}
