//! Compute that is suspended while nobody uses it, and restored on its own node (deployment §4.4).
//!
//! ```text
//!             named         idle              nobody came back        captured, source gone
//!  disabled ────────▶ running ─────▶ quiescing ────────────▶ suspending ─────────────▶ suspended ──▶ expired
//!                      ▲   ▲             │                        │                        │ input, room on
//!                      │   └─────────────┘ input                  │ source still there     ▼ the same node
//!                      │                                          ▼                    restoring ◀─┐ removed, and
//!                      └─────────────────────────────────────── waking ◀──────────────────────┴───┘ planned anew
//!                        the same instance is seen to run                 the target runs
//! ```
//!
//! Every arrow is one commit that raises the revision. What an effect needs is committed before it is asked for, and what
//! came of it afterwards, so that a crash in between asks with `ObserveOnly` and repeats nothing.
//!
//! - Never is a suspend or a resume sent again that may have reached the node: it is observed, under the same operation
//!   (`a_capture_that_may_have_been_sent_is_only_observed`).
//! - Never does anything but the exact incarnation count: another generation, name, identity or origin says nothing
//!   (`only_the_exact_incarnation_moves_a_phase`).
//! - Never is a target given up before its removal is confirmed, and never is its name used again
//!   (`an_unknown_target_is_removed_before_another_one_is_planned`).
//! - Never is a snapshot removed before the incarnation restored from it is seen to run, or everything is to go
//!   (`a_snapshot_goes_after_its_restored_incarnation_runs`).
//! - Never is everything removed while a snapshot may exist that nobody asked its node for
//!   (`a_capture_is_looked_for_before_everything_goes_however_long_its_node_was_away`), nor is what may have been captured
//!   until then forgotten (`a_capture_that_ended_just_before_the_removal_is_found_after_it`).
//! - Never is compute restored elsewhere; without room on its node it waits (`suspended_compute_waits_for_its_own_node`).

mod conclude;
pub(super) mod looked;
mod record;

#[cfg(test)]
mod tests;

pub(super) use conclude::reached_the_node;
pub use conclude::{Asked, Verdict};
pub use record::{Change, Refused};

use serde::{Deserialize, Serialize};

use super::NodeState;
use crate::admin::node::ComputePhase as Phase;
use crate::limits::CAPTURE_UNKNOWN_MAX_MS;
use crate::operation::Operation;
use crate::strict;
use crate::units::Id;
use crate::wire::IntoOwned as _;
use crate::wire::payload::{Compute, Snapshot};

/// What is stored of compute beside its phase. Each variant has exactly what its phase needs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[expect(clippy::large_enum_variant, reason = "one at a time, for one environment")]
pub enum State {
    /// The first incarnation has no name yet; a provider without checkpoints stays here.
    Disabled,
    /// One incarnation runs.
    Running {
        /// Which.
        current: Compute<'static>,
        /// What earlier incarnations left, to be removed in this order.
        leftovers: Vec<Leftover>,
    },
    /// It was idle; input still returns to running at once.
    Quiescing {
        /// What will be captured.
        current: Compute<'static>,
    },
    /// It is being captured.
    Suspending {
        /// What is captured.
        current: Compute<'static>,
        /// The suspend operation.
        operation: Id,
        /// When it was handed over, in milliseconds of the database's clock; `None`: certainly nothing was sent.
        handed_at: Option<i64>,
        /// The capture, once it is known.
        snapshot: Option<Box<Snapshot<'static>>>,
    },
    /// Only the snapshot is left.
    Suspended {
        /// What was captured; it does not run any more.
        source: Compute<'static>,
        /// The capture.
        snapshot: Box<Snapshot<'static>>,
    },
    /// A new incarnation is being made of the snapshot.
    Restoring {
        /// What was captured.
        source: Compute<'static>,
        /// The capture.
        snapshot: Box<Snapshot<'static>>,
        /// The resume operation.
        operation: Id,
        /// What it makes; with a native identity once that was seen.
        target: Compute<'static>,
        /// As in [`State::Suspending`].
        handed_at: Option<i64>,
    },
    /// One incarnation is there, and will be seen to run.
    Waking {
        /// Which.
        current: Compute<'static>,
        /// What is removed when it runs.
        leftovers: Vec<Leftover>,
    },
}

