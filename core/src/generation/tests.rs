mod schedule;

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::operation::Support;
use crate::testing::{declaration, deployment, generation, reference};
use crate::units::Digest;
use crate::wire::payload::{Checkpoint, ObservedState};

fn checkpointing() -> Declaration {
    let unsupported = Support::Unsupported { reason: "no_preparation_cache".to_owned() };
    Declaration::of_groups(&Support::Supported, &Support::Supported, &unsupported).unwrap()
}

fn loaded(numbers: impl IntoIterator<Item = u64>) -> Table {
    Table::new(numbers.into_iter().map(|number| (reference(number), Found::Provider(declaration()))))
}

fn found(number: u64, found: Found) -> Table {
    Table::new([(reference(number), found)])
}

/// Probes once, at `now`, whatever is due, and lets it succeed.
fn probe(table: &mut Table, now: u64) -> Generation {
    match table.poll_task(Millis(now)) {
        Some(Task::Probe(generation)) => {
            table.handle_probed(generation, Probed::Ready(None));
            generation
        }
        other => panic!("expected a probe, got {other:?}"),
    }
}

fn state(table: &mut Table, number: u64) -> Option<ObservedState<'static>> {
    table.observe().into_iter().find(|seen| seen.generation == generation(number)).map(|seen| seen.state)
}

fn failed(diagnostic: Diagnostic) -> ObservedState<'static> {
    ObservedState::Failed { diagnostic: Some(diagnostic) }
}

const PREPARING: Option<ObservedState<'static>> = Some(ObservedState::Preparing { diagnostic: None });
const READY: Option<ObservedState<'static>> = Some(ObservedState::Ready { checkpoint: None });

/// H 162. Preparations that fail slowly wait behind all others, so that none of the others starves: neither behind a
/// target alone, nor behind a target and a serving pin that take turns.
#[test]
fn no_generation_starves_while_others_fail_slowly() {
    for (serving, expected) in [(None, [9, 1, 9, 2, 9, 3, 9, 4]), (Some(4), [9, 4, 1, 9, 4, 2, 9, 4])] {
        let mut table = Table::new((1..=4).map(|number| (reference(number), Found::Recovery)));
        table.announce(deployment(9, serving)).unwrap();
        let mut now = Millis(0);
        let mut order = Vec::new();
        for _ in 0..8 {
            let Some(Task::Prepare(reference)) = table.poll_task(now) else { panic!("nothing else is to be done") };
            order.push(reference.generation.get());
            now = now.after(1_799_999);
            table.handle_prepared(now, reference.generation, Err(Diagnostic::DockerUnavailable));
            now = now.after(1);
        }
        assert_eq!(order, expected);
    }
}

/// A new target is prepared at once, whoever waited through the attempts of the last one.
#[test]
fn a_new_target_never_waits_for_the_turn_of_another() {
    let mut table = Table::new((1..=3).map(|number| (reference(number), Found::Recovery)));
    table.announce(deployment(3, Some(2))).unwrap();
    for number in [3, 2] {
        assert_eq!(table.poll_task(Millis(0)), Some(Task::Prepare(reference(number))));
        table.handle_prepared(Millis(0), generation(number), Err(Diagnostic::ProviderUnavailable));
    }
    table.announce(deployment(4, Some(2))).unwrap();
    assert_eq!(table.poll_task(Millis(0)), Some(Task::Prepare(reference(4))));
}

/// H 163. W 82. A known number with another digest is refused, as the target and as a local record, and changes nothing.
#[test]
fn a_conflicting_digest_is_refused_and_changes_nothing() {
    let foreign = Deployment { specification_digest: Digest::of(b"other"), ..deployment(3, None) };
    let mut announced = Table::default();
    announced.announce(deployment(3, None)).unwrap();
    let mut local = loaded([3]);
    for table in [&mut announced, &mut local] {
        let before = format!("{table:?}");
        assert_eq!(table.announce(foreign), Err(Refusal::DigestChanged(generation(3))));
        assert_eq!(format!("{table:?}"), before);
    }
}

