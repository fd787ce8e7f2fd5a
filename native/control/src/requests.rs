//! Every request has a name: it stands in each log line about the request, in the audit log, and in the answer as
//! `X-Request-Id`, so that one leads to the other. And every request is measured.

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use palisade_core::units::Id;
use prometheus_client::metrics::gauge::Gauge;
use tracing::Instrument as _;

use crate::Core;

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

/// Names a request, puts its log lines under that name, says so in the answer, and measures the time until then.
pub async fn observe(State(core): State<Core>, mut request: Request, next: Next) -> Response {
    let id = Id::from_random(rand::random());
    request.extensions_mut().insert(RequestId(id));
    let route = request.extensions().get::<MatchedPath>().cloned();
    let (route, method) = (route.as_ref().map_or("none", MatchedPath::as_str), known(request.method()));
    let span = tracing::info_span!("request", request = %id, method, route);
    let timed = core.metrics().requests.begin(format!("{method} {route}"));
    let _open = InFlight::of(&core.metrics().in_flight);
    let answer = async {
        let mut answer = next.run(request).await;
        tracing::debug!(status = answer.status().as_u16(), "answered");
        let name = HeaderValue::from_str(&id.to_string()).expect("a uuid is a header value");
        answer.headers_mut().insert(REQUEST_ID, name);
        answer
    };
    let answer = answer.instrument(span).await;
    timed.end(class(answer.status()));
    answer
}

/// A method that has a route; clients may make up others.
fn known(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        _ => "OTHER",
    }
}

fn class(status: StatusCode) -> &'static str {
    match status.as_u16() {
        ..200 => "1xx",
        200..300 => "2xx",
        300..400 => "3xx",
        400..500 => "4xx",
        500.. => "5xx",
    }
}

/// One request that is not answered yet, also when its client goes away.
struct InFlight<'m>(&'m Gauge);

impl<'m> InFlight<'m> {
    fn of(gauge: &'m Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}
