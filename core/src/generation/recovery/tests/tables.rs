//! The crash tables of node-host §3.3, §3.4 and §3.9, row by row, and the discovery table of §3.10.

use rstest::rstest;

use super::disk::{Disk, FILES};
use super::*;
use PrepareStep::{
    AskCore, ClearJournal, CreateDirectory, CreateLease, Fetch, Import, Load, LockInstallation, LockLease, MakeHome,
    Publish, RecordLease, StartImport, WriteManifest, WritePlan,
};

const NEW: Disk = Disk { directory: true, ..Disk::fresh(false) };
const LEASED: Disk = Disk { lease: true, record: true, ..NEW };
const PLANNED: Disk = Disk { preparing: Some(false), ..LEASED };
const FETCHED: Disk = Disk { files: FILES, ..PLANNED };
const LISTED: Disk = Disk { manifest: true, ..FETCHED };
const HOUSED: Disk = Disk { home: true, ..LISTED };
const STARTED: Disk = Disk { preparing: Some(true), ..HOUSED };
const IMPORTED: Disk = Disk { image: true, ..STARTED };
const PUBLISHED: Disk = Disk { configuration: true, ..IMPORTED };
const DONE: Disk = Disk { preparing: None, ..PUBLISHED };

/// What every later run starts with.
const AGAIN: [PrepareStep; 3] = [LockInstallation, LockLease, AskCore];

/// H 147. Each row of the preparation's crash table: what is on disk, and what the next run does, to the end.
#[rstest]
#[case::row_1(Disk::fresh(false), &[CreateDirectory, CreateLease, RecordLease, AskCore, WritePlan, Fetch, Fetch, WriteManifest, MakeHome, StartImport, Import, Publish, ClearJournal, Load])]
#[case::row_1_with_a_directory(NEW, &[CreateLease, RecordLease, AskCore, WritePlan, Fetch, Fetch, WriteManifest, MakeHome, StartImport, Import, Publish, ClearJournal, Load])]
#[case::rows_3_to_11(LEASED, &[LockLease, AskCore, WritePlan, Fetch, Fetch, WriteManifest, MakeHome, StartImport, Import, Publish, ClearJournal, Load])]
#[case::rows_12_and_13(PLANNED, &[LockLease, AskCore, Fetch, Fetch, WriteManifest, MakeHome, StartImport, Import, Publish, ClearJournal, Load])]
#[case::row_14_during_a_file(Disk { files: 1, ..PLANNED }, &[LockLease, AskCore, Fetch, WriteManifest, MakeHome, StartImport, Import, Publish, ClearJournal, Load])]
#[case::row_14_before_the_manifest(FETCHED, &[LockLease, AskCore, WriteManifest, MakeHome, StartImport, Import, Publish, ClearJournal, Load])]
#[case::row_14_with_an_image_that_is_there(Disk { home: true, image: true, ..LISTED }, &[LockLease, AskCore, StartImport, Publish, ClearJournal, Load])]
#[case::row_14(LISTED, &[LockLease, AskCore, MakeHome, StartImport, Import, Publish, ClearJournal, Load])]
#[case::row_15_before_the_journal(HOUSED, &[LockLease, AskCore, StartImport, Import, Publish, ClearJournal, Load])]
#[case::rows_15_and_16_during_import(STARTED, &[LockLease, AskCore, Import, Publish, ClearJournal, Load])]
#[case::rows_16_and_17(IMPORTED, &[LockLease, AskCore, Publish, ClearJournal, Load])]
#[case::row_18(PUBLISHED, &[LockLease, AskCore, ClearJournal, Load])]
#[case::row_19(DONE, &[LockLease, AskCore, Load])]
fn an_interrupted_preparation_is_continued(#[case] mut disk: Disk, #[case] expected: &[PrepareStep]) {
    let steps = disk.prepare(|_| {}).unwrap();
    assert_eq!((steps[0], &steps[1..]), (LockInstallation, expected));
    assert_eq!(disk, DONE);
}

