//! Why a selection is refused, and what HTTP says of it.

use super::super::contract::Provider;
use super::super::e2b::Unfit;
use super::super::specification::Refusal;
use crate::admin::error::{Code, Fault};

/// Why a selection is refused, in the order of deployment §1.2.2.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectionRefusal {
    /// Step 2 and 3: body, members, JSON types.
    #[error("the body is malformed")]
    Malformed,
    /// Step 4 and 10a: provider, configuration or key.
    #[error("the provider or its configuration is invalid")]
    Configuration,
    /// Step 5 and 13: nobody owns execution, or the provider cannot be prepared.
    #[error("execution is not available")]
    Execution,
    /// Step 6: another selection came first.
    #[error("the generation is {current} by now")]
    Stale {
        /// The current generation.
        current: u64,
    },
    /// Step 7 and 16, and an exhausted generation.
    #[error("the deployment's state does not allow this")]
    Conflict,
    /// Step 8.
    #[error("a reset is in progress")]
    Reset,
    /// Step 9.
    #[error("nothing is selected yet")]
    NotConfigured,
    /// Step 10a: sizes and release.
    #[error(transparent)]
    Specification(Refusal),
    /// Step 10b: another backend.
    #[error("changing from {} to {} needs a reset", .current.name(), .requested.name())]
    Backend {
        /// What is selected.
        current: Provider,
        /// What was asked for.
        requested: Provider,
    },
    /// Step 13: sizes of a template build that no sandbox may have.
    #[error("the template build's sizes are outside the bounds of a sandbox")]
    BuildSizes,
    /// Step 13 and 14: what the provider said.
    #[error(transparent)]
    Doubt(#[from] Doubt),
    /// Step 12.
    #[error("the provider needs a public URL that is not a loopback address")]
    Loopback,
}

/// Why a provider does not confirm a candidate (deployment §7.4, §7.6). Its text never holds what the provider said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Doubt {
    /// It refused the key.
    #[error("the provider refused the credential")]
    Unauthorized,
    /// The key's team does not own the template, or what the deployment holds.
    #[error("the credential does not own the template or its sandboxes")]
    NotOwned,
    /// The build is not there, not ready or of other sizes.
    #[error("the provider refused the configuration")]
    Invalid,
    /// The committed key or template no longer shows whose the deployment is.
    #[error("the committed credential no longer owns the deployment")]
    Unanchored,
    /// It did not answer, or not clearly.
    #[error("the provider did not confirm the configuration")]
    Unconfirmed,
    /// Nobody here can ask it.
    #[error("the provider cannot be prepared")]
    Unavailable,
}

impl From<Doubt> for Fault {
    fn from(doubt: Doubt) -> Self {
        match doubt {
            Doubt::Unauthorized => Self::of(Code::SandboxCredentialInvalid, "credential"),
            Doubt::NotOwned => Self::of(Code::SandboxCredentialOwnership, "credential"),
            Doubt::Invalid => Self::of(Code::SandboxConfigurationInvalid, "configuration"),
            Doubt::Unanchored => SelectionRefusal::Backend { current: Provider::E2b, requested: Provider::E2b }.into(),
            Doubt::Unconfirmed => Code::SandboxVerificationUnconfirmed.into(),
            Doubt::Unavailable => Code::ExecutionUnavailable.into(),
        }
    }
}

impl From<Unfit> for SelectionRefusal {
    fn from(unfit: Unfit) -> Self {
        match unfit {
            Unfit::Build => Self::Doubt(Doubt::Invalid),
            Unfit::Sizes => Self::BuildSizes,
        }
    }
}

impl From<Refusal> for SelectionRefusal {
    fn from(refusal: Refusal) -> Self {
        Self::Specification(refusal)
    }
}

impl From<SelectionRefusal> for Fault {
    fn from(refusal: SelectionRefusal) -> Self {
        match refusal {
            SelectionRefusal::Malformed => Code::InvalidRequest.into(),
            SelectionRefusal::Configuration => Self::of(Code::InvalidSandboxConfiguration, "configuration"),
            SelectionRefusal::Execution => Code::ExecutionUnavailable.into(),
            SelectionRefusal::Stale { current } => {
                Self::from(Code::SandboxGenerationStale).detail("current_generation", current)
            }
            SelectionRefusal::Conflict => Code::SandboxDeploymentConflict.into(),
            SelectionRefusal::Reset => Code::SandboxResetInProgress.into(),
            SelectionRefusal::NotConfigured => Code::SandboxNotConfigured.into(),
            SelectionRefusal::Specification(refusal) => specification_fault(&refusal),
            SelectionRefusal::Backend { current, requested } => Self::from(Code::SandboxResetRequired)
                .detail("current_provider", current.name())
                .detail("requested_provider", requested.name()),
            SelectionRefusal::BuildSizes => Self::of(Code::InvalidSandboxConfiguration, "resources"),
            SelectionRefusal::Doubt(doubt) => doubt.into(),
            SelectionRefusal::Loopback => Code::SandboxConfigurationError.into(),
        }
    }
}

fn specification_fault(refusal: &Refusal) -> Fault {
    let Some(param) = refusal.param() else { return Code::InvalidRequest.into() };
    let fault = Fault::of(Code::InvalidSandboxConfiguration, param);
    match refusal {
        Refusal::Resource { min, max: Some(max), .. } => {
            fault.detail("min", u64::from(*min)).detail("max", u64::from(*max))
        }
        Refusal::Resource { min, max: None, .. } => fault.detail("min", u64::from(*min)),
        Refusal::Malformed(_) | Refusal::Presence { .. } | Refusal::Runtime(_) => fault,
    }
}
