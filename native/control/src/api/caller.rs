//! Who calls the public API, and whether again.

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use palisade_core::admin::error::{Code, Fault};
use palisade_core::hosted::request::valid_idempotency_key;
use palisade_core::units::Digest;

use crate::Core;
use crate::http::{ApiError, bearer};
use crate::store::projects::Owner;

const BETA: &str = "OpenAI-Beta";
const REPEAT: &str = "Idempotency-Key";

/// The project behind a request of `/v1`.
///
/// 401 `invalid_api_key` for whatever is no project key, a Core key included; then 400 without `OpenAI-Beta: agents=v1`.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    /// Who asks.
    pub(super) owner: Owner,
    /// The checked `Idempotency-Key`.
    pub(super) idempotency_key: Option<String>,
}

impl FromRequestParts<Core> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, core: &Core) -> Result<Self, ApiError> {
        let owner = authenticate(&parts.headers, core).await?;
        let beta = parts.headers.get_all(BETA).iter().filter_map(|value| value.to_str().ok());
        if !beta.flat_map(|value| value.split(',')).any(|feature| feature.trim() == "agents=v1") {
            return Err(Fault::of(Code::InvalidRequestError, BETA).into());
        }
        Ok(Self { owner, idempotency_key: idempotency_key(&parts.headers)? })
    }
}

async fn authenticate(headers: &HeaderMap, core: &Core) -> Result<Owner, ApiError> {
    // A Core key grants nothing here, not even when a project has the same one.
    let token = bearer(headers).filter(|token| core.keys().matching(token).is_none()).ok_or(Code::InvalidApiKey)?;
    let owner = core.store().read().await?.project_of_key(Digest::of(token.as_bytes())).await?;
    owner.ok_or(Code::InvalidApiKey.into())
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let mut values = headers.get_all(REPEAT).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let key = value.to_str().ok().filter(|key| valid_idempotency_key(key) && values.next().is_none());
    Ok(Some(key.ok_or(Fault::of(Code::InvalidRequestError, REPEAT))?.to_owned()))
}
