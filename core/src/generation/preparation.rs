//! The one preparation or repair that runs, and which one is next (node-host §4.4).

use super::record::{Phase, Readiness, Retry};
use super::{Table, Task};
use crate::limits::PREPARATION_TIMEOUT_MS;
use crate::operation::Declaration;
use crate::units::{Generation, Millis};
use crate::wire::payload::{Diagnostic, GenerationReference};

/// The one preparation of the node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Attempt {
    pub(super) generation: Generation,
    pub(super) deadline: Millis,
    pub(super) cancel: Cancel,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Cancel {
    No,
    Wanted,
    Asked,
}

impl Table {
    pub(super) fn poll_cancel(&mut self, now: Millis) -> Option<Task> {
        let attempt = self.attempt.as_mut().filter(|attempt| match attempt.cancel {
            Cancel::No => attempt.deadline <= now,
            Cancel::Wanted => true,
            Cancel::Asked => false,
        })?;
        attempt.cancel = Cancel::Asked;
        Some(Task::CancelPreparation(attempt.generation))
    }

    pub(super) fn poll_preparation(&mut self, now: Millis) -> Option<Task> {
        let deployment = self.announced.filter(|_| self.attempt.is_none() && !self.is_removing())?;
        let eligible = |generation: &Generation| {
            let record = &self.records[generation];
            record.wants_preparation() && record.retry.at <= now
        };
        let pinned: Vec<_> = self.priority(deployment).collect();
        let first = pinned.iter().copied().find(eligible);
        let next = self.others(self.prepare_cursor).filter(|generation| !pinned.contains(generation)).find(eligible);
        // Target and serving pin come first once each: two that fail slowly would otherwise take turns for ever.
        let generation = if self.passed_over < 2 { first.or(next) } else { next.or(first) }?;
        if Some(generation) == next {
            (self.prepare_cursor, self.passed_over) = (next, 0);
        } else if next.is_some() {
            self.passed_over += 1;
        }
        let record = self.records.get_mut(&generation).expect("found above");
        let provider = match std::mem::replace(&mut record.phase, Phase::Preparing { provider: None }) {
            Phase::Present { provider, .. } => Some(provider),
            Phase::Absent { .. } | Phase::Preparing { .. } | Phase::Collecting | Phase::Removing => None,
        };
        record.phase = Phase::Preparing { provider };
        self.attempt = Some(Attempt { generation, deadline: now.after(PREPARATION_TIMEOUT_MS), cancel: Cancel::No });
        Some(Task::Prepare(GenerationReference { generation, specification_digest: record.digest }))
    }

    /// Takes the end of the running preparation: the provider's declaration, or the class of the typed cause. The cause
    /// of one that was cancelled is the cancellation, whatever it says.
    pub fn handle_prepared(&mut self, now: Millis, generation: Generation, outcome: Result<Declaration, Diagnostic>) {
        let Some(attempt) = self.attempt.take_if(|attempt| attempt.generation == generation) else { return };
        let outcome = outcome.map_err(|diagnostic| match attempt.cancel {
            Cancel::No => diagnostic,
            Cancel::Wanted | Cancel::Asked => Diagnostic::ProviderUnavailable,
        });
        let Some(record) = self.records.get_mut(&generation) else { return };
        let previous = std::mem::replace(&mut record.phase, Phase::Absent { diagnostic: None });
        record.phase = match (outcome, previous) {
            (Ok(provider), _) => {
                record.retry = Retry::default();
                Phase::Present { provider, readiness: Readiness::Unproven, repair: false }
            }
            (Err(diagnostic), Phase::Preparing { provider: Some(provider) }) => {
                record.retry.failed(now);
                Phase::Present { provider, readiness: Readiness::Failed(diagnostic), repair: true }
            }
            (Err(diagnostic), _) => {
                record.retry.failed(now);
                Phase::Absent { diagnostic: Some(diagnostic) }
            }
        };
    }

    pub(super) fn retarget(&mut self, target: Generation) {
        self.passed_over = 0;
        if let Some(attempt) = &mut self.attempt
            && attempt.generation != target
            && attempt.cancel == Cancel::No
        {
            attempt.cancel = Cancel::Wanted;
        }
    }
}
