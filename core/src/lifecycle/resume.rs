//! What a resume came to (wire §2.7, §3.4; deployment §4.4).
//!
//! ```text
//!                 the target runs                      a definite refusal
//!  Running ◀────────────────────── resume, sent once ──────────────────────▶ Failed(what to clean up)
//!     ▲                               │          │
//!     │  ask with ObserveOnly         │          └── certainly nothing was sent ──▶ NotSent
//!     └──────────────────────────── Unknown ◀─┐
//!                                     └───────┘ still unknown
//! ```
//!
//! - Never is evidence beside a failure a success: it names what a cleanup has to remove
//!   (`a_failed_resume_names_what_to_clean_up`).
//! - Never is a resume sent again that may have reached the node: it is observed, with `ObserveOnly`
//!   (`a_resume_is_sent_again_only_when_nothing_was_sent`).
//! - Never does an answer about another incarnation say anything about the requested one
//!   (`only_the_requested_incarnation_runs`).

use super::conclude::{CallError, Outcome};
use crate::outcome::{Answer, Failed, Failure, is_target_evidence};
use crate::session::hub::dispatch::Refusal;
use crate::wire::IntoOwned as _;
use crate::wire::payload::{Compute, ComputeState};

/// What the owner knows of the incarnation that a resume was to create.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Resumed {
    /// It runs, under this native identity.
    Running(Box<Compute<'static>>),
    /// It failed for good.
    Failed {
        /// What exists of it, to be removed with `kill_compute` before the snapshot is used again; `None` when nothing is
        /// known to exist.
        cleanup: Option<Box<Compute<'static>>>,
    },
    /// Nobody knows yet: ask again with `ObserveOnly`.
    Unknown {
        /// What was seen of it, to be removed should the owner give it up.
        cleanup: Option<Box<Compute<'static>>>,
    },
    /// Certainly nothing was sent: it may be sent for the first time later.
    NotSent,
}

impl Resumed {
    /// Judges the outcome of a `resume` that asked for `target`, effective or only observing.
    #[must_use]
    pub fn judge(target: &Compute<'_>, outcome: &Outcome<'_>) -> Self {
        match outcome {
            Ok(Answer::State(state)) => restored(target, state),
            Err(CallError::Failed(failed)) => failed_with(target, failed),
            Err(CallError::Refused(Refusal::Unsupported { .. } | Refusal::Ownership | Refusal::Invalid)) => {
                Self::Failed { cleanup: None }
            }
            Err(error) if error.nothing_sent() => Self::NotSent,
            Ok(_) | Err(_) => Self::Unknown { cleanup: None },
        }
    }
}

fn restored(target: &Compute<'_>, state: &ComputeState<'_>) -> Resumed {
    let seen = evidence(target, Some(state));
    match seen {
        Some(compute) if state.status == "running" && state.bootstrap_complete => Resumed::Running(compute),
        cleanup => Resumed::Unknown { cleanup },
    }
}

fn failed_with(target: &Compute<'_>, failed: &Failed<'_>) -> Resumed {
    let cleanup = evidence(target, failed.state.as_deref());
    match failed.failure {
        Failure::CheckpointUnusable | Failure::Invalid | Failure::Ownership | Failure::Unsupported { .. } => {
            Resumed::Failed { cleanup }
        }
        Failure::Exists
        | Failure::NotFound
        | Failure::ObservationUnavailable
        | Failure::RuntimeNotRunning
        | Failure::CommandUnconfirmed
        | Failure::Unconfirmed => Resumed::Unknown { cleanup },
    }
}

