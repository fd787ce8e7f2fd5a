//! The next step of a preparation or a repair (node-host §3.2-3.4).

use super::claim::{self, Grip};
use super::facts::{Authority, Entry, Files, Home, Image, Journals, Preparation};
use super::refusal::{Cause, Object, Refusal};
use super::{Difference, facts};

/// One step, with one durable effect. A run looks, takes the step that it is told, and looks again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PrepareStep {
    /// Lock `install.lock` exclusively, without waiting. Then sync the directories of the records: whoever had the lock
    /// may have been killed between a change and its sync, and no step may follow from what a loss of power takes back.
    LockInstallation,
    /// Make `generations/`, mode 0700.
    CreateDirectory,
    /// Create `<g>.lease` exclusively and lock it exclusively.
    CreateLease,
    /// Sync the lease, then write `<g>.lease-identity` durably.
    RecordLease,
    /// Open the lease without creating it and lock it exclusively, without waiting.
    LockLease,
    /// Read Core's configuration for exactly this generation.
    AskCore,
    /// Write `<g>.preparing` with `import_started: false` and the whole plan: the retained configuration as it is, or a
    /// new one.
    WritePlan,
    /// Fetch one missing file of the release; touch no existing one.
    Fetch,
    /// Write the release's `manifest.json`.
    WriteManifest,
    /// Make the network, or the store with its owner record.
    MakeHome,
    /// Rewrite `<g>.preparing` with `import_started: true`.
    StartImport,
    /// Import the image.
    Import,
    /// Write `<g>.json`: the plan with the resolved image.
    Publish,
    /// Unlink `<g>.preparing` and sync the directory.
    ClearJournal,
    /// Nothing is left to do: the node loads the configuration.
    Load,
}

/// The next step of a preparation or repair, from what was found.
///
/// # Errors
/// The first thing, in the order of node-host §3.2, that forbids any step. Nothing was changed by the look.
pub fn prepare(facts: &Preparation) -> Result<PrepareStep, Refusal> {
    if let Some(grip) = claim::installation(facts.claim)? {
        return Ok(grip.into());
    }
    claim::require_sound(facts.surroundings, &facts.journals)?;
    require_open(&facts.journals)?;
    if let Some(grip) = claim::lease(facts.claim, is_first(&facts.journals))? {
        return Ok(grip.into());
    }
    match facts.core {
        Authority::Unasked => return Ok(PrepareStep::AskCore),
        Authority::Differs(difference) => {
            return Err(Refusal::new(Object::CoreConfiguration, Cause::Foreign(difference)));
        }
        Authority::Agrees => {}
    }
    require_usable(facts)?;
    Ok(next(facts))
}

/// A dropped generation is never prepared again, nor one whose collection began (promise 6).
fn require_open(journals: &Journals) -> Result<(), Refusal> {
    if journals.dropped != Entry::Absent {
        return Err(Refusal::new(Object::Dropped, Cause::Final));
    }
    if journals.collecting != Entry::Absent {
        return Err(Refusal::new(Object::Collecting, Cause::Begun));
    }
    Ok(())
}

/// Whether nothing is retained of the generation, so that its lease may be created (node-host §2.1 C2).
fn is_first(journals: &Journals) -> bool {
    !journals.is_retained()
}

/// Content that is there must be the right one; what is missing is brought.
const fn require_usable(facts: &Preparation) -> Result<(), Refusal> {
    match facts.files {
        Files::Conflict => return Err(Refusal::new(Object::Release, Cause::Conflict)),
        Files::Damaged(damage) => return Err(Refusal::new(Object::Release, Cause::Damaged(damage))),
        Files::Whole | Files::Unlisted | Files::Missing => {}
    }
    if let Home::Store(store) = facts.home
        && let Err(refusal) = claim::sound(Object::Store, store)
    {
        return Err(refusal);
    }
    match facts.image {
        Image::Wrong => Err(Refusal::new(Object::Image, Cause::Foreign(Difference::Native))),
        Image::Unknown => Err(Refusal::new(Object::Image, Cause::Unknown)),
        Image::Available | Image::Absent => Ok(()),
    }
}

fn next(facts: &Preparation) -> PrepareStep {
    let published = facts.journals.configuration != Entry::Absent;
    let is_final = published || facts.journals.enrolled;
    if let Entry::Ours(journal) = facts.journals.preparing {
        work(facts, journal, is_final)
    } else if !is_final || is_incomplete(facts) {
        PrepareStep::WritePlan
    } else if published {
        PrepareStep::Load
    } else {
        PrepareStep::Publish
    }
}

/// Whether a repair has something to bring. A manifest alone is not missed (node-host §3.4 R3).
fn is_incomplete(facts: &Preparation) -> bool {
    facts.files == Files::Missing || is_homeless(facts.home) || facts.image == Image::Absent
}

fn is_homeless(home: Home) -> bool {
    matches!(home, Home::Network(false) | Home::Store(Entry::Absent))
}

/// With the plan recorded: files, home, image, then the publication.
fn work(facts: &Preparation, journal: facts::Preparing, is_final: bool) -> PrepareStep {
    match facts.files {
        Files::Missing => return PrepareStep::Fetch,
        Files::Unlisted => return PrepareStep::WriteManifest,
        Files::Whole | Files::Conflict | Files::Damaged(_) => {}
    }
    if is_homeless(facts.home) {
        return PrepareStep::MakeHome;
    }
    let absent = facts.image == Image::Absent;
    if !journal.import_started && (absent || !is_final) {
        PrepareStep::StartImport
    } else if absent {
        PrepareStep::Import
    } else if facts.journals.configuration == Entry::Absent {
        PrepareStep::Publish
    } else {
        PrepareStep::ClearJournal
    }
}

impl From<Grip> for PrepareStep {
    fn from(grip: Grip) -> Self {
        match grip {
            Grip::Installation => Self::LockInstallation,
            Grip::Directory => Self::CreateDirectory,
            Grip::Create => Self::CreateLease,
            Grip::Record => Self::RecordLease,
            Grip::Lease => Self::LockLease,
        }
    }
}
