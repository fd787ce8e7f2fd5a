//! The schedule of node-host §4.4, rule by rule.

use rstest::rstest;

use super::*;
use crate::limits::PREPARATION_TIMEOUT_MS;

/// Takes the next task, which must be the preparation of `number`.
fn preparing(table: &mut Table, now: Millis, number: u64) {
    assert_eq!(table.poll_task(now), Some(Task::Prepare(reference(number))));
}

fn fail(table: &mut Table, now: Millis, number: u64) {
    table.handle_prepared(now, generation(number), Err(Diagnostic::RuntimeDownloadFailed));
}

/// A table in which all of these wait for their preparation.
fn recovering(numbers: impl IntoIterator<Item = u64>) -> Table {
    Table::new(numbers.into_iter().map(|number| (reference(number), Found::Recovery)))
}

/// H 162. The target is prepared first, the serving pin second, the others ascending; each failure makes room for the
/// next, also when an earlier one could be tried again.
#[test]
fn target_then_serving_pin_then_the_others_from_a_rotating_cursor() {
    let mut table = recovering(1..=5);
    table.announce(deployment(5, Some(3))).unwrap();
    let mut now = Millis(0);
    for number in [5, 3, 1, 2, 4] {
        preparing(&mut table, now, number);
        fail(&mut table, now, number);
    }
    assert_eq!(table.poll_task(now), None);
    now = now.after(60_000);
    for number in [5, 3, 1, 2] {
        preparing(&mut table, now, number);
        fail(&mut table, now, number);
    }
    now = now.after(120_000);
    for number in [5, 3, 4, 1, 2] {
        preparing(&mut table, now, number);
        fail(&mut table, now, number);
    }
}

/// Success ends the back-off: the next failure waits one minute again.
#[test]
fn a_success_resets_the_back_off() {
    let mut table = recovering([1]);
    table.announce(deployment(1, None)).unwrap();
    let mut now = Millis(0);
    for minutes in [1, 2, 5] {
        preparing(&mut table, now, 1);
        fail(&mut table, now, 1);
        now = now.after(minutes * 60_000);
    }
    preparing(&mut table, now, 1);
    table.handle_prepared(now, generation(1), Ok(declaration()));
    assert_eq!(table.poll_task(now), Some(Task::Probe(generation(1))));
    table.handle_probed(generation(1), Probed::NotReady(Diagnostic::RuntimeImageUnavailable));
    preparing(&mut table, now, 1);
    fail(&mut table, now, 1);
    assert_eq!(table.poll_task(now.after(59_999)), None, "an even tick, and nothing but the target");
    preparing(&mut table, now.after(60_000), 1);
}

/// An attempt that takes half an hour is cancelled, once, and counts as a failure.
#[test]
fn a_preparation_has_half_an_hour() {
    let mut table = recovering([1, 2]);
    table.announce(deployment(2, None)).unwrap();
    preparing(&mut table, Millis(5), 2);
    let end = Millis(5 + PREPARATION_TIMEOUT_MS);
    assert_eq!(table.poll_timeout(), Some((end, Wake::Deadline)));
    assert_eq!(table.poll_task(Millis(end.0 - 1)), None);
    assert_eq!(table.poll_task(end), Some(Task::CancelPreparation(generation(2))));
    assert_eq!((table.poll_task(end), table.poll_timeout()), (None, None), "it has not ended yet");
    fail(&mut table, end, 2);
    assert_eq!(state(&mut table, 2), Some(failed(Diagnostic::ProviderUnavailable)));
    preparing(&mut table, end, 1);
    fail(&mut table, end, 1);
    assert_eq!(table.poll_timeout(), Some((end.after(60_000), Wake::Prepare)));
}

/// W 87. A cancelled attempt is `provider_unavailable`, whatever its end says, and waits like any failure.
#[test]
fn a_cancelled_preparation_counts_as_a_failure_of_its_own_class() {
    for asked in [false, true] {
        let mut table = recovering([1]);
        table.announce(deployment(1, None)).unwrap();
        preparing(&mut table, Millis(0), 1);
        table.announce(deployment(2, None)).unwrap();
        if asked {
            assert_eq!(table.poll_task(Millis(0)), Some(Task::CancelPreparation(generation(1))));
        }
        fail(&mut table, Millis(0), 1);
        assert_eq!(state(&mut table, 1), Some(failed(Diagnostic::ProviderUnavailable)));
        preparing(&mut table, Millis(0), 2);
        fail(&mut table, Millis(0), 2);
        assert_eq!(table.poll_timeout(), Some((Millis(60_000), Wake::Prepare)));
    }
}