/// Rows 2 and 2-3: a lease without its record is refused for ever and neither deleted nor adopted.
#[rstest]
#[case::nothing_else(Disk { lease: true, ..NEW })]
#[case::beside_a_plan(Disk { record: false, ..PLANNED })]
#[case::beside_a_configuration(Disk { record: false, ..DONE })]
#[case::of_the_enrolled_generation(Disk { record: false, ..Disk::enrolled(false) })]
fn a_lease_without_its_record_is_refused_for_ever(#[case] mut disk: Disk) {
    let before = disk;
    for _ in 0..2 {
        let (_, refusal) = disk.prepare(|_| {}).unwrap_err();
        assert_eq!(refusal, Refusal { object: Object::Lease, cause: Cause::Unrecorded });
        assert_eq!(refusal.remedy(), Remedy::Inspect);
        assert_eq!(disk, before);
    }
}

/// A lease that is gone is never made again once anything is retained of the generation.
#[rstest]
#[case::a_plan(PLANNED)]
#[case::a_configuration(DONE)]
#[case::the_enrolled_generation(Disk::enrolled(false))]
fn a_lost_lease_is_not_made_again(#[case] disk: Disk) {
    for record in [false, true] {
        let (_, refusal) = Disk { lease: false, record, ..disk }.prepare(|_| {}).unwrap_err();
        assert_eq!(refusal, Refusal { object: Object::Lease, cause: Cause::Missing });
    }
}

/// H 172. Row 18: a journal blocks helpers and readiness even beside a final configuration.
#[test]
fn a_journal_beside_a_configuration_is_recovered_first() {
    for preparing in [false, true] {
        let journals = Disk { preparing: Some(preparing), ..PUBLISHED }.journals();
        assert_eq!(local(&journals), Ok(Local::Unfinished));
        assert_eq!(admit_helper(&CLAIMED, &journals), refusal(Object::Preparing, Cause::Busy));
    }
    assert_eq!(admit_helper(&CLAIMED, &DONE.journals()), Ok(()));
    let enrolled = Journals { enrolled: true, ..Journals::NONE };
    assert_eq!(admit_helper(&CLAIMED, &enrolled), Ok(()), "it is configured without a journal of its own");
    assert_eq!(admit_helper(&CLAIMED, &Journals::NONE), refusal(Object::Configuration, Cause::Missing));
}

/// Row 13: an existing sibling with other content stops before anything is fetched or replaced.
#[test]
fn a_conflicting_sibling_stops_a_preparation() {
    let planned = Journals { preparing: Entry::Ours(Preparing { import_started: false }), ..Journals::NONE };
    let facts = Preparation { journals: planned, files: Files::Conflict, ..PREPARATION };
    assert_eq!(prepare(&facts), refusal(Object::Release, Cause::Conflict));
}

/// Row 15: a store is accepted for its owner record alone.
#[test]
fn a_store_without_its_owner_record_stops_a_preparation() {
    let foreign = Home::Store(Entry::Foreign(Difference::Installation));
    let facts = Preparation { files: Files::Whole, home: foreign, ..PREPARATION };
    assert_eq!(prepare(&facts), refusal(Object::Store, Cause::Foreign(Difference::Installation)));
}

/// Row 16: the image is looked at first; another one in its place stops the preparation.
#[test]
fn another_image_stops_a_preparation() {
    let facts = Preparation { files: Files::Whole, image: Image::Wrong, ..PREPARATION };
    assert_eq!(prepare(&facts), refusal(Object::Image, Cause::Foreign(Difference::Native)));
}

/// Row 17. W 158. A final configuration that differs from the plan in more than the resolved image stops everything.
#[test]
fn a_configuration_that_drifted_from_its_plan_stops_a_preparation() {
    let drifted = Journals {
        configuration: Entry::Foreign(Difference::Native),
        preparing: Entry::Ours(Preparing { import_started: true }),
        ..Journals::NONE
    };
    let facts = Preparation { journals: drifted, ..PREPARATION };
    assert_eq!(prepare(&facts), refusal(Object::Configuration, Cause::Foreign(Difference::Native)));
}

const RETAINED: Disk = Disk { enrolled: true, manifest: false, ..DONE };

