use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::testing::{digest, epoch, generation, observation, ready, reference};
use crate::wire::payload::Diagnostic;

const NOW: Timestamp = Timestamp(1_000_000);
const INSTALLATION: Id = Id::from_random([1; 16]);

fn by(connection: u8, of: u64) -> Connected {
    Connected { connection_id: Id::from_random([connection; 16]), owner_epoch: epoch(of) }
}

/// Core at this epoch, with generations 1 to 4 and target 3.
fn authority(current: u64) -> Authority {
    Authority {
        installation: Some(INSTALLATION),
        owner_epoch: OwnerEpoch::new(current),
        target: Some(generation(3)),
        digests: (1..=4).map(|number| (generation(number), digest(number))).collect(),
    }
}

/// A node that connection 9 of epoch 7 is current for.
fn connected() -> Standing {
    let mut node = Standing::enrolled(INSTALLATION);
    node.apply(Change::Connected(by(9, 7), NOW));
    node
}

fn apply(node: &mut Standing, changes: Vec<Change>) {
    for change in changes {
        node.apply(change);
    }
}

fn reported(node: &mut Standing, observations: &[Observation<'_>], now: Timestamp) {
    let recorded = record(&authority(7), node, by(9, 7), observations, now).expect("current");
    apply(node, recorded.changes);
}

#[test]
fn only_the_current_epoch_of_its_installation_connects() {
    let node = Standing::enrolled(INSTALLATION);
    assert_eq!(connect(&authority(7), &node, by(1, 7), NOW), Ok(Change::Connected(by(1, 7), NOW)));
    assert_eq!(connect(&authority(7), &node, by(1, 6), NOW), Err(Refused::Fenced(epoch(6))));
    assert_eq!(connect(&authority(7), &node, by(1, 8), NOW), Err(Refused::Fenced(epoch(8))));
    assert_eq!(connect(&authority(0), &node, by(1, 1), NOW), Err(Refused::Fenced(epoch(1))), "no owner yet");
    let foreign = Authority { installation: Some(Id::from_random([2; 16])), ..authority(7) };
    assert_eq!(connect(&foreign, &node, by(1, 7), NOW), Err(Refused::Foreign));
    let unclaimed = Authority { installation: None, ..authority(7) };
    assert_eq!(connect(&unclaimed, &node, by(1, 7), NOW), Err(Refused::Foreign));
    let ahead = Standing { epoch: Some(epoch(8)), ..node };
    assert_eq!(connect(&authority(7), &ahead, by(1, 7), NOW), Err(Refused::LowerEpoch(epoch(8))));
}

/// E26. A process that lost its lease records nothing, whatever it calls and whichever connection it speaks for; it may
/// only end what is its own.
#[test]
fn a_lost_lease_records_nothing_in_the_transaction_that_would_record() {
    let node = connected();
    assert_eq!(fence(OwnerEpoch::new(7), epoch(7)), Ok(()));
    for current in [0, 6, 8] {
        let fenced = Refused::Fenced(epoch(7));
        let authority = authority(current);
        assert_eq!(fence(authority.owner_epoch, epoch(7)), Err(fenced));
        assert_eq!(connect(&authority, &node, by(1, 7), NOW), Err(fenced));
        assert_eq!(record(&authority, &node, by(9, 7), &[ready(3)], NOW), Err(fenced));
        assert_eq!(retain(&authority, &node, by(9, 7), &[reference(4)]), Err(fenced));
        assert!(!node.is_online(authority.owner_epoch, NOW));
    }
    assert_eq!(disconnect(&node, by(9, 7)), Some(Change::Disconnected));
}

/// W 54. A connection that was replaced, or ended, changes nothing any more.
#[test]
fn a_stale_connection_changes_nothing() {
    let mut node = connected();
    let replaced = by(9, 7);
    node.apply(connect(&authority(7), &node, by(10, 7), NOW).expect("a newer connection replaces"));
    assert_eq!(record(&authority(7), &node, replaced, &[], NOW), Err(Refused::Stale));
    assert_eq!(retain(&authority(7), &node, replaced, &[reference(4)]), Err(Refused::Stale));
    assert_eq!(disconnect(&node, replaced), None);
    assert_eq!(disconnect(&node, by(10, 6)), None, "the epoch is part of the name");
    node.apply(disconnect(&node, by(10, 7)).expect("the current one"));
    assert_eq!((node.connection, node.epoch), (None, Some(epoch(7))));
    assert_eq!(record(&authority(7), &node, by(10, 7), &[], NOW), Err(Refused::Stale));
}

/// D 81. A foreign digest of a kept generation refuses the whole report; a generation that is not kept is skipped.
#[test]
fn a_report_is_recorded_completely_or_not_at_all() {
    let node = connected();
    let foreign = Observation { specification_digest: digest(9), ..ready(3) };
    let report = |observations: &[Observation<'_>]| record(&authority(7), &node, by(9, 7), observations, NOW);
    assert_eq!(report(&[ready(4), foreign.clone()]), Err(Refused::Mismatch(generation(3))));
    let recorded = report(&[ready(4), ready(3)]).expect("generation 4 is not kept");
    assert_eq!(recorded.kept, [generation(3)]);
    let status = Status { by: by(9, 7), said: ready(3) };
    let changes = [Change::Heard(NOW), Change::Observed(status), Change::Pinned(generation(3))];
    assert_eq!(recorded.changes, changes);
    let lost = Authority { digests: BTreeMap::new(), ..authority(7) };
    assert_eq!(record(&lost, &node, by(9, 7), &[ready(3)], NOW), Err(Refused::Mismatch(generation(3))));
}

/// D 83. The pin only rises, only to the current target, only when that is reported ready.
#[test]
fn a_pin_only_rises_to_a_ready_target() {
    let pinned = |pin: Option<u64>, observed: Observation<'static>| {
        let mut node = Standing { pin: pin.map(generation), held: (1..=4).map(generation).collect(), ..connected() };
        reported(&mut node, &[observed], NOW);
        node.pin.map(Generation::get)
    };
    assert_eq!(pinned(Some(2), ready(3)), Some(3));
    assert_eq!(pinned(None, ready(3)), Some(3));
    assert_eq!(pinned(Some(2), observation(3, ObservedState::Failed { diagnostic: None })), Some(2));
    assert_eq!(pinned(Some(2), observation(3, ObservedState::Preparing { diagnostic: None })), Some(2));
    assert_eq!(pinned(Some(2), ready(1)), Some(2));
    assert_eq!(pinned(Some(2), ready(4)), Some(2), "not the target");
    assert_eq!(pinned(Some(4), ready(3)), Some(4), "never lowered");
}

/// D 84. A target, a pin and a held sandbox each keep a generation, nothing else does; what is not kept is forgotten.
#[test]
fn retention_keeps_target_pin_and_sandboxes_in_the_order_asked() {
    let mut node = Standing { pin: Some(generation(2)), held: BTreeSet::from([generation(1)]), ..connected() };
    let asked = [4, 2, 1, 3].map(reference);
    let retained = retain(&authority(7), &node, by(9, 7), &asked).expect("current");
    let kept: Vec<_> = retained.retentions.iter().map(|entry| (entry.reference, entry.keep)).collect();
    assert_eq!(kept, [(asked[0], false), (asked[1], true), (asked[2], true), (asked[3], true)]);
    assert_eq!(retained.changes, [Change::Forgotten(generation(4))]);
    assert_eq!(retained.deployment.serving_generation, Some(generation(2)));
    let foreign = GenerationReference { specification_digest: digest(9), ..reference(1) };
    let refused = retain(&authority(7), &node, by(9, 7), &[reference(4), foreign]);
    assert_eq!(refused, Err(Refused::Mismatch(generation(1))));
    (node.pin, node.held) = (None, BTreeSet::new());
    assert!(!authority(7).needs(&node, generation(2)) && !authority(7).needs(&node, generation(1)));
}

/// Without a selection, or without its specification, nothing is announced, and so nothing is dropped.
#[test]
fn nothing_is_answered_while_nothing_is_selected() {
    let node = connected();
    for authority in
        [Authority { target: None, ..authority(7) }, Authority { digests: BTreeMap::new(), ..authority(7) }]
    {
        assert_eq!(retain(&authority, &node, by(9, 7), &[reference(1)]), Err(Refused::Unconfigured));
        assert_eq!(announce(&authority, &node), Err(Refused::Unconfigured));
    }
}

/// W 205. Offline exactly when the last report is 45 s old, whatever the socket does.
/// E11. A clock of the store that jumps back makes nobody look alive for longer than that.
#[test]
fn presence_is_a_matter_of_age_in_both_directions() {
    let mut node = connected();
    let online = |node: &Standing, seen: i64| {
        Standing { last_seen_at: Some(Timestamp(NOW.0 + seen)), ..node.clone() }.is_online(OwnerEpoch::new(7), NOW)
    };
    assert!(online(&node, 0) && online(&node, -44_999) && online(&node, 44_999));
    assert!(!online(&node, -45_000) && !online(&node, 45_000));
    assert!(!node.is_online(OwnerEpoch::new(8), NOW) && !node.is_online(None, NOW));
    node.apply(Change::Disconnected);
    assert!(!online(&node, 0));
    assert!(!Standing { last_seen_at: None, ..connected() }.is_online(OwnerEpoch::new(7), NOW));
}

/// An omitted generation keeps its state; a new connection or epoch begins with none.
#[test]
fn readiness_belongs_to_one_connection_and_epoch() {
    let ready_now = |node: &Standing, current: u64| node.is_ready(generation(3), OwnerEpoch::new(current), NOW);
    let mut node = connected();
    reported(&mut node, &[ready(3)], NOW);
    reported(&mut node, &[], NOW);
    assert!(ready_now(&node, 7) && node.is_serving(OwnerEpoch::new(7), NOW));
    assert!(!ready_now(&node, 8), "epoch moved on");
    let mut next = node.clone();
    next.apply(connect(&authority(7), &node, by(10, 7), NOW).expect("free"));
    assert!(!ready_now(&next, 7) && !next.is_serving(OwnerEpoch::new(7), NOW));
    let mut later = node.clone();
    later.apply(connect(&authority(8), &node, by(9, 8), NOW).expect("free"));
    assert!(!ready_now(&later, 8), "the same connection number under another epoch is another connection");
    reported(&mut node, &[observation(3, ObservedState::Failed { diagnostic: Some(Diagnostic::KvmUnavailable) })], NOW);
    assert!(!ready_now(&node, 7) && node.pin == Some(generation(3)));
}

/// Compatibility tokens count while their generation is ready, and an observation without them withdraws them.
#[test]
fn a_checkpoint_declaration_lasts_as_long_as_readiness() {
    let tokens = Checkpoint { artifact_domain: "domain".into(), execution_class: "class".into() };
    let declared = |node: &Standing| node.checkpoint(generation(3), OwnerEpoch::new(7), NOW).cloned();
    let mut node = connected();
    reported(&mut node, &[observation(3, ObservedState::Ready { checkpoint: Some(tokens.clone()) })], NOW);
    assert_eq!(declared(&node), Some(tokens));
    let mut offline = node.clone();
    offline.apply(Change::Disconnected);
    assert_eq!(declared(&offline), None);
    reported(&mut node, &[ready(3)], NOW);
    assert_eq!(declared(&node), None);
}

/// One step of a Core process of some epoch, for some connection of it.
#[derive(Debug, Clone)]
enum Call {
    Claim,
    Connect(u64, u8),
    Record(u64, u8, u64, bool),
    Retain(u64, u8, u64),
    Disconnect(u64, u8),
    Target(u64),
}

fn call() -> impl Strategy<Value = Call> {
    let (epochs, connections, generations) = (1..4_u64, 1..4_u8, 1..5_u64);
    prop_oneof![
        1 => Just(Call::Claim),
        1 => (1..5_u64).prop_map(Call::Target),
        4 => (epochs.clone(), connections.clone()).prop_map(|(epoch, connection)| Call::Connect(epoch, connection)),
        4 => (epochs.clone(), connections.clone(), generations.clone(), any::<bool>())
            .prop_map(|(epoch, connection, of, ready)| Call::Record(epoch, connection, of, ready)),
        2 => (epochs.clone(), connections.clone(), generations)
            .prop_map(|(epoch, connection, of)| Call::Retain(epoch, connection, of)),
        2 => (epochs, connections).prop_map(|(epoch, connection)| Call::Disconnect(epoch, connection)),
    ]
}

proptest! {
    /// E26. Whatever several processes call in whatever order: only the owner of the moment changes anything but its own
    /// end, the highest epoch seen never falls, the pin never falls, and readiness is the current connection's word.
    #[test]
    fn every_history_of_several_owners_is_fenced(calls in prop::collection::vec(call(), 1..60)) {
        let (mut current, mut core, mut node) = (1_u64, authority(1), Standing::enrolled(INSTALLATION));
        let mut word: Option<(Connected, u64)> = None;
        for call in calls {
            let before = node.clone();
            let (acting, changes) = match call {
                Call::Claim => {
                    current += 1;
                    core.owner_epoch = OwnerEpoch::new(current);
                    continue;
                }
                Call::Target(target) => {
                    core.target = core.target.max(Some(generation(target)));
                    continue;
                }
                Call::Connect(of, connection) => {
                    (of, connect(&core, &node, by(connection, of), NOW).map(|change| vec![change]))
                }
                Call::Record(of, connection, about, is_ready) => {
                    let state = if is_ready { ready(about).state } else { ObservedState::Failed { diagnostic: None } };
                    let result = record(&core, &node, by(connection, of), &[observation(about, state)], NOW);
                    if result.as_ref().is_ok_and(|recorded| !recorded.kept.is_empty()) && core.target == Some(generation(about)) {
                        word = is_ready.then_some((by(connection, of), about));
                    }
                    (of, result.map(|recorded| recorded.changes))
                }
                Call::Retain(of, connection, about) => {
                    let result = retain(&core, &node, by(connection, of), &[reference(about)]);
                    if let Ok(retained) = &result {
                        let needed = core.target == Some(generation(about)) || node.pin == Some(generation(about));
                        prop_assert_eq!(retained.retentions[0].keep, needed);
                    }
                    (of, result.map(|retained| retained.changes))
                }
                Call::Disconnect(of, connection) => {
                    let (ending, ended) = (by(connection, of), disconnect(&node, by(connection, of)));
                    prop_assert_eq!(&ended, &before.is_current(ending).then_some(Change::Disconnected));
                    apply(&mut node, ended.into_iter().collect());
                    continue;
                }
            };
            if let Ok(changes) = changes {
                prop_assert_eq!(acting, current, "only the owner of the moment");
                apply(&mut node, changes);
            }
            prop_assert!(node.epoch >= before.epoch && node.pin >= before.pin);
            let target = core.target.expect("always selected here");
            if node.is_ready(target, core.owner_epoch, NOW) {
                let (speaker, about) = word.expect("somebody said so");
                prop_assert!(node.is_current(speaker) && about == target.get() && speaker.owner_epoch == epoch(current));
            }
        }
    }
}

/// A pin is recorded when it moves, not with every heartbeat of a node that serves.
#[test]
fn a_target_that_is_pinned_already_is_not_pinned_again() {
    let mut node = connected();
    reported(&mut node, &[ready(3)], NOW);
    let again = record(&authority(7), &node, by(9, 7), &[ready(3)], NOW).expect("current");
    assert!(!again.changes.contains(&Change::Pinned(generation(3))), "{again:?}");
}