/// An attempt that ended well before its cancellation was heard of is a success.
#[test]
fn a_preparation_that_ended_well_is_not_undone_by_its_cancellation() {
    let mut table = recovering([1]);
    table.announce(deployment(1, None)).unwrap();
    preparing(&mut table, Millis(0), 1);
    table.announce(deployment(2, None)).unwrap();
    table.handle_prepared(Millis(0), generation(1), Ok(declaration()));
    assert_eq!(state(&mut table, 1), PREPARING);
    assert!(table.acquire(generation(1)));
}

/// The same target, and an older one, disturb nothing.
#[test]
fn only_a_new_target_cancels_a_preparation() {
    let mut table = recovering([1]);
    table.announce(deployment(2, Some(1))).unwrap();
    preparing(&mut table, Millis(0), 2);
    for again in [deployment(2, Some(1)), deployment(2, None), deployment(1, None)] {
        table.announce(again).unwrap();
        assert_eq!(table.poll_task(Millis(0)), None);
    }
}

/// An attempt for what becomes the target goes on.
#[test]
fn a_preparation_of_the_new_target_goes_on() {
    let mut table = recovering([3]);
    table.announce(deployment(2, None)).unwrap();
    preparing(&mut table, Millis(0), 2);
    fail(&mut table, Millis(0), 2);
    preparing(&mut table, Millis(0), 3);
    table.announce(deployment(3, None)).unwrap();
    assert_eq!(table.poll_task(Millis(0)), None);
}

/// While it is prepared a generation counts as held: nobody acquires, probes or drops it.
#[test]
fn a_generation_in_preparation_is_not_used() {
    let mut table = loaded([1]);
    table.announce(deployment(2, None)).unwrap();
    preparing(&mut table, Millis(0), 2);
    fail(&mut table, Millis(0), 2);
    assert_eq!(table.poll_task(Millis(0)), Some(Task::Probe(generation(1))));
    table.handle_probed(generation(1), Probed::NotReady(Diagnostic::MicrosandboxArtifactsUnavailable));
    preparing(&mut table, Millis(0), 1);
    assert!(!table.acquire(generation(1)) && !table.is_ready(generation(1)));
    assert_eq!(table.declaration(generation(1)), None);
    assert_eq!(table.drop_granted(reference(1)), Drop::Busy);
    assert_eq!(table.poll_task(Millis(9_000)), None);
}

/// Which classes bring files back, and which do not.
#[rstest]
#[case(Diagnostic::RuntimeImageUnavailable, true)]
#[case(Diagnostic::MicrosandboxArtifactsUnavailable, true)]
#[case(Diagnostic::ProviderUnavailable, false)]
#[case(Diagnostic::DockerUnavailable, false)]
#[case(Diagnostic::DockerLimitsUnsupported, false)]
#[case(Diagnostic::RuntimeDownloadFailed, false)]
#[case(Diagnostic::KvmUnavailable, false)]
#[case(Diagnostic::CapacityInsufficient, false)]
fn a_missing_image_or_artifact_queues_a_repair(#[case] diagnostic: Diagnostic, #[case] repairs: bool) {
    let mut table = loaded([1]);
    table.announce(deployment(1, None)).unwrap();
    assert_eq!(table.poll_task(Millis(0)), Some(Task::Probe(generation(1))));
    table.handle_probed(generation(1), Probed::NotReady(diagnostic));
    assert_eq!(state(&mut table, 1), Some(failed(diagnostic)));
    assert_eq!(table.poll_task(Millis(0)), repairs.then_some(Task::Prepare(reference(1))));
}

/// A repair that was queued stays so, whatever class a later probe fails with.
#[test]
fn a_queued_repair_outlasts_other_failures() {
    let mut table = loaded([1]);
    table.announce(deployment(1, None)).unwrap();
    assert!(table.acquire(generation(1)), "what is held is not repaired yet");
    for (now, diagnostic) in [(0, Diagnostic::RuntimeImageUnavailable), (2_000, Diagnostic::DockerUnavailable)] {
        assert_eq!(table.poll_task(Millis(now)), Some(Task::Probe(generation(1))));
        table.handle_probed(generation(1), Probed::NotReady(diagnostic));
        assert_eq!(table.poll_task(Millis(now + 1_000)), None, "an even tick, and nothing but the target");
    }
    table.release(generation(1));
    preparing(&mut table, Millis(3_000), 1);
}