/// W 83. A serving pin above the target is refused, even beside an old target.
#[test]
fn a_serving_pin_above_the_target_is_refused() {
    let mut table = loaded([1]);
    let refusal = Refusal::ServingAboveTarget { serving: generation(3), target: generation(2) };
    assert_eq!(table.announce(deployment(2, Some(3))), Err(refusal));
    assert_eq!(table.announced(), None);
}

#[test]
fn an_older_target_is_ignored() {
    let mut table = loaded([1, 5]);
    table.announce(deployment(5, Some(1))).unwrap();
    table.announce(deployment(4, None)).unwrap();
    assert_eq!(table.announced(), Some(deployment(5, Some(1))));
}

#[test]
fn a_target_or_pin_that_is_being_collected_is_refused() {
    let mut table = found(2, Found::Collecting);
    assert_eq!(table.announce(deployment(2, None)), Err(Refusal::Collected(generation(2))));
    assert_eq!(table.announce(deployment(4, Some(2))), Err(Refusal::Collected(generation(2))));
}

/// H 158. W 76. With 17 generations a frame carries at most 8 observations, the target and the serving pin included.
/// W 79. For 9, 17 and 257 generations every batch has at most 8 entries, target first, serving pin second.
/// W 80. Within as many batches as generations every one is observed, and every one is asked about.
/// W 81. Rotation removes nothing.
#[test]
fn every_generation_is_observed_and_asked_about_in_turn() {
    for count in [9, 17, 257] {
        let mut table = loaded(1..=count);
        table.announce(deployment(count, Some(1))).unwrap();
        let (mut observed, mut asked, mut cursor) = (BTreeSet::new(), BTreeSet::new(), None);
        for _ in 0..count {
            let batch: Vec<_> = table.observe().into_iter().map(|seen| seen.generation).collect();
            assert!(batch.len() <= 8);
            assert_eq!(batch[..2], [generation(count), generation(1)]);
            observed.extend(batch);
            let candidates = table.candidates(cursor);
            assert!(candidates.len() <= 8);
            cursor = candidates.last().map(|reference| reference.generation);
            asked.extend(candidates.into_iter().map(|reference| reference.generation));
        }
        assert_eq!(observed.len() as u64, count);
        assert_eq!(asked, observed);
        assert_eq!(table.records.len() as u64, count);
    }
}

/// W 84. After a restart the generation whose files are missing is asked for, exactly, before anything else.
/// W 85. It becomes usable only by files and then a successful probe.
/// W 86. A drop grant during the repair is refused.
#[test]
fn a_missing_generation_is_repaired_and_proved_before_it_is_ready() {
    let mut table = Table::new([(reference(1), Found::Recovery), (reference(2), Found::Provider(declaration()))]);
    assert_eq!(state(&mut table, 1), Some(failed(Diagnostic::ProviderUnavailable)));
    table.announce(deployment(2, Some(2))).unwrap();
    assert_eq!(table.poll_task(Millis(0)), Some(Task::Prepare(reference(1))));
    assert_eq!(state(&mut table, 1), PREPARING);
    assert!(!table.acquire(generation(1)));
    assert_eq!(table.drop_granted(reference(1)), Drop::Busy);
    table.handle_prepared(Millis(1), generation(1), Ok(declaration()));
    assert_eq!(state(&mut table, 1), PREPARING);
    assert!(!table.is_ready(generation(1)));
    assert_eq!(probe(&mut table, 0), generation(2));
    assert_eq!(probe(&mut table, 1_000), generation(1));
    assert_eq!(state(&mut table, 1), READY);
    assert!(table.is_ready(generation(1)) && table.acquire(generation(1)));
}

