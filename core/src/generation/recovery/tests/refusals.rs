//! Every kind of damage and difference, in every place: the refusal names exactly it.

use super::*;
use crate::units::Generation;

pub(super) const DAMAGES: [Damage; 9] = [
    Damage::Link,
    Damage::Kind,
    Damage::Access,
    Damage::HardLink,
    Damage::Size,
    Damage::Content,
    Damage::Replaced,
    Damage::Unreadable,
    Damage::Mount,
];

pub(super) const DIFFERENCES: [Difference; 7] = [
    Difference::Installation,
    Difference::Provider,
    Difference::Core,
    Difference::Generation,
    Difference::Specification,
    Difference::Inode,
    Difference::Native,
];

/// Every unsound entry, with what a refusal says of it.
fn unsound<T>() -> impl Iterator<Item = (Entry<T>, Cause)> {
    let damaged = DAMAGES.map(|damage| (Entry::Damaged(damage), Cause::Damaged(damage)));
    let foreign = DIFFERENCES.map(|difference| (Entry::Foreign(difference), Cause::Foreign(difference)));
    damaged.into_iter().chain(foreign)
}

/// Prepares and collects with the same authority; both must refuse for the same reason.
fn both(claim: Claim, journals: Journals, surroundings: Surroundings, object: Object, cause: Cause) {
    let prepared = prepare(&Preparation { claim, journals, surroundings, ..PREPARATION });
    assert_eq!(prepared, refusal(object, cause));
    assert_eq!(collect(&Collection { claim, journals, surroundings, ..COLLECTION }), refusal(object, cause));
}

/// H 131, H 135, H 140. W 156. A journal, configuration or record that is linked, shared, no file, open to others, too
/// long, badly formed, replaced, unreadable or of something else is named, and stops preparation and collection alike.
#[test]
fn every_unsound_file_is_named_by_both_actions() {
    for (entry, cause) in unsound() {
        let with = |journals| both(CLAIMED, journals, SURROUNDED, object_of(&journals), cause);
        with(Journals { configuration: entry, ..Journals::NONE });
        with(Journals { dropped: entry, ..FINAL });
        both(Claim { record: entry, ..CLAIMED }, FINAL, SURROUNDED, Object::LeaseRecord, cause);
        both(Claim { directory: entry, ..CLAIMED }, FINAL, SURROUNDED, Object::Directory, cause);
        both(CLAIMED, FINAL, Surroundings { base: entry, ..SURROUNDED }, Object::Base, cause);
        both(CLAIMED, FINAL, Surroundings { others: entry, ..SURROUNDED }, Object::Others, cause);
    }
    for (preparing, cause) in unsound() {
        both(CLAIMED, Journals { preparing, ..FINAL }, SURROUNDED, Object::Preparing, cause);
    }
    for (collecting, cause) in unsound() {
        both(CLAIMED, Journals { collecting, ..FINAL }, SURROUNDED, Object::Collecting, cause);
    }
    for damage in DAMAGES {
        let claim = Claim { lease: Lease::Damaged(damage), ..CLAIMED };
        both(claim, FINAL, SURROUNDED, Object::Lease, Cause::Damaged(damage));
    }
}

fn object_of(journals: &Journals) -> Object {
    if journals.dropped == Entry::Absent { Object::Configuration } else { Object::Dropped }
}

/// Promise 7. A lock that somebody else holds, or whose path no longer names the locked inode, stops both actions.
#[test]
fn a_lock_that_is_not_this_runs_stops_both_actions() {
    for (lock, cause) in [(Lock::Busy, Cause::Busy), (Lock::Replaced, Cause::Damaged(Damage::Replaced))] {
        both(Claim { installation: lock, ..CLAIMED }, FINAL, SURROUNDED, Object::InstallationLock, cause);
        both(Claim { lock, ..CLAIMED }, FINAL, SURROUNDED, Object::Lease, cause);
    }
}

/// A base that is missing stops everything: no configuration is rebuilt without an exact plan.
#[test]
fn a_missing_base_stops_everything() {
    let surroundings = Surroundings { base: Entry::Absent, ..SURROUNDED };
    both(CLAIMED, FINAL, surroundings, Object::Base, Cause::Missing);
}

fn start(base: Entry<Generation>, directory: Entry<()>, journals: Journals) -> Result<Local, Refused> {
    let second = Generation::new(2).unwrap();
    discover(&Root { base, directory, generations: [(second, journals)].into() }).map(|found| found[&second])
}

