//! Which generations are kept, for whom, and which observations count (deployment §4.5, §4.6).

use std::collections::BTreeSet;

use super::Deployment;
use super::node::{Node, ObservedState};
use crate::limits::COLLECTION_MAX;
use crate::units::{Digest, Generation};

/// Whether a generation is kept for a node: the target, its pin, or one that it holds a sandbox of.
#[must_use]
pub fn is_kept_for(node: &Node, generation: Generation, deployment: &Deployment) -> bool {
    deployment.target() == Some(generation) || node.pin == Some(generation) || node.held.contains(&generation)
}

/// What becomes of one observation or reference that a node sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Kept, and its digest is the stored one.
    Keep,
    /// Not kept for this node: an observation is skipped, a reference's status row goes and its answer is "no".
    Forget,
    /// Kept, but with another digest: the whole exchange is refused.
    Mismatch,
}

/// Judges one observation or reference; `stored` is the digest of the stored specification of that generation.
#[must_use]
pub fn judge(kept: bool, stored: Option<Digest>, given: Digest) -> Verdict {
    match (kept, stored == Some(given)) {
        (false, _) => Verdict::Forget,
        (true, true) => Verdict::Keep,
        (true, false) => Verdict::Mismatch,
    }
}

/// The serving pin after an observation: only `ready`, only for the current target, only upward.
#[must_use]
pub fn promote(
    pin: Option<Generation>,
    observed: Generation,
    state: ObservedState,
    deployment: &Deployment,
) -> Option<Generation> {
    let promotes = state == ObservedState::Ready && deployment.target() == Some(observed);
    if promotes { pin.max(Some(observed)) } else { pin }
}

/// Whether a superseded selection is copied to the retained generations: only when something refers to it.
#[must_use]
pub fn is_retained(superseded: u64, referenced: &BTreeSet<u64>) -> bool {
    superseded > 0 && referenced.contains(&superseded)
}

/// Retained generations to delete in one pass: neither current nor referenced, ascending, at most 32.
#[must_use]
pub fn collectable(current: u64, retained: &BTreeSet<u64>, referenced: &BTreeSet<u64>) -> Vec<u64> {
    let free = |generation: &&u64| **generation != current && !referenced.contains(generation);
    retained.iter().filter(free).take(COLLECTION_MAX).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::super::admission::tests::node;
    use super::super::contract::Provider;
    use super::super::tests::{deployment, generation};
    use super::*;

    /// D 84. A target, a pin and a held sandbox each keep a generation, nothing else does.
    #[test]
    fn target_pin_and_sandboxes_keep_a_generation() {
        let deployment = deployment(Some(Provider::Docker));
        let node = Node { pin: Some(generation(2)), held: vec![generation(1)], ..node(5) };
        for (of, kept) in [(1, true), (2, true), (3, true), (4, false)] {
            assert_eq!(is_kept_for(&node, generation(of), &deployment), kept, "{of}");
        }
        let bare = Node { pin: None, held: vec![], ..node };
        assert!(!is_kept_for(&bare, generation(2), &deployment));
    }

    #[test]
    fn a_kept_generation_must_have_the_stored_digest() {
        let (one, other) = (Digest::of(b"1"), Digest::of(b"2"));
        assert_eq!(judge(true, Some(one), one), Verdict::Keep);
        assert_eq!(judge(true, Some(one), other), Verdict::Mismatch);
        assert_eq!(judge(true, None, one), Verdict::Mismatch);
        assert_eq!(judge(false, Some(one), other), Verdict::Forget);
    }

    #[test]
    fn a_pin_only_rises_to_a_ready_target() {
        let deployment = deployment(Some(Provider::Docker));
        let pin = Some(generation(2));
        assert_eq!(promote(pin, generation(3), ObservedState::Ready, &deployment), Some(generation(3)));
        assert_eq!(promote(None, generation(3), ObservedState::Ready, &deployment), Some(generation(3)));
        assert_eq!(promote(pin, generation(3), ObservedState::Failed, &deployment), pin);
        assert_eq!(promote(pin, generation(1), ObservedState::Ready, &deployment), pin);
        let ahead = Some(generation(4));
        assert_eq!(promote(ahead, generation(3), ObservedState::Ready, &deployment), ahead);
    }

    /// D 83. A referenced generation is retained and never collected; others go lowest first, 32 at a time.
    #[test]
    fn unreferenced_generations_are_collected_in_order() {
        let referenced = BTreeSet::from([2, 5]);
        assert!(is_retained(2, &referenced) && !is_retained(3, &referenced));
        assert!(!is_retained(0, &BTreeSet::from([0])));
        assert_eq!(collectable(6, &BTreeSet::from([1, 2, 3, 5, 6]), &referenced), [1, 3]);
        let many: BTreeSet<u64> = (1..=40).collect();
        assert_eq!(collectable(41, &many, &BTreeSet::new()), (1..=32).collect::<Vec<_>>());
    }
}
