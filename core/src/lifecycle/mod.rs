//! What the owner does next for one environment (deployment §4.3, §5.2, §11.2).
//!
//! The durable facts decide; memory only paces repeated questions. A crash at any point therefore continues
//! by reading the facts again: what was handed over is observed, never sent a second time.
//!
//! - Never is a create handed over twice for one recorded attempt, and never before the attempt is recorded. Only the
//!   hub's certain "nothing was sent" takes the record back (decision 35; `no_history_sends_twice_or_releases_early`,
//!   `create_that_was_certainly_not_sent_clears_the_attempt`).
//! - Never is a Turn dispatched twice. One that is found in progress was interrupted and ends unconfirmed
//!   (`no_history_sends_twice_or_releases_early`, `interrupted_turn_is_unconfirmed`).
//! - Never is an allocation released before its creation is settled and a kill was confirmed that nothing can have
//!   followed, unless the creation was never handed over or its absence was proven
//!   (`cleanup_asks_kill_and_info_until_both_are_answered`, `proven_absence_releases_in_one_commit`).
//! - Never does a receipt beside a failure make it a success (`receipt_beside_a_failure_never_becomes_a_success`).
//!
//! # Driving it
//!
//! The shell reads the facts in one transaction, does the step, and writes what the outcome changes in another one, which
//! re-checks the owner's epoch.
//!
//! ```
//! use palisade_core::lifecycle::{Allocation, Attempt, CallError, Change, Environment, Facts, Lifecycle, NodeState, Step};
//! use palisade_core::session::hub::{Cause, Uncertain};
//! use palisade_core::units::Millis;
//!
//! let mut facts = Facts {
//!     admission_open: true,
//!     session_deleted: false,
//!     environment: Environment::Pending,
//!     node: NodeState::Ready,
//!     allocation: Allocation::Creating(Attempt::None),
//!     compute: None,
//!     stale: false,
//!     turn: None,
//! };
//! let (mut owner, now) = (Lifecycle::default(), Millis(0));
//! assert_eq!(owner.step(&facts, now), Step::Create);
//!
//! // The attempt is recorded, then the create is handed over, and its answer is lost: nothing changes.
//! facts.allocation = Allocation::Creating(Attempt::Handed { ago_ms: 0 });
//! let lost = Err(CallError::Uncertain(Uncertain { cause: Cause::Unavailable, sent: true }));
//! assert_eq!(owner.conclude(now, Step::Create, &lost), []);
//!
//! // From here on the original is observed, after a pause; a create is never sent again.
//! let Step::Wait(at) = owner.step(&facts, now) else { panic!("questions are paced") };
//! assert_eq!(owner.step(&facts, at), Step::Observe { late: false });
//!
//! // Had nothing been sent for certain, the record would be taken back.
//! let not_sent = Err(CallError::Uncertain(Uncertain { cause: Cause::Unavailable, sent: false }));
//! assert_eq!(owner.conclude(at, Step::Create, &not_sent), [Change::AttemptCleared]);
//! ```

pub mod compute;
mod conclude;
mod deadlines;
mod facts;
mod resume;

#[cfg(test)]
mod tests;

pub use conclude::{CallError, Outcome};
pub use deadlines::Deadlines;
pub use facts::{Allocation, Attempt, Environment, Facts, NodeState, Turn, TurnState};
pub use resume::Resumed;

use crate::admin::node::AllocationDiagnostic;
use crate::limits::{
    ASK_AGAIN_MAX_MS, ASK_AGAIN_MIN_MS, CAPTURE_UNKNOWN_MAX_MS, CREATE_BUDGET_MS, TURN_OFFLINE_MAX_MS,
};
use crate::units::{Id, Millis};

/// What the owner remembers of one environment between two readings of the facts; losing it loses nothing.
///
/// ```text
///               Reserve                 Create                   create: verified running
///   (none) ───────────────▶ creating ───────────▶ creating ────────────────────────────────▶ running ◀─┐
///                           no attempt ◀────────── handed │            info: the same ────────▶   │    │ Dispatch
///                            │      nothing was sent      │                                       └────┘
///                            │                            │ settled without running: cleanup
///                            ▼                            ▼                                       │ archive, delete
///                     cleanup_pending ◀──────────── cleanup_pending ◀─────────────────────────────┘
///                       │ never handed                │ Kill, and Settle (info) until both are answered
///                       └──────────▶ released ◀───────┘
///              (creating ──── absence proven ────▶ released, in one commit)
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Lifecycle {
    killed: bool,
    look_next: bool,
    doubtful: bool,
    /// Since when the node answers about a capture that nobody knows, all of it later than the capture can end.
    capture_asked: Option<Millis>,
    unanswered: u32,
    not_before: Millis,
}

