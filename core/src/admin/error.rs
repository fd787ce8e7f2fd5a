//! Error answers: one catalogue for every route (deployment §1.0, §1.15).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::expected;
use crate::strict;

macro_rules! catalogue {
    ($($(#[$doc:meta])* $code:ident = $status:literal $text:literal $message:literal;)*) => {
        /// A stable identifier that clients branch on, with its status and fixed message.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code {
            $($(#[$doc])* #[doc = concat!("\n\n", $text, ", ", $status)] $code,)*
        }

        impl Code {
            /// Every code.
            pub const ALL: &[Self] = &[$(Self::$code),*];

            /// The HTTP status.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self { $(Self::$code => $status,)* }
            }

            /// The identifier in `error.code`.
            #[must_use]
            pub const fn code(self) -> &'static str {
                match self { $(Self::$code => $text,)* }
            }

            /// A fixed, safe message; it never holds request or provider content.
            #[must_use]
            pub const fn message(self) -> &'static str {
                match self { $(Self::$code => $message,)* }
            }
        }
    };
}

catalogue! {
    /// The body, query or path is malformed.
    InvalidRequest = 400 "invalid_request" "the request is malformed: check its members, their JSON types and their form";
    /// One named member is wrong.
    InvalidRequestError = 400 "invalid_request_error" "the request is invalid: check the named parameter";
    /// The selection is not valid.
    InvalidSandboxConfiguration = 400 "invalid_sandbox_configuration" "the sandbox configuration is invalid: check the named parameter and its bounds";
    /// A node's name is not valid.
    InvalidName = 400 "invalid_name" "the name must have 1 to 128 bytes, not be blank, and hold no NUL, CR or LF";
    /// A capacity is not valid.
    InvalidNodeCapacity = 400 "invalid_node_capacity" "the capacity must be an integer within its bounds, and retained at least active";
    /// The provider does not have the operation.
    SandboxOperationUnsupported = 400 "sandbox_operation_unsupported" "the provider does not support this operation";
    /// The provider refused the key.
    SandboxCredentialInvalid = 400 "sandbox_credential_invalid" "the provider refused the credential: supply a valid one";
    /// The provider refused the selection.
    SandboxConfigurationInvalid = 400 "sandbox_configuration_invalid" "the provider refused the configuration: check template and endpoint";
    /// Not a Core key.
    InvalidAdminKey = 401 "invalid_admin_key" "a valid Core key is required";
    /// Not a project key.
    InvalidApiKey = 401 "invalid_api_key" "a valid project key is required";
    /// Not a node credential or enrollment token.
    InvalidNodeCredential = 401 "invalid_node_credential" "a valid node credential or enrollment token is required";
    /// No such resource.
    NotFoundError = 404 "not_found_error" "no such resource";
    /// No such operation.
    NotFound = 404 "not_found" "no such operation";
    /// The path has no such method.
    UnsupportedOperation = 405 "unsupported_operation" "the path does not have this method";
    /// The body came too slowly.
    RequestTimeout = 408 "request_timeout" "the request body did not arrive in time: send it again";
    /// The generation is not the current one.
    SandboxGenerationStale = 409 "sandbox_generation_stale" "the deployment changed: read it again and repeat with its generation";
    /// Another backend needs a reset first.
    SandboxResetRequired = 409 "sandbox_reset_required" "another provider needs a reset of the deployment first";
    /// A reset is under way.
    SandboxResetInProgress = 409 "sandbox_reset_in_progress" "a reset is in progress: wait for its end or cancel it";
    /// Nothing is selected.
    SandboxNotConfigured = 409 "sandbox_not_configured" "no deployment is selected yet: select one with POST";
    /// The deployment does not allow this.
    SandboxDeploymentConflict = 409 "sandbox_deployment_conflict" "the deployment's state does not allow this";
    /// The public URL does not suit the provider.
    SandboxConfigurationError = 409 "sandbox_configuration_error" "the provider needs a public URL that is not a loopback address";
    /// The key does not own the template.
    SandboxCredentialOwnership = 409 "sandbox_credential_ownership" "the credential does not own the template or its sandboxes";
    /// The node's address of Core is not the public URL.
    SandboxNodeAddressMismatch = 409 "sandbox_node_address_mismatch" "the node's Core address is not the public URL: use the address of the enrollment command";
    /// The node's specification is not the deployment's.
    SandboxSpecificationMismatch = 409 "sandbox_specification_mismatch" "the specification or generation is not one of this node";
    /// The identifier was used for something else.
    IdempotencyConflict = 409 "idempotency_conflict" "the identifier was used before for something else";
    /// The node holds sandboxes.
    RuntimeNodeInUse = 409 "runtime_node_in_use" "the node still holds sandboxes: archive them first";
    /// The session's environment cannot take this.
    EnvironmentUnavailable = 409 "environment_unavailable" "the environment cannot accept this now";
    /// The session is busy.
    SessionBusy = 409 "session_busy" "the session has unfinished turns: wait for them or cancel them";
    /// The body is too long.
    RequestTooLarge = 413 "request_too_large" "the request body is too large";
    /// Something unexpected.
    InternalError = 500 "internal_error" "an unexpected error occurred; Core's log has its cause";
    /// The store did not confirm a commit.
    OutcomeUnknown = 500 "internal_error" "the outcome is unknown: it may or may not have happened; read the state before you repeat the request";
    /// Nobody owns execution.
    ExecutionUnavailable = 503 "execution_unavailable" "execution is not available now: try again later";
    /// No node can take the sandbox.
    RuntimeNodeUnavailable = 503 "runtime_node_unavailable" "no node is available now: try again later or add one";
    /// Nodes are still being prepared.
    SandboxNodesPreparing = 503 "sandbox_nodes_preparing" "nodes are being prepared: try again later";
    /// A public admission while a reset is under way.
    AdmissionResetInProgress = 503 "sandbox_reset_in_progress" "sandboxes are being reset: try again later";
    /// The provider did not confirm.
    SandboxVerificationUnconfirmed = 503 "sandbox_verification_unconfirmed" "the provider did not confirm the configuration: try again later";
    /// There is no key to seal credentials with.
    CredentialStorageUnavailable = 503 "credential_storage_unavailable" "no key for stored credentials is configured";
}

