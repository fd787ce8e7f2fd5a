//! What an answer about compute changes.

use super::super::{CallError, Outcome, Resumed};
use super::{Leftover, State, Step};
use crate::outcome::Answer;
use crate::session::hub::Cause;
use crate::units::{Generation, Id};
use crate::wire::IntoOwned as _;
use crate::wire::payload::{Compute, ComputeState, RawReference, Reference, Resume, Snapshot, Suspend};

/// A question about compute.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// What was stored when it was asked.
    pub state: &'a State,
    /// What was asked.
    pub step: Step,
    /// The name that the provider gave the first incarnation, for [`Step::Identify`].
    pub named: Option<&'a Compute<'static>>,
    /// Names the next operation, where one is planned.
    pub fresh: Id,
    /// Everything is to go: what is learnt is kept for the removal, and nothing wakes.
    pub ending: bool,
}

/// What follows from an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing: ask again later.
    Unknown,
    /// Store this state.
    Store(Box<State>),
    /// The snapshot cannot be restored: store what there is to remove, and give the environment up.
    GiveUp(Box<State>),
}

impl From<State> for Verdict {
    fn from(state: State) -> Self {
        Self::Store(Box::new(state))
    }
}

impl State {
    /// What `suspend` is sent with.
    #[must_use]
    pub fn suspend(&self, reference: Reference, observe_only: bool) -> Option<Suspend<'static>> {
        let Self::Suspending { current, operation, snapshot, .. } = self else { return None };
        Some(Suspend {
            reference: RawReference::from(reference),
            operation_id: operation.to_string().into(),
            source: current.clone(),
            snapshot: snapshot.as_deref().cloned(),
            observe_only,
        })
    }

    /// What `resume` is sent with.
    #[must_use]
    pub fn resume(&self, reference: Reference, observe_only: bool) -> Option<Resume<'static>> {
        let Self::Restoring { snapshot, operation, target, .. } = self else { return None };
        Some(Resume {
            workspace: None,
            reference: RawReference::from(reference),
            operation_id: operation.to_string().into(),
            snapshot: (**snapshot).clone(),
            target: target.clone(),
            observe_only,
        })
    }

    /// Generation and origin of the incarnation that a plan asks the name of; a name that was given up is never used again.
    #[must_use]
    pub fn plan(&self) -> Option<(Generation, Snapshot<'static>)> {
        let (last, snapshot) = match self {
            Self::Suspended { source, snapshot } => (source.generation, snapshot),
            Self::Restoring { target, snapshot, .. } => (target.generation, snapshot),
            Self::Disabled
            | Self::Running { .. }
            | Self::Quiescing { .. }
            | Self::Suspending { .. }
            | Self::Waking { .. } => return None,
        };
        Some((Generation::new(last.checked_add(1)?)?, (**snapshot).clone()))
    }

    /// What a step that only commits stores.
    #[must_use]
    pub fn committed(&self, step: Step) -> Option<Self> {
        match (step, self) {
            (Step::Quiesce, Self::Running { current, leftovers }) if leftovers.is_empty() => {
                Some(Self::Quiescing { current: current.clone() })
            }
            (Step::Return, Self::Quiescing { current }) => {
                Some(Self::Running { current: current.clone(), leftovers: Vec::new() })
            }
            (Step::Return, Self::Suspending { current, handed_at: None, .. }) => {
                Some(Self::Waking { current: current.clone(), leftovers: Vec::new() })
            }
            _ => None,
        }
    }

    /// What is stored before [`Step::Suspend`] or [`Step::Restore`] is handed over.
    #[must_use]
    pub fn handed(&self, fresh: Id, now_ms: i64) -> Option<Self> {
        match self {
            Self::Quiescing { current } => Some(Self::Suspending {
                current: current.clone(),
                operation: fresh,
                handed_at: Some(now_ms),
                snapshot: None,
            }),
            Self::Suspending { handed_at: None, .. } | Self::Restoring { handed_at: None, .. } => {
                Some(self.with_handed_at(Some(now_ms)))
            }
            Self::Disabled
            | Self::Running { .. }
            | Self::Suspending { .. }
            | Self::Suspended { .. }
            | Self::Restoring { .. }
            | Self::Waking { .. } => None,
        }
    }

    fn with_handed_at(&self, at: Option<i64>) -> Self {
        let mut state = self.clone();
        if let Self::Suspending { handed_at, .. } | Self::Restoring { handed_at, .. } = &mut state {
            *handed_at = at;
        }
        state
    }
}

