//! The one error envelope (deployment §1.0).

use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Map, Value};

use super::Code;
use crate::store::StoreError;

/// A refusal, ready to be answered.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiError {
    code: Code,
    param: Option<String>,
    details: Details,
}

/// Facts beside a refusal; only answers of `/core/v1` show them. Never request data, secrets or provider text.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Details(Map<String, Value>);

/// Result of a handler.
pub type ApiResult<T> = Result<T, ApiError>;

impl Details {
    /// Adds one fact.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.insert(name.to_owned(), value.into());
        self
    }
}

impl ApiError {
    /// Names the offending member.
    #[must_use]
    pub fn param(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    /// Adds facts.
    #[must_use]
    pub fn details(mut self, details: Details) -> Self {
        self.details = details;
        self
    }

    /// What it says.
    #[must_use]
    pub const fn code(&self) -> Code {
        self.code
    }
}

impl From<Code> for ApiError {
    fn from(code: Code) -> Self {
        Self { code, param: None, details: Details::default() }
    }
}

/// The log gets the reason, the caller only the class.
impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Fenced => Code::ExecutionUnavailable.into(),
            StoreError::Database(_) | StoreError::Corrupt { .. } => {
                tracing::error!(%error, "the store failed");
                Code::InternalError.into()
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
        #[derive(Serialize)]
        struct Envelope<'a> {
            error: Body<'a>,
        }
        #[derive(Serialize)]
        struct Body<'a> {
            message: &'a str,
            r#type: &'a str,
            code: &'a str,
            param: Option<String>,
            #[serde(skip_serializing_if = "Map::is_empty")]
            details: Map<String, Value>,
        }
        let body = Body {
            message: self.code.message(),
            r#type: self.code.kind(),
            code: self.code.code(),
            param: self.param,
            details: self.details.0,
        };
        (self.code.status(), axum::Json(Envelope { error: body })).into_response()
    }
}
