//! What a provider call came to, on both sides of the wire (wire §6, §2.11, §3.4).

use crate::wire::payload::{CommandResult, Compute, ComputeState, Info, Sample};

/// The result of a call that succeeded.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer<'a> {
    /// `create`, `info`, `renew`.
    Info(Info<'a>),
    /// `initial`, `new_compute`.
    Compute(Compute<'a>),
    /// `compute`, `resume_compute`, `suspend`, `resume`.
    State(Box<ComputeState<'a>>),
    /// `command`, `command_compute`.
    Command(CommandResult<'a>),
    /// `observe`.
    Sample(Sample<'a>),
    /// `restore_preparation`.
    Restored(bool),
    /// `kill`, `kill_compute`, `delete_snapshot`, `save_preparation`.
    Done,
}

/// Why a call did not succeed. Whatever is not certain is one of the two unconfirmed kinds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Declared unsupported; settles nothing and allows no replay.
    #[error("operation {method} is unsupported: {reason}")]
    Unsupported {
        /// Provider method name.
        method: String,
        /// Reason code.
        reason: String,
    },
    /// A repeatable read found nothing to report.
    #[error("no observation is available")]
    ObservationUnavailable,
    /// The sandbox is not running.
    #[error("the sandbox is not running")]
    RuntimeNotRunning,
    /// Rejected input or drifted configuration.
    #[error("the request or the sandbox's configuration is invalid")]
    Invalid,
    /// Foreign or replaced resource: never delete, never adopt.
    #[error("the resource belongs to somebody else")]
    Ownership,
    /// Duplicate create: observe the original.
    #[error("the sandbox exists already")]
    Exists,
    /// Missing observation; not proof of absence.
    #[error("no such sandbox was seen")]
    NotFound,
    /// The command may or may not have run.
    #[error("the command's outcome is unknown")]
    CommandUnconfirmed,
    /// A definite outcome of `resume`.
    #[error("the checkpoint cannot be used")]
    CheckpointUnusable,
    /// The outcome is unknown.
    #[error("the outcome is unknown")]
    Unconfirmed,
}

/// A failure with the evidence that may travel beside it.
#[derive(Debug, Clone, PartialEq)]
pub struct Failed<'a> {
    /// What happened.
    pub failure: Failure,
    /// A CreateSettled receipt, when the failure carries one (wire §2.11).
    pub info: Option<Info<'a>>,
    /// Target evidence of a failed resume (wire §3.4).
    pub state: Option<Box<ComputeState<'a>>>,
}

impl From<Failure> for Failed<'_> {
    fn from(failure: Failure) -> Self {
        Self { failure, info: None, state: None }
    }
}