impl Asked<'_> {
    /// What an answer changes.
    #[must_use]
    pub fn conclude(&self, outcome: &Outcome<'_>) -> Verdict {
        match (self.step, self.state) {
            (Step::Identify, State::Disabled) => self.identified(outcome),
            (Step::Suspend, State::Suspending { .. }) if nothing_sent(outcome) => {
                self.state.with_handed_at(None).into()
            }
            (Step::Suspend | Step::LookSuspend, State::Suspending { .. }) => self.captured(outcome),
            (Step::StopSource, State::Suspending { current, snapshot: Some(snapshot), .. }) => match outcome {
                Ok(Answer::Done) => State::Suspended { source: current.clone(), snapshot: snapshot.clone() }.into(),
                Ok(_) | Err(_) => Verdict::Unknown,
            },
            (Step::Plan | Step::Replan, State::Suspended { .. } | State::Restoring { .. }) => self.planned(outcome),
            (Step::Restore | Step::LookRestore, State::Restoring { .. }) => self.restored(outcome),
            (Step::Thaw, State::Waking { current, leftovers }) => match exact(current, outcome) {
                Some(state) if runs(state) => {
                    State::Running { current: current.clone(), leftovers: leftovers.clone() }.into()
                }
                Some(_) | None => Verdict::Unknown,
            },
            (Step::RemoveLeftover, State::Running { current, leftovers }) => match outcome {
                Ok(Answer::Done) => {
                    let leftovers = leftovers.iter().skip(1).cloned().collect();
                    State::Running { current: current.clone(), leftovers }.into()
                }
                Ok(_) | Err(_) => Verdict::Unknown,
            },
            _ => Verdict::Unknown,
        }
    }

    /// The first incarnation is the named one, with an identity and without an origin.
    fn identified(&self, outcome: &Outcome<'_>) -> Verdict {
        let (Some(named), Ok(Answer::State(state))) = (self.named, outcome) else { return Verdict::Unknown };
        let Compute { generation, name, id, restored_from } = &state.compute;
        let first = *generation == 0 && *name == named.name && !id.is_empty() && restored_from.is_none();
        if !first {
            return Verdict::Unknown;
        }
        State::Running { current: state.compute.clone().into_owned(), leftovers: Vec::new() }.into()
    }

    fn captured(&self, outcome: &Outcome<'_>) -> Verdict {
        let State::Suspending { current, operation, snapshot: known, .. } = self.state else { return Verdict::Unknown };
        let Some(seen) = exact(current, outcome) else { return Verdict::Unknown };
        let Some(snapshot) = &seen.snapshot else { return self.not_captured(current, seen, known.is_some()) };
        if !is_capture(snapshot, current, *operation) {
            return Verdict::Unknown;
        }
        let snapshot = Box::new(snapshot.clone().into_owned());
        let source = current.clone();
        match (seen.source_stopped, &*seen.status) {
            (true, _) if !self.ending => State::Suspended { source, snapshot }.into(),
            // It went on after the capture, which is not what it is any more.
            (false, "running") if !self.ending => {
                State::Waking { current: source, leftovers: vec![Leftover::Snapshot(snapshot)] }.into()
            }
            _ if known.as_deref() == Some(&*snapshot) => Verdict::Unknown,
            _ => {
                let mut state = self.state.clone();
                if let State::Suspending { snapshot: known, .. } = &mut state {
                    *known = Some(snapshot);
                }
                state.into()
            }
        }
    }

    /// Only a source that is seen to be there proves that nothing was captured, and only to somebody who looked.
    fn not_captured(&self, current: &Compute<'static>, seen: &ComputeState<'_>, known: bool) -> Verdict {
        let intact = seen.bootstrap_complete && matches!(&*seen.status, "running" | "paused");
        if known || !intact || self.step != Step::LookSuspend {
            Verdict::Unknown
        } else if self.ending {
            self.state.with_handed_at(None).into()
        } else {
            State::Waking { current: current.clone(), leftovers: Vec::new() }.into()
        }
    }

    fn planned(&self, outcome: &Outcome<'_>) -> Verdict {
        let (Some((generation, origin)), Ok(Answer::Compute(target))) = (self.state.plan(), outcome) else {
            return Verdict::Unknown;
        };
        let asked_for = target.generation == generation.get() && target.restored_from.as_ref() == Some(&origin);
        let (State::Suspended { source, .. } | State::Restoring { source, .. }) = self.state else {
            return Verdict::Unknown;
        };
        if !asked_for || target.name.is_empty() || !target.id.is_empty() {
            return Verdict::Unknown;
        }
        State::Restoring {
            source: source.clone(),
            snapshot: Box::new(origin),
            operation: self.fresh,
            target: target.clone().into_owned(),
            handed_at: None,
        }
        .into()
    }

    fn restored(&self, outcome: &Outcome<'_>) -> Verdict {
        let State::Restoring { source, snapshot, target, .. } = self.state else { return Verdict::Unknown };
        match Resumed::judge(target, outcome) {
            Resumed::Running(current) => {
                let leftovers = vec![Leftover::Compute(Box::new(source.clone())), Leftover::Snapshot(snapshot.clone())];
                State::Waking { current: *current, leftovers }.into()
            }
            Resumed::Failed { cleanup } => Verdict::GiveUp(Box::new(self.with_target(cleanup))),
            Resumed::Unknown { cleanup: Some(seen) } if target.id.is_empty() => self.with_target(Some(seen)).into(),
            Resumed::NotSent if self.step == Step::Restore => self.state.with_handed_at(None).into(),
            Resumed::Unknown { .. } | Resumed::NotSent => Verdict::Unknown,
        }
    }

    fn with_target(&self, seen: Option<Box<Compute<'static>>>) -> State {
        let mut state = self.state.clone();
        if let (State::Restoring { target, .. }, Some(seen)) = (&mut state, seen) {
            *target = *seen;
        }
        state
    }
}