/// H 165. W 87. A failed preparation reports the class of its cause; cancellation is `provider_unavailable` by its caller's word.
#[test]
fn a_failed_preparation_reports_its_class_and_backs_off() {
    let mut table = Table::default();
    table.announce(deployment(1, None)).unwrap();
    assert_eq!(state(&mut table, 1), PREPARING);
    let mut now = Millis(7);
    for minutes in [1, 2, 5, 10, 30, 30] {
        assert_eq!(table.poll_task(now), Some(Task::Prepare(reference(1))));
        table.handle_prepared(now, generation(1), Err(Diagnostic::RuntimeDownloadFailed));
        assert_eq!(state(&mut table, 1), Some(failed(Diagnostic::RuntimeDownloadFailed)));
        let retry = now.after(minutes * 60_000);
        assert_eq!(table.poll_timeout(), Some((retry, Wake::Prepare)));
        assert_eq!(table.poll_task(Millis(retry.0 - 1)), None);
        now = retry;
    }
}

#[test]
fn nothing_is_prepared_before_the_first_announcement() {
    let mut table = found(1, Found::Recovery);
    assert_eq!((table.poll_task(Millis(0)), table.poll_timeout()), (None, None));
    table.announce(deployment(2, None)).unwrap();
    assert_eq!(table.poll_task(Millis(0)), Some(Task::Prepare(reference(2))));
    assert_eq!(table.poll_task(Millis(0)), None, "one preparation at a time");
    table.handle_prepared(Millis(0), generation(2), Err(Diagnostic::ProviderUnavailable));
    assert_eq!(table.poll_task(Millis(0)), Some(Task::Prepare(reference(1))));
}

#[test]
fn a_new_target_cancels_the_running_preparation_once() {
    let mut table = Table::default();
    table.announce(deployment(1, None)).unwrap();
    assert_eq!(table.poll_task(Millis(0)), Some(Task::Prepare(reference(1))));
    table.announce(deployment(2, None)).unwrap();
    assert_eq!(table.poll_task(Millis(0)), Some(Task::CancelPreparation(generation(1))));
    table.announce(deployment(3, None)).unwrap();
    assert_eq!(table.poll_task(Millis(0)), None, "the cancelled one has not ended yet");
    table.handle_prepared(Millis(0), generation(1), Err(Diagnostic::ProviderUnavailable));
    assert_eq!(table.poll_task(Millis(0)), Some(Task::Prepare(reference(3))));
}

/// W 88. An unfinished collection is never prepared, probed, acquired or observed, but it is asked about.
/// W 89. Only a new grant moves it on.
/// W 90. A removal that fails leaves it unusable; the next grant finishes it.
#[test]
fn an_unfinished_collection_only_waits_for_a_grant() {
    let mut table = found(1, Found::Collecting);
    table.announce(deployment(2, None)).unwrap();
    table.handle_prepared(Millis(0), generation(1), Ok(declaration()));
    assert_eq!(table.poll_task(Millis(0)), Some(Task::Prepare(reference(2))));
    table.handle_prepared(Millis(0), generation(2), Err(Diagnostic::ProviderUnavailable));
    assert_eq!(table.poll_task(Millis(1)), None);
    assert!(!table.acquire(generation(1)));
    assert_eq!(state(&mut table, 1), None);
    assert_eq!(table.candidates(None), [reference(1), reference(2)]);
    for finished in [false, true] {
        assert_eq!(table.drop_granted(reference(1)), Drop::Remove);
        assert_eq!(table.candidates(None), [reference(2)], "not asked about while the removal runs");
        assert_eq!(table.drop_granted(reference(1)), Drop::Busy);
        table.handle_removed(generation(1), finished);
    }
    assert_eq!(table.drop_granted(reference(1)), Drop::Unknown);
}

/// H 160. W 99. A drop grant is refused while a reference is held.
/// W 100. It stays refused while a helper lives, whoever gave up on it.
/// W 101. It succeeds after the helper really exited.
#[test]
fn a_drop_grant_waits_for_every_hold() {
    let mut table = loaded([1, 2]);
    table.announce(deployment(2, Some(2))).unwrap();
    assert!(table.acquire(generation(1)));
    assert!(table.acquire(generation(1)));
    assert_eq!(table.drop_granted(reference(1)), Drop::Busy);
    table.release(generation(1));
    assert_eq!(table.drop_granted(reference(1)), Drop::Busy, "its helper lives");
    table.release(generation(1));
    assert_eq!(table.drop_granted(reference(1)), Drop::Remove);
    assert!(!table.acquire(generation(1)));
}

