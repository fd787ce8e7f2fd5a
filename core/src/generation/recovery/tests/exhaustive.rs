//! Every combination of facts: the decisions are total, and what they promise holds everywhere.
//!
//! Damage and difference each stand for themselves once here; `refusals` goes through every kind of either.

use super::*;

fn entries<T>(ours: impl IntoIterator<Item = T>) -> Vec<Entry<T>> {
    let unsound = [Entry::Absent, Entry::Damaged(Damage::Link), Entry::Foreign(Difference::Installation)];
    unsound.into_iter().chain(ours.into_iter().map(Entry::Ours)).collect()
}

fn is_unsound<T: Copy>(entry: Entry<T>) -> bool {
    match entry {
        Entry::Damaged(_) | Entry::Foreign(_) => true,
        Entry::Absent | Entry::Ours(_) => false,
    }
}

fn product<A: Copy, B: Copy, C>(left: &[A], right: &[B], join: impl Fn(A, B) -> C) -> Vec<C> {
    left.iter().flat_map(|&left| right.iter().map(move |&right| (left, right))).map(|(a, b)| join(a, b)).collect()
}

fn journals() -> Vec<Journals> {
    let finals = product(&[false, true], &entries([()]), |enrolled, configuration| Journals {
        enrolled,
        configuration,
        ..Journals::NONE
    });
    let plans = entries([false, true].map(|import_started| Preparing { import_started }));
    let planned = product(&finals, &plans, |journals, preparing| Journals { preparing, ..journals });
    let removals = entries([false, true].map(|native_complete| Collecting { native_complete }));
    let collecting = product(&planned, &removals, |journals, collecting| Journals { collecting, ..journals });
    product(&collecting, &entries([()]), |journals, dropped| Journals { dropped, ..journals })
}

const LOCKS: [Lock; 4] = [Lock::Open, Lock::Held, Lock::Busy, Lock::Replaced];

fn claims() -> Vec<Claim> {
    let located =
        product(&LOCKS, &entries([()]), |installation, directory| Claim { installation, directory, ..CLAIMED });
    let states = [Lease::Absent, Lease::Damaged(Damage::HardLink), Lease::Created, Lease::Present];
    let leased = product(&located, &states, |claim, lease| Claim { lease, ..claim });
    let recorded = product(&leased, &entries([()]), |claim, record| Claim { record, ..claim });
    product(&recorded, &LOCKS, |claim, lock| Claim { lock, ..claim })
}

fn surroundings() -> Vec<Surroundings> {
    product(&entries([()]), &entries([()]), |base, others| Surroundings { base, others })
}

const AUTHORITIES: [Authority; 3] =
    [Authority::Unasked, Authority::Agrees, Authority::Differs(Difference::Specification)];

/// What is neither journal, claim nor surroundings, in every combination.
fn preparations() -> Vec<Preparation> {
    let files = [Files::Whole, Files::Unlisted, Files::Missing, Files::Conflict, Files::Damaged(Damage::Link)];
    let based = product(&AUTHORITIES, &files, |core, files| Preparation { core, files, ..PREPARATION });
    let stores = entries([()]).into_iter().map(Home::Store);
    let homes: Vec<_> = stores.chain([false, true].map(Home::Network)).collect();
    let housed = product(&based, &homes, |facts, home| Preparation { home, ..facts });
    let images = [Image::Available, Image::Absent, Image::Wrong, Image::Unknown];
    product(&housed, &images, |facts, image| Preparation { image, ..facts })
}

fn natives() -> Vec<Native> {
    let executables = [Executable::Verified, Executable::Missing, Executable::Conflict];
    let images = [Inventory::Shared, Inventory::Absent, Inventory::Listed, Inventory::InUse, Inventory::Unknown];
    let sandboxes = [Sandboxes::Shared, Sandboxes::None, Sandboxes::Some, Sandboxes::Unknown];
    let kept = product(&entries([()]), &executables, |store, executable| (store, executable));
    let listed = product(&images, &sandboxes, |image, sandboxes| (image, sandboxes));
    let mut all = product(&kept, &listed, |(store, executable), (image, sandboxes)| Native::Microsandbox {
        store,
        executable,
        image,
        sandboxes,
    });
    all.push(Native::Docker);
    all
}

fn collections() -> Vec<Collection> {
    let releases = [Release::Gone, Release::Shared, Release::Present, Release::Damaged(Damage::Link)];
    let originals = [Originals::Gone, Originals::Verified, Originals::Conflict, Originals::Unrecorded];
    let based = product(&AUTHORITIES, &releases, |grant, release| Collection { grant, release, ..COLLECTION });
    let kept = product(&based, &originals, |facts, originals| Collection { originals, ..facts });
    product(&kept, &natives(), |facts, native| Collection { native, ..facts })
}

/// Whether one of the files that authorise anything is damaged or foreign.
fn is_tampered(claim: Claim, journals: &Journals, surroundings: Surroundings) -> bool {
    let claimed = is_unsound(claim.directory) || is_unsound(claim.record) || matches!(claim.lease, Lease::Damaged(_));
    let surrounded = is_unsound(surroundings.base) || is_unsound(surroundings.others);
    claimed || surrounded || is_any_journal_unsound(journals)
}

