//! The document of the HTTP interface (`OpenAPI` 3.1), made of the routes that are served.
//!
//! [`Routes`] takes an [`Operation`] with each handler, so that a route cannot be served without being described. The
//! schemas come from the types that the handlers write and that the parsers read. The tests of this crate hold every
//! answer against the document; `native/control/openapi.json` is its committed form, for those who generate clients.

mod document;
mod operation;
mod schema;

pub use operation::{Authority, Operation, delete, get, patch, post, put};

use axum::Router;
use axum::handler::Handler;
use axum::routing::on;

use crate::Core;

/// Routes with their descriptions.
#[derive(Default)]
pub struct Routes {
    router: Router<Core>,
    operations: Vec<Operation>,
}

impl Routes {
    /// No route yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Serves an operation.
    #[must_use]
    pub fn on<H, T>(mut self, operation: Operation, handler: H) -> Self
    where
        H: Handler<T, Core>,
        T: 'static,
    {
        self.router = self.router.route(operation.path(), on(operation.filter(), handler));
        self.operations.push(operation);
        self
    }

    /// Adds a router that is put together elsewhere, with what it serves.
    #[must_use]
    pub fn described(mut self, router: Router<Core>, operations: impl IntoIterator<Item = Operation>) -> Self {
        self.router = self.router.merge(router);
        self.operations.extend(operations);
        self
    }

    /// Adds all of `other`.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        self.described(other.router, other.operations)
    }

    /// What answers.
    pub fn into_router(self) -> Router<Core> {
        self.router
    }

    /// What is described, as it is served and committed: pretty JSON, members in alphabetical order.
    #[must_use]
    pub fn document(&self) -> String {
        let mut text = serde_json::to_string_pretty(&document::of(&self.operations)).expect("a JSON value serialises");
        text.push('\n');
        text
    }
}
