//! Saying what an environment waits for, and whom, once that takes long (E23).

use std::time::Duration;

use palisade_core::admin::node::ComputePhase as Phase;
use palisade_core::lifecycle::{Allocation, Facts};
use palisade_core::limits::HINT_AFTER_MS;
use tokio::time::Instant;

use crate::execution::Lease;
use crate::store::work::Work;

/// What one environment waits for, since when, and when that was said last.
#[derive(Default)]
pub(super) struct Waiting(Option<(&'static str, Instant, u32)>);

impl Waiting {
    /// Looks at the facts once more. Says something after half a minute, and after each doubling of the time.
    pub(super) fn look(&mut self, facts: &Facts, lease: Lease, work: &Work) {
        let Some(goal) = goal(facts) else { return self.0 = None };
        let now = Instant::now();
        let (known, since, said) = self.0.get_or_insert((goal, now, 0));
        if *known != goal {
            (*known, *since, *said) = (goal, now, 0);
        }
        let waited = now.duration_since(*since);
        if waited < Duration::from_millis(HINT_AFTER_MS.saturating_mul(1 << (*said).min(16))) {
            return;
        }
        *said += 1;
        tracing::warn!(
            environment = %work.environment,
            allocation = ?work.allocation.map(|allocation| allocation.id),
            incarnation = ?work.compute.as_ref().and_then(|held| held.state.current()).map(|current| current.generation),
            node = ?work.placement.map(|placed| placed.node),
            node_away_ms = ?facts.node.away_ms(),
            owner_epoch = lease.epoch.get(),
            waited_s = waited.as_secs(),
            "still waiting {goal}"
        );
    }
}

/// What is to come about; `None` when nothing is under way.
fn goal(facts: &Facts) -> Option<&'static str> {
    match facts.allocation {
        Allocation::None => Some("for its node to be ready for a new sandbox"),
        Allocation::Creating(_) => Some("for the sandbox to run"),
        Allocation::CleanupPending { .. } => Some("for the removal of the sandbox to be confirmed"),
        Allocation::Released => None,
        Allocation::Running => {
            let turn = facts.turn.map(|_| "for the node to run a turn");
            facts.compute.map_or(turn, |compute| compute_goal(compute.phase, turn))
        }
    }
}

fn compute_goal(phase: Phase, turn: Option<&'static str>) -> Option<&'static str> {
    match phase {
        Phase::Disabled => Some("for the name of the sandbox's compute"),
        Phase::Running => turn,
        Phase::Quiescing | Phase::Suspending => Some("for the sandbox to be suspended"),
        Phase::Suspended => turn.and(Some("for room on the sandbox's own node to restore it")),
        Phase::Restoring | Phase::Waking => Some("for the sandbox to be restored"),
    }
}