/// The next step of one environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// Nothing until somebody writes a fact.
    Rest,
    /// Look again at this time, or when a fact changes.
    Wait(Millis),
    /// Reserve the allocation of the placement.
    Reserve,
    /// Record the attempt, then send `create`.
    Create,
    /// Ask `info` for the original creation.
    Observe {
        /// The budget of the creation is over: whatever does not run now has failed.
        late: bool,
    },
    /// Ask `info` for an allocation that should be running.
    Verify,
    /// Ask `renew` for a running allocation that nobody has seen for a while.
    Confirm,
    /// Suspend, restore or wake.
    Compute(compute::Step),
    /// Record the start, then send the command of this Turn.
    Dispatch(Id),
    /// End this Turn.
    FailTurn(Id, TurnError),
    /// The session or environment ended under a live allocation.
    RequestCleanup,
    /// Ask for everything to be removed, last with `kill`.
    Kill,
    /// Ask `info` until the creation is settled.
    Settle,
    /// Release allocation and placement.
    Release,
}

/// Why a Turn failed; the code ends in `unconfirmed` exactly when nobody knows what came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TurnError {
    /// The command may have run.
    Unconfirmed,
    /// The node stayed away; certainly not run.
    NodeUnavailable,
    /// The environment failed or ended; certainly not run.
    EnvironmentUnavailable,
    /// The budget was used up before anything was sent; certainly not run.
    Expired,
    /// The provider refused the command.
    Invalid,
    /// No sandbox was found that could run it.
    NotFound,
    /// The resource belongs to somebody else.
    Ownership,
    /// The provider does not run commands.
    Unsupported,
}

impl TurnError {
    /// `error.code` of the Turn.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Unconfirmed => "command_unconfirmed",
            Self::NodeUnavailable => "node_unavailable",
            Self::EnvironmentUnavailable => "environment_unavailable",
            Self::Expired => "command_expired",
            Self::Invalid => "command_invalid",
            Self::NotFound => "sandbox_not_found",
            Self::Ownership => "sandbox_ownership",
            Self::Unsupported => "command_unsupported",
        }
    }
}

/// A fact to write, in order and in one transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Change {
    /// Nothing was sent: the recorded attempt is taken back.
    AttemptCleared,
    /// The sandbox runs; this settles its creation as well.
    Running,
    /// The original creation can no longer change anything.
    Settled,
    /// Provisioning failed; clean up what there may be.
    CleanupRequested,
    /// Somebody looked at the running sandbox, and saw this.
    Looked(AllocationDiagnostic),
    /// Allocation and placement are free.
    Released,
    /// The command ended; its result is with the caller.
    TurnCompleted(Id),
    /// The Turn ended without a result.
    TurnFailed(Id, TurnError),
    /// Certainly not sent: the Turn waits again, in its old place.
    TurnRequeued(Id),
}

impl Lifecycle {
    /// What to do next. The facts decide; repeated questions wait for their time.
    #[must_use]
    pub fn step(&self, facts: &Facts, now: Millis) -> Step {
        if let Some(step) = turn_without_sandbox(facts) {
            return step;
        }
        let step = match facts.allocation {
            Allocation::None => without_allocation(facts),
            Allocation::Creating(_) | Allocation::Running if facts.ended() => return Step::RequestCleanup,
            Allocation::Creating(Attempt::None) => {
                if facts.node == NodeState::Ready {
                    Step::Create
                } else {
                    Step::Rest
                }
            }
            Allocation::Creating(Attempt::Handed { ago_ms }) => Step::Observe { late: ago_ms >= CREATE_BUDGET_MS },
            Allocation::Running => self.running(facts),
            Allocation::CleanupPending { attempt: Attempt::None, .. } => return Step::Release,
            Allocation::CleanupPending { attempt: Attempt::Handed { .. }, .. }
                if self.looks_for_capture(facts, now) =>
            {
                Step::Compute(compute::Step::LookSuspend)
            }
            Allocation::CleanupPending { attempt: Attempt::Handed { .. }, settled } => match (self.killed, settled) {
                (true, true) => return Step::Release,
                (true, false) => Step::Settle,
                // Neither question waits for the answer of the other.
                (false, false) if self.look_next => Step::Settle,
                (false, _) => Step::Kill,
            },
            Allocation::Released => Step::Rest,
        };
        self.paced(step, facts, now)
    }

    /// Something that makes an answer likelier happened, such as a node that connected.
    pub fn handle_hint(&mut self) {
        self.unanswered = 0;
        self.not_before = Millis(0);
    }

    /// An answer about compute changed nothing: it is asked for again later. Otherwise the next step follows at once, and
    /// what was removed already is removed again with what is known now.
    pub fn handle_compute(&mut self, now: Millis, advanced: bool) {
        if advanced {
            self.capture_asked = None;
            self.killed = false;
            self.answered();
        } else {
            self.postpone(now);
        }
    }

