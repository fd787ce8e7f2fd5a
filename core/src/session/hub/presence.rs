//! When a node counts as online, what a report changes and when its pin rises (wire §5.5, deployment §4.5).

use crate::limits::ONLINE_AGE_MS;
use crate::units::{Generation, Id, OwnerEpoch};
use crate::wire::payload::{Checkpoint, Observation, ObservedState};

/// The connection under which something was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connected {
    /// Which connection.
    pub connection_id: Id,
    /// Under which epoch.
    pub owner_epoch: OwnerEpoch,
}

/// What the store holds of one node's presence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Presence {
    /// The connection, if one is recorded.
    pub connected: Option<Connected>,
    /// The highest epoch this node was connected under.
    pub last_epoch: Option<OwnerEpoch>,
    /// Age of the last heartbeat by the store's own clock.
    pub heartbeat_age_ms: Option<u64>,
    /// Whether the node was removed.
    pub removed: bool,
}

impl Presence {
    /// Connected under the current epoch with a heartbeat younger than 45 s, strictly.
    #[must_use]
    pub fn is_online(&self, current: OwnerEpoch) -> bool {
        !self.removed
            && self.connected.is_some_and(|connected| connected.owner_epoch == current)
            && self.heartbeat_age_ms.is_some_and(|age| age < ONLINE_AGE_MS)
    }

    /// Whether a connection under `epoch` may be recorded: Core's epoch, and none higher was seen.
    #[must_use]
    pub fn accepts(&self, epoch: OwnerEpoch, current: OwnerEpoch) -> bool {
        !self.removed && epoch == current && self.last_epoch.is_none_or(|last| last <= epoch)
    }

    /// Whether a heartbeat or a disconnect of `connection` speaks for the stored connection.
    #[must_use]
    pub fn is_current(&self, connection: Connected) -> bool {
        self.connected == Some(connection)
    }

    /// Whether a stored observation says that its generation is ready for dispatch now.
    #[must_use]
    pub fn is_ready(&self, observed: Connected, state: &ObservedState<'_>, current: OwnerEpoch) -> bool {
        self.is_online(current) && self.is_current(observed) && matches!(state, ObservedState::Ready { .. })
    }

    /// The checkpoint declaration that may be used now: only of a generation that is ready (wire §5.7).
    #[must_use]
    pub fn checkpoint<'o, 'a>(
        &self,
        observed: Connected,
        state: &'o ObservedState<'a>,
        current: OwnerEpoch,
    ) -> Option<&'o Checkpoint<'a>> {
        match state {
            ObservedState::Ready { checkpoint } if self.is_ready(observed, state, current) => checkpoint.as_ref(),
            ObservedState::Ready { .. } | ObservedState::Preparing { .. } | ObservedState::Failed { .. } => None,
        }
    }
}

