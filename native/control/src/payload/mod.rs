//! The files that nodes download, below `/node-install/` (node-host §5.7).
//!
//! - A path is served only as it is written in [`palisade_core::distribution::route`]: no listing, no other spelling.
//! - An artifact is served only when the manifest of its release declares it; a manifest that is not of its folder's
//!   release, or a pointer that is none, serves nothing at all.
//! - What is declared and not here is asked for elsewhere, at the release's own https folder; Core never fetches it.
//! - Nobody signs in, and nothing here is secret.
//!
//! `palisade release publish` fills the folder. Files there never change, so that a transfer that broke goes on by range.

mod body;
mod folder;
mod range;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use palisade_core::admin::error::Code;
use palisade_core::distribution::route::Route;

use crate::http::ApiError;
use crate::{Core, requests};
use body::Places;
use folder::{Found, Stored};
pub use folder::{Offer, Payload};
use range::Wish;

/// The routes of a payload folder, observed like all others of this Core.
pub fn router(core: Core, payload: Payload) -> Router {
    routes(payload).layer(middleware::from_fn_with_state(core, requests::observe))
}

fn routes(payload: Payload) -> Router {
    let shelf = Shelf { payload, places: Places::default() };
    Router::new().route("/node-install/{*file}", any(answer)).with_state(shelf)
}

#[derive(Debug, Clone)]
struct Shelf {
    payload: Payload,
    places: Places,
}

async fn answer(State(shelf): State<Shelf>, method: Method, uri: Uri, headers: HeaderMap) -> Response {
    let mut response = choose(&shelf, &method, uri.path(), &headers).await;
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

async fn choose(shelf: &Shelf, method: &Method, path: &str, headers: &HeaderMap) -> Response {
    if !matches!(*method, Method::GET | Method::HEAD) {
        let allowed = [(header::ALLOW, "GET, HEAD")];
        return (StatusCode::METHOD_NOT_ALLOWED, allowed, ApiError::from(Code::UnsupportedOperation)).into_response();
    }
    let Some(route) = Route::parse(path) else { return refusal(Code::NotFound) };
    match shelf.payload.find(&route).await {
        Ok(Found::Here(stored)) => serve(shelf, method, headers, stored),
        Ok(Found::Elsewhere(address)) => elsewhere(&address),
        Ok(Found::Nowhere) => refusal(Code::NotFound),
        Err(error) => {
            tracing::error!(%error, folder = %shelf.payload.folder().display(), "the payload folder cannot be read");
            refusal(Code::InternalError)
        }
    }
}

fn refusal(code: Code) -> Response {
    ApiError::from(code).into_response()
}

fn elsewhere(address: &str) -> Response {
    match HeaderValue::from_str(address) {
        Ok(address) => (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, address)]).into_response(),
        Err(_) => refusal(Code::NotFound),
    }
}

fn serve(shelf: &Shelf, method: &Method, headers: &HeaderMap, stored: Stored) -> Response {
    let size = stored.size;
    let version = stored.sha256.map(|sha256| format!("\"{sha256}\""));
    let wish = Wish::of(headers, size, version.as_deref());
    let (status, first, length) = match wish {
        Wish::Whole => (StatusCode::OK, 0, size),
        Wish::Part { first, length } => (StatusCode::PARTIAL_CONTENT, first, length),
        Wish::Outside => (StatusCode::RANGE_NOT_SATISFIABLE, 0, 0),
    };
    let body = if *method == Method::HEAD || length == 0 {
        Ok(axum::body::Body::empty())
    } else {
        body::stream(stored.file, first, length, &shelf.places)
    };
    let Ok(body) = body else {
        return (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "5")]).into_response();
    };
    let mut response = (status, body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(header::CONTENT_LENGTH, length.into());
    if let Some(version) = version.and_then(|version| HeaderValue::from_str(&version).ok()) {
        headers.insert(header::ETAG, version);
    }
    if let Some(range) = wish.content_range(size).and_then(|range| HeaderValue::from_str(&range).ok()) {
        headers.insert(header::CONTENT_RANGE, range);
    }
    response
}

#[cfg(test)]
mod tests;