/// A probe that succeeds after all takes the queued repair back.
#[test]
fn a_ready_generation_is_not_repaired() {
    let mut table = loaded([1]);
    table.announce(deployment(1, None)).unwrap();
    assert!(table.acquire(generation(1)), "what is held is not repaired yet");
    assert_eq!(table.poll_task(Millis(0)), Some(Task::Probe(generation(1))));
    table.handle_probed(generation(1), Probed::NotReady(Diagnostic::RuntimeImageUnavailable));
    assert_eq!(table.poll_task(Millis(1_000)), None, "an even tick, and nothing but the target");
    assert_eq!(table.poll_task(Millis(2_000)), Some(Task::Probe(generation(1))));
    table.handle_probed(generation(1), Probed::Ready(None));
    table.release(generation(1));
    assert_eq!(table.poll_task(Millis(2_000)), None);
}

/// Without a serving pin both odd ticks are the target's; without a probable pin they are everybody's.
#[test]
fn odd_ticks_go_to_the_target_alone_or_to_the_rest() {
    let mut table = loaded(1..=3);
    table.announce(deployment(3, None)).unwrap();
    let order: Vec<_> = (0..8).map(|tick| probe(&mut table, tick * 1_000).get()).collect();
    assert_eq!(order, [3, 1, 3, 2, 3, 1, 3, 2]);
    let mut table = loaded(1..=3);
    table.announce(deployment(4, Some(4))).unwrap();
    preparing(&mut table, Millis(0), 4);
    let order: Vec<_> = (0..6).map(|tick| probe(&mut table, tick * 1_000).get()).collect();
    assert_eq!(order, [1, 2, 3, 1, 2, 3]);
}

/// Everything local is probed before anything was announced: readiness does not wait for Core.
#[test]
fn probes_do_not_wait_for_an_announcement() {
    let mut table = loaded(1..=3);
    let order: Vec<_> = (0..6).map(|tick| probe(&mut table, tick * 1_000).get()).collect();
    assert_eq!(order, [1, 2, 3, 1, 2, 3]);
}

/// At most one probe starts in a second, whatever time the last one took.
#[test]
fn a_probe_starts_at_most_once_a_second() {
    let mut table = loaded([1, 2]);
    assert_eq!(table.poll_task(Millis(10)), Some(Task::Probe(generation(1))));
    table.handle_probed(generation(1), Probed::Cancelled);
    assert_eq!(table.poll_task(Millis(1_009)), None);
    assert_eq!(table.poll_task(Millis(1_010)), Some(Task::Probe(generation(2))));
    assert_eq!(table.poll_task(Millis(7_000)), None, "one at a time");
    table.handle_probed(generation(2), Probed::Cancelled);
    assert_eq!(table.poll_task(Millis(7_000)), Some(Task::Probe(generation(1))));
}

/// An end that nobody waits for changes nothing.
#[test]
fn ends_of_other_work_are_ignored() {
    let mut table = loaded([1, 2]);
    table.announce(deployment(3, None)).unwrap();
    let before = table.clone();
    table.handle_probed(generation(1), Probed::Ready(None));
    table.handle_prepared(Millis(0), generation(1), Ok(checkpointing()));
    table.handle_removed(generation(1), true);
    table.handle_removed(generation(9), true);
    assert_eq!(table, before);
    assert_eq!(table.poll_task(Millis(0)), Some(Task::Prepare(reference(3))));
    let running = table.clone();
    table.handle_prepared(Millis(0), generation(2), Err(Diagnostic::KvmUnavailable));
    assert_eq!(table, running);
}

/// W 188. Decision 26. A checkpoint declaration of a provider without checkpoints, or with tokens that no frame can
/// carry, is left out; the generation is ready all the same.
#[test]
fn a_checkpoint_declaration_is_passed_on_only_when_it_can_be_meant() {
    let tokens = |domain: &str, class: &str| Checkpoint {
        artifact_domain: domain.to_owned().into(),
        execution_class: class.to_owned().into(),
    };
    let observed = |provider: Declaration, checkpoint| {
        let mut table = found(1, Found::Provider(provider));
        assert_eq!(table.poll_task(Millis(0)), Some(Task::Probe(generation(1))));
        table.handle_probed(generation(1), Probed::Ready(Some(checkpoint)));
        state(&mut table, 1)
    };
    let longest = "x".repeat(256);
    let good = tokens(&longest, "b");
    assert_eq!(observed(checkpointing(), good.clone()), Some(ObservedState::Ready { checkpoint: Some(good.clone()) }));
    assert_eq!(observed(declaration(), good), READY);
    for bad in
        [tokens("", "b"), tokens("a", ""), tokens(&format!("{longest}x"), "b"), tokens("a", &format!("{longest}x"))]
    {
        assert_eq!(observed(checkpointing(), bad), READY);
    }
}

