//! Sessions of a project.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use palisade_core::admin::error::Code;
use palisade_core::admin::node::{List, True};
use palisade_core::deployment::admission::admit;
use palisade_core::hosted::request::{NewSession, check_session};
use palisade_core::hosted::view::Session;
use palisade_core::units::Id;
use schemars::JsonSchema;
use serde::Serialize;

use super::caller::Caller;
use super::public_id;
use crate::Core;
use crate::http::{ApiError, ApiResult, Path, read_body};
use crate::limits::BODY_MAX_BYTES;
use crate::openapi::{self, Operation, Routes, get, post};
use crate::store::sessions;

const SESSIONS: &str = "/v1/agents/sessions";
const SESSION: &str = "/v1/agents/sessions/{session}";

pub(super) fn routes(public: impl Fn(Operation) -> Operation) -> Routes {
    let creating =
        public(post(SESSIONS, "create_session", "A session with a sandbox; repeated with a key, the same one"))
            .header("Idempotency-Key", false, "names this session for repetitions")
            .takes::<NewSession>()
            .answers::<Session>(StatusCode::OK)
            .answers::<Session>(StatusCode::CREATED)
            .refuses(&[
                Code::EnvironmentUnavailable,
                Code::SandboxConfigurationError,
                Code::ExecutionUnavailable,
                Code::RuntimeNodeUnavailable,
                Code::SandboxNodesPreparing,
                Code::AdmissionResetInProgress,
            ]);
    let listing = get(SESSIONS, "list_sessions", "The project's sessions, newest first");
    let reading = get(SESSION, "read_session", "A session").answers::<Session>(StatusCode::OK);
    let deleting =
        openapi::delete(SESSION, "delete_session", "Deletes an idle session").answers::<Deleted>(StatusCode::ACCEPTED);
    Routes::new()
        .on(creating, create)
        .on(public(listing).answers::<List<Session>>(StatusCode::OK), list)
        .on(public(reading).refuses(&[Code::NotFoundError]), read)
        .on(public(deleting).refuses(&[Code::NotFoundError, Code::SessionBusy, Code::ExecutionUnavailable]), delete)
}

/// Answer to a deletion; what the session holds ends afterwards.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DeletedSession")]
pub(super) struct Deleted {
    id: Id,
    object: DeletedObject,
    #[serde(rename = "deleted")]
    #[schemars(with = "bool", extend("const" = true))]
    gone: True,
}

/// The literal `agent.session.deleted`.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DeletedSessionObject")]
enum DeletedObject {
    #[serde(rename = "agent.session.deleted")]
    Session,
}

/// 201 for a new session, 200 for the one that this `Idempotency-Key` made before (decision 41).
pub(super) async fn create(
    State(core): State<Core>,
    caller: Caller,
    body: Body,
) -> ApiResult<(StatusCode, Json<Session>)> {
    check_session(&read_body(body, BODY_MAX_BYTES).await?)?;
    if let Some(session) = repeated(&core, &caller).await? {
        return Ok((StatusCode::OK, Json(session)));
    }
    let answer = admitted(&core, &caller).await?;
    core.wake_owner();
    Ok(answer)
}

/// Admission, placement and rows in one transaction: a refusal leaves nothing behind (deployment §5.1).
async fn admitted(core: &Core, caller: &Caller) -> ApiResult<(StatusCode, Json<Session>)> {
    let lease = core.execution().lease().ok_or(Code::ExecutionUnavailable)?;
    let mut tx = core.store().write().await?;
    let deployment = tx.fence(lease.epoch).await?;
    let project = caller.owner.project;
    // Two requests with one key take turns at the deployment's lock.
    if let Some(key) = &caller.idempotency_key
        && let Some(session) = tx.session_of_key(project, key).await?
    {
        return Ok((StatusCode::OK, Json(session)));
    }
    let nodes = tx.candidates(lease.installation, &deployment).await?;
    let now = tx.now().await?;
    let placement = admit(&deployment, &nodes, now).map_err(|refused| ApiError::from(refused.code()))?;
    let id = Id::from_random(rand::random());
    let idempotency_key = caller.idempotency_key.as_deref();
    let new = sessions::NewSession { id, owner: caller.owner, idempotency_key, placement };
    let session = tx.create_session(new, now).await?;
    tx.commit().await?;
    Ok((StatusCode::CREATED, Json(session)))
}

async fn repeated(core: &Core, caller: &Caller) -> ApiResult<Option<Session>> {
    let Some(key) = &caller.idempotency_key else { return Ok(None) };
    Ok(core.store().read().await?.session_of_key(caller.owner.project, key).await?)
}

pub(super) async fn list(State(core): State<Core>, caller: Caller) -> ApiResult<Json<List<Session>>> {
    let data = core.store().read().await?.sessions(caller.owner.project).await?;
    Ok(Json(List { data }))
}

pub(super) async fn read(
    State(core): State<Core>,
    caller: Caller,
    Path(session): Path<String>,
) -> ApiResult<Json<Session>> {
    let id = public_id(&session)?;
    let session = core.store().read().await?.session(id, caller.owner.project).await?;
    Ok(Json(session.ok_or(Code::NotFoundError)?))
}

/// 202 when the session was idle; its resources end afterwards.
pub(super) async fn delete(
    State(core): State<Core>,
    caller: Caller,
    Path(session): Path<String>,
) -> ApiResult<(StatusCode, Json<Deleted>)> {
    let id = public_id(&session)?;
    let lease = core.execution().lease().ok_or(Code::ExecutionUnavailable)?;
    let mut tx = core.store().write().await?;
    tx.lock_session(id).await?;
    tx.session(id, caller.owner.project).await?.ok_or(Code::NotFoundError)?;
    tx.fence(lease.epoch).await?;
    if tx.open_turns(id).await? > 0 {
        return Err(Code::SessionBusy.into());
    }
    let now = tx.now().await?;
    tx.delete_session(id, now).await?;
    tx.commit().await?;
    core.wake_owner();
    Ok((StatusCode::ACCEPTED, Json(Deleted { id, object: DeletedObject::Session, gone: True })))
}