/// What an earlier incarnation left.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Leftover {
    /// A stopped incarnation.
    Compute(Box<Compute<'static>>),
    /// A snapshot that nothing will be restored from.
    Snapshot(Box<Snapshot<'static>>),
}

/// What the store says of compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, not one state")]
pub struct Facts {
    /// Where it stands.
    pub phase: Phase,
    /// Milliseconds since the suspend or resume was handed over; `None` when certainly nothing was sent.
    pub handed_ms: Option<u64>,
    /// While suspending: the snapshot is known.
    pub captured: bool,
    /// Something of an earlier incarnation is to be removed.
    pub leftovers: bool,
    /// Milliseconds in this phase.
    pub since_ms: u64,
    /// It was used, and not for as long as the policy says.
    pub idle: bool,
    /// It was kept for as long as the policy says.
    pub expired: bool,
    /// Its node has room for one more active sandbox.
    pub room: bool,
}

/// What is done next with compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// Ask `initial` for the name and `compute` for the identity of the first incarnation.
    Identify,
    /// Commit that it was idle.
    Quiesce,
    /// Commit that somebody came back in time: nothing was sent yet.
    Return,
    /// Commit the operation, then send `suspend`.
    Suspend,
    /// Ask what came of the suspend.
    LookSuspend,
    /// Remove the captured source, which does not run.
    StopSource,
    /// Ask `new_compute` for a target, and commit it.
    Plan,
    /// Commit the operation, then send `resume`.
    Restore,
    /// Ask what came of the resume.
    LookRestore,
    /// Remove the target that nobody knows of, then [`Step::Plan`] another one.
    Replan,
    /// Ask `resume_compute`, which thaws the same instance or finds it running.
    Thaw,
    /// Remove the first leftover.
    RemoveLeftover,
    /// Commit that it was kept long enough: the environment expires.
    Expire,
}

impl Facts {
    /// While nothing else ended the environment. `None`: it runs, or nothing can be done now.
    pub(super) fn step(&self, node: NodeState, wanted: bool) -> Option<Step> {
        if self.expired && !matches!(self.phase, Phase::Disabled | Phase::Running) {
            return Some(Step::Expire);
        }
        let online = node.away_ms().is_none();
        match self.phase {
            Phase::Disabled => Step::Identify.when(online),
            Phase::Running if wanted || !online => None,
            Phase::Running if self.leftovers => Some(Step::RemoveLeftover),
            Phase::Running => Step::Quiesce.when(self.idle),
            Phase::Quiescing if wanted => Some(Step::Return),
            Phase::Quiescing => Step::Suspend.when(online),
            Phase::Suspending => self.suspending(wanted).when(online),
            Phase::Suspended => Step::Plan.when(wanted && self.room && node == NodeState::Ready),
            Phase::Restoring => match self.handed_ms {
                None => Step::Restore.when(node == NodeState::Ready),
                Some(ago) if ago >= CAPTURE_UNKNOWN_MAX_MS => Step::Replan.when(online),
                Some(_) => Step::LookRestore.when(online),
            },
            Phase::Waking => Step::Thaw.when(online),
        }
    }

    const fn suspending(&self, wanted: bool) -> Step {
        match (self.handed_ms, self.captured) {
            (None, _) if wanted => Step::Return,
            (None, _) => Step::Suspend,
            (Some(_), true) => Step::StopSource,
            (Some(_), false) => Step::LookSuspend,
        }
    }

    /// When everything is to go: a capture whose outcome is unknown is looked for before and after, or nobody would know
    /// its snapshot. Not for ever: every state can be destroyed, once the node was `asked` for long enough when nothing
    /// could change any more.
    pub(super) fn look_for_capture(&self, asked: bool) -> bool {
        let unknown = self.phase == Phase::Suspending && !self.captured;
        unknown && self.handed_ms.is_some_and(|ago| ago < CAPTURE_UNKNOWN_MAX_MS || !asked)
    }

