//! `GET /api/v1/sandbox-node/connect` (wire §5.1).

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRef, Request, State};
use axum::http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue, ORIGIN, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode, Version};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodFilter, on};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use palisade_core::limits::{CALLBACK_TIMEOUT_MS, HELLO_TIMEOUT_MS};
use palisade_core::session::hub::Connection;
use palisade_core::session::hub::upgrade::{Refusal, dial, handshake};
use palisade_core::units::{Id, OwnerEpoch};
use palisade_core::wire::payload::Identity;
use palisade_socket::{Socket, accept_key};

use super::connection::Driver;
use super::{Bounds, Denied, Hub, Reservation, Shared};
use crate::Core;

/// Digits of 16 bytes in base64, without the padding.
const KEY_DIGITS: usize = 22;

/// `GET /api/v1/sandbox-node/connect`. It authenticates for itself.
pub fn routes<S>() -> Router<S>
where
    S: Clone + Send + Sync + 'static,
    Hub: FromRef<S>,
{
    let methods = MethodFilter::GET.or(MethodFilter::HEAD).or(MethodFilter::POST);
    Router::new().route("/api/v1/sandbox-node/connect", on(methods, connect))
}

impl FromRef<Core> for Hub {
    fn from_ref(core: &Core) -> Self {
        core.hub().clone()
    }
}

async fn connect(State(hub): State<Hub>, request: Request) -> Response {
    let (mut parts, _) = request.into_parts();
    let Some(shared) = hub.0.filter(|_| parts.method == Method::GET) else {
        return refuse(Refusal::Unavailable);
    };
    match open(&shared, &mut parts).await {
        Ok((opening, accept)) => {
            tokio::spawn(opening.run());
            switch(&accept)
        }
        Err(refusal) => refuse(refusal),
    }
}

/// A reserved identity whose stream is about to become a WebSocket.
struct Opening {
    reservation: Reservation,
    identity: Identity<'static>,
    bearer: String,
    owner_epoch: OwnerEpoch,
    upgrade: OnUpgrade,
}

/// Steps 2 to 8, in their order.
async fn open(shared: &Arc<Shared>, request: &mut Parts) -> Result<(Opening, String), Refusal> {
    let (identity, owner_epoch, bearer, reservation) = reserve(shared, request).await?;
    let key = websocket_key(&request.headers);
    let key = key.filter(|_| request.version >= Version::HTTP_11);
    handshake(request.headers.contains_key(ORIGIN), key.is_some())?;
    let upgrade = request.extensions.remove::<OnUpgrade>();
    let (Some(key), Some(upgrade)) = (key, upgrade) else { return Err(Refusal::NotWebSocket) };
    Ok((Opening { reservation, identity, bearer, owner_epoch, upgrade }, accept_key(key.as_bytes())))
}

async fn reserve(
    shared: &Arc<Shared>,
    request: &Parts,
) -> Result<(Identity<'static>, OwnerEpoch, String, Reservation), Refusal> {
    let (node, bearer) = read_dial(request)?;
    let identity = match shared.records.authenticate(&bounds(shared), node, &bearer).await {
        Ok(identity) => identity,
        Err(Denied::Rejected) => return Err(Refusal::Credential),
        Err(Denied::Failed(_)) => return Err(Refusal::Unavailable),
    };
    if Id::parse(&identity.node_id) != Ok(node) {
        return Err(Refusal::Credential);
    }
    let owner_epoch = shared.records.owner_epoch(&bounds(shared)).await.map_err(|_| Refusal::Unavailable)?;
    Ok((identity, owner_epoch, bearer, shared.reserve(node)?))
}

fn read_dial(request: &Parts) -> Result<(Id, String), Refusal> {
    let query = request.uri.query().unwrap_or_default();
    let nodes: Vec<&str> = query.split('&').filter_map(|pair| pair.strip_prefix("node_id=")).collect();
    let values = request.headers.get_all(AUTHORIZATION).iter();
    let authorizations: Vec<&str> = values.map(|value| value.to_str().unwrap_or_default()).collect();
    dial(&nodes, &authorizations).map(|dial| (dial.node, dial.bearer.to_owned()))
}

fn bounds(shared: &Shared) -> Bounds {
    Bounds { deadline: shared.instant(shared.now().after(CALLBACK_TIMEOUT_MS)), cancel: shared.stop.clone() }
}

/// The key of a complete WebSocket handshake: exactly one, of 16 bytes in base64.
fn websocket_key(headers: &HeaderMap) -> Option<String> {
    let complete = lists(headers, &CONNECTION, "upgrade")
        && lists(headers, &UPGRADE, "websocket")
        && headers.get(SEC_WEBSOCKET_VERSION).is_some_and(|version| version == "13");
    let mut keys = headers.get_all(SEC_WEBSOCKET_KEY).iter().filter(|_| complete);
    let (key, None) = (keys.next()?.to_str().ok()?, keys.next()) else { return None };
    let digits = key.strip_suffix("==").filter(|digits| digits.len() == KEY_DIGITS)?;
    let base64 = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    digits.bytes().all(base64).then(|| key.to_owned())
}

fn lists(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|item| item.trim().eq_ignore_ascii_case(token))
}

fn switch(accept: &str) -> Response {
    let headers = [(CONNECTION, "Upgrade"), (UPGRADE, "websocket"), (SEC_WEBSOCKET_ACCEPT, accept)];
    (StatusCode::SWITCHING_PROTOCOLS, headers).into_response()
}

fn refuse(refusal: Refusal) -> Response {
    let error = serde_json::json!({
        "error": { "message": refusal.message(), "type": refusal.kind(), "code": null, "param": null }
    });
    let mut response = Response::new(Body::from(error.to_string()));
    *response.status_mut() = StatusCode::from_u16(refusal.status()).expect("the table holds HTTP statuses only");
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if refusal.names_version() {
        headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
    }
    response
}

impl Opening {
    async fn run(self) {
        let bound = Duration::from_millis(HELLO_TIMEOUT_MS);
        let upgraded = tokio::select! {
            upgraded = tokio::time::timeout(bound, self.upgrade) => upgraded,
            () = self.reservation.stop.cancelled() => return,
        };
        let Ok(Ok(stream)) = upgraded else { return };
        let socket = Socket::accepted(TokioIo::new(stream), &[]);
        let now = self.reservation.shared.now();
        let connection_id = Id::from_random(rand::random());
        let machine = Connection::new(now, self.identity, connection_id, self.owner_epoch);
        Driver::new(self.reservation, machine, self.bearer, socket.split()).run().await;
    }
}
