//! The rows of one environment, and the changes that a transaction makes in them.

use palisade_core::lifecycle::{Allocation, Attempt, Change, Environment, Facts, NodeState};
use palisade_core::limits::CREATE_BUDGET_MS;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::struct_excessive_bools, reason = "columns of a row, not a state")]
pub(super) struct Store {
    /// Of the owner.
    pub(super) epoch: u64,
    pub(super) allocation: Option<State>,
    /// An attempt is recorded.
    pub(super) handed: bool,
    /// Its budget is over.
    pub(super) late: bool,
    settled: bool,
    pub(super) deleted: bool,
    environment: Environment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum State {
    Creating,
    Running,
    CleanupPending,
    Released,
}

impl Store {
    pub(super) const fn new() -> Self {
        Self {
            epoch: 1,
            allocation: None,
            handed: false,
            late: false,
            settled: false,
            deleted: false,
            environment: Environment::Pending,
        }
    }

    /// What the owner reads; `online` is what its hub says.
    pub(super) fn facts(&self, online: bool) -> Facts {
        let ago_ms = if self.late { CREATE_BUDGET_MS } else { 0 };
        let attempt = if self.handed { Attempt::Handed { ago_ms } } else { Attempt::None };
        Facts {
            admission_open: true,
            session_deleted: self.deleted,
            environment: self.environment,
            node: if online { NodeState::Ready } else { NodeState::Offline { away_ms: 0 } },
            allocation: match self.allocation {
                None => Allocation::None,
                Some(State::Creating) => Allocation::Creating(attempt),
                Some(State::Running) => Allocation::Running,
                Some(State::CleanupPending) => Allocation::CleanupPending { attempt, settled: self.settled },
                Some(State::Released) => Allocation::Released,
            },
            compute: None,
            stale: false,
            turn: None,
        }
    }

    pub(super) fn reserve(&mut self) {
        if self.allocation.is_none() && !self.deleted {
            self.allocation = Some(State::Creating);
        }
    }

    /// Records that a create is about to be handed over; `false`: it must not be.
    pub(super) fn record_attempt(&mut self) -> bool {
        let open = self.allocation == Some(State::Creating) && !self.handed;
        self.handed |= open;
        open
    }

    /// As the real statements do, each with its own condition.
    pub(super) fn change(&mut self, change: Change) {
        match change {
            Change::AttemptCleared if !self.settled => (self.handed, self.late) = (false, false),
            Change::Running => {
                self.settled = true;
                if self.allocation == Some(State::Creating) {
                    self.allocation = Some(State::Running);
                    self.environment = Environment::Connected;
                }
            }
            Change::Settled => self.settled = true,
            Change::CleanupRequested => {
                if matches!(self.allocation, Some(State::Creating | State::Running)) {
                    self.allocation = Some(State::CleanupPending);
                    self.environment = Environment::Failed;
                }
            }
            Change::Released => {
                if self.allocation == Some(State::CleanupPending) && (self.settled || !self.handed) {
                    self.allocation = Some(State::Released);
                }
            }
            Change::AttemptCleared
            | Change::Looked(_)
            | Change::TurnCompleted(_)
            | Change::TurnFailed(..)
            | Change::TurnRequeued(_) => {}
        }
    }
}
