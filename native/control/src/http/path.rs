//! Segments of a path.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use palisade_core::admin::error::Code;
use serde::de::DeserializeOwned;

use super::ApiError;

/// The named segments of a path after percent-decoding. What is no UTF-8 then is malformed, in Core's own envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let segments = axum::extract::Path::from_request_parts(parts, state).await;
        segments.map(|axum::extract::Path(segments)| Self(segments)).map_err(|_| Code::InvalidRequest.into())
    }
}
