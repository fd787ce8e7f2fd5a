//! The next step of a collection (node-host §3.6-3.9).

use super::claim;
use super::discovery::local;
use super::facts::{
    Authority, Collecting, Collection, Entry, Executable, Inventory, Journals, Native, Originals, Preparing, Release,
    Sandboxes,
};
use super::refusal::{Cause, Object, Refusal};

/// One step, with one durable effect. A run looks, takes the step that it is told, and looks again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CollectStep {
    /// Lock `install.lock` exclusively, without waiting. Then sync the directories of the records: whoever had the lock
    /// may have been killed between a change and its sync, and no step may follow from what a loss of power takes back.
    LockInstallation,
    /// Open the lease without creating it and lock it exclusively, without waiting.
    LockLease,
    /// Write `<g>.collecting` with `native_complete: false`.
    Begin,
    /// Remove the image from the store; a native "in use" is a fact for the next look.
    RemoveImage,
    /// Rewrite `<g>.collecting` with `native_complete: true`.
    CompleteNative,
    /// Remove `releases/<source>` and sync `releases/`.
    RemoveRelease,
    /// Unlink the verified original files and sync their directories.
    RemoveOriginals,
    /// Write `<g>.dropped`.
    WriteDropped,
    /// Nothing is left to do.
    Done,
}

impl CollectStep {
    /// Whether it deletes something that cannot be brought back from this host.
    #[must_use]
    pub const fn deletes(self) -> bool {
        match self {
            Self::RemoveImage | Self::RemoveRelease | Self::RemoveOriginals => true,
            Self::LockInstallation
            | Self::LockLease
            | Self::Begin
            | Self::CompleteNative
            | Self::WriteDropped
            | Self::Done => false,
        }
    }
}

/// The next step of a collection, from what was found.
///
/// # Errors
/// The first thing, in the order of node-host §3.6, that forbids any step. Nothing was changed by the look.
pub fn collect(facts: &Collection) -> Result<CollectStep, Refusal> {
    if claim::installation(facts.claim)?.is_some() {
        return Ok(CollectStep::LockInstallation);
    }
    claim::require_sound(facts.surroundings, &facts.journals)?;
    if !local(&facts.journals)?.uses_files() {
        return Ok(CollectStep::Done);
    }
    match facts.grant {
        Authority::Unasked => return Err(Refusal::new(Object::Grant, Cause::Missing)),
        Authority::Differs(difference) => return Err(Refusal::new(Object::Grant, Cause::Foreign(difference))),
        Authority::Agrees => {}
    }
    if !claim::recorded_lease(facts.claim)? {
        return Ok(CollectStep::LockLease);
    }
    if let Release::Damaged(damage) = facts.release {
        return Err(Refusal::new(Object::Release, Cause::Damaged(damage)));
    }
    match facts.journals.collecting {
        Entry::Ours(journal) => work(facts, journal),
        Entry::Absent | Entry::Damaged(_) | Entry::Foreign(_) => Ok(CollectStep::Begin),
    }
}

/// Every candidate is verified before the first is deleted, natively or not.
fn work(facts: &Collection, journal: Collecting) -> Result<CollectStep, Refusal> {
    match facts.originals {
        Originals::Conflict => return Err(Refusal::new(Object::Originals, Cause::Conflict)),
        Originals::Unrecorded => return Err(Refusal::new(Object::Originals, Cause::Unrecorded)),
        Originals::Gone | Originals::Verified => {}
    }
    if !journal.native_complete {
        return native(facts);
    }
    Ok(if facts.release == Release::Present {
        CollectStep::RemoveRelease
    } else if facts.originals == Originals::Verified {
        CollectStep::RemoveOriginals
    } else {
        CollectStep::WriteDropped
    })
}

/// A missing program proves nothing; only a plan whose import never began proves that there is nothing native.
fn native(facts: &Collection) -> Result<CollectStep, Refusal> {
    if was_never_imported(&facts.journals) {
        return Ok(CollectStep::CompleteNative);
    }
    let Native::Microsandbox { store, executable, image, sandboxes } = facts.native else {
        return Ok(CollectStep::CompleteNative);
    };
    claim::required(Object::Store, store)?;
    match executable {
        Executable::Verified => {}
        Executable::Missing => return Err(Refusal::new(Object::Executable, Cause::Missing)),
        Executable::Conflict => return Err(Refusal::new(Object::Executable, Cause::Conflict)),
    }
    match sandboxes {
        Sandboxes::Shared | Sandboxes::None => {}
        Sandboxes::Some => return Err(Refusal::new(Object::Sandboxes, Cause::InUse)),
        Sandboxes::Unknown => return Err(Refusal::new(Object::Sandboxes, Cause::Unknown)),
    }
    match image {
        Inventory::Shared | Inventory::Absent => Ok(CollectStep::CompleteNative),
        Inventory::Listed => Ok(CollectStep::RemoveImage),
        Inventory::InUse => Err(Refusal::new(Object::Image, Cause::InUse)),
        Inventory::Unknown => Err(Refusal::new(Object::Image, Cause::Unknown)),
    }
}

/// Whether the generation is a plan and nothing more. A repair writes the same journal beside a configuration whose
/// image was imported, and whose sandboxes may run, long before.
fn was_never_imported(journals: &Journals) -> bool {
    let planned = journals.preparing == Entry::Ours(Preparing { import_started: false });
    planned && !journals.enrolled && journals.configuration == Entry::Absent
}
