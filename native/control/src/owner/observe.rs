//! Measuring one sandbox now (deployment §8.3).

use palisade_core::lifecycle::{Allocation, CallError};
use palisade_core::operation::Operation;
use palisade_core::outcome::{Answer, Failed, Failure};
use palisade_core::session::hub::dispatch::Refusal;
use palisade_core::session::hub::{Cause, Uncertain};
use palisade_core::units::Id;
use palisade_core::wire::payload::{Instance, ObservationTarget, Sample};

use super::environment::call;
use crate::Core;
use crate::hub::Outcome;
use crate::store::StoreError;
use crate::store::allocations::Work;

/// Time one measurement may take, in milliseconds.
const SAMPLE_BUDGET_MS: u64 = 5_000;

/// Why there is no sample.
#[derive(Debug, thiserror::Error)]
pub enum Unobserved {
    /// `allocation_pending`.
    #[error("the sandbox is not provisioned yet")]
    Pending,
    /// `runtime_not_running`.
    #[error("the sandbox is not running")]
    NotRunning,
    /// `sample_timeout`.
    #[error("the node did not answer in time")]
    Timeout,
    /// `sample_unavailable`.
    #[error("no sample is available")]
    Unavailable,
    /// An ownership mismatch or corrupt evidence: a 500, never an unavailable row.
    #[error("the evidence of the sandbox is inconsistent")]
    Inconsistent,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Unobserved {
    /// `reason` of an unavailable observation; `None` for what is a failure of Core.
    #[must_use]
    pub const fn reason(&self) -> Option<&'static str> {
        match self {
            Self::Pending => Some("allocation_pending"),
            Self::NotRunning => Some("runtime_not_running"),
            Self::Timeout => Some("sample_timeout"),
            Self::Unavailable => Some("sample_unavailable"),
            Self::Inconsistent | Self::Store(_) => None,
        }
    }
}

/// Measures the sandbox of `environment` on its own node, now. Calls no lifecycle operation.
pub async fn sample(core: &Core, environment: Id) -> Result<Sample<'static>, Unobserved> {
    let work = core.store().work(environment).await?.ok_or(Unobserved::Inconsistent)?;
    let target = match work.allocation.map(|allocation| allocation.state) {
        None | Some(Allocation::None | Allocation::Creating(_)) => return Err(Unobserved::Pending),
        Some(Allocation::CleanupPending { .. } | Allocation::Released) => return Err(Unobserved::NotRunning),
        Some(Allocation::Running) => target(&work).ok_or(Unobserved::Inconsistent)?,
    };
    judge(call(core, &work, Operation::Observe(Box::new(target)), SAMPLE_BUDGET_MS).await)
}

fn judge(outcome: Outcome) -> Result<Sample<'static>, Unobserved> {
    match outcome {
        Ok(Answer::Sample(sample)) => Ok(sample),
        Err(CallError::Failed(Failed { failure: Failure::RuntimeNotRunning, .. })) => Err(Unobserved::NotRunning),
        Err(
            CallError::Failed(Failed { failure: Failure::Ownership | Failure::Invalid, .. })
            | CallError::Refused(Refusal::Ownership | Refusal::Invalid),
        ) => Err(Unobserved::Inconsistent),
        Err(CallError::Uncertain(Uncertain { cause: Cause::Deadline, .. }) | CallError::Refused(Refusal::Deadline)) => {
            Err(Unobserved::Timeout)
        }
        Ok(_) | Err(_) => Err(Unobserved::Unavailable),
    }
}

fn target(work: &Work) -> Option<ObservationTarget<'static>> {
    let allocation = work.allocation?;
    Some(ObservationTarget {
        tenant_id: work.tenant.to_string().into(),
        session_id: work.session.to_string().into(),
        environment_id: work.environment.to_string().into(),
        mode: "openai_hosted".into(),
        instance: Instance {
            allocation_id: allocation.id.to_string().into(),
            provider_key: allocation.installation.to_string().into(),
            connection_generation: "".into(),
            allocation_state: "running".into(),
            allocation_created_at: allocation.created_at.to_string().into(),
            compute_phase: "disabled".into(),
            provider_state: "{}".into(),
        },
        token_usage_present: false,
    })
}
