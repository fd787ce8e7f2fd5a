//! The hosted-session API (deployment §11.2).

mod archive;
mod caller;
mod events;
mod observation;
mod projects;
mod sessions;
mod turns;

use axum::Router;
use axum::routing::{delete, get, post};
use palisade_core::admin::error::Code;
use palisade_core::deployment::node::parse_id;
use palisade_core::units::Id;

use crate::Core;
use crate::http::ApiError;

/// Routes below `/v1`. They authenticate project keys for themselves.
pub fn public_routes() -> Router<Core> {
    Router::new()
        .route("/v1/agents/sessions", post(sessions::create).get(sessions::list))
        .route("/v1/agents/sessions/{session}", get(sessions::read).delete(sessions::delete))
        .route("/v1/agents/sessions/{session}/events", post(events::create))
        .route("/v1/agents/sessions/{session}/turns", get(turns::list))
        .route("/v1/agents/sessions/{session}/turns/{turn}", get(turns::read))
}

/// Routes below `/core/v1/projects`. The Core key was checked before they run.
pub fn core_routes() -> Router<Core> {
    Router::new()
        .route("/core/v1/projects", post(projects::create).get(projects::list))
        .route("/core/v1/projects/{project}/keys", post(projects::create_key))
        .route("/core/v1/projects/{project}/keys/{key}", delete(projects::revoke_key))
        .route("/core/v1/projects/{project}/sessions", get(projects::sessions))
        .route("/core/v1/projects/{project}/sessions/{session}", get(projects::session))
        .route("/core/v1/projects/{project}/sessions/{session}/archive", post(archive::create).get(archive::read))
        .route("/core/v1/projects/{project}/sessions/{session}/runtime-observation", get(observation::read))
}

/// An identifier of a public path: what is none names nothing.
fn public_id(text: &str) -> Result<Id, ApiError> {
    parse_id(text).ok_or(Code::NotFoundError.into())
}

/// An identifier of an administrative path: what is none is malformed (decision 37).
fn core_id(text: &str) -> Result<Id, ApiError> {
    parse_id(text).ok_or(Code::InvalidRequest.into())
}

/// `{"data":[…]}`.
#[derive(Debug, serde::Serialize)]
struct List<T> {
    data: Vec<T>,
}
