//! Every request has a name: it stands in each log line about the request, in the audit log, and in the answer as
//! `X-Request-Id`, so that one leads to the other.

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use palisade_core::units::Id;
use tracing::Instrument as _;

/// Names the request in its answer.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The name of one request. It is made here: what a client says of itself names nothing in our records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestId(Id);

impl RequestId {
    /// The name of a request that passed [`observe`]; a new one for any other.
    pub(crate) fn of(request: &Request) -> Id {
        request.extensions().get::<Self>().map_or_else(|| Id::from_random(rand::random()), |id| id.0)
    }
}

/// Names a request, puts its log lines under that name, and says so in the answer.
pub async fn observe(mut request: Request, next: Next) -> Response {
    let id = Id::from_random(rand::random());
    request.extensions_mut().insert(RequestId(id));
    let route = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str);
    let span = tracing::info_span!("request", request = %id, method = %request.method(), route);
    let answer = async {
        let mut answer = next.run(request).await;
        tracing::debug!(status = answer.status().as_u16(), "answered");
        let name = HeaderValue::from_str(&id.to_string()).expect("a uuid is a header value");
        answer.headers_mut().insert(REQUEST_ID, name);
        answer
    };
    answer.instrument(span).await
}