/// A declaration lasts as long as readiness: the first failed probe takes it back, and a later one brings the new one.
#[test]
fn a_checkpoint_declaration_ends_with_readiness() {
    let mut table = found(1, Found::Provider(checkpointing()));
    let checkpoint = |class: &'static str| Checkpoint { artifact_domain: "a".into(), execution_class: class.into() };
    let outcomes = [
        (Probed::Ready(Some(checkpoint("b"))), Some(ObservedState::Ready { checkpoint: Some(checkpoint("b")) })),
        (Probed::NotReady(Diagnostic::KvmUnavailable), Some(failed(Diagnostic::KvmUnavailable))),
        (Probed::Ready(Some(checkpoint("c"))), Some(ObservedState::Ready { checkpoint: Some(checkpoint("c")) })),
        (Probed::Ready(None), READY),
    ];
    for (tick, (outcome, expected)) in outcomes.into_iter().enumerate() {
        assert_eq!(table.poll_task(Millis(tick as u64 * 1_000)), Some(Task::Probe(generation(1))));
        table.handle_probed(generation(1), outcome);
        assert_eq!(state(&mut table, 1), expected);
    }
}

/// Collecting and removing generations are asked about and reported as wire §7.1 and §7.5 say, wherever they stand.
#[test]
fn unfinished_collections_are_asked_about_and_never_reported() {
    let kind = |number| if number % 2 == 0 { Found::Collecting } else { Found::Recovery };
    let mut table = Table::new((1..=20).map(|number| (reference(number), kind(number))));
    let (mut asked, mut cursor) = (Vec::new(), None);
    for _ in 0..3 {
        let candidates = table.candidates(cursor);
        assert_eq!(candidates.len(), 8);
        cursor = candidates.last().map(|reference| reference.generation);
        asked.extend(candidates.into_iter().map(|reference| reference.generation.get()));
    }
    assert_eq!(asked, (1..=20).chain(1..=4).collect::<Vec<_>>());
    let reported: Vec<_> = (0..2).flat_map(|_| table.observe()).map(|seen| seen.generation.get()).collect();
    assert_eq!(reported, [1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 1, 3, 5, 7, 9, 11]);
}

/// Decision 39. A target that cannot be prepared is observed as failed and asked about like any other.
#[test]
fn an_unpreparable_target_is_a_local_record() {
    let mut table = Table::default();
    table.announce(deployment(1, None)).unwrap();
    preparing(&mut table, Millis(0), 1);
    fail(&mut table, Millis(0), 1);
    assert_eq!(table.candidates(None), [reference(1)]);
    assert_eq!(state(&mut table, 1), Some(failed(Diagnostic::RuntimeDownloadFailed)));
    assert_eq!(table.drop_granted(reference(1)), Drop::Busy, "it is the target");
    table.announce(deployment(2, None)).unwrap();
    assert_eq!(table.drop_granted(reference(1)), Drop::Remove);
}

/// Node-host §3.2, §3.6. Both need the one lock of the installation. Side by side, a preparation would fail and wait a
/// minute for a removal of moments, and a removal would fail at every heartbeat of a long download.
#[test]
fn a_preparation_and_a_removal_take_turns() {
    let mut table = loaded([1, 2]);
    table.announce(deployment(2, Some(2))).unwrap();
    assert_eq!(table.drop_granted(reference(1)), Drop::Remove);
    table.announce(deployment(3, Some(2))).unwrap();
    let probe_alone = table.poll_task(Millis(0));
    assert_eq!(probe_alone, Some(Task::Probe(generation(2))), "the removal runs");
    table.handle_probed(generation(2), Probed::Ready(None));
    assert!(matches!(table.poll_timeout(), Some((_, Wake::Probe))));
    table.handle_removed(generation(1), false);
    preparing(&mut table, Millis(0), 3);
    assert_eq!(table.drop_granted(reference(1)), Drop::Busy, "the preparation runs");
    fail(&mut table, Millis(0), 3);
    assert_eq!(table.drop_granted(reference(1)), Drop::Remove);
}
