//! Projects and their keys, and what an administrator sees of their sessions.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use palisade_core::admin::error::Code;
use palisade_core::admin::node::{List, True};
use palisade_core::hosted::request::Named;
use palisade_core::hosted::view::{Project, Session};
use palisade_core::units::{Digest, Id};
use schemars::JsonSchema;
use serde::Serialize;

use super::core_id;
use crate::Core;
use crate::http::{ApiResult, Path, read_body};
use crate::limits::BODY_MAX_BYTES;
use crate::openapi::{Routes, delete, get, post};
use crate::store::{Timestamp, Tx};

const PROJECTS: &str = "/core/v1/projects";
const KEYS: &str = "/core/v1/projects/{project}/keys";
const KEY: &str = "/core/v1/projects/{project}/keys/{key}";
const SESSIONS: &str = "/core/v1/projects/{project}/sessions";
const SESSION: &str = "/core/v1/projects/{project}/sessions/{session}";

pub(super) fn routes() -> Routes {
    let creating = post(PROJECTS, "create_project", "A project with a tenant of its own").takes::<Named>();
    let listing = get(PROJECTS, "list_projects", "Every project").answers::<List<Project>>(StatusCode::OK);
    let issuing = post(KEYS, "create_project_key", "A key of a project, shown once").takes::<Named>();
    let revoking = delete(KEY, "revoke_project_key", "Ends a key").answers::<Revoked>(StatusCode::OK);
    let inspecting = get(SESSIONS, "list_project_sessions", "The sessions of a project, newest first");
    let looking = get(SESSION, "read_project_session", "A session of a project").answers::<Session>(StatusCode::OK);
    let named = &[Code::InvalidName];
    let found = &[Code::NotFoundError];
    Routes::new()
        .on(creating.answers::<Project>(StatusCode::CREATED).refuses(named), create)
        .on(listing, list)
        .on(issuing.answers::<NewKey>(StatusCode::CREATED).refuses(named).refuses(found), create_key)
        .on(revoking.refuses(found), revoke_key)
        .on(inspecting.answers::<List<Session>>(StatusCode::OK).refuses(found), sessions)
        .on(looking.refuses(found), session)
}

/// A new key; the only answer that ever holds it.
#[derive(Serialize, JsonSchema)]
pub(super) struct NewKey {
    id: Id,
    project_id: Id,
    name: String,
    created_at: Timestamp,
    key: String,
}

/// Answer to the revocation of a key.
#[derive(Serialize, JsonSchema)]
pub(super) struct Revoked {
    id: Id,
    #[schemars(with = "bool", extend("const" = true))]
    revoked: True,
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
) -> ApiResult<Json<Revoked>> {
    let (project, key) = (core_id(&project)?, core_id(&key)?);
    let mut tx = core.store().write().await?;
    let now = tx.now().await?;
    if !tx.revoke_project_key(key, project, now).await? {
        return Err(Code::NotFoundError.into());
    }
    tx.commit().await?;
    Ok(Json(Revoked { id: key, revoked: True }))
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