#[test]
fn target_serving_pin_probed_and_foreign_generations_are_not_dropped() {
    let mut table = loaded([1, 2, 3]);
    table.announce(deployment(3, Some(2))).unwrap();
    assert_eq!(table.drop_granted(reference(3)), Drop::Busy);
    assert_eq!(table.drop_granted(reference(2)), Drop::Busy);
    let foreign = GenerationReference { specification_digest: Digest::of(b"other"), ..reference(1) };
    assert_eq!(table.drop_granted(foreign), Drop::Foreign);
    assert_eq!(table.poll_task(Millis(0)), Some(Task::Probe(generation(3))));
    table.handle_probed(generation(3), Probed::Cancelled);
    assert_eq!(table.poll_task(Millis(1_000)), Some(Task::Probe(generation(1))));
    assert_eq!(table.drop_granted(reference(1)), Drop::Busy);
    table.handle_probed(generation(1), Probed::Cancelled);
    assert_eq!(table.drop_granted(reference(1)), Drop::Remove);
}

#[test]
fn odd_ticks_probe_target_and_serving_pin_in_turn_and_even_ticks_the_rest() {
    let mut table = loaded(1..=4);
    table.announce(deployment(4, Some(2))).unwrap();
    let order: Vec<_> = (0..8).map(|tick| probe(&mut table, tick * 1_000).get()).collect();
    assert_eq!(order, [4, 1, 2, 3, 4, 1, 2, 3]);
}

#[test]
fn one_probe_runs_at_a_time_and_a_cancelled_one_changes_nothing() {
    let mut table = loaded([1]);
    table.announce(deployment(1, None)).unwrap();
    assert_eq!(table.poll_task(Millis(0)), Some(Task::Probe(generation(1))));
    assert_eq!(table.poll_timeout(), None);
    assert_eq!(table.poll_task(Millis(9_000)), None);
    table.handle_probed(generation(1), Probed::Cancelled);
    assert_eq!(state(&mut table, 1), PREPARING);
    assert_eq!(table.poll_timeout(), Some((Millis(1_000), Wake::Probe)));
}

/// W 71. A probe failure reports its class and nothing else.
/// W 188. A checkpoint stands beside `ready` alone.
#[test]
fn a_probe_decides_readiness_and_a_missing_image_queues_a_repair() {
    let mut table = found(1, Found::Provider(checkpointing()));
    table.announce(deployment(1, None)).unwrap();
    let checkpoint = Checkpoint { artifact_domain: "a".into(), execution_class: "b".into() };
    let outcomes = [
        (Probed::Ready(Some(checkpoint.clone())), Some(ObservedState::Ready { checkpoint: Some(checkpoint) })),
        (Probed::NotReady(Diagnostic::DockerUnavailable), Some(failed(Diagnostic::DockerUnavailable))),
        (Probed::NotReady(Diagnostic::RuntimeImageUnavailable), Some(failed(Diagnostic::RuntimeImageUnavailable))),
    ];
    let mut now = Millis(0);
    for (outcome, expected) in outcomes {
        let mut task = table.poll_task(now);
        while task.is_none() {
            now = now.after(1_000);
            task = table.poll_task(now);
        }
        assert_eq!(task, Some(Task::Probe(generation(1))));
        table.handle_probed(generation(1), outcome);
        assert_eq!(state(&mut table, 1), expected);
    }
    assert_eq!(table.poll_task(now), Some(Task::Prepare(reference(1))));
    table.handle_prepared(now, generation(1), Err(Diagnostic::RuntimeDownloadFailed));
    assert_eq!(state(&mut table, 1), Some(failed(Diagnostic::RuntimeDownloadFailed)));
    assert!(table.acquire(generation(1)), "info and kill still reach its provider");
}

