//! Is this process alive, and does it serve? For load balancers and service managers, who have no key: the answers tell
//! a word and nothing else.
//!
//! `GET /healthz` answers as long as the process can answer at all. `GET /readyz` answers 200 `ready` while the store
//! answers and takes writes, and this process owns execution; else 503 with `standby` (the store answers and another
//! process is the owner: it takes over when that one ends) or `unavailable`. A balancer that asks `/readyz` therefore
//! always finds the owner. Why a store is unavailable is in the log, once.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::Core;
use crate::limits::PROBE_WAIT;
use crate::openapi::{Routes, get};
use crate::store::Store;

/// How long one look at the store serves everybody who asks: nobody without a key can make it work.
const PROBE_LIFE: Duration = Duration::from_millis(500);
/// How long a write that was confirmed says that the store takes writes; one that failed is tried again at each look.
const WRITE_LIFE: Duration = Duration::from_secs(5);

/// Body of both answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Health {
    /// The word.
    pub status: Status,
}

/// How a Core is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "HealthStatus")]
pub enum Status {
    /// The process answers; only of `/healthz`.
    Live,
    /// The store answers, and this process owns execution.
    Ready,
    /// The store answers, and another process owns execution, or nobody yet.
    Standby,
    /// The store does not answer in time, or takes no writes.
    Unavailable,
}

impl Status {
    /// The word in answers, logs and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Ready => "ready",
            Self::Standby => "standby",
            Self::Unavailable => "unavailable",
        }
    }
}

/// Both routes. They need no key.
pub fn routes() -> Routes {
    let living = get("/healthz", "read_liveness", "Whether the process answers").answers::<Health>(StatusCode::OK);
    let serving =
        get("/readyz", "read_readiness", "Whether the store answers and takes writes, and this process owns execution")
            .answers::<Health>(StatusCode::OK)
            .answers::<Health>(StatusCode::SERVICE_UNAVAILABLE);
    Routes::new().on(living, live).on(serving, ready)
}

async fn live() -> Response {
    answer(StatusCode::OK, Status::Live)
}

async fn ready(State(core): State<Core>) -> Response {
    match core.status().await {
        status @ (Status::Live | Status::Ready) => answer(StatusCode::OK, status),
        status @ (Status::Standby | Status::Unavailable) => answer(StatusCode::SERVICE_UNAVAILABLE, status),
    }
}

fn answer(code: StatusCode, status: Status) -> Response {
    (code, [(header::CACHE_CONTROL, "no-store")], Json(Health { status })).into_response()
}

impl Core {
    /// Whether this process serves.
    pub async fn status(&self) -> Status {
        match (self.probe().serves(self.store()).await, self.execution().lease()) {
            (false, _) => Status::Unavailable,
            (true, Some(_)) => Status::Ready,
            (true, None) => Status::Standby,
        }
    }
}

/// The last look at the store.
#[derive(Debug, Default)]
pub(crate) struct Probe(Mutex<Option<Look>>);

#[derive(Debug, Clone, Copy)]
struct Look {
    at: Instant,
    serves: bool,
    /// When a write was confirmed last.
    written: Option<Instant>,
}

impl Probe {
    /// Whether the store answers and takes writes. Those who ask while somebody looks get what that one sees.
    async fn serves(&self, store: &Store) -> bool {
        let mut last = self.0.lock().await;
        let look = match *last {
            Some(look) if look.at.elapsed() < PROBE_LIFE => look,
            before => look(store, before).await,
        };
        *last = Some(look);
        look.serves
    }
}

/// A store that could not serve does so again when a write was confirmed, and not when it merely answers.
async fn look(store: &Store, before: Option<Look>) -> Look {
    let served = before.is_none_or(|before| before.serves);
    let known = before.and_then(|before| before.written).filter(|at| served && at.elapsed() < WRITE_LIFE);
    let ask = async {
        if known.is_none() {
            store.try_write().await?;
            return Ok(Some(Instant::now()));
        }
        store.read().await?.now().await.map(|_| known)
    };
    let outcome = timeout(PROBE_WAIT, ask).await;
    let written = outcome.as_ref().ok().and_then(|answer| answer.as_ref().ok().copied().flatten());
    let failure: Option<&dyn std::fmt::Display> = match &outcome {
        Ok(Ok(_)) => None,
        Ok(Err(error)) => Some(error),
        Err(late) => Some(late),
    };
    let healthy = failure.is_none() && (served || written.is_some());
    if let (true, Some(error)) = (served, failure) {
        tracing::error!(%error, "the store does not answer or takes no writes: this core is not ready");
    }
    if healthy && !served {
        tracing::info!("the store answers and takes writes again");
    }
    Look { at: Instant::now(), serves: healthy, written }
}
