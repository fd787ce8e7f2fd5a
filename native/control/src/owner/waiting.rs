//! Saying what an environment waits for, and whom, once that takes long (E23).

use std::time::Duration;

use palisade_core::lifecycle::{Allocation, Facts};
use palisade_core::limits::HINT_AFTER_MS;
use tokio::time::Instant;

use crate::execution::Lease;
use crate::store::allocations::Work;

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
const fn goal(facts: &Facts) -> Option<&'static str> {
    use palisade_core::admin::node::ComputePhase as Phase;
    match (facts.allocation, facts.compute) {
        (Allocation::None, _) => Some("for its node to be ready for a new sandbox"),
        (Allocation::Creating(_), _) => Some("for the sandbox to run"),
        (Allocation::CleanupPending { .. }, _) => Some("for the removal of the sandbox to be confirmed"),
        (Allocation::Released, _) => None,
        (Allocation::Running, Some(compute)) if facts.turn.is_some() || !matches!(compute.phase, Phase::Suspended) => {
            match compute.phase {
                Phase::Disabled => Some("for the name of the sandbox's compute"),
                Phase::Running if facts.turn.is_some() => Some("for the node to run a turn"),
                Phase::Running => None,
                Phase::Quiescing | Phase::Suspending => Some("for the sandbox to be suspended"),
                Phase::Suspended => Some("for room on the sandbox's own node to restore it"),
                Phase::Restoring | Phase::Waking => Some("for the sandbox to be restored"),
            }
        }
        (Allocation::Running, Some(_)) => None,
        (Allocation::Running, None) => {
            if facts.turn.is_some() {
                Some("for the node to run a turn")
            } else {
                None
            }
        }
    }
}