fn nothing_sent(outcome: &Outcome<'_>) -> bool {
    outcome.as_ref().is_err_and(CallError::nothing_sent)
}

/// Whether the node said something, or had all the time to say it. That it does not know may come from a provider that it
/// does not have yet.
pub(in crate::lifecycle) fn reached_the_node(outcome: &Outcome<'_>) -> bool {
    match outcome {
        Ok(_) | Err(CallError::Failed(_)) => true,
        Err(CallError::Uncertain(uncertain)) => uncertain.sent && uncertain.cause == Cause::Deadline,
        Err(CallError::Refused(_)) => false,
    }
}

/// What was said of exactly this incarnation.
fn exact<'o, 'a>(current: &Compute<'_>, outcome: &'o Outcome<'a>) -> Option<&'o ComputeState<'a>> {
    match outcome {
        Ok(Answer::State(state)) if state.compute == *current => Some(state),
        Ok(_) | Err(_) => None,
    }
}

pub(super) fn runs(state: &ComputeState<'_>) -> bool {
    state.status == "running" && state.bootstrap_complete
}

/// Whether a snapshot is the complete identity of this operation's capture of this incarnation.
fn is_capture(snapshot: &Snapshot<'_>, of: &Compute<'_>, operation: Id) -> bool {
    let Snapshot { reference, id, digest, checkpoint_id, checkpoint_root, operation_id, .. } = snapshot;
    let complete = [reference, id, digest, checkpoint_id, checkpoint_root].iter().all(|text| !text.is_empty());
    complete
        && Id::parse(operation_id) == Ok(operation)
        && snapshot.source_generation == of.generation
        && snapshot.source_name == of.name
        && snapshot.source_id == of.id
}
