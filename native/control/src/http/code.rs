//! The catalogue of error codes (deployment §1.15), in one table.

use axum::http::StatusCode;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $status:ident $code:literal, $message:literal;)*) => {
        /// What an error answer says. The status, the stable code and the fixed message stand in one table.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Code {
            $(#[doc = $code] #[doc = ""] $(#[$doc])* $name,)*
        }

        impl Code {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The HTTP status.
            #[must_use]
            pub const fn status(self) -> StatusCode {
                match self { $(Self::$name => StatusCode::$status,)* }
            }

            /// The stable identifier that clients branch on.
            #[must_use]
            pub const fn code(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }

            /// Fixed text for a person.
            #[must_use]
            pub const fn message(self) -> &'static str {
                match self { $(Self::$name => $message,)* }
            }
        }
    };
}

codes! {
    /// Malformed body, query or identifier.
    InvalidRequest = BAD_REQUEST "invalid_request", "the request is malformed";
    /// One member is wrong; the route names it.
    InvalidRequestError = BAD_REQUEST "invalid_request_error", "a member of the request is missing or invalid";
    /// A selection that no provider accepts.
    InvalidSandboxConfiguration = BAD_REQUEST "invalid_sandbox_configuration", "the sandbox configuration is invalid";
    /// A node's name.
    InvalidName = BAD_REQUEST "invalid_name", "the name must be 1 to 128 bytes, not blank, without line breaks";
    /// A node's approved limits.
    InvalidNodeCapacity = BAD_REQUEST "invalid_node_capacity", "the node capacity is out of range";
    /// The provider does not offer this.
    SandboxOperationUnsupported = BAD_REQUEST "sandbox_operation_unsupported", "the provider does not support this operation";
    /// A provider credential that cannot be one.
    SandboxCredentialInvalid = BAD_REQUEST "sandbox_credential_invalid", "the provider credential is invalid";
    /// A provider configuration that the provider refused.
    SandboxConfigurationInvalid = BAD_REQUEST "sandbox_configuration_invalid", "the provider refused the configuration";
    /// Not a Core key.
    InvalidAdminKey = UNAUTHORIZED "invalid_admin_key", "a valid core key is required";
    /// Not a project key.
    InvalidApiKey = UNAUTHORIZED "invalid_api_key", "a valid project key is required";
    /// Neither a node credential nor an enrollment token that is good here.
    InvalidNodeCredential = UNAUTHORIZED "invalid_node_credential", "a valid node credential or enrollment token is required";
    /// The connect route, asked from a web page.
    ForeignOrigin = FORBIDDEN "invalid_request", "requests from a foreign origin are refused";
    /// No such resource.
    NotFoundError = NOT_FOUND "not_found_error", "the resource does not exist";
    /// No such operation.
    NotFound = NOT_FOUND "not_found", "no operation has this path";
    /// The path exists, the method does not.
    UnsupportedOperation = METHOD_NOT_ALLOWED "unsupported_operation", "the operation does not support this method";
    /// The deployment has moved on.
    SandboxGenerationStale = CONFLICT "sandbox_generation_stale", "the deployment has another generation; read it again";
    /// Another provider is selected.
    SandboxResetRequired = CONFLICT "sandbox_reset_required", "another provider is selected; reset the deployment first";
    /// Management and machine routes while a reset runs.
    SandboxResetInProgress = CONFLICT "sandbox_reset_in_progress", "a reset of the deployment is in progress";
    /// Nothing is selected yet.
    SandboxNotConfigured = CONFLICT "sandbox_not_configured", "no sandbox deployment is configured";
    /// The deployment does not allow this now.
    SandboxDeploymentConflict = CONFLICT "sandbox_deployment_conflict", "the deployment does not allow this operation";
    /// The provider needs an origin that the world can reach.
    SandboxConfigurationError = CONFLICT "sandbox_configuration_error", "the provider needs a public url that is not loopback";
    /// The new credential does not own what the old one made.
    SandboxCredentialOwnership = CONFLICT "sandbox_credential_ownership", "the credential does not own the existing sandboxes";
    /// The node was told another address.
    SandboxNodeAddressMismatch = CONFLICT "sandbox_node_address_mismatch", "the core url is not the public url of this installation";
    /// The node has another specification.
    SandboxSpecificationMismatch = CONFLICT "sandbox_specification_mismatch", "the generation or its specification digest does not match";
    /// The identifier was used before, or the same key came with another request.
    IdempotencyConflict = CONFLICT "idempotency_conflict", "the identifier was used before";
    /// The node still holds sandboxes.
    RuntimeNodeInUse = CONFLICT "runtime_node_in_use", "the node still holds sandboxes";
    /// The Session's environment cannot take this.
    EnvironmentUnavailable = CONFLICT "environment_unavailable", "the environment is not available";
    /// The Session has work that is not finished.
    SessionBusy = CONFLICT "session_busy", "the session has work that is not finished";
    /// The body is larger than the route takes.
    RequestTooLarge = PAYLOAD_TOO_LARGE "request_too_large", "the request body is too large";
    /// Storage failed.
    InternalError = INTERNAL_SERVER_ERROR "internal_error", "core could not complete the request";
    /// No owner, no lease, or shutting down.
    ExecutionUnavailable = SERVICE_UNAVAILABLE "execution_unavailable", "sandbox execution is not available now";
    /// No node can take it.
    RuntimeNodeUnavailable = SERVICE_UNAVAILABLE "runtime_node_unavailable", "no sandbox node is available now";
    /// A node could take it soon.
    SandboxNodesPreparing = SERVICE_UNAVAILABLE "sandbox_nodes_preparing", "the sandbox nodes are preparing";
    /// Public admission while a reset runs.
    AdmissionResetInProgress = SERVICE_UNAVAILABLE "sandbox_reset_in_progress", "the sandbox deployment is being reset";
    /// The provider could not be asked.
    SandboxVerificationUnconfirmed = SERVICE_UNAVAILABLE "sandbox_verification_unconfirmed", "the provider could not confirm the configuration";
    /// No key to seal credentials with.
    CredentialStorageUnavailable = SERVICE_UNAVAILABLE "credential_storage_unavailable", "credentials cannot be stored";
}

impl Code {
    /// The `type` member: who is at fault, coarsely.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match (self.status(), self) {
            (status, _) if status.is_server_error() => "server_error",
            (StatusCode::CONFLICT, _) => "conflict_error",
            (_, Self::NotFoundError) => "not_found_error",
            _ => "invalid_request_error",
        }
    }
}