    /// How long a Turn has waited for this compute to run.
    pub(super) const fn waited_ms(&self) -> Option<u64> {
        match self.phase {
            Phase::Running => None,
            Phase::Disabled
            | Phase::Quiescing
            | Phase::Suspending
            | Phase::Suspended
            | Phase::Restoring
            | Phase::Waking => Some(self.since_ms),
        }
    }
}

impl Step {
    fn when(self, holds: bool) -> Option<Self> {
        holds.then_some(self)
    }
}

/// The stored form of every variant.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document<'a> {
    /// The incarnation that runs, or ran last; what an observation of it names.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none", deserialize_with = "strict::present")]
    current: Option<Compute<'a>>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "strict::present")]
    operation: Option<Id>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "strict::present")]
    handed_at: Option<i64>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none", deserialize_with = "strict::present")]
    snapshot: Option<Snapshot<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none", deserialize_with = "strict::present")]
    target: Option<Compute<'a>>,
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    leftovers: Vec<Left<'a>>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Left<'a> {
    #[serde(borrow)]
    Compute(Compute<'a>),
    #[serde(borrow)]
    Snapshot(Snapshot<'a>),
}

impl State {
    /// The phase of this state.
    #[must_use]
    pub const fn phase(&self) -> Phase {
        match self {
            Self::Disabled => Phase::Disabled,
            Self::Running { .. } => Phase::Running,
            Self::Quiescing { .. } => Phase::Quiescing,
            Self::Suspending { .. } => Phase::Suspending,
            Self::Suspended { .. } => Phase::Suspended,
            Self::Restoring { .. } => Phase::Restoring,
            Self::Waking { .. } => Phase::Waking,
        }
    }

    /// The stored text, a JSON object. `current` is the exact incarnation that observations and commands name.
    #[must_use]
    pub fn encode(&self) -> String {
        serde_json::to_string(&self.document()).expect("texts and numbers always serialise")
    }

    fn document(&self) -> Document<'_> {
        let snapshot = |snapshot: &Snapshot<'static>| Some(snapshot.clone());
        let document = Document { current: self.current().cloned(), ..Document::default() };
        match self {
            Self::Disabled | Self::Quiescing { .. } => document,
            Self::Running { leftovers, .. } | Self::Waking { leftovers, .. } => {
                Document { leftovers: leftovers.iter().map(Left::from).collect(), ..document }
            }
            Self::Suspending { operation, handed_at, snapshot: captured, .. } => Document {
                operation: Some(*operation),
                handed_at: *handed_at,
                snapshot: captured.as_deref().and_then(snapshot),
                ..document
            },
            Self::Suspended { snapshot: captured, .. } => Document { snapshot: snapshot(captured), ..document },
            Self::Restoring { snapshot: captured, operation, target, handed_at, .. } => Document {
                operation: Some(*operation),
                handed_at: *handed_at,
                snapshot: snapshot(captured),
                target: Some(target.clone()),
                ..document
            },
        }
    }

    /// Reads a stored state; `None` for what Core never writes.
    #[must_use]
    pub fn decode(phase: Phase, text: &str) -> Option<Self> {
        let Document { current, operation, handed_at, snapshot, target, leftovers } =
            strict::object(text.as_bytes()).ok()?;
        let current = current.into_owned();
        let snapshot = snapshot.map(|snapshot| Box::new(snapshot.into_owned()));
        let leftovers = leftovers.into_iter().map(Leftover::from).collect();
        Some(match phase {
            Phase::Disabled => Self::Disabled,
            Phase::Running => Self::Running { current: current?, leftovers },
            Phase::Quiescing => Self::Quiescing { current: current? },
            Phase::Suspending => Self::Suspending { current: current?, operation: operation?, handed_at, snapshot },
            Phase::Suspended => Self::Suspended { source: current?, snapshot: snapshot? },
            Phase::Restoring => Self::Restoring {
                source: current?,
                snapshot: snapshot?,
                operation: operation?,
                target: target.into_owned()?,
                handed_at,
            },
            Phase::Waking => Self::Waking { current: current?, leftovers },
        })
    }

    /// The incarnation that runs, or ran last.
    #[must_use]
    pub const fn current(&self) -> Option<&Compute<'static>> {
        match self {
            Self::Disabled => None,
            Self::Running { current, .. }
            | Self::Quiescing { current }
            | Self::Suspending { current, .. }
            | Self::Suspended { source: current, .. }
            | Self::Restoring { source: current, .. }
            | Self::Waking { current, .. } => Some(current),
        }
    }

    /// When the suspend or resume was handed over.
    #[must_use]
    pub const fn handed_at(&self) -> Option<i64> {
        match self {
            Self::Suspending { handed_at, .. } | Self::Restoring { handed_at, .. } => *handed_at,
            Self::Disabled
            | Self::Running { .. }
            | Self::Quiescing { .. }
            | Self::Suspended { .. }
            | Self::Waking { .. } => None,
        }
    }

    /// What earlier incarnations left.
    #[must_use]
    pub fn leftovers(&self) -> &[Leftover] {
        match self {
            Self::Running { leftovers, .. } | Self::Waking { leftovers, .. } => leftovers,
            Self::Disabled
            | Self::Quiescing { .. }
            | Self::Suspending { .. }
            | Self::Suspended { .. }
            | Self::Restoring { .. } => &[],
        }
    }

    /// Whether some snapshot is held.
    #[must_use]
    pub fn holds_snapshot(&self) -> bool {
        match self {
            Self::Suspending { snapshot, .. } => snapshot.is_some(),
            Self::Suspended { .. } | Self::Restoring { .. } => true,
            Self::Running { .. } | Self::Waking { .. } => {
                self.leftovers().iter().any(|left| matches!(left, Leftover::Snapshot(_)))
            }
            Self::Disabled | Self::Quiescing { .. } => false,
        }
    }

    /// Everything that may exist on the node, in the order in which it is removed: first what was restored, then what that
    /// came from, last the allocation with its first incarnation. Each of these may be asked for again.
    #[must_use]
    pub fn removals(&self) -> Vec<Operation<'static>> {
        let mut removals = Vec::new();
        if let Self::Restoring { target, .. } = self {
            removals.push(Operation::KillCompute(target.clone()));
        }
        // Incarnation 0 is what `kill` removes.
        removals.extend(self.current().filter(|current| current.generation > 0).cloned().map(Operation::KillCompute));
        removals.extend(self.leftovers().iter().map(Leftover::removal));
        if let Self::Suspending { snapshot: Some(snapshot), .. }
        | Self::Suspended { snapshot, .. }
        | Self::Restoring { snapshot, .. } = self
        {
            removals.push(Operation::DeleteSnapshot((**snapshot).clone()));
        }
        removals.push(Operation::Kill);
        removals
    }
}

impl Leftover {
    /// What removes it.
    #[must_use]
    pub fn removal(&self) -> Operation<'static> {
        match self {
            Self::Compute(compute) => Operation::KillCompute((**compute).clone()),
            Self::Snapshot(snapshot) => Operation::DeleteSnapshot((**snapshot).clone()),
        }
    }
}

impl<'a> From<&'a Leftover> for Left<'a> {
    fn from(leftover: &'a Leftover) -> Self {
        match leftover {
            Leftover::Compute(compute) => Self::Compute((**compute).clone()),
            Leftover::Snapshot(snapshot) => Self::Snapshot((**snapshot).clone()),
        }
    }
}

impl From<Left<'_>> for Leftover {
    fn from(left: Left<'_>) -> Self {
        match left {
            Left::Compute(compute) => Self::Compute(Box::new(compute.into_owned())),
            Left::Snapshot(snapshot) => Self::Snapshot(Box::new(snapshot.into_owned())),
        }
    }
}