/// H 148. Each row of the repair's crash table, for a later generation and for the enrolled one.
#[rstest]
#[case::nothing_is_missing(DONE, &[Load])]
#[case::nothing_is_missing_of_the_enrolled(RETAINED, &[Load])]
#[case::never_published(Disk::enrolled(false), &[Publish, Load])]
#[case::r3_stale_journal(PUBLISHED, &[ClearJournal, Load])]
#[case::r3_stale_unstarted_journal(Disk { preparing: Some(false), ..PUBLISHED }, &[ClearJournal, Load])]
#[case::r3_a_file_is_missing(Disk { files: 1, ..DONE }, &[WritePlan, Fetch, ClearJournal, Load])]
#[case::r3_a_file_of_the_enrolled(Disk { files: 1, ..RETAINED }, &[WritePlan, Fetch, WriteManifest, ClearJournal, Load])]
#[case::r3_the_image_is_missing(Disk { image: false, ..DONE }, &[WritePlan, StartImport, Import, ClearJournal, Load])]
#[case::r3_the_store_is_missing(Disk { home: false, image: false, ..DONE }, &[WritePlan, MakeHome, StartImport, Import, ClearJournal, Load])]
#[case::r4(Disk { preparing: Some(false), files: 0, image: false, ..DONE }, &[Fetch, Fetch, StartImport, Import, ClearJournal, Load])]
#[case::r5_r6(Disk { preparing: Some(false), files: 1, image: false, ..DONE }, &[Fetch, StartImport, Import, ClearJournal, Load])]
#[case::r7(Disk { image: false, ..PUBLISHED }, &[Import, ClearJournal, Load])]
#[case::r8(PUBLISHED, &[ClearJournal, Load])]
fn an_interrupted_repair_is_continued(#[case] mut disk: Disk, #[case] expected: &[PrepareStep]) {
    let before = disk;
    let steps = disk.prepare(|_| {}).unwrap();
    assert_eq!((&steps[..3], &steps[3..]), (&AGAIN[..], expected));
    assert!(disk.is_complete());
    assert_eq!((disk.enrolled, disk.lease, disk.record), (before.enrolled, before.lease, before.record));
}

/// H 149. R6: the conflict is found before the missing sibling is fetched, each time.
#[test]
fn a_conflicting_sibling_stops_a_repair() {
    for preparing in [Entry::Absent, Entry::Ours(Preparing { import_started: false })] {
        let facts = Preparation { journals: Journals { preparing, ..FINAL }, files: Files::Conflict, ..PREPARATION };
        assert_eq!(prepare(&facts), refusal(Object::Release, Cause::Conflict));
    }
}

/// H 150. A helper or a collector that holds the lease blocks a repair, which succeeds afterwards.
#[test]
fn a_held_lease_blocks_preparation_and_collection() {
    let busy = Claim { lock: Lock::Busy, ..CLAIMED };
    let blocked = refusal(Object::Lease, Cause::Busy);
    assert_eq!(prepare(&Preparation { claim: busy, journals: FINAL, ..PREPARATION }), blocked);
    let collected = collect(&Collection { claim: busy, ..COLLECTION });
    assert_eq!(collected, refusal(Object::Lease, Cause::Busy));
    assert_eq!(collected.unwrap_err().remedy(), Remedy::Retry);
    assert_eq!(prepare(&Preparation { journals: FINAL, ..PREPARATION }), Ok(WritePlan));
}

const COLLECTING: Disk = Disk { collecting: Some(false), ..DONE };
const UNLISTED: Disk = Disk { image: false, ..COLLECTING };
const NATIVE: Disk = Disk { collecting: Some(true), ..UNLISTED };
const EMPTIED: Disk = Disk { files: 0, manifest: false, ..NATIVE };
const DROPPED: Disk = Disk { dropped: true, ..EMPTIED };
const ORIGINAL: Disk = Disk { enrolled: true, ..NATIVE };