/// Promise 15. E36. A start names the path of what is damaged, and the generation it belongs to.
#[test]
fn a_refused_start_names_the_path() {
    let first = Entry::Ours(Generation::FIRST);
    let second = |object, cause| Err(Refused { generation: Generation::new(2), refusal: Refusal { object, cause } });
    for (dropped, cause) in unsound() {
        let refused = start(first, Entry::Ours(()), Journals { dropped, ..FINAL });
        assert_eq!(refused, second(Object::Dropped, cause));
        assert!(refused.unwrap_err().to_string().starts_with("state/node/generations/2.dropped: "));
    }
    for (preparing, cause) in unsound() {
        let refused = start(first, Entry::Ours(()), Journals { preparing, dropped: Entry::Ours(()), ..FINAL });
        assert_eq!(refused, second(Object::Preparing, cause), "also beside a drop record");
    }
    let base = start(Entry::Absent, Entry::Ours(()), FINAL).unwrap_err();
    assert_eq!(
        base.to_string(),
        "provider.json: the enrolled configuration is missing; restore it, nothing is rebuilt without it"
    );
    let directory = start(first, Entry::Damaged(Damage::Link), FINAL).unwrap_err();
    assert!(directory.to_string().starts_with("state/node/generations: "));
    let lone = Journals { collecting: Entry::Ours(Collecting { native_complete: false }), ..Journals::NONE };
    assert_eq!(start(first, Entry::Ours(()), lone), second(Object::Configuration, Cause::Missing));
}

/// A generation whose files are missing is repaired; any other failure of its construction stops the start.
#[test]
fn a_construction_decides_how_a_generation_enters() {
    use crate::generation::Found;
    use crate::operation::{Declaration, Support};
    let unsupported = Support::Unsupported { reason: "none".to_owned() };
    let declaration = Declaration::of_groups(&Support::Supported, &unsupported, &unsupported).unwrap();
    assert_eq!(Local::Configured.start(), Start::Construct);
    assert_eq!(Construction::Built(declaration.clone()).found(), Ok(Found::Provider(declaration)));
    assert_eq!(Construction::FileMissing.found(), Ok(Found::Recovery));
    assert_eq!(Construction::Failed.found().unwrap_err().object, Object::Provider);
}

/// Every refusal reads as one sentence with its next step, and nothing in it comes from a file.
#[test]
fn every_refusal_names_the_thing_and_the_next_step() {
    let causes = [Cause::Missing, Cause::Unrecorded, Cause::Conflict, Cause::Busy, Cause::Unknown, Cause::InUse];
    let all = unsound::<()>().map(|(_, cause)| cause).chain(causes).chain([Cause::Final, Cause::Begun]);
    for cause in all {
        let text = Refusal { object: Object::Lease, cause }.to_string();
        assert!(!text.ends_with('.') && text.contains("generation"), "{text}");
        let waits = Refusal { object: Object::Lease, cause }.remedy() == Remedy::Retry;
        assert_eq!(waits, text.contains("later"), "{text}");
    }
}

/// A refusal says in words what is wrong, and no two kinds say the same.
#[test]
fn every_refusal_has_its_own_words() {
    let damaged = DAMAGES.map(Cause::Damaged);
    let foreign = DIFFERENCES.map(Cause::Foreign);
    let words: std::collections::BTreeSet<_> = damaged
        .into_iter()
        .chain(foreign)
        .map(|cause| Refusal { object: Object::Configuration, cause }.to_string())
        .collect();
    assert_eq!(words.len(), DAMAGES.len() + DIFFERENCES.len(), "{words:?}");
    let said = |cause| Refusal { object: Object::Configuration, cause }.to_string();
    assert!(said(Cause::Damaged(Damage::HardLink)).contains("has several names"));
    assert!(said(Cause::Foreign(Difference::Inode)).contains("lease file"));
}

/// Only three steps destroy something that this host cannot bring back.
#[test]
fn deleting_steps_are_known_as_such() {
    use CollectStep::{
        Begin, CompleteNative, Done, LockInstallation, LockLease, RemoveImage, RemoveOriginals, RemoveRelease,
        WriteDropped,
    };
    assert!([RemoveImage, RemoveRelease, RemoveOriginals].into_iter().all(CollectStep::deletes));
    let harmless = [LockInstallation, LockLease, Begin, CompleteNative, WriteDropped, Done];
    assert!(!harmless.into_iter().any(CollectStep::deletes));
}

/// A generation of which nothing is left needs no collection; a journal of one alone was left by nobody.
#[test]
fn a_collection_without_a_generation_was_tampered_with() {
    let lone = |collecting| collect(&Collection { journals: Journals { collecting, ..Journals::NONE }, ..COLLECTION });
    assert_eq!(lone(Entry::Absent), Ok(CollectStep::Done));
    let begun = Entry::Ours(Collecting { native_complete: false });
    assert_eq!(lone(begun), refusal(Object::Configuration, Cause::Missing));
}
