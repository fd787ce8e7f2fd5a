//! A look at the incarnation that should be running.

use super::super::{CallError, Outcome};
use super::conclude::runs;
use crate::outcome::{Answer, Failed, Failure};
use crate::wire::payload::Compute;

/// Told as an `info` would tell it.
#[must_use]
pub(in crate::lifecycle) fn looked_at(current: &Compute<'_>, outcome: &Outcome<'_>) -> Look {
    match outcome {
        Ok(Answer::State(state)) if state.compute == *current && runs(state) => Look::Running,
        Ok(Answer::State(state)) if state.compute == *current => Look::Stopped,
        Err(CallError::Failed(Failed { failure: Failure::NotFound, .. })) => Look::Missing,
        Ok(_) | Err(_) => Look::Unknown,
    }
}

/// What a look at one incarnation shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::lifecycle) enum Look {
    /// It runs.
    Running,
    /// It is there and does not run.
    Stopped,
    /// It was not seen.
    Missing,
    /// Nothing that could be relied on.
    Unknown,
}
