//! Who asks.

use std::convert::Infallible;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::Response;
use palisade_core::admin::error::Code;
use palisade_core::units::{Digest, Id};

use super::ApiError;
use crate::openapi::Authority;
use crate::requests::RequestId;
use crate::store::Source;
use crate::{Core, credential_id};

/// The administrator behind a request of `/core/v1`, as the audit log names them. Extract it in any handler there.
#[derive(Debug, Clone)]
pub struct Administrator {
    /// Names the key without being it: the beginning of its digest.
    pub credential_id: String,
    /// This request.
    pub request_id: Id,
}

impl Administrator {
    fn new(key: Digest, request_id: Id) -> Self {
        Self { credential_id: credential_id(key), request_id }
    }

    /// The provenance of an audited change.
    #[must_use]
    pub fn source(&self) -> Source {
        Source {
            credential_id: self.credential_id.clone(),
            request_id: self.request_id,
            trace_id: Id::from_random(rand::random()),
        }
    }
}

/// The token of exactly one `Authorization: Bearer` header; the scheme's case does not matter.
#[must_use]
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    let valid = scheme.eq_ignore_ascii_case("bearer") && !token.is_empty() && !token.contains([' ', '\t']);
    valid.then_some(token)
}

/// Lets nobody without a Core key to what is an administrator's, on no path and with no method.
pub(super) async fn require_core_key(
    State(core): State<Core>,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    if Authority::of(request.uri().path()) == Authority::Administrator {
        let key = bearer(request.headers()).and_then(|token| core.keys().matching(token));
        let administrator = Administrator::new(key.ok_or(Code::InvalidAdminKey)?, RequestId::of(&request));
        request.extensions_mut().insert(administrator);
    }
    Ok(next.run(request).await)
}

impl<S: Sync> FromRequestParts<S> for Administrator {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let known = parts.extensions.get::<Self>().cloned();
        Ok(known.expect("handlers below /core/v1 run after require_core_key"))
    }
}
