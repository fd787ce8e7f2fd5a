//! What an outcome changes.

use super::compute::looked::{Look, looked_at};
use super::{Change, Lifecycle, Step, TurnError};
use crate::admin::node::AllocationDiagnostic;
use crate::outcome::{Answer, Failed, Failure};
use crate::session::hub::dispatch::Refusal;
use crate::session::hub::{Cause, Uncertain};
use crate::units::{Id, Millis};
use crate::wire::payload::{Compute, Info};

/// What came of a call through the hub.
pub type Outcome<'a> = Result<Answer<'a>, CallError<'a>>;

/// Why a call through the hub has no answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CallError<'a> {
    /// Core did not hand it to a connection.
    Refused(Refusal),
    /// Nobody knows what came of it.
    Uncertain(Uncertain),
    /// The node said that it failed.
    Failed(Failed<'a>),
}

impl CallError<'_> {
    /// Whether it is certain that no byte reached the node.
    #[must_use]
    pub const fn nothing_sent(&self) -> bool {
        match self {
            Self::Refused(_) | Self::Uncertain(Uncertain { sent: false, .. }) => true,
            Self::Uncertain(Uncertain { sent: true, .. }) | Self::Failed(_) => false,
        }
    }
}

impl std::fmt::Display for CallError<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Uncertain(uncertain) => uncertain.fmt(f),
            Self::Failed(failed) => failed.failure.fmt(f),
        }
    }
}

impl Lifecycle {
    /// What the outcome of `step` changes; every change is to be written, in one transaction.
    pub fn conclude(&mut self, now: Millis, step: Step, outcome: &Outcome<'_>) -> Vec<Change> {
        let changes = match step {
            Step::Create => created(outcome),
            Step::Observe { late } => observed(outcome, late),
            Step::Verify => self.verified(sight(outcome)),
            Step::Confirm => self.confirmed(sight(outcome), outcome),
            Step::Dispatch(turn) => self.ran(turn, outcome),
            Step::Kill => {
                self.killed = matches!(outcome, Ok(Answer::Done));
                self.look_next = true;
                // What was told before says nothing of what came until now, and whatever kept the removal from happening
                // may have kept the capture from being told.
                self.capture_asked = None;
                if !self.killed {
                    self.postpone(now);
                }
                return Vec::new();
            }
            Step::Settle => self.settled(outcome),
            Step::Rest
            | Step::Wait(_)
            | Step::Reserve
            | Step::FailTurn(..)
            | Step::RequestCleanup
            | Step::Release
            | Step::Compute(_) => Vec::new(),
        };
        match changes[..] {
            [] | [Change::AttemptCleared | Change::TurnRequeued(_)] => self.postpone(now),
            _ => self.answered(),
        }
        changes
    }

    /// [`Lifecycle::conclude`] of a look at a later incarnation, which only `compute` can see.
    pub fn conclude_look(
        &mut self,
        now: Millis,
        step: Step,
        current: &Compute<'_>,
        outcome: &Outcome<'_>,
    ) -> Vec<Change> {
        let sight = match looked_at(current, outcome) {
            Look::Running => Sight::Running,
            Look::Stopped => Sight::Stopped,
            Look::Missing => Sight::Missing,
            Look::Unknown => Sight::Unknown,
        };
        let changes = match step {
            Step::Confirm => self.confirmed(sight, outcome),
            _ => self.verified(sight),
        };
        if changes.is_empty() {
            self.postpone(now);
        } else {
            self.answered();
        }
        changes
    }

    fn verified(&mut self, sight: Sight) -> Vec<Change> {
        match sight {
            // What merely does not run may be started again, with everything in it: only its owner gives it up.
            Sight::Running | Sight::Present | Sight::Stopped => self.doubtful = false,
            Sight::Absent => {
                self.doubtful = false;
                return vec![Change::CleanupRequested];
            }
            Sight::Missing | Sight::Unknown => {}
        }
        Vec::new()
    }

    /// What is not seen is said, and given up by nobody but its owner: only a receipt proves that it is gone.
    fn confirmed(&mut self, sight: Sight, outcome: &Outcome<'_>) -> Vec<Change> {
        let diagnostic = match sight {
            Sight::Running => AllocationDiagnostic::None,
            Sight::Absent => return self.verified(sight),
            Sight::Missing => AllocationDiagnostic::ResourceMissing,
            Sight::Present | Sight::Stopped => AllocationDiagnostic::ComputeUnconfirmed,
            Sight::Unknown => match outcome {
                Err(CallError::Refused(_) | CallError::Uncertain(_)) => return Vec::new(),
                Err(CallError::Failed(Failed { failure: Failure::Ownership, .. })) => {
                    AllocationDiagnostic::OwnershipMismatch
                }
                Err(CallError::Failed(Failed { failure: Failure::Unconfirmed, .. })) | Ok(_) => {
                    AllocationDiagnostic::ComputeUnconfirmed
                }
                Err(CallError::Failed(_)) => AllocationDiagnostic::ProviderUnavailable,
            },
        };
        vec![Change::Looked(diagnostic)]
    }

    /// A kill that was confirmed before the creation was settled counts only when nothing came after it.
    fn settled(&mut self, outcome: &Outcome<'_>) -> Vec<Change> {
        self.look_next = false;
        match sight(outcome) {
            Sight::Absent => vec![Change::Settled],
            Sight::Running | Sight::Stopped => {
                self.killed = false;
                vec![Change::Settled]
            }
            Sight::Present => {
                self.killed = false;
                Vec::new()
            }
            Sight::Missing | Sight::Unknown => Vec::new(),
        }
    }

