//! The HTTP surface: routes, authority, strict bodies, and the one error envelope.
//!
//! Every path below `/core/v1`, unknown ones included, wants a Core key before anything else is looked at. A handler
//! there may take [`Administrator`], who asked. Bodies are read with [`read_object`]; refusals are [`ApiError`]s, made from a
//! [`Code`] of the one table.

mod auth;
mod body;
mod code;
mod error;

pub use auth::{Administrator, bearer};
pub use body::{read_object, read_object_up_to};
pub use code::Code;
pub use error::{ApiError, ApiResult, Details};

use axum::{Router, middleware};

use crate::{Core, api, hub};

/// All routes of Core.
pub fn router(core: Core) -> Router {
    Router::new()
        .merge(hub::routes())
        .merge(api::core_routes())
        .merge(api::public_routes())
        .fallback(async || ApiError::from(Code::NotFound))
        .method_not_allowed_fallback(async || ApiError::from(Code::UnsupportedOperation))
        .layer(middleware::from_fn_with_state(core.clone(), auth::require_core_key))
        .with_state(core)
}
