//! The HTTP surface: routes, authority, bodies, and the one error envelope.
//!
//! Every path below `/core/v1` and `/console`, unknown ones included, wants a Core key before anything else is looked at.
//! A handler there may take [`Administrator`], who asked. Bodies are read with [`read_body`] and judged by the core's parsers;
//! refusals are [`ApiError`]s, made from a `Code` or a `Fault` of the core's one catalogue.

mod auth;
mod body;
mod console;
mod deployment;
mod error;
mod linger;
mod listen;
mod machine;
mod nodes;
mod path;
mod query;
mod reset;

use std::sync::LazyLock;

pub use auth::{Administrator, bearer};
pub use body::read_body;
pub(crate) use deployment::view as deployment_view;
pub use error::{ApiError, ApiResult};
pub use listen::listen;
pub use path::Path;
pub use query::{Query, Repeated};

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::{Router, middleware};
use palisade_core::admin::error::Code;

use crate::openapi::{Operation, Routes, get};
use crate::{Core, api, health, requests};

/// What is served under [`DOCUMENT_PATH`].
static DOCUMENT: LazyLock<String> = LazyLock::new(|| routes().document());

/// Where the document of this interface is. It holds no secret and wants no key.
pub const DOCUMENT_PATH: &str = "/openapi.json";

/// All routes of Core, with their descriptions.
#[must_use]
pub fn routes() -> Routes {
    Routes::new()
        .merge(deployment::routes())
        .merge(reset::routes())
        .merge(nodes::routes())
        .merge(machine::routes())
        .merge(health::routes())
        .merge(console::routes())
        .merge(api::core_routes())
        .merge(api::public_routes())
        .on(document(), async || ([(CONTENT_TYPE, "application/json")], DOCUMENT.as_str()))
}

fn document() -> Operation {
    get(DOCUMENT_PATH, "read_document", "This document").answers::<serde_json::Value>(StatusCode::OK)
}

/// What answers on every path.
pub fn router(core: Core) -> Router {
    routes()
        .into_router()
        .fallback(async || ApiError::from(Code::NotFound))
        .method_not_allowed_fallback(async || ApiError::from(Code::UnsupportedOperation))
        .layer(middleware::from_fn_with_state(core.clone(), auth::require_core_key))
        .layer(middleware::from_fn_with_state(core.clone(), requests::observe))
        .with_state(core)
}