#[test]
fn a_held_generation_is_not_repaired() {
    let mut table = loaded([1]);
    table.announce(deployment(1, None)).unwrap();
    assert_eq!(table.poll_task(Millis(0)), Some(Task::Probe(generation(1))));
    assert!(table.acquire(generation(1)));
    table.handle_probed(generation(1), Probed::NotReady(Diagnostic::RuntimeImageUnavailable));
    assert_eq!(table.poll_task(Millis(0)), None);
    table.release(generation(1));
    assert_eq!(table.poll_task(Millis(0)), Some(Task::Prepare(reference(1))));
}

#[derive(Debug, Clone)]
enum Step {
    Announce(u64, Option<u64>),
    Acquire(u64),
    Release(u64),
    Task,
    EndTask(bool),
    Grant(u64),
    Removed(u64, bool),
    Observe,
}

fn step() -> impl Strategy<Value = Step> {
    let number = 1_u64..6;
    prop_oneof![
        (number.clone(), prop::option::of(1_u64..6)).prop_map(|(target, serving)| Step::Announce(target, serving)),
        number.clone().prop_map(Step::Acquire),
        number.clone().prop_map(Step::Release),
        Just(Step::Task),
        any::<bool>().prop_map(Step::EndTask),
        number.clone().prop_map(Step::Grant),
        (number, any::<bool>()).prop_map(|(number, finished)| Step::Removed(number, finished)),
        Just(Step::Observe),
    ]
}

proptest! {
    /// W 99-101 and promise 7: whatever happens, nothing that is held, announced or worked on is removed, and nothing
    /// whose removal began is used again.
    #[test]
    fn no_history_removes_what_is_in_use(steps in prop::collection::vec(step(), 1..120)) {
        let mut table = loaded([1, 2, 3]);
        let (mut holds, mut running, mut dropping, mut now) = ([0_u32; 6], None, BTreeSet::new(), 0);
        for step in steps {
            now += 400;
            match step {
                Step::Announce(target, serving) => {
                    if table.announce(deployment(target, serving)).is_ok() {
                        prop_assert!(!dropping.contains(&target) || table.announced().unwrap().generation > generation(target));
                    }
                }
                Step::Acquire(number) => {
                    if table.acquire(generation(number)) {
                        prop_assert!(!dropping.contains(&number));
                        holds[usize::try_from(number).unwrap()] += 1;
                    }
                }
                Step::Release(number) => {
                    let held = &mut holds[usize::try_from(number).unwrap()];
                    if *held > 0 {
                        *held -= 1;
                        table.release(generation(number));
                    }
                }
                Step::Task => match table.poll_task(Millis(now)) {
                    None | Some(Task::CancelPreparation(_)) => {}
                    task => running = task.or(running),
                },
                Step::EndTask(good) => match running.take() {
                    Some(Task::Prepare(reference)) => {
                        let outcome = if good { Ok(declaration()) } else { Err(Diagnostic::RuntimeDownloadFailed) };
                        table.handle_prepared(Millis(now), reference.generation, outcome);
                    }
                    Some(Task::Probe(generation)) => table.handle_probed(generation, Probed::Ready(None)),
                    Some(Task::CancelPreparation(_)) | None => {}
                },
                Step::Grant(number) => {
                    if table.drop_granted(reference(number)) == Drop::Remove {
                        prop_assert_eq!(holds[usize::try_from(number).unwrap()], 0);
                        prop_assert!(table.announced().is_none_or(|announced| announced.generation != generation(number)
                            && announced.serving_generation != Some(generation(number))));
                        dropping.insert(number);
                    }
                }
                Step::Removed(number, finished) => {
                    table.handle_removed(generation(number), finished);
                    if table.drop_granted(GenerationReference { specification_digest: Digest::of(b"x"), ..reference(number) }) == Drop::Unknown {
                        dropping.remove(&number);
                    }
                }
                Step::Observe => {
                    for seen in table.observe() {
                        prop_assert!(!dropping.contains(&seen.generation.get()));
                    }
                }
            }
            for &number in &dropping {
                prop_assert!(table.declaration(generation(number)).is_none());
            }
        }
    }
}