impl Code {
    /// `error.type`: who is at fault.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match (self, self.status()) {
            (_, 500..) => "server_error",
            (_, 409) => "conflict_error",
            (Self::NotFoundError, _) => "not_found_error",
            _ => "invalid_request_error",
        }
    }
}

/// A value of `error.details`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[allow(missing_docs, reason = "each variant is the JSON type of deployment §1.0")]
pub enum Detail {
    Boolean(bool),
    Integer(u64),
    Number(f64),
    Text(String),
    Texts(Vec<String>),
    Null,
}

impl From<u64> for Detail {
    fn from(value: u64) -> Self {
        Self::Integer(value)
    }
}

impl From<&str> for Detail {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// A refused request: code, offending member, details.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{}: {}", .code.code(), .code.message())]
pub struct Fault {
    /// What happened.
    pub code: Code,
    /// The offending member.
    pub param: Option<&'static str>,
    /// Flat facts for a client; sent on `/core/v1` only.
    pub details: BTreeMap<&'static str, Detail>,
}

impl Fault {
    /// A refusal that names one member.
    #[must_use]
    pub const fn of(code: Code, param: &'static str) -> Self {
        Self { code, param: Some(param), details: BTreeMap::new() }
    }

    /// Adds one fact.
    #[must_use]
    pub fn detail(mut self, name: &'static str, value: impl Into<Detail>) -> Self {
        self.details.insert(name, value.into());
        self
    }

    /// The code's own text, or what the named parameter must be.
    fn message(&self) -> String {
        let named = self.param.filter(|_| self.code == Code::InvalidRequestError);
        match named.and_then(|param| expected::of(param).map(|expected| (param, expected))) {
            Some((param, expected)) => format!("{param} must be {expected}"),
            None => self.code.message().to_owned(),
        }
    }

    /// The body on `/core/v1`.
    #[must_use]
    pub fn envelope(&self) -> Envelope {
        let details = self.details.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        Envelope {
            error: ErrorBody {
                message: self.message(),
                kind: self.code.kind().to_owned(),
                code: Some(self.code.code().to_owned()),
                param: self.param.map(str::to_owned),
                details: Some(details).filter(|details: &BTreeMap<_, _>| !details.is_empty()),
            },
        }
    }

    /// The body on `/api/v1` and `/v1`, which never has details.
    #[must_use]
    pub fn plain_envelope(&self) -> Envelope {
        Self { details: BTreeMap::new(), ..self.clone() }.envelope()
    }
}

impl From<Code> for Fault {
    fn from(code: Code) -> Self {
        Self { code, param: None, details: BTreeMap::new() }
    }
}

/// `{"error":{…}}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Envelope {
    /// The error.
    #[serde(deserialize_with = "strict::nested")]
    pub error: ErrorBody,
}

/// The error of an answer (deployment §1.0).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ErrorBody {
    /// Fixed text by Core.
    pub message: String,
    /// Who is at fault.
    #[serde(rename = "type")]
    pub kind: String,
    /// See [`Code`]; a client must bear unknown ones.
    #[serde(deserialize_with = "strict::nullable")]
    pub code: Option<String>,
    /// The offending member.
    #[serde(deserialize_with = "strict::nullable")]
    pub param: Option<String>,
    /// Flat facts; only on `/core/v1`, never empty.
    #[serde(default, deserialize_with = "strict::present", skip_serializing_if = "Option::is_none")]
    pub details: Option<BTreeMap<String, Detail>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_names_who_is_at_fault() {
        let fault = Fault::from(Code::SandboxGenerationStale).detail("current_generation", 3);
        assert_eq!(
            serde_json::to_value(fault.envelope()).unwrap(),
            serde_json::json!({"error": {"message": Code::SandboxGenerationStale.message(), "type": "conflict_error",
                "code": "sandbox_generation_stale", "param": null, "details": {"current_generation": 3}}})
        );
        assert_eq!(fault.plain_envelope().error.details, None);
        assert_eq!(Code::NotFoundError.kind(), "not_found_error");
        assert_eq!(Code::NotFound.kind(), "invalid_request_error");
        assert_eq!(Code::RuntimeNodeUnavailable.kind(), "server_error");
    }

    #[test]
    fn messages_are_lower_case_without_a_trailing_dot() {
        for code in Code::ALL {
            let message = code.message();
            assert!(message.starts_with(|first: char| first.is_lowercase()) && !message.ends_with('.'), "{message}");
        }
    }
}
