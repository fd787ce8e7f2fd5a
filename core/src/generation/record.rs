//! What the table knows of one generation.

use crate::limits::PREPARATION_RETRY_MS;
use crate::operation::Declaration;
use crate::units::{Digest, Millis};
use crate::wire::payload::{Checkpoint, Diagnostic, ObservedState};

/// One generation of this node.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Record {
    pub(super) digest: Digest,
    pub(super) phase: Phase,
    /// Queued and running operations, probes, and helper processes that still live.
    pub(super) holds: u32,
    pub(super) retry: Retry,
}

/// Where a generation stands; see the diagram in the parent module.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    /// There is no provider: never prepared, or its files are missing.
    Absent { diagnostic: Option<Diagnostic> },
    /// The one preparation or repair of the node works on it.
    Preparing { provider: Option<Declaration> },
    /// A provider is constructed.
    Present { provider: Declaration, readiness: Readiness, repair: bool },
    /// A removal began once and did not finish; only a new grant moves it.
    Collecting,
    /// A removal runs.
    Removing,
}

/// What the last probe said.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Readiness {
    Unproven,
    Ready { checkpoint: Option<Checkpoint<'static>> },
    Failed(Diagnostic),
}

/// Back-off of the preparations of one generation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Retry {
    failures: usize,
    pub(super) at: Millis,
}

impl Retry {
    pub(super) fn failed(&mut self, now: Millis) {
        let step = self.failures.min(PREPARATION_RETRY_MS.len() - 1);
        self.at = now.after(PREPARATION_RETRY_MS[step]);
        self.failures = step + 1;
    }
}

impl Record {
    pub(super) fn new(digest: Digest, phase: Phase) -> Self {
        Self { digest, phase, holds: 0, retry: Retry::default() }
    }

    /// Whether a removal began, finished or not.
    pub(super) fn is_collected(&self) -> bool {
        match self.phase {
            Phase::Collecting | Phase::Removing => true,
            Phase::Absent { .. } | Phase::Preparing { .. } | Phase::Present { .. } => false,
        }
    }

    /// Whether a preparation may start once its retry time is reached.
    pub(super) fn wants_preparation(&self) -> bool {
        let wants = match self.phase {
            Phase::Absent { .. } => true,
            Phase::Present { repair, .. } => repair,
            Phase::Preparing { .. } | Phase::Collecting | Phase::Removing => false,
        };
        wants && self.holds == 0
    }

    pub(super) fn provider(&self) -> Option<&Declaration> {
        match &self.phase {
            Phase::Present { provider, .. } => Some(provider),
            Phase::Absent { .. } | Phase::Preparing { .. } | Phase::Collecting | Phase::Removing => None,
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        matches!(self.phase, Phase::Present { readiness: Readiness::Ready { .. }, .. })
    }

    /// What Core may know; `None` from the moment a removal begins.
    pub(super) fn observed(&self) -> Option<ObservedState<'static>> {
        Some(match &self.phase {
            Phase::Absent { diagnostic: None } | Phase::Preparing { .. } => {
                ObservedState::Preparing { diagnostic: None }
            }
            Phase::Absent { diagnostic } => ObservedState::Failed { diagnostic: *diagnostic },
            Phase::Present { readiness, .. } => readiness.observed(),
            Phase::Collecting | Phase::Removing => return None,
        })
    }
}

impl Readiness {
    fn observed(&self) -> ObservedState<'static> {
        match self {
            Self::Unproven => ObservedState::Preparing { diagnostic: None },
            Self::Ready { checkpoint } => ObservedState::Ready { checkpoint: checkpoint.clone() },
            Self::Failed(diagnostic) => ObservedState::Failed { diagnostic: Some(*diagnostic) },
        }
    }
}
