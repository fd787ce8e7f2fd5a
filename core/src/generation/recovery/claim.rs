//! Who may work on a generation: locks, leases and their records (node-host §2).

use super::facts::{Claim, Damage, Entry, Journals, Lease, Lock, Surroundings};
use super::refusal::{Cause, Object, Refusal};

/// A step towards the exclusive right to work on a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Grip {
    Installation,
    Directory,
    Create,
    Record,
    Lease,
}

/// An entry that must be absent or ours.
pub(super) const fn sound<T: Copy>(object: Object, entry: Entry<T>) -> Result<Option<T>, Refusal> {
    match entry {
        Entry::Absent => Ok(None),
        Entry::Ours(content) => Ok(Some(content)),
        Entry::Damaged(damage) => Err(Refusal::new(object, Cause::Damaged(damage))),
        Entry::Foreign(difference) => Err(Refusal::new(object, Cause::Foreign(difference))),
    }
}

/// An entry that must be there.
pub(super) const fn required<T: Copy>(object: Object, entry: Entry<T>) -> Result<T, Refusal> {
    match sound(object, entry) {
        Ok(Some(content)) => Ok(content),
        Ok(None) => Err(Refusal::new(object, Cause::Missing)),
        Err(refusal) => Err(refusal),
    }
}

/// `provider.json` must be there, and nothing anywhere may be unsound (node-host §3.5).
pub(super) fn require_sound(surroundings: Surroundings, journals: &Journals) -> Result<(), Refusal> {
    required(Object::Base, surroundings.base)?;
    sound(Object::Others, surroundings.others)?;
    require_sound_journals(journals)
}

/// No journal of the generation may be damaged or foreign, whatever the others say.
pub(super) fn require_sound_journals(journals: &Journals) -> Result<(), Refusal> {
    sound(Object::Dropped, journals.dropped)?;
    sound(Object::Collecting, journals.collecting)?;
    sound(Object::Preparing, journals.preparing)?;
    sound(Object::Configuration, journals.configuration)?;
    Ok(())
}

/// The step that takes `install.lock`, which comes before everything else.
pub(super) fn installation(claim: Claim) -> Result<Option<Grip>, Refusal> {
    held(Object::InstallationLock, claim.installation).map(|held| (!held).then_some(Grip::Installation))
}

/// The next step until directory, lease, record and lock are this run's. Only the `first` run of a generation may
/// create a lease; whatever is missing later stays missing (node-host §2.1).
pub(super) fn lease(claim: Claim, first: bool) -> Result<Option<Grip>, Refusal> {
    let recorded = sound(Object::LeaseRecord, claim.record)?.is_some();
    let located = sound(Object::Directory, claim.directory)?.is_some();
    match claim.lease {
        Lease::Absent if first && !recorded => return Ok(Some(if located { Grip::Create } else { Grip::Directory })),
        Lease::Created if first && !recorded && located => {
            return held(Object::Lease, claim.lock).map(|held| Some(if held { Grip::Record } else { Grip::Lease }));
        }
        Lease::Absent | Lease::Created | Lease::Damaged(_) | Lease::Present => {}
    }
    recorded_lease(claim).map(|held| (!held).then_some(Grip::Lease))
}

/// Whether the lease, which must be there with its record, is locked.
pub(super) fn recorded_lease(claim: Claim) -> Result<bool, Refusal> {
    required(Object::Directory, claim.directory)?;
    let record = sound(Object::LeaseRecord, claim.record)?;
    match claim.lease {
        Lease::Damaged(damage) => Err(Refusal::new(Object::Lease, Cause::Damaged(damage))),
        Lease::Absent => missing(Object::Lease),
        Lease::Created | Lease::Present if record.is_none() => Err(Refusal::new(Object::Lease, Cause::Unrecorded)),
        Lease::Created | Lease::Present => held(Object::Lease, claim.lock),
    }
}

fn missing<T>(object: Object) -> Result<T, Refusal> {
    Err(Refusal::new(object, Cause::Missing))
}

fn held(object: Object, lock: Lock) -> Result<bool, Refusal> {
    match lock {
        Lock::Open => Ok(false),
        Lock::Held => Ok(true),
        Lock::Busy => Err(Refusal::new(object, Cause::Busy)),
        Lock::Replaced => Err(Refusal::new(object, Cause::Damaged(Damage::Replaced))),
    }
}

/// Whether a helper process may be started under the lease that is locked, shared, in `claim` (node-host §2.4). The
/// installation lock plays no part.
///
/// # Errors
/// The first thing that is not as it must be: nothing unfinished may stand beside a final configuration.
pub fn admit_helper(claim: &Claim, journals: &Journals) -> Result<(), Refusal> {
    require_sound_journals(journals)?;
    if !recorded_lease(*claim)? {
        return Err(Refusal::new(Object::Lease, Cause::Busy));
    }
    if journals.dropped != Entry::Absent {
        return Err(Refusal::new(Object::Dropped, Cause::Final));
    }
    if journals.collecting != Entry::Absent {
        return Err(Refusal::new(Object::Collecting, Cause::Begun));
    }
    if journals.preparing != Entry::Absent {
        return Err(Refusal::new(Object::Preparing, Cause::Busy));
    }
    if journals.configuration == Entry::Absent && !journals.enrolled {
        return missing(Object::Configuration);
    }
    Ok(())
}
