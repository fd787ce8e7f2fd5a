//! The hosted-session API (deployment §11.2).

mod archive;
mod caller;
mod events;
mod observation;
mod projects;
mod sessions;
mod turns;

use palisade_core::admin::error::Code;
use palisade_core::deployment::node::parse_id;
use palisade_core::units::Id;

use crate::http::ApiError;
use crate::openapi::{Operation, Routes};

/// Routes below `/v1`. They authenticate project keys for themselves.
pub fn public_routes() -> Routes {
    let with_beta = |operation: Operation| operation.header("OpenAI-Beta", true, "agents=v1");
    let public = Routes::new().merge(sessions::routes(with_beta)).merge(turns::routes(with_beta));
    public.on(with_beta(events::operation()), events::create)
}

/// Routes below `/core/v1/projects`. The Core key was checked before they run.
#[must_use]
pub fn core_routes() -> Routes {
    Routes::new().merge(projects::routes()).merge(archive::routes()).merge(observation::routes())
}

/// An identifier of a public path: what is none names nothing.
fn public_id(text: &str) -> Result<Id, ApiError> {
    parse_id(text).ok_or(Code::NotFoundError.into())
}

/// An identifier of an administrative path: what is none is malformed (decision 37).
fn core_id(text: &str) -> Result<Id, ApiError> {
    parse_id(text).ok_or(Code::InvalidRequest.into())
}
