//! Strict JSON bodies (deployment §1.0).

use axum::body::Body;
use serde::de::DeserializeOwned;

use super::{ApiError, ApiResult, Code};
use crate::limits::BODY_MAX_BYTES;

/// Reads exactly one JSON object of at most [`BODY_MAX_BYTES`]. `T` must deny unknown fields.
///
/// 413 `request_too_large`, or 400 `invalid_request` for whatever is no such object.
pub async fn read_object<T: DeserializeOwned>(body: Body) -> ApiResult<T> {
    read_object_up_to(body, BODY_MAX_BYTES).await
}

/// [`read_object`] with another limit in bytes.
pub async fn read_object_up_to<T: DeserializeOwned>(body: Body, limit: usize) -> ApiResult<T> {
    let bytes = axum::body::to_bytes(body, limit).await.map_err(|error| refuse(&error))?;
    palisade_core::strict::object(&bytes).map_err(|_| Code::InvalidRequest.into())
}

fn refuse(error: &axum::Error) -> ApiError {
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        if error.is::<http_body_util::LengthLimitError>() {
            return Code::RequestTooLarge.into();
        }
        source = error.source();
    }
    Code::InvalidRequest.into()
}
