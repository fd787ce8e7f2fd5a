//! Sessions of a project.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use palisade_core::admin::error::Code;
use palisade_core::deployment::admission::admit;
use palisade_core::hosted::request::check_session;
use palisade_core::hosted::view::Session;
use palisade_core::units::Id;

use super::caller::Caller;
use super::{List, public_id};
use crate::Core;
use crate::http::{ApiError, ApiResult, Path, read_body};
use crate::limits::BODY_MAX_BYTES;
use crate::store::sessions::NewSession;

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
    let nodes = tx.nodes(lease.installation).await?;
    let now = tx.now().await?;
    let placement = admit(&deployment, &nodes, now).map_err(|refused| ApiError::from(refused.code()))?;
    let id = Id::from_random(rand::random());
    let idempotency_key = caller.idempotency_key.as_deref();
    tx.create_session(NewSession { id, owner: caller.owner, idempotency_key, placement }, now).await?;
    let session = tx.session(id, project).await?.ok_or(Code::InternalError)?;
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
) -> ApiResult<(StatusCode, Json<serde_json::Value>)> {
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
    Ok((StatusCode::ACCEPTED, Json(serde_json::json!({"id": id, "object": "agent.session.deleted", "deleted": true}))))
}
