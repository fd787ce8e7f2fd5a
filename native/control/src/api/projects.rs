//! Projects and their keys, and what an administrator sees of their sessions.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use palisade_core::admin::error::Code;
use palisade_core::hosted::request::Named;
use palisade_core::hosted::view::{Project, Session};
use palisade_core::units::{Digest, Id};
use serde::Serialize;

use super::{List, core_id};
use crate::Core;
use crate::http::{ApiResult, Path, read_body};
use crate::limits::BODY_MAX_BYTES;
use crate::store::{Timestamp, Tx};

/// A new key; the only answer that ever holds it.
#[derive(Serialize)]
pub(super) struct NewKey {
    id: Id,
    project_id: Id,
    name: String,
    created_at: Timestamp,
    key: String,
}

pub(super) async fn create(State(core): State<Core>, body: Body) -> ApiResult<(StatusCode, Json<Project>)> {
    let named = Named::parse(&read_body(body, BODY_MAX_BYTES).await?)?;
    let mut tx = core.store().write().await?;
    let (id, now) = (Id::from_random(rand::random()), tx.now().await?);
    tx.create_project(id, &named.name, now).await?;
    let project = existing(&mut tx, id).await?;
    tx.commit().await?;
    Ok((StatusCode::CREATED, Json(project)))
}

pub(super) async fn list(State(core): State<Core>) -> ApiResult<Json<List<Project>>> {
    let data = core.store().read().await?.projects().await?;
    Ok(Json(List { data }))
}

pub(super) async fn create_key(
    State(core): State<Core>,
    Path(project): Path<String>,
    body: Body,
) -> ApiResult<(StatusCode, Json<NewKey>)> {
    let Named { name } = Named::parse(&read_body(body, BODY_MAX_BYTES).await?)?;
    let project_id = core_id(&project)?;
    let mut tx = core.store().write().await?;
    existing(&mut tx, project_id).await?;
    let (id, created_at) = (Id::from_random(rand::random()), tx.now().await?);
    let key = new_key();
    tx.create_project_key(id, project_id, &name, Digest::of(key.as_bytes()), created_at).await?;
    tx.commit().await?;
    Ok((StatusCode::CREATED, Json(NewKey { id, project_id, name, created_at, key })))
}

pub(super) async fn revoke_key(
    State(core): State<Core>,
    Path((project, key)): Path<(String, String)>,
) -> ApiResult<Json<serde_json::Value>> {
    let (project, key) = (core_id(&project)?, core_id(&key)?);
    let mut tx = core.store().write().await?;
    let now = tx.now().await?;
    if !tx.revoke_project_key(key, project, now).await? {
        return Err(Code::NotFoundError.into());
    }
    tx.commit().await?;
    Ok(Json(serde_json::json!({"id": key, "revoked": true})))
}

pub(super) async fn sessions(State(core): State<Core>, Path(project): Path<String>) -> ApiResult<Json<List<Session>>> {
    let project = core_id(&project)?;
    let mut tx = core.store().read().await?;
    existing(&mut tx, project).await?;
    Ok(Json(List { data: tx.sessions(project).await? }))
}

pub(super) async fn session(
    State(core): State<Core>,
    Path((project, session)): Path<(String, String)>,
) -> ApiResult<Json<Session>> {
    let (project, session) = (core_id(&project)?, core_id(&session)?);
    let found = core.store().read().await?.session(session, project).await?;
    Ok(Json(found.ok_or(Code::NotFoundError)?))
}

async fn existing(tx: &mut Tx, project: Id) -> ApiResult<Project> {
    tx.project(project).await?.ok_or(Code::NotFoundError.into())
}

/// `pk_` and 32 random bytes in hexadecimal.
fn new_key() -> String {
    let random: [u8; 32] = rand::random();
    random.iter().fold("pk_".to_owned(), |mut key, byte| {
        key.push(char::from_digit(u32::from(byte >> 4), 16).expect("a nibble is a digit"));
        key.push(char::from_digit(u32::from(byte & 15), 16).expect("a nibble is a digit"));
        key
    })
}
