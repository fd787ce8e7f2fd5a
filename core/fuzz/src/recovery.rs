//! Any facts, and any bytes on the disk: one next step or one refusal, and never a deletion that was not earned.

mod disk;
mod facts;

use arbitrary::Unstructured;
use palisade_core::generation::recovery::{
    Authority, Claim, CollectStep, Collection, Entry, Journals, Lease, Local, Lock, Preparation, PrepareStep, Root,
    Surroundings, admit_helper, collect, discover, local, prepare,
};

/// The first byte says what is looked at.
pub fn run(input: &[u8]) {
    let Some((&choice, rest)) = input.split_first() else { return };
    let source = &mut Unstructured::new(rest);
    let _ended = match choice % 4 {
        0 => facts::preparation(source).map(|facts| check_preparation(&facts)),
        1 => facts::collection(source).map(|facts| check_collection(&facts)),
        2 => facts::root(source).map(|root| check_start(&root)),
        _ => disk::check(source),
    };
}

fn check_preparation(facts: &Preparation) {
    let judged = prepare(facts);
    let Ok(step) = judged else {
        assert_is_said(&judged.expect_err("it was refused").to_string());
        return;
    };
    if step == PrepareStep::LockInstallation {
        return;
    }
    assert_eq!(facts.claim.installation, Lock::Held);
    assert_sound(facts.surroundings, &facts.journals);
    // Promise 6.
    assert_eq!((facts.journals.dropped, facts.journals.collecting), (Entry::Absent, Entry::Absent));
    match step {
        PrepareStep::CreateLease | PrepareStep::CreateDirectory | PrepareStep::RecordLease => {
            assert!(!facts.journals.is_retained(), "a lost lease is never made again");
        }
        PrepareStep::LockInstallation | PrepareStep::LockLease => {}
        PrepareStep::AskCore => assert!(is_owner(facts.claim)),
        PrepareStep::WritePlan
        | PrepareStep::Fetch
        | PrepareStep::WriteManifest
        | PrepareStep::MakeHome
        | PrepareStep::StartImport
        | PrepareStep::Import
        | PrepareStep::Publish
        | PrepareStep::ClearJournal
        | PrepareStep::Load => {
            assert!(is_owner(facts.claim));
            assert_eq!(facts.core, Authority::Agrees);
        }
    }
    if step == PrepareStep::Import {
        assert!(matches!(facts.journals.preparing, Entry::Ours(journal) if journal.import_started));
    }
    if admit_helper(&facts.claim, &facts.journals).is_ok() {
        assert_eq!(local(&facts.journals), Ok(Local::Configured));
    }
}

fn check_collection(facts: &Collection) {
    let judged = collect(facts);
    let Ok(step) = judged else {
        assert_is_said(&judged.expect_err("it was refused").to_string());
        return;
    };
    if step == CollectStep::LockInstallation {
        return;
    }
    assert_eq!(facts.claim.installation, Lock::Held);
    assert_sound(facts.surroundings, &facts.journals);
    if step == CollectStep::Done {
        return;
    }
    assert_eq!(facts.grant, Authority::Agrees);
    assert_eq!(facts.journals.dropped, Entry::Absent);
    if step == CollectStep::LockLease {
        return;
    }
    // Promise 7: the lock is held, and its path still names the locked inode.
    assert!(is_owner(facts.claim));
    if step.deletes() || step == CollectStep::WriteDropped {
        let Entry::Ours(journal) = facts.journals.collecting else { panic!("deleted before the intent was durable") };
        assert_eq!(journal.native_complete, step != CollectStep::RemoveImage);
    }
}

/// Promise 15: everything or a refusal, and never a start with less than there is.
fn check_start(root: &Root) {
    match discover(root) {
        Ok(found) => {
            let Entry::Ours(enrolled) = root.base else { panic!("started without its base") };
            assert!(found.contains_key(&enrolled));
            assert!(root.generations.keys().all(|generation| found.contains_key(generation)));
            for (generation, journals) in &root.generations {
                assert_sound(Surroundings { base: Entry::Ours(()), others: Entry::Absent }, journals);
                let dropped = journals.dropped != Entry::Absent;
                assert_eq!(found[generation] == Local::Dropped, dropped);
            }
        }
        Err(refused) => assert_is_said(&refused.to_string()),
    }
}

/// The exclusive lock on a lease with its record.
fn is_owner(claim: Claim) -> bool {
    claim.directory == Entry::Ours(())
        && claim.record == Entry::Ours(())
        && claim.lock == Lock::Held
        && matches!(claim.lease, Lease::Created | Lease::Present)
}

/// Nothing damaged or foreign is stepped over.
fn assert_sound(surroundings: Surroundings, journals: &Journals) {
    fn sound<T: Copy>(entry: Entry<T>) -> bool {
        matches!(entry, Entry::Absent | Entry::Ours(_))
    }
    assert_eq!(surroundings.base, Entry::Ours(()));
    assert!(sound(surroundings.others) && sound(journals.configuration) && sound(journals.preparing));
    assert!(sound(journals.collecting) && sound(journals.dropped));
}

/// A message: lower case, and something in it.
fn assert_is_said(message: &str) {
    assert!(!message.is_empty() && !message.ends_with('.'), "{message}");
}