fn is_any_journal_unsound(journals: &Journals) -> bool {
    is_unsound(journals.configuration)
        || is_unsound(journals.preparing)
        || is_unsound(journals.collecting)
        || is_unsound(journals.dropped)
}

/// Whether a step leaves a durable trace.
fn writes(step: PrepareStep) -> bool {
    match step {
        PrepareStep::LockInstallation | PrepareStep::LockLease | PrepareStep::AskCore | PrepareStep::Load => false,
        PrepareStep::CreateDirectory
        | PrepareStep::CreateLease
        | PrepareStep::RecordLease
        | PrepareStep::WritePlan
        | PrepareStep::Fetch
        | PrepareStep::WriteManifest
        | PrepareStep::MakeHome
        | PrepareStep::StartImport
        | PrepareStep::Import
        | PrepareStep::Publish
        | PrepareStep::ClearJournal => true,
    }
}

fn check_preparation(facts: &Preparation) {
    let result = prepare(facts);
    let Ok(step) = result else { return };
    let Preparation { claim, journals, surroundings, .. } = facts;
    let locking = step == PrepareStep::LockInstallation;
    assert!(locking || claim.installation == Lock::Held, "{facts:?} led to {step:?}");
    let closed = journals.dropped != Entry::Absent || journals.collecting != Entry::Absent;
    assert!(locking || !closed, "a closed generation led to {step:?}: {facts:?}");
    let tampered = is_tampered(*claim, journals, *surroundings);
    assert!(locking || !tampered, "{facts:?} led to {step:?}");
    match step {
        PrepareStep::CreateDirectory | PrepareStep::CreateLease => assert!(!journals.is_retained(), "{facts:?}"),
        PrepareStep::RecordLease => assert_eq!((claim.lease, claim.lock), (Lease::Created, Lock::Held)),
        PrepareStep::LockInstallation | PrepareStep::LockLease | PrepareStep::AskCore => {}
        PrepareStep::WritePlan
        | PrepareStep::Fetch
        | PrepareStep::WriteManifest
        | PrepareStep::MakeHome
        | PrepareStep::StartImport
        | PrepareStep::Import
        | PrepareStep::Publish
        | PrepareStep::ClearJournal
        | PrepareStep::Load => check_work(facts, step),
    }
}

/// What holds of every step after the claim.
fn check_work(facts: &Preparation, step: PrepareStep) {
    let Preparation { claim, journals, core, files, home, image, .. } = facts;
    assert_eq!((claim.record, claim.lock, *core), (Entry::Ours(()), Lock::Held, Authority::Agrees));
    assert!(matches!(files, Files::Whole | Files::Unlisted | Files::Missing), "{facts:?} led to {step:?}");
    assert!(matches!(image, Image::Available | Image::Absent), "{facts:?} led to {step:?}");
    let whole = *files != Files::Missing && *image == Image::Available && !matches!(home, Home::Network(false));
    match step {
        PrepareStep::Publish | PrepareStep::ClearJournal => assert!(whole, "{facts:?} led to {step:?}"),
        PrepareStep::Load => assert!(
            whole
                && journals.preparing == Entry::Absent
                && *journals == (Journals { enrolled: journals.enrolled, ..FINAL })
        ),
        PrepareStep::Import => assert_eq!(journals.preparing, Entry::Ours(Preparing { import_started: true })),
        _ => assert!(writes(step)),
    }
}

/// Promise 6. Every combination of claim and journals, and of journals, surroundings and everything else.
#[test]
fn no_facts_lead_to_a_preparation_that_must_not_be() {
    for claim in claims() {
        for journals in journals() {
            check_preparation(&Preparation { claim, journals, files: Files::Whole, ..PREPARATION });
        }
    }
    for journals in journals() {
        for surroundings in surroundings() {
            check_preparation(&Preparation { journals, surroundings, ..PREPARATION });
        }
        for facts in preparations() {
            check_preparation(&Preparation { journals, ..facts });
        }
    }
}