/// H 133, H 134, H 142. Each row of the collection's crash table: what is on disk, and what the next grant does, to
/// the end. Once the native part is recorded as complete no native step is taken any more.
#[rstest]
#[case::rows_1_to_4(DONE, &[CollectStep::Begin, CollectStep::RemoveImage, CollectStep::CompleteNative, CollectStep::RemoveRelease, CollectStep::WriteDropped])]
#[case::row_5(COLLECTING, &[CollectStep::RemoveImage, CollectStep::CompleteNative, CollectStep::RemoveRelease, CollectStep::WriteDropped])]
#[case::row_7_image_gone(UNLISTED, &[CollectStep::CompleteNative, CollectStep::RemoveRelease, CollectStep::WriteDropped])]
#[case::row_8(NATIVE, &[CollectStep::RemoveRelease, CollectStep::WriteDropped])]
#[case::row_9_partial(Disk { files: 1, manifest: false, ..NATIVE }, &[CollectStep::RemoveRelease, CollectStep::WriteDropped])]
#[case::row_10_partial(Disk { files: 1, ..ORIGINAL }, &[CollectStep::RemoveOriginals, CollectStep::WriteDropped])]
#[case::row_10_complete(EMPTIED, &[CollectStep::WriteDropped])]
#[case::row_10_complete_of_the_enrolled(Disk { files: 0, ..ORIGINAL }, &[CollectStep::WriteDropped])]
fn an_interrupted_collection_is_continued(#[case] mut disk: Disk, #[case] expected: &[CollectStep]) {
    let before = disk;
    let steps = disk.collect(|_| {}).unwrap();
    assert_eq!(steps[..2], [CollectStep::LockInstallation, CollectStep::LockLease]);
    assert_eq!((&steps[2..steps.len() - 1], steps[steps.len() - 1]), (expected, CollectStep::Done));
    assert!(disk.dropped && disk.lease && disk.record && disk.configuration == before.configuration && disk.home);
}

/// Row 11. H 129. A second collection does nothing, a start ignores the generation, a preparation is refused.
#[test]
fn a_dropped_generation_stays_dropped() {
    let mut disk = DROPPED;
    assert_eq!(disk.collect(|_| {}), Ok(vec![CollectStep::LockInstallation, CollectStep::Done]));
    assert_eq!(local(&disk.journals()).map(Local::start), Ok(Start::Skip));
    let (steps, refusal) = disk.prepare(|_| {}).unwrap_err();
    assert_eq!((steps, refusal), (vec![LockInstallation], Refusal { object: Object::Dropped, cause: Cause::Final }));
    assert_eq!(disk, DROPPED);
}

/// Row 5. W 88. H 164. An unfinished collection is a retention candidate and nothing else.
#[test]
fn an_unfinished_collection_is_never_prepared_or_used() {
    for mut disk in [COLLECTING, UNLISTED, NATIVE, EMPTIED, ORIGINAL] {
        assert_eq!(local(&disk.journals()).map(Local::start), Ok(Start::Enter(crate::generation::Found::Collecting)));
        assert_eq!(disk.prepare(|_| {}).unwrap_err().1, Refusal { object: Object::Collecting, cause: Cause::Begun });
        assert_eq!(admit_helper(&CLAIMED, &disk.journals()), refusal(Object::Collecting, Cause::Begun));
    }
}

fn collecting(native_complete: bool) -> Collection {
    let collecting = Entry::Ours(Collecting { native_complete });
    Collection { journals: Journals { collecting, ..FINAL }, ..COLLECTION }
}

/// Row 6. H 143, H 144. A changed file, or no record of what the files must be, stops before any deletion.
#[test]
fn a_changed_or_unrecorded_original_stops_a_collection() {
    for complete in [false, true] {
        let with = |originals| collect(&Collection { originals, ..collecting(complete) });
        assert_eq!(with(Originals::Conflict), refusal(Object::Originals, Cause::Conflict));
        assert_eq!(with(Originals::Unrecorded), refusal(Object::Originals, Cause::Unrecorded));
    }
}

/// Row 7. H 132, H 138. What the store does not say, or cannot say for want of its program, keeps every byte.
#[test]
fn an_unproven_store_stops_a_collection() {
    let native = |store, executable, image, sandboxes| {
        let native = Native::Microsandbox { store, executable, image, sandboxes };
        collect(&Collection { native, ..collecting(false) })
    };
    let (ours, good) = (Entry::Ours(()), Executable::Verified);
    let cases = [
        (native(ours, good, Inventory::Unknown, Sandboxes::None), Object::Image, Cause::Unknown),
        (native(ours, good, Inventory::InUse, Sandboxes::None), Object::Image, Cause::InUse),
        (native(ours, good, Inventory::Listed, Sandboxes::Unknown), Object::Sandboxes, Cause::Unknown),
        (native(ours, good, Inventory::Listed, Sandboxes::Some), Object::Sandboxes, Cause::InUse),
        (native(ours, Executable::Missing, Inventory::Absent, Sandboxes::None), Object::Executable, Cause::Missing),
        (native(ours, Executable::Conflict, Inventory::Absent, Sandboxes::None), Object::Executable, Cause::Conflict),
        (native(Entry::Absent, good, Inventory::Absent, Sandboxes::None), Object::Store, Cause::Missing),
    ];
    for (result, object, cause) in cases {
        assert_eq!(result, refusal(object, cause));
    }
    for shared in [Sandboxes::Shared, Sandboxes::None] {
        assert_eq!(native(ours, good, Inventory::Shared, shared), Ok(CollectStep::CompleteNative));
    }
}

