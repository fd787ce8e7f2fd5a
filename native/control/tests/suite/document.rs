//! The document of the HTTP interface, and that it is held against every answer.

use std::collections::HashSet;
use std::path::Path;

use axum::http::{Method, StatusCode};
use palisade_control::http::{DOCUMENT_PATH, routes};
use serde_json::{Value, json};

use crate::contract::{Answer, judge};
use crate::support::Database::Sqlite;
use crate::support::{Fixture, ask};

const COMMITTED: &str = include_str!("../../openapi.json");

/// The committed document is what the routes describe. `PALISADE_WRITE_DOCUMENT=1` writes it.
#[test]
fn the_committed_document_describes_the_routes() {
    let described = routes().document();
    if std::env::var_os("PALISADE_WRITE_DOCUMENT").is_some() {
        #[expect(clippy::disallowed_methods, reason = "a file of the repository, no record that a restart reads")]
        std::fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.json"), &described).unwrap();
        return;
    }
    assert!(
        described == COMMITTED,
        "openapi.json is not what the routes describe; write it with PALISADE_WRITE_DOCUMENT=1"
    );
}

/// Core serves the document to everybody; below `/core/v1` an unknown path still wants the key.
#[tokio::test]
async fn the_document_is_served() {
    let fixture = Fixture::new(Sqlite).await;
    let (status, document) = ask(&fixture.core, Method::GET, DOCUMENT_PATH, &[], "").await;
    assert_eq!((status, document), (StatusCode::OK, serde_json::from_str(COMMITTED).unwrap()));
    let (status, _) = ask(&fixture.core, Method::GET, "/core/v1/openapi.json", &[], "").await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
}

/// Below `/console` the Core key is wanted before anything else is looked at, on paths that are none too.
#[tokio::test]
async fn what_a_console_asks_wants_the_core_key() {
    let fixture = Fixture::new(Sqlite).await;
    for path in ["/console/config", "/console/none", "/console"] {
        let (status, _) = ask(&fixture.core, Method::GET, path, &[], "").await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{path}");
    }
    let key = ("authorization", "Bearer core-key-of-the-test-suite");
    let (status, config) = ask(&fixture.core, Method::GET, "/console/config", &[key], "").await;
    let nothing = json!({"node_installer": false, "node_installer_sha256": null, "node_artifacts": []});
    assert_eq!((status, config), (StatusCode::OK, nothing));
    let (status, _) = ask(&fixture.core, Method::POST, "/console/config", &[key], "").await;
    assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
    let (status, _) = ask(&fixture.core, Method::GET, "/consoles", &[], "").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

#[test]
fn every_operation_has_a_name_of_its_own() {
    let document: Value = serde_json::from_str(COMMITTED).unwrap();
    let mut names = HashSet::new();
    for operations in document["paths"].as_object().unwrap().values() {
        for operation in operations.as_object().unwrap().values() {
            assert!(
                names.insert(operation["operationId"].as_str().unwrap().to_owned()),
                "{}",
                operation["operationId"]
            );
        }
    }
    assert!(names.len() > 25, "{names:?}");
}

fn judged(method: &Method, path: &str, status: u16, body: &Value) -> Result<(), String> {
    let body = body.to_string();
    let status = StatusCode::from_u16(status).unwrap();
    judge(method, path, &Answer { status, content_type: Some("application/json"), body: body.as_bytes() })
}

/// What holds the answers against the document sees each kind of deviation.
#[test]
fn an_answer_that_is_not_described_is_seen() {
    let archive = "/core/v1/projects/a/sessions/b/archive";
    let (session, environment) = ("94be54a1-138c-4f30-bc87-b13686272dbe", "94be54a1-138c-4f30-bc87-b13686272dbf");
    let answer = json!({"session_id": session, "environment_id": environment, "state": "active"});
    let error = |code: &str, kind: &str| json!({"error": {"message": "m", "type": kind, "code": code, "param": null}});
    assert_eq!(judged(&Method::GET, archive, 200, &answer), Ok(()));
    assert_eq!(judged(&Method::GET, archive, 404, &error("not_found_error", "not_found_error")), Ok(()));
    assert_eq!(judged(&Method::GET, "/nowhere", 404, &error("not_found", "invalid_request_error")), Ok(()));
    assert_eq!(judged(&Method::PUT, archive, 405, &error("unsupported_operation", "invalid_request_error")), Ok(()));

    let changed = |name: &str, value: Value| {
        let mut answer = answer.clone();
        answer[name] = value;
        answer
    };
    for (method, path, status, body) in [
        (Method::GET, archive, 200, changed("more", json!(1))),
        (Method::GET, archive, 200, changed("session_id", json!(null))),
        (Method::GET, archive, 200, changed("session_id", json!("no-uuid"))),
        (Method::GET, archive, 200, changed("state", json!("ended"))),
        (Method::GET, archive, 200, json!({"session_id": session, "environment_id": environment})),
        (Method::GET, archive, 201, answer.clone()),
        (Method::GET, archive, 409, error("session_busy", "conflict_error")),
        (Method::GET, archive, 404, error("not_found", "not_found_error")),
        (Method::GET, archive, 404, error("not_found_error", "server_error")),
        (Method::GET, "/nowhere", 200, answer.clone()),
        (Method::PUT, archive, 200, answer.clone()),
        (Method::PUT, archive, 404, error("not_found", "invalid_request_error")),
    ] {
        assert!(judged(&method, path, status, &body).is_err(), "{method} {path} {status} {body}");
    }
    let mut detailed = error("invalid_request_error", "invalid_request_error");
    detailed["error"]["details"] = json!({"min": 1});
    assert!(judged(&Method::POST, "/v1/agents/sessions", 400, &detailed).is_err());
}