fn evidence(target: &Compute<'_>, state: Option<&ComputeState<'_>>) -> Option<Box<Compute<'static>>> {
    let state = state.filter(|state| is_target_evidence(state, target))?;
    Some(Box::new(state.compute.clone().into_owned()))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::session::hub::{Cause, Uncertain};
    use crate::units::Id;
    use crate::wire::payload::Snapshot;

    fn snapshot(id: &'static str) -> Snapshot<'static> {
        Snapshot {
            reference: "name:s".into(),
            id: id.into(),
            digest: "digest".into(),
            checkpoint_id: "checkpoint".into(),
            checkpoint_root: "root".into(),
            operation_id: Id::from_random([7; 16]).to_string().into(),
            source_generation: 0,
            source_name: "name-g0".into(),
            source_id: "local:16".into(),
        }
    }

    fn target() -> Compute<'static> {
        Compute { generation: 1, name: "name-g1".into(), id: "".into(), restored_from: Some(snapshot("snap")) }
    }

    fn existing() -> Compute<'static> {
        Compute { id: "local:17".into(), ..target() }
    }

    fn state(compute: Compute<'static>, status: &'static str) -> ComputeState<'static> {
        ComputeState { compute, status: status.into(), bootstrap_complete: true, snapshot: None, source_stopped: false }
    }

    fn judge(outcome: &Outcome<'_>) -> Resumed {
        Resumed::judge(&target(), outcome)
    }

    fn failed(failure: Failure, compute: Option<Compute<'static>>) -> Outcome<'static> {
        let state = compute.map(|compute| Box::new(state(compute, "running")));
        Err(CallError::Failed(Failed { failure, info: None, state }))
    }

    #[test]
    fn only_the_requested_incarnation_runs() {
        let answer = |compute, status| Ok(Answer::State(Box::new(state(compute, status))));
        assert_eq!(judge(&answer(existing(), "running")), Resumed::Running(Box::new(existing())));
        let partial = Resumed::Unknown { cleanup: Some(Box::new(existing())) };
        assert_eq!(judge(&answer(existing(), "starting")), partial);
        let half = ComputeState { bootstrap_complete: false, ..state(existing(), "running") };
        assert_eq!(judge(&Ok(Answer::State(Box::new(half)))), partial);
        for other in [
            Compute { generation: 2, ..existing() },
            Compute { name: "name-g2".into(), ..existing() },
            Compute { restored_from: Some(snapshot("other")), ..existing() },
            Compute { restored_from: None, ..existing() },
            target(),
        ] {
            assert_eq!(judge(&answer(other, "running")), Resumed::Unknown { cleanup: None });
        }
    }

    /// W 198. Evidence beside a failure says what to remove, and the failure stays a failure.
    #[rstest]
    #[case::unusable(Failure::CheckpointUnusable, true)]
    #[case::ownership(Failure::Ownership, true)]
    #[case::unconfirmed(Failure::Unconfirmed, false)]
    #[case::not_seen(Failure::NotFound, false)]
    fn a_failed_resume_names_what_to_clean_up(#[case] failure: Failure, #[case] definite: bool) {
        let expected = |cleanup: Option<Compute<'static>>| {
            let cleanup = cleanup.map(Box::new);
            if definite { Resumed::Failed { cleanup } } else { Resumed::Unknown { cleanup } }
        };
        assert_eq!(judge(&failed(failure.clone(), Some(existing()))), expected(Some(existing())));
        assert_eq!(judge(&failed(failure.clone(), None)), expected(None));
        let foreign = Compute { generation: 2, ..existing() };
        assert_eq!(judge(&failed(failure, Some(foreign))), expected(None), "another incarnation is none of ours");
    }

    #[test]
    fn a_resume_is_sent_again_only_when_nothing_was_sent() {
        let uncertain = |sent| Err(CallError::Uncertain(Uncertain { cause: Cause::Unavailable, sent }));
        assert_eq!(judge(&uncertain(false)), Resumed::NotSent);
        assert_eq!(judge(&uncertain(true)), Resumed::Unknown { cleanup: None });
        assert_eq!(judge(&Err(CallError::Refused(Refusal::Deadline))), Resumed::NotSent);
        assert_eq!(judge(&Err(CallError::Refused(Refusal::Invalid))), Resumed::Failed { cleanup: None });
        assert_eq!(judge(&Ok(Answer::Done)), Resumed::Unknown { cleanup: None });
    }
}