    /// What came of a look for a capture that was handed over `handed_ms` ago; `told`: it says what became of it. Before
    /// everything is removed the node is asked again, however long it was away: otherwise a snapshot that it made would be
    /// left there for ever. It is asked for as long as a capture may take, because one that has just come back answers
    /// before its provider can tell. It is asked for as long again after the removal: a capture that ended between the last
    /// look and the removal is seen then, and no later one can follow. Whatever is learnt is removed before anything is
    /// released, whether or not the store says that it was written.
    pub fn handle_capture_look(&mut self, now: Millis, handed_ms: Option<u64>, outcome: &Outcome<'_>, told: bool) {
        let late = handed_ms.is_some_and(|ago| ago >= CAPTURE_UNKNOWN_MAX_MS);
        if told {
            self.capture_asked = None;
            self.killed = false;
        } else if late && compute::reached_the_node(outcome) {
            self.capture_asked.get_or_insert(now);
        }
    }

    /// A store transaction was refused or failed; the same step is tried again later.
    pub fn handle_refused(&mut self, now: Millis) {
        self.postpone(now);
    }

    fn running(&self, facts: &Facts) -> Step {
        let online = facts.node.away_ms().is_none();
        if let Some(compute) = &facts.compute {
            if let Some(step) = compute.step(facts.node, facts.turn.is_some()) {
                return Step::Compute(step);
            }
            if compute.waited_ms().is_some() {
                return Step::Rest;
            }
        }
        match facts.turn {
            Some(turn) if online => Step::Dispatch(turn.id),
            Some(_) | None if self.doubtful => Step::Verify,
            Some(_) | None if facts.stale && online => Step::Confirm,
            Some(_) | None => Step::Rest,
        }
    }

    fn looks_for_capture(&self, facts: &Facts, now: Millis) -> bool {
        let long_asked = self.capture_asked.is_some_and(|since| now >= since.after(CAPTURE_UNKNOWN_MAX_MS));
        facts.compute.is_some_and(|compute| compute.look_for_capture(long_asked))
    }

    /// Questions wait for their time; a Turn in line is looked at again when its patience ends.
    fn paced(&self, step: Step, facts: &Facts, now: Millis) -> Step {
        let patience = facts.turn.and_then(|turn| match (turn.state, unable_ms(facts)) {
            (TurnState::Queued { waited_ms }, Some(unable)) => {
                Some(now.after(TURN_OFFLINE_MAX_MS.saturating_sub(waited_ms.min(unable))))
            }
            (TurnState::Queued { .. }, None) | (TurnState::InProgress, _) => None,
        });
        if step == Step::Rest {
            // Room on the node comes without a word, when somebody approves more of it.
            let again = facts.compute.map_or(Millis(u64::MAX), |_| now.after(ASK_AGAIN_MAX_MS));
            return patience.map_or(Step::Rest, |patience| Step::Wait(patience.min(again)));
        }
        if now >= self.not_before {
            return step;
        }
        Step::Wait(patience.map_or(self.not_before, |patience| patience.min(self.not_before)))
    }

    fn postpone(&mut self, now: Millis) {
        let delay = ASK_AGAIN_MIN_MS.checked_shl(self.unanswered).unwrap_or(ASK_AGAIN_MAX_MS).min(ASK_AGAIN_MAX_MS);
        self.not_before = now.after(delay);
        self.unanswered = (self.unanswered + 1).min(16);
    }

    fn answered(&mut self) {
        self.unanswered = 0;
        self.not_before = Millis(0);
    }
}

fn without_allocation(facts: &Facts) -> Step {
    let wanted = facts.environment == Environment::Pending && !facts.ended();
    if wanted && facts.admission_open && facts.node == NodeState::Ready { Step::Reserve } else { Step::Rest }
}

/// For how long no Turn could have run: the node is away, or the compute does not run.
fn unable_ms(facts: &Facts) -> Option<u64> {
    let compute = facts.compute.filter(|_| facts.allocation == Allocation::Running);
    facts.node.away_ms().max(compute.and_then(|compute| compute.waited_ms()))
}

/// Turns that end whatever the sandbox does.
fn turn_without_sandbox(facts: &Facts) -> Option<Step> {
    let turn = facts.turn?;
    let error = match (turn.state, facts.allocation) {
        (TurnState::InProgress, _) => TurnError::Unconfirmed,
        (TurnState::Queued { .. }, Allocation::CleanupPending { .. } | Allocation::Released) => {
            TurnError::EnvironmentUnavailable
        }
        (TurnState::Queued { .. }, _) if facts.ended() => TurnError::EnvironmentUnavailable,
        (TurnState::Queued { waited_ms }, _) => {
            (waited_ms.min(unable_ms(facts)?) >= TURN_OFFLINE_MAX_MS).then_some(TurnError::NodeUnavailable)?
        }
    };
    Some(Step::FailTurn(turn.id, error))
}
