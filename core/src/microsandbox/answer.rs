//! What a helper's whole answer is worth: compared with what was asked, before anything of it goes further (node-host
//! §8.5, §8.7).

use super::helper::{Operation, Response};
use super::name::Names;
use super::ours;
use crate::operation::Method;
use crate::outcome::Failure;
use crate::units::Id;
use crate::wire::payload::{Compute, ComputeState, Info, RawReference, Reference, Resume, Snapshot, Suspend, Text};

/// The state of a machine that is not there.
pub const ABSENT: &str = "absent";
/// The state of one that runs.
pub const RUNNING: &str = "running";
/// The state of one that is held, with its memory.
pub const PAUSED: &str = "paused";

/// What a helper is asked for a method that observes; `None` for every other. Only the two calls about a whole allocation
/// may learn that its creation left nothing: an observation of one machine never asks for that.
#[must_use]
pub const fn observation(method: Method) -> Option<Operation> {
    match method {
        Method::GetInfo | Method::Renew => Some(Operation::InitialInfo),
        Method::GetCompute => Some(Operation::Inspect),
        Method::Create
        | Method::Kill
        | Method::RunCommand
        | Method::Observe
        | Method::Initial
        | Method::NewCompute
        | Method::KillCompute
        | Method::ResumeCompute
        | Method::RunCommandCompute
        | Method::Suspend
        | Method::Resume
        | Method::DeleteSnapshot
        | Method::RestorePreparation
        | Method::SavePreparation => None,
    }
}

/// The state of exactly the machine that was asked for. A native identity that is known already never changes.
///
/// # Errors
/// The answer's own failure; [`Failure::Ownership`] for another machine; [`Failure::Unconfirmed`] without one.
pub fn state<'a>(response: Response<'a>, asked: &Compute<'_>) -> Result<ComputeState<'a>, Failure> {
    match response.failure {
        Some(failure) => Err(failure),
        None => exact(response.state, asked),
    }
}

fn exact<'a>(state: Option<ComputeState<'a>>, asked: &Compute<'_>) -> Result<ComputeState<'a>, Failure> {
    let state = state.filter(|state| !state.compute.id.is_empty()).ok_or(Failure::Unconfirmed)?;
    let Compute { generation, name, id, restored_from } = &state.compute;
    let same = *generation == asked.generation && *name == asked.name && *restored_from == asked.restored_from;
    if same && (asked.id.is_empty() || *id == asked.id) { Ok(state) } else { Err(Failure::Ownership) }
}

/// What came of a suspend. An attempt that only observes keeps what it sees: a snapshot whose source is still there, or a
/// source that can go on as if nothing had been.
///
/// # Errors
/// As [`state`]; [`Failure::Unconfirmed`] for everything that is neither.
pub fn suspended<'a>(names: &Names, response: Response<'a>, asked: &Suspend<'_>) -> Result<ComputeState<'a>, Failure> {
    let state = state(response, &asked.source)?;
    match (&state.snapshot, asked.observe_only) {
        (Some(taken), observe_only) => {
            captured(names, taken, &state, asked)?;
            if observe_only || state.source_stopped { Ok(state) } else { Err(Failure::Unconfirmed) }
        }
        (None, true) if asked.snapshot.is_none() && is_intact(&state) => Ok(state),
        (None, true | false) => Err(Failure::Unconfirmed),
    }
}

/// The snapshot is one of this operation and this source, and the one that was reported before, if one was.
fn captured(names: &Names, taken: &Snapshot<'_>, state: &ComputeState<'_>, asked: &Suspend<'_>) -> Result<(), Failure> {
    ours::snapshot(names, taken)?;
    let Compute { generation, name, id, .. } = &state.compute;
    let source = taken.source_generation == *generation && taken.source_name == *name && taken.source_id == *id;
    let known = asked.snapshot.as_ref().is_none_or(|known| known == taken);
    if source && known && taken.operation_id == asked.operation_id { Ok(()) } else { Err(Failure::Ownership) }
}

/// Whether a source without a snapshot is where it was before.
fn is_intact(state: &ComputeState<'_>) -> bool {
    [RUNNING, PAUSED].contains(&&*state.status) && state.bootstrap_complete && !state.source_stopped
}

/// What came of a resume: exactly the target, running and complete. [`ours::resume`] looked at the target before.
///
/// # Errors
/// As [`state`]; [`Failure::Unconfirmed`] for a target that is not there yet.
pub fn resumed<'a>(response: Response<'a>, asked: &Resume<'_>) -> Result<ComputeState<'a>, Failure> {
    let state = state(response, &asked.target)?;
    if state.status == RUNNING && state.bootstrap_complete { Ok(state) } else { Err(Failure::Unconfirmed) }
}

/// What a failed resume left behind, for the removal of it: exactly the target, and nothing that merely looks like it.
#[must_use]
pub fn left_behind<'a>(response: &Response<'a>, asked: &Resume<'_>) -> Option<ComputeState<'a>> {
    response.failure.as_ref().and_then(|_| exact(response.state.clone(), &asked.target).ok())
}

/// What an observation of a whole allocation says.
///
/// # Errors
/// As [`state`].
pub fn info(names: &Names, sandbox: &Reference, response: Response<'_>) -> Result<Info<'static>, Failure> {
    if is_absence(names, &response) {
        return Ok(told(sandbox, "", ABSENT, false, true));
    }
    let state = state(response, &initial(names))?;
    // Whatever else an answer says of the creation: only an exact absence settles it.
    Ok(told(sandbox, &state.compute.id, &state.status, state.bootstrap_complete, false))
}

/// The receipt that a creation left nothing and never will: nothing beside the flag and an absent machine.
fn is_absence(names: &Names, response: &Response<'_>) -> bool {
    let nothing = ComputeState {
        compute: initial(names),
        status: ABSENT.into(),
        bootstrap_complete: false,
        snapshot: None,
        source_stopped: false,
    };
    response.failure.is_none() && response.create_settled && response.state.as_ref() == Some(&nothing)
}

/// The receipt beside a failed creation: the machine is there, was refused for its configuration, and nothing of the
/// creation goes on. The failure stays the answer.
#[must_use]
pub fn rejected(names: &Names, sandbox: &Reference, response: &Response<'_>) -> Option<Info<'static>> {
    let state = response.state.as_ref()?;
    let initial = Compute { id: state.compute.id.clone(), ..initial(names) };
    let plain = state.compute == initial && state.snapshot.is_none() && !state.source_stopped;
    let there = !state.compute.id.is_empty() && !state.status.is_empty() && state.status != ABSENT;
    let settled = response.failure == Some(Failure::Invalid) && response.create_settled;
    (settled && plain && there && !state.bootstrap_complete)
        .then(|| told(sandbox, &state.compute.id, &state.status, false, true))
}

/// The machine that a creation makes, before anybody saw it.
fn initial(names: &Names) -> Compute<'static> {
    Compute { generation: 0, name: names.compute(0).into(), id: Text::Borrowed(""), restored_from: None }
}

fn told(sandbox: &Reference, id: &str, state: &str, bootstrap_complete: bool, create_settled: bool) -> Info<'static> {
    let text = |id: Id| Text::Owned(id.to_string());
    let reference = RawReference {
        tenant_id: text(sandbox.tenant),
        environment_id: text(sandbox.environment),
        allocation_id: text(sandbox.allocation),
    };
    Info {
        reference,
        provider_id: id.to_owned().into(),
        state: state.to_owned().into(),
        bootstrap_complete,
        create_settled,
    }
}

#[cfg(test)]
pub(super) mod tests;
