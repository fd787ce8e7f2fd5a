//! Events that a client posts to a session.

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use palisade_core::admin::error::Code;
use palisade_core::hosted::request::{Event, EventBody, Message};
use palisade_core::hosted::view::{Session, Turn};
use palisade_core::limits::EVENT_BODY_MAX_BYTES;
use palisade_core::units::{Digest, Id};
use tokio::task::spawn_blocking;

use super::caller::Caller;
use super::public_id;
use crate::Core;
use crate::http::{ApiResult, Path, read_body};
use crate::limits::TURNS_OPEN_MAX;
use crate::openapi::{Operation, post};
use crate::store::turns::{Repeat, Repeatable};

pub(super) fn operation() -> Operation {
    post("/v1/agents/sessions/{session}/events", "create_event", "Runs a command, or cancels what waits and what runs")
        .header("Idempotency-Key", false, "names this event for repetitions")
        .takes::<EventBody<'_>>()
        .answers::<Turn>(StatusCode::OK)
        .answers::<Turn>(StatusCode::CREATED)
        .answers::<Session>(StatusCode::ACCEPTED)
        .refuses(&[Code::NotFoundError, Code::EnvironmentUnavailable, Code::SessionBusy, Code::IdempotencyConflict])
}

/// A message answers 201 with its Turn, or 200 with the Turn that this `Idempotency-Key` made before; a cancel answers
/// 202 with the session.
pub(super) async fn create(
    State(core): State<Core>,
    caller: Caller,
    Path(session): Path<String>,
    body: Body,
) -> ApiResult<Response> {
    let session = public_id(&session)?;
    let project = caller.owner.project;
    // A body of many MiB is not read for a session that is not there.
    core.store().read().await?.session(session, project).await?.ok_or(Code::NotFoundError)?;
    let body = read_body(body, EVENT_BODY_MAX_BYTES).await?;
    let (event, repeatable) = read(body, caller.idempotency_key).await?;
    match event {
        Event::Cancel => {
            let session = cancel(&core, session, project).await?;
            Ok((StatusCode::ACCEPTED, Json(session)).into_response())
        }
        Event::Message(message) => {
            let (status, turn) = queue(&core, session, project, message, repeatable).await?;
            Ok((status, Json(turn)).into_response())
        }
    }
}

/// Decodes and hashes beside the runtime: what takes a second for many MiB must not hold up whoever shares the thread.
async fn read(body: Bytes, key: Option<String>) -> ApiResult<(Event, Option<Repeatable>)> {
    let reading = spawn_blocking(move || {
        let event = Event::parse(&body)?;
        Ok((event, key.map(|key| Repeatable { key, body: Digest::of(&body) })))
    });
    reading.await.map_err(|_| Code::InternalError)?
}

async fn queue(
    core: &Core,
    id: Id,
    project: Id,
    message: Message,
    event: Option<Repeatable>,
) -> ApiResult<(StatusCode, Turn)> {
    let mut tx = core.store().write_bytes(message.stdin.as_ref().map_or(0, Vec::len)).await?;
    tx.lock_session(id).await?;
    tx.session(id, project).await?.ok_or(Code::NotFoundError)?;
    if let Some(event) = &event
        && let Some(repeat) = tx.repeated(id, event).await?
    {
        return match repeat {
            Repeat::Same(turn) => Ok((StatusCode::OK, *turn)),
            Repeat::Other => Err(Code::IdempotencyConflict.into()),
        };
    }
    let (environment, resources) = tx.resources(id).await?;
    if resources.ended {
        return Err(Code::EnvironmentUnavailable.into());
    }
    if tx.open_turns(id).await? >= TURNS_OPEN_MAX {
        return Err(Code::SessionBusy.into());
    }
    let now = tx.now().await?;
    let turn = tx.create_turn(id, environment, message, event, now).await?.ok_or(Code::InternalError)?;
    tx.commit().await?;
    core.wake_owner();
    Ok((StatusCode::CREATED, turn))
}

async fn cancel(core: &Core, id: Id, project: Id) -> ApiResult<Session> {
    let mut tx = core.store().write().await?;
    tx.lock_session(id).await?;
    tx.session(id, project).await?.ok_or(Code::NotFoundError)?;
    let now = tx.now().await?;
    tx.cancel_turns(id, now).await?;
    let session = tx.session(id, project).await?.ok_or(Code::NotFoundError)?;
    tx.commit().await?;
    core.wake_owner();
    Ok(session)
}