    fn ran(&mut self, turn: Id, outcome: &Outcome<'_>) -> Vec<Change> {
        let error = match outcome {
            Ok(Answer::Command(_)) => return vec![Change::TurnCompleted(turn)],
            Ok(_) | Err(CallError::Uncertain(Uncertain { sent: true, .. })) => TurnError::Unconfirmed,
            Err(CallError::Failed(failed)) => command_failure(&failed.failure),
            Err(CallError::Uncertain(Uncertain { cause: Cause::Deadline, sent: false })) => TurnError::Expired,
            Err(CallError::Uncertain(Uncertain { sent: false, .. })) => return vec![Change::TurnRequeued(turn)],
            Err(CallError::Refused(refusal)) => match refusal {
                Refusal::Uncertain(_) => return vec![Change::TurnRequeued(turn)],
                Refusal::Deadline => TurnError::Expired,
                Refusal::Invalid => TurnError::Invalid,
                Refusal::Ownership => TurnError::Ownership,
                Refusal::Unsupported { .. } => TurnError::Unsupported,
            },
        };
        self.doubtful |= matches!(error, TurnError::NotFound);
        vec![Change::TurnFailed(turn, error)]
    }
}

/// What an info, or the receipt of a failure, says about the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Sight {
    /// Verified: native identity, running, bootstrap complete.
    Running,
    /// It exists and the creation is over, but it does not run.
    Stopped,
    /// It exists and does not run; the creation may go on.
    Present,
    /// The creation is over and left nothing.
    Absent,
    /// It was not seen, which proves nothing.
    Missing,
    /// Nothing that could be relied on.
    Unknown,
}

fn sight(outcome: &Outcome<'_>) -> Sight {
    match outcome {
        Ok(Answer::Info(info)) => seen(info),
        Err(CallError::Failed(Failed { info: Some(receipt), .. })) => match seen(receipt) {
            // A receipt settles the attempt; the failure beside it stays a failure.
            Sight::Running => Sight::Stopped,
            other => other,
        },
        Err(CallError::Failed(Failed { failure: Failure::NotFound, .. })) => Sight::Missing,
        Ok(_) | Err(_) => Sight::Unknown,
    }
}

fn seen(info: &Info<'_>) -> Sight {
    let identified = !info.provider_id.is_empty();
    if info.state == "absent" {
        let absent = info.create_settled && !identified && !info.bootstrap_complete;
        return if absent { Sight::Absent } else { Sight::Missing };
    }
    match (identified, info.state == "running" && info.bootstrap_complete, info.create_settled) {
        (true, true, _) => Sight::Running,
        (true, false, true) => Sight::Stopped,
        (true, false, false) => Sight::Present,
        (false, _, _) => Sight::Unknown,
    }
}

fn created(outcome: &Outcome<'_>) -> Vec<Change> {
    match outcome {
        Err(
            CallError::Refused(Refusal::Uncertain(_) | Refusal::Deadline)
            | CallError::Uncertain(Uncertain { sent: false, .. }),
        ) => vec![Change::AttemptCleared],
        Err(CallError::Refused(Refusal::Unsupported { .. } | Refusal::Ownership | Refusal::Invalid)) => {
            vec![Change::AttemptCleared, Change::CleanupRequested]
        }
        Err(CallError::Failed(Failed { failure, info: None, .. })) if refused_for_good(failure) => {
            vec![Change::CleanupRequested]
        }
        Ok(_) | Err(CallError::Uncertain(Uncertain { sent: true, .. }) | CallError::Failed(_)) => {
            observed(outcome, false)
        }
    }
}

/// An observation of the creation. What does not run when the creation's time is over has failed; that alone settles nothing.
fn observed(outcome: &Outcome<'_>, late: bool) -> Vec<Change> {
    match sight(outcome) {
        Sight::Running => vec![Change::Running],
        Sight::Stopped => vec![Change::CleanupRequested, Change::Settled],
        Sight::Absent => vec![Change::CleanupRequested, Change::Settled, Change::Released],
        Sight::Present | Sight::Missing if late => vec![Change::CleanupRequested],
        Sight::Present | Sight::Missing | Sight::Unknown => Vec::new(),
    }
}

/// Failures of a create that an observation cannot turn into a running sandbox. None of them settles the attempt.
const fn refused_for_good(failure: &Failure) -> bool {
    match failure {
        Failure::Unsupported { .. } | Failure::Invalid | Failure::Ownership => true,
        Failure::Exists
        | Failure::NotFound
        | Failure::ObservationUnavailable
        | Failure::RuntimeNotRunning
        | Failure::CommandUnconfirmed
        | Failure::CheckpointUnusable
        | Failure::Unconfirmed => false,
    }
}

/// Failures of a command; whatever a command cannot come to is unknown (decision 27).
const fn command_failure(failure: &Failure) -> TurnError {
    match failure {
        Failure::Invalid => TurnError::Invalid,
        Failure::Ownership => TurnError::Ownership,
        Failure::NotFound => TurnError::NotFound,
        Failure::Unsupported { .. } => TurnError::Unsupported,
        Failure::CommandUnconfirmed
        | Failure::Unconfirmed
        | Failure::Exists
        | Failure::RuntimeNotRunning
        | Failure::ObservationUnavailable
        | Failure::CheckpointUnusable => TurnError::Unconfirmed,
    }
}
