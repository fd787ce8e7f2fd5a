//! What Core measures of itself, in the format of Prometheus.
//!
//! Served by [`routes`] on a listener of its own, which does not exist unless the operator names an address: whoever can
//! reach it needs no key, so that no program which only watches has to hold one that may change everything.
//!
//! # Invariants
//!
//! - Every label has a fixed set of values: a route's template, never a path; an operation, never an identifier.
//! - Nothing of what requests carry, and no name that somebody chose, is a label or a value.

mod scrape;
mod timing;

use std::fmt::Write as _;

use axum::Router;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

pub(crate) use timing::{Measured, StoreTimes, Times};

use crate::hub::Hub;
use crate::store::Store;
use crate::{Core, health};

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Every name begins with it.
const PREFIX: &str = "palisade";

/// The measurements of one process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Time of each HTTP request, by method and route.
    pub(crate) requests: Times,
    /// HTTP requests that are not answered yet.
    pub(crate) in_flight: Gauge,
}

impl Metrics {
    pub(crate) fn new(store: &Store, hub: &Hub) -> Self {
        let (requests, in_flight) = (Times::default(), Gauge::default());
        let mut registry = Registry::with_prefix(PREFIX);
        let mut times = |name: &str, help: &str, times: &Times| {
            registry.register_with_unit(name, help, Unit::Seconds, times.family());
        };
        times("http_request_duration", "Time until a request was answered, by route and class of status", &requests);
        times("node_call_duration", "Time until a node's operation was answered, by its outcome", &hub.times());
        times("store_step_duration", "Time to get a transaction of the store, and to commit one", &store.times().steps);
        times(
            "node_record_duration",
            "Time of the storage calls of connections, heartbeats included",
            &store.times().records,
        );
        registry.register("http_requests_in_flight", "Requests that are not answered yet", in_flight.clone());
        Self { registry, requests, in_flight }
    }
}

/// `GET /metrics`, and the routes of [`health`], all without a key: for a listener that only watchers reach.
pub fn routes() -> Router<Core> {
    Router::new().route("/metrics", get(read)).merge(health::routes().into_router())
}

async fn read(State(core): State<Core>) -> Response {
    let seen = scrape::registry(&core).await;
    let mut text = String::new();
    let encoded = encode_registry(&mut text, &core.metrics().registry)
        .and_then(|()| encode_registry(&mut text, &seen))
        .and_then(|()| encode_eof(&mut text))
        .and_then(|()| text.write_str(""));
    encoded.expect("a string takes whatever is written to it");
    ([(header::CONTENT_TYPE, CONTENT_TYPE), (header::CACHE_CONTROL, "no-store")], text).into_response()
}
