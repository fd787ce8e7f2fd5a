//! The connections of the nodes.

use axum::Router;

use crate::Core;

/// Live connections, one per node.
#[derive(Debug, Default)]
pub struct Hub {}

/// `GET /api/v1/sandbox-node/connect`. It authenticates for itself.
pub fn routes() -> Router<Core> {
    Router::new()
}
