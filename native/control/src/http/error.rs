//! The one error envelope (deployment §1.0).

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use palisade_core::admin::error::{Code, Fault};

use crate::store::{Refused, StoreError};

/// A refusal, ready to be answered. Any [`Fault`] and [`Code`] of the one catalogue becomes one. Only faults of
/// `/core/v1` carry details.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiError(Fault);

/// Result of a handler.
pub type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    /// What it says.
    #[must_use]
    pub const fn fault(&self) -> &Fault {
        &self.0
    }

    /// A failure of storage while a machine asked: 503, so that it comes again. The log gets the reason.
    pub(crate) fn unavailable(error: &StoreError) -> Self {
        tracing::error!(%error, "the store failed");
        Code::RuntimeNodeUnavailable.into()
    }

    /// A store's refusal of a node, as a machine route answers it.
    pub(crate) fn machine(refused: Refused) -> Self {
        match refused {
            Refused::Rejected => Code::InvalidNodeCredential.into(),
            Refused::Mismatch => Code::SandboxSpecificationMismatch.into(),
            Refused::Store(error) => Self::unavailable(&error),
        }
    }
}

impl From<Code> for ApiError {
    fn from(code: Code) -> Self {
        Fault::from(code).into()
    }
}

impl From<Fault> for ApiError {
    fn from(fault: Fault) -> Self {
        Self(fault)
    }
}

/// The log gets the reason, the caller only the class.
impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Fenced => Code::ExecutionUnavailable.into(),
            StoreError::Database(_) | StoreError::Corrupt { .. } | StoreError::Replaced { .. } => {
                tracing::error!(%error, "the store failed");
                Code::InternalError.into()
            }
            StoreError::Unconfirmed(_) => {
                tracing::error!(%error, "the store may have changed");
                Code::OutcomeUnknown.into()
            }
        }
    }
}

/// For handlers that query directly.
impl From<sqlx::Error> for ApiError {
    fn from(error: sqlx::Error) -> Self {
        StoreError::from(error).into()
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.code.status()).expect("the catalogue holds valid statuses");
        (status, axum::Json(self.0.envelope())).into_response()
    }
}
