//! Every row of the error catalogue, produced by a request (deployment §1.15).

use std::collections::BTreeSet;

use axum::body::{Body, Bytes};
use axum::http::{Method, Request, StatusCode};
use palisade_control::http;
use palisade_core::admin::error::Code;
use palisade_core::deployment::selection::Doubt;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::providers::{Double, e2b, ready, seal_key, with_provider};
use crate::public::{HOSTED, Public, SESSIONS};
use crate::support::Database::Sqlite;
use crate::support::{Fixture, KEY, NewNode, PUBLIC_URL, admin, ask, selection};

const DEPLOYMENT: &str = "/core/v1/sandbox/deployment";
const RESET: &str = "/core/v1/sandbox/deployment/reset";
const TOKENS: &str = "/core/v1/sandbox/enrollment-tokens";
const NOBODY: &str = "94be54a1-138c-4f30-bc87-b13686272dbe";

/// Which rows were answered.
#[derive(Default)]
struct Seen(BTreeSet<&'static str>);

impl Seen {
    /// The answer is this row: its status, code, type and message.
    fn row(&mut self, code: Code, (status, body): (StatusCode, Value)) {
        let error = &body["error"];
        let told = (status.as_u16(), error["code"].as_str(), error["type"].as_str(), error["message"].as_str());
        let expected = (code.status(), Some(code.code()), Some(code.kind()), Some(code.message()));
        assert_eq!(told, expected, "{code:?}: {body}");
        self.0.insert(code.message());
    }
}

/// Each row of the catalogue is the answer to a request, and there is no row beside them.
#[tokio::test]
async fn every_row_is_produced_by_a_request() {
    let mut seen = Seen::default();
    requests(&mut seen).await;
    deployments(&mut seen).await;
    nodes(&mut seen).await;
    sessions(&mut seen).await;
    providers(&mut seen).await;
    failures(&mut seen).await;
    let missing: Vec<_> = Code::ALL.iter().filter(|code| !seen.0.contains(code.message())).collect();
    assert_eq!(missing, Vec::<&Code>::new());
}

/// What is wrong whatever the deployment is.
async fn requests(seen: &mut Seen) {
    let fixture = Fixture::new(Sqlite).await;
    seen.row(Code::InvalidAdminKey, ask(&fixture.core, Method::GET, DEPLOYMENT, &[], "").await);
    seen.row(Code::NotFound, fixture.admin(Method::GET, "/core/v1/nothing", "").await);
    seen.row(Code::UnsupportedOperation, fixture.admin(Method::PATCH, DEPLOYMENT, "{}").await);
    seen.row(Code::InvalidRequest, fixture.admin(Method::POST, DEPLOYMENT, "[]").await);
    let large = " ".repeat(64 * 1024 + 1);
    seen.row(Code::RequestTooLarge, fixture.admin(Method::POST, DEPLOYMENT, &large).await);
    seen.row(Code::InvalidName, fixture.admin(Method::POST, "/core/v1/projects", r#"{"name":" "}"#).await);
    seen.row(Code::InvalidRequestError, fixture.admin(Method::POST, RESET, "[]").await);
    seen.row(Code::RequestTimeout, silent(&fixture).await);
}

/// A body that never comes.
async fn silent(fixture: &Fixture) -> (StatusCode, Value) {
    let body = Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>());
    let request = Request::post(DEPLOYMENT).header("authorization", format!("Bearer {KEY}")).body(body).unwrap();
    tokio::time::pause();
    let response = http::router(fixture.core.clone()).oneshot(request).await.unwrap();
    tokio::time::resume();
    let status = response.status();
    let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, serde_json::from_slice(&bytes).unwrap())
}

/// What the stored selection does not allow.
async fn deployments(seen: &mut Seen) {
    let fixture = Fixture::new(Sqlite).await;
    let (post, put) = (Method::POST, Method::PUT);
    seen.row(Code::SandboxNotConfigured, fixture.admin(put.clone(), DEPLOYMENT, &selection(0, 2)).await);
    seen.row(Code::RuntimeNodeUnavailable, fixture.admin(post.clone(), TOKENS, "{}").await);
    let oversized = fixture.admin(post.clone(), DEPLOYMENT, &selection(0, 256)).await;
    seen.row(Code::InvalidSandboxConfiguration, oversized);
    let standby = admin(&fixture.standby(), post.clone(), DEPLOYMENT, &selection(0, 2)).await;
    seen.row(Code::ExecutionUnavailable, standby);
    fixture.select().await;
    seen.row(Code::SandboxGenerationStale, fixture.admin(put.clone(), DEPLOYMENT, &selection(0, 4)).await);
    seen.row(Code::SandboxDeploymentConflict, fixture.admin(post.clone(), DEPLOYMENT, &selection(1, 4)).await);
    let other = e2b(1, &json!({"credential": {"api_key": "key"}}));
    seen.row(Code::SandboxResetRequired, fixture.admin(put, DEPLOYMENT, &other).await);
    seen.row(Code::InvalidNodeCapacity, fixture.admin(post.clone(), TOKENS, r#"{"max_active":0}"#).await);
    let discovery = "/core/v1/sandbox/providers/docker/discovery";
    seen.row(Code::SandboxOperationUnsupported, fixture.admin(post.clone(), discovery, "{}").await);
    let node = format!("/core/v1/sandbox/nodes/{NOBODY}");
    seen.row(Code::NotFoundError, fixture.admin(Method::DELETE, &node, "").await);
    let (status, _) = fixture.admin(post.clone(), RESET, r#"{"expected_generation":1,"clear":"force"}"#).await;
    assert_eq!(status, StatusCode::OK);
    seen.row(Code::SandboxResetInProgress, fixture.admin(post, TOKENS, "{}").await);
}

/// Enrollment, and a node that is in use.
async fn nodes(seen: &mut Seen) {
    let fixture = Fixture::new(Sqlite).await;
    fixture.select().await;
    let enrolled = fixture.enroll("one").await;
    let (_, view) = fixture.admin(Method::GET, DEPLOYMENT, "").await;
    let digest = view["specification_digest"].as_str().unwrap();
    let token = fixture.token("{}").await;
    let new = NewNode::new("two");
    let enroll = async |bearer: &str, body: String| fixture.machine(Method::POST, "enroll", bearer, &body).await;
    seen.row(Code::InvalidNodeCredential, enroll("0", new.enrollment(1, digest)).await);
    seen.row(Code::SandboxSpecificationMismatch, enroll(&token, new.enrollment(2, digest)).await);
    let misled = new.enrollment(1, digest).replace(PUBLIC_URL, "https://other.example");
    seen.row(Code::SandboxNodeAddressMismatch, enroll(&token, misled).await);
    seen.row(Code::IdempotencyConflict, enroll(&token, enrolled.enrollment(1, digest)).await);
    fixture.place(&enrolled, "held").await;
    let path = format!("/core/v1/sandbox/nodes/{}", enrolled.id);
    seen.row(Code::RuntimeNodeInUse, fixture.admin(Method::DELETE, &path, "").await);
}

/// The public interface.
async fn sessions(seen: &mut Seen) {
    let public = Public::new(Sqlite).await;
    let node = public.fixture.enroll("one").await;
    seen.row(Code::InvalidApiKey, public.call_as("pk_0", Method::GET, SESSIONS, &[], "").await);
    public.observe(&node, "preparing").await;
    seen.row(Code::SandboxNodesPreparing, public.post(SESSIONS, HOSTED).await);
    public.fixture.execute("DELETE FROM runtime_node_generation_status").await;
    public.observe(&node, "ready").await;
    let session = public.session().await;
    let events = format!("{SESSIONS}/{session}/events");
    let message = r#"{"type":"message","command":{"args":["true"]}}"#;
    assert_eq!(public.post(&events, message).await.0, StatusCode::CREATED);
    let path = format!("{SESSIONS}/{session}");
    seen.row(Code::SessionBusy, public.call(Method::DELETE, &path, &[], "").await);
    public.fixture.execute("UPDATE environments SET status = 'expired'").await;
    seen.row(Code::EnvironmentUnavailable, public.post(&events, message).await);
    let (status, _) = public.core(Method::POST, RESET, r#"{"expected_generation":1,"clear":"force"}"#).await;
    assert_eq!(status, StatusCode::OK);
    seen.row(Code::AdmissionResetInProgress, public.post(SESSIONS, HOSTED).await);
}

/// A provider that is asked.
async fn providers(seen: &mut Seen) {
    let fixture = Fixture::new(Sqlite).await;
    let select = async |core| {
        let body = e2b(0, &json!({"credential": {"api_key": "key"}}));
        admin(&core, Method::POST, DEPLOYMENT, &body).await
    };
    let doubts = [
        (Doubt::Unauthorized, Code::SandboxCredentialInvalid),
        (Doubt::NotOwned, Code::SandboxCredentialOwnership),
        (Doubt::Invalid, Code::SandboxConfigurationInvalid),
        (Doubt::Unconfirmed, Code::SandboxVerificationUnconfirmed),
    ];
    for (doubt, code) in doubts {
        let double = Double::answering([Err(doubt)]);
        seen.row(code, select(with_provider(&fixture, PUBLIC_URL, double, Some(seal_key("0a")))).await);
    }
    let unsealed = with_provider(&fixture, PUBLIC_URL, Double::answering([Ok(ready())]), None);
    seen.row(Code::CredentialStorageUnavailable, select(unsealed).await);
    let local = with_provider(&fixture, "http://localhost:8080", Double::answering([]), Some(seal_key("0a")));
    seen.row(Code::SandboxConfigurationError, select(local).await);
}

/// A store that fails before a commit, and one that fails in it.
async fn failures(seen: &mut Seen) {
    let fixture = Fixture::new(Sqlite).await;
    fixture.select().await;
    fixture.execute("ALTER TABLE admin_audit_log RENAME TO hidden").await;
    seen.row(Code::InternalError, fixture.admin(Method::PUT, DEPLOYMENT, &selection(1, 4)).await);
    fixture.execute("ALTER TABLE hidden RENAME TO admin_audit_log").await;
    fixture.execute("CREATE TABLE anchors (id BIGINT PRIMARY KEY)").await;
    fixture.execute("CREATE TABLE ropes (anchor BIGINT REFERENCES anchors (id) DEFERRABLE INITIALLY DEFERRED)").await;
    fixture
        .execute("CREATE TRIGGER fails AFTER INSERT ON admin_audit_log BEGIN INSERT INTO ropes VALUES (1); END")
        .await;
    seen.row(Code::OutcomeUnknown, fixture.admin(Method::PUT, DEPLOYMENT, &selection(1, 4)).await);
}