fn check_collection(facts: &Collection) {
    let Ok(step) = collect(facts) else { return };
    let Collection { claim, journals, surroundings, .. } = facts;
    match step {
        CollectStep::LockInstallation => return,
        CollectStep::Done => {
            assert!(journals.dropped == Entry::Ours(()) || !journals.is_retained(), "{facts:?}");
            return;
        }
        CollectStep::LockLease => {}
        CollectStep::Begin
        | CollectStep::RemoveImage
        | CollectStep::CompleteNative
        | CollectStep::RemoveRelease
        | CollectStep::RemoveOriginals
        | CollectStep::WriteDropped => {
            assert_eq!((claim.installation, claim.lock, claim.record), (Lock::Held, Lock::Held, Entry::Ours(())));
        }
    }
    assert!(!is_tampered(*claim, journals, *surroundings), "{facts:?} led to {step:?}");
    assert_eq!((facts.grant, journals.dropped), (Authority::Agrees, Entry::Absent));
    if step.deletes() || step == CollectStep::WriteDropped {
        let native_complete = step != CollectStep::RemoveImage;
        assert_eq!(journals.collecting, Entry::Ours(Collecting { native_complete }));
        assert!(matches!(facts.originals, Originals::Gone | Originals::Verified), "{facts:?} led to {step:?}");
        assert!(!matches!(facts.release, Release::Damaged(_)), "{facts:?} led to {step:?}");
    }
    let lone = journals.configuration == Entry::Absent && !journals.enrolled;
    let never_imported = lone && journals.preparing == Entry::Ours(Preparing { import_started: false });
    if step == CollectStep::CompleteNative && facts.native != Native::Docker && !never_imported {
        let proven = matches!(
            facts.native,
            Native::Microsandbox {
                store: Entry::Ours(()),
                executable: Executable::Verified,
                image: Inventory::Absent | Inventory::Shared,
                sandboxes: Sandboxes::None | Sandboxes::Shared,
            }
        );
        assert!(proven, "{facts:?} led to {step:?}");
    }
    if step == CollectStep::RemoveImage {
        let provable = matches!(
            facts.native,
            Native::Microsandbox {
                store: Entry::Ours(()),
                executable: Executable::Verified,
                image: Inventory::Listed,
                sandboxes: Sandboxes::None | Sandboxes::Shared,
            }
        );
        assert!(provable, "{facts:?}");
    }
    if step == CollectStep::WriteDropped {
        assert!(facts.release != Release::Present && facts.originals == Originals::Gone, "{facts:?}");
    }
}

/// H 135. Nothing damaged, foreign, unproven or ungranted leads to a deletion; no combination of facts does.
#[test]
fn no_facts_lead_to_a_deletion_that_must_not_be() {
    for journals in journals() {
        for claim in claims() {
            check_collection(&Collection { claim, journals, ..COLLECTION });
        }
        for surroundings in surroundings() {
            check_collection(&Collection { journals, surroundings, ..COLLECTION });
        }
    }
    for facts in collections() {
        for collecting in entries([false, true].map(|native_complete| Collecting { native_complete })) {
            for preparing in entries([false, true].map(|import_started| Preparing { import_started })) {
                for (enrolled, configuration) in
                    [(false, Entry::Ours(())), (false, Entry::Absent), (true, Entry::Absent)]
                {
                    let journals = Journals { enrolled, configuration, preparing, collecting, ..FINAL };
                    check_collection(&Collection { journals, ..facts });
                }
            }
        }
    }
}

/// Once the native part is complete, what the provider says is not even looked at.
#[test]
fn a_completed_native_part_is_never_asked_about_again() {
    let journals = Journals { collecting: Entry::Ours(Collecting { native_complete: true }), ..FINAL };
    for facts in collections() {
        let facts = Collection { journals, ..facts };
        assert_eq!(collect(&facts), collect(&Collection { native: Native::Docker, ..facts }));
    }
}

/// H 169, H 172. A helper starts beside a final configuration, under a recorded and locked lease, and never beside anything else.
#[test]
fn no_facts_admit_a_helper_that_must_not_be() {
    for journals in journals() {
        for claim in claims() {
            let admitted = admit_helper(&claim, &journals) == Ok(());
            let located = (claim.directory, claim.record, claim.lock) == (Entry::Ours(()), Entry::Ours(()), Lock::Held);
            let leased = matches!(claim.lease, Lease::Present | Lease::Created);
            let configured =
                matches!((journals.configuration, journals.enrolled), (Entry::Ours(()), _) | (Entry::Absent, true));
            let bare =
                Journals { enrolled: journals.enrolled, configuration: journals.configuration, ..Journals::NONE };
            assert_eq!(admitted, located && leased && configured && journals == bare, "{claim:?} {journals:?}");
        }
    }
}

/// Promise 15. A start has a sound base, a sound directory and sound journals, knows the enrolled generation, and is
/// never empty; otherwise it is refused.
#[test]
fn no_facts_start_a_node_that_is_empty_or_damaged() {
    let (first, second) = (crate::units::Generation::FIRST, crate::units::Generation::new(2).unwrap());
    for journals in journals() {
        for base in entries([first, second]) {
            for directory in entries([()]) {
                let generations = [(second, journals)].into();
                let result = discover(&Root { base, directory, generations });
                let unsound = is_unsound(base) || is_unsound(directory) || is_any_journal_unsound(&journals);
                let missing = base == Entry::Absent || directory == Entry::Absent;
                let Ok(found) = result else { continue };
                assert!(!unsound && !missing, "{journals:?} started");
                let Entry::Ours(enrolled) = base else { unreachable!("an absent base never starts") };
                assert!(found.contains_key(&enrolled) && found.contains_key(&second));
                let closed = journals.dropped != Entry::Absent || journals.collecting != Entry::Absent;
                let usable = matches!(found[&second], Local::Configured | Local::Unfinished);
                assert!(!closed || !usable, "{journals:?} became {:?}", found[&second]);
            }
        }
    }
}
