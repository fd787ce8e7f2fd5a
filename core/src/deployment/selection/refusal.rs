//! Why a selection is refused, and what HTTP says of it.

use super::super::contract::Provider;
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
    /// Step 12.
    #[error("the provider needs a public URL that is not a loopback address")]
    Loopback,
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
