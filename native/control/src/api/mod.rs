//! The hosted-session API (deployment §11.2).

use axum::Router;

use crate::Core;

/// Routes below `/v1`. They authenticate project keys for themselves.
pub fn public_routes() -> Router<Core> {
    Router::new()
}

/// Routes below `/core/v1/projects`. The Core key was checked before they run.
pub fn core_routes() -> Router<Core> {
    Router::new()
}