/// H 137. Only a lone plan that says that no import began proves that there is nothing native.
/// H 138. The same journal beside a final configuration is an interrupted repair's: what was imported before is still
/// there, and the store has to be asked.
#[test]
fn a_generation_that_was_never_imported_is_collected_without_its_program() {
    let gone = Native::Microsandbox {
        store: Entry::Absent,
        executable: Executable::Missing,
        image: Inventory::Unknown,
        sandboxes: Sandboxes::Unknown,
    };
    let with = |enrolled, configuration, import_started| {
        let preparing = Entry::Ours(Preparing { import_started });
        let mut facts = Collection { native: gone, ..collecting(false) };
        facts.journals = Journals { enrolled, configuration, preparing, ..facts.journals };
        collect(&facts)
    };
    assert_eq!(with(false, Entry::Absent, false), Ok(CollectStep::CompleteNative));
    assert_eq!(with(false, Entry::Absent, true), refusal(Object::Store, Cause::Missing));
    for (enrolled, configuration) in [(false, Entry::Ours(())), (true, Entry::Absent), (true, Entry::Ours(()))] {
        for import_started in [false, true] {
            let collected = with(enrolled, configuration, import_started);
            assert_eq!(collected, refusal(Object::Store, Cause::Missing), "{enrolled} {configuration:?}");
        }
    }
}

/// H 139. Docker's images are never removed, shared or not.
#[test]
fn a_docker_collection_asks_nothing_of_the_engine() {
    assert_eq!(collect(&Collection { native: Native::Docker, ..collecting(false) }), Ok(CollectStep::CompleteNative));
}

/// H 136, H 145, H 146. What another generation still uses stays.
#[test]
fn a_shared_release_stays() {
    let facts = Collection { release: Release::Shared, ..collecting(true) };
    assert_eq!(collect(&facts), Ok(CollectStep::WriteDropped));
}

/// H 141. A link inside the release stops before native work, and before the intent is recorded.
#[test]
fn a_linked_release_stops_a_collection() {
    for facts in [COLLECTION, collecting(false), collecting(true)] {
        let facts = Collection { release: Release::Damaged(Damage::Link), ..facts };
        assert_eq!(collect(&facts), refusal(Object::Release, Cause::Damaged(Damage::Link)));
    }
}

/// W 89. A collection needs a grant of its own, for exactly this generation.
#[test]
fn a_collection_needs_a_grant_that_agrees() {
    for facts in [COLLECTION, collecting(false), collecting(true)] {
        let with = |grant| collect(&Collection { grant, ..facts });
        assert_eq!(with(Authority::Unasked), refusal(Object::Grant, Cause::Missing));
        let other = Difference::Specification;
        assert_eq!(with(Authority::Differs(other)), refusal(Object::Grant, Cause::Foreign(other)));
    }
}

/// The discovery table of node-host §3.10. H 153. A plan without a configuration is recovery-only in both phases.
/// W 157. So it is whether or not the import started.
#[rstest]
#[case::dropped_over_collecting_over_preparing(Disk { preparing: Some(true), ..DROPPED }, Local::Dropped)]
#[case::collecting_over_preparing(Disk { preparing: Some(true), ..COLLECTING }, Local::Collecting)]
#[case::collecting_of_a_plan(Disk { collecting: Some(false), ..PLANNED }, Local::Collecting)]
#[case::planned(PLANNED, Local::Unfinished)]
#[case::started(STARTED, Local::Unfinished)]
#[case::configured(DONE, Local::Configured)]
#[case::enrolled(Disk::enrolled(true), Local::Configured)]
#[case::leased(LEASED, Local::Nothing)]
#[case::nothing(Disk::fresh(true), Local::Nothing)]
fn a_start_finds_each_local_state(#[case] disk: Disk, #[case] expected: Local) {
    assert_eq!(local(&disk.journals()), Ok(expected));
}
