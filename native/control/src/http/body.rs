//! Bodies (deployment §1.0).

use axum::body::Body;
use palisade_core::admin::error::Code;

use super::{ApiError, ApiResult};

/// Reads a whole body of at most `limit` bytes, else 413 `request_too_large`.
///
/// The pure parsers of the core take the bytes.
pub async fn read_body(body: Body, limit: usize) -> ApiResult<axum::body::Bytes> {
    axum::body::to_bytes(body, limit).await.map_err(|error| refuse(&error))
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