/// The serving pin after a report: raised to the current target when that is ready, never lowered.
#[must_use]
pub fn promoted(pin: Option<Generation>, target: Generation, report: &[Observation<'_>]) -> Option<Generation> {
    let ready = report.iter().any(|observation| {
        observation.generation == target && matches!(observation.state, ObservedState::Ready { .. })
    });
    if ready && pin.is_none_or(|pin| pin < target) { Some(target) } else { pin }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::units::Digest;

    const CONNECTION: Id = Id::from_random([3; 16]);

    fn epoch(value: u64) -> OwnerEpoch {
        OwnerEpoch::new(value).expect("positive")
    }

    fn generation(value: u64) -> Generation {
        Generation::new(value).expect("positive")
    }

    fn connected(value: u64) -> Connected {
        Connected { connection_id: CONNECTION, owner_epoch: epoch(value) }
    }

    fn presence(age: u64) -> Presence {
        Presence {
            connected: Some(connected(2)),
            last_epoch: Some(epoch(2)),
            heartbeat_age_ms: Some(age),
            removed: false,
        }
    }

    fn report(value: u64, state: ObservedState<'static>) -> Observation<'static> {
        Observation { generation: generation(value), specification_digest: Digest::of(b"specification"), state }
    }

    /// W 205. Online ends exactly when the heartbeat is 45 s old.
    #[test]
    fn node_is_offline_exactly_at_45_seconds() {
        assert!(presence(44_999).is_online(epoch(2)));
        assert!(!presence(45_000).is_online(epoch(2)));
        assert!(!presence(45_001).is_online(epoch(2)));
    }

    /// W 37. A newer epoch fences the presence of the older one.
    #[test]
    fn presence_of_another_epoch_is_offline() {
        assert!(!presence(0).is_online(epoch(3)));
        assert!(!Presence { connected: None, ..presence(0) }.is_online(epoch(2)));
        assert!(!Presence { removed: true, ..presence(0) }.is_online(epoch(2)));
    }

    #[test]
    fn connect_is_refused_below_the_stored_or_beside_the_current_epoch() {
        assert!(presence(0).accepts(epoch(2), epoch(2)));
        assert!(presence(0).accepts(epoch(3), epoch(3)));
        assert!(!presence(0).accepts(epoch(2), epoch(3)), "core moved on");
        assert!(!presence(0).accepts(epoch(1), epoch(1)), "the node saw a higher epoch");
    }

    /// W 54. A late disconnect does not speak for the next connection.
    #[test]
    fn disconnect_speaks_only_for_its_own_connection_and_epoch() {
        let other = Connected { connection_id: Id::from_random([4; 16]), owner_epoch: epoch(2) };
        assert!(presence(0).is_current(connected(2)));
        assert!(!presence(0).is_current(connected(1)));
        assert!(!presence(0).is_current(other));
    }

    #[test]
    fn observation_of_an_earlier_connection_is_not_ready() {
        let ready = ObservedState::Ready { checkpoint: None };
        assert!(presence(0).is_ready(connected(2), &ready, epoch(2)));
        assert!(!presence(0).is_ready(connected(1), &ready, epoch(2)));
        assert!(!presence(0).is_ready(connected(2), &ObservedState::Preparing { diagnostic: None }, epoch(2)));
        assert!(!presence(45_000).is_ready(connected(2), &ready, epoch(2)));
    }

    #[test]
    fn checkpoint_is_used_only_while_ready() {
        let tokens = Checkpoint { artifact_domain: "a".into(), execution_class: "b".into() };
        let ready = ObservedState::Ready { checkpoint: Some(tokens.clone()) };
        assert_eq!(presence(0).checkpoint(connected(2), &ready, epoch(2)), Some(&tokens));
        assert_eq!(presence(45_000).checkpoint(connected(2), &ready, epoch(2)), None);
    }

    #[test]
    fn pin_rises_only_with_a_ready_current_target() {
        let ready = || ObservedState::Ready { checkpoint: None };
        assert_eq!(promoted(None, generation(3), &[report(3, ready())]), Some(generation(3)));
        assert_eq!(promoted(Some(generation(2)), generation(3), &[report(2, ready())]), Some(generation(2)));
        let failed = ObservedState::Failed { diagnostic: None };
        assert_eq!(promoted(Some(generation(2)), generation(3), &[report(3, failed)]), Some(generation(2)));
        assert_eq!(promoted(Some(generation(4)), generation(3), &[report(3, ready())]), Some(generation(4)));
    }

    proptest! {
        /// No report lowers or clears a pin.
        #[test]
        fn pin_never_falls(pin in 1_u64..9, target in 1_u64..9, reported in prop::collection::vec((1_u64..9, any::<bool>()), 0..8)) {
            let report: Vec<_> = reported.into_iter().map(|(value, ready)| {
                let state = if ready { ObservedState::Ready { checkpoint: None } } else { ObservedState::Preparing { diagnostic: None } };
                report(value, state)
            }).collect();
            let after = promoted(Some(generation(pin)), generation(target), &report).expect("kept");
            prop_assert!(after >= generation(pin));
            prop_assert!(after == generation(pin) || after == generation(target));
        }
    }
}
