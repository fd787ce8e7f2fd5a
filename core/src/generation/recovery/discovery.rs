//! What a starting node finds (node-host §3.5, §3.10).

use std::collections::BTreeMap;

use super::claim;
use super::facts::{Damage, Entry, Journals};
use super::refusal::{Cause, Object, Refusal};
use crate::generation::Found;
use crate::operation::Declaration;
use crate::units::Generation;

/// Everything that a start looks at.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Root {
    /// `provider.json`, and which generation was enrolled with it.
    pub base: Entry<Generation>,
    /// `generations/`, a real private directory.
    pub directory: Entry<()>,
    /// What stands there; [`Journals::enrolled`] is taken from `base`.
    pub generations: BTreeMap<Generation, Journals>,
}

/// Where one generation stands on this host. The markers have this precedence: dropped, collecting, preparing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Local {
    /// There is nothing but perhaps a lease.
    Nothing,
    /// It was dropped for good.
    Dropped,
    /// Its collection began: only a drop grant moves it.
    Collecting,
    /// Its preparation or repair began: repaired before anything else.
    Unfinished,
    /// It has a final configuration.
    Configured,
}

/// What the start does with a generation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Start {
    /// It does not exist for this process.
    Skip,
    /// It enters the generation table.
    Enter(Found),
    /// Its provider is constructed; [`Construction::found`] says what follows.
    Construct,
}

/// What the construction of a provider came to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Construction {
    /// It can be used.
    Built(Declaration),
    /// A file that it needs does not exist.
    FileMissing,
    /// Anything else.
    Failed,
}

/// Why a start was refused, and at which generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Refused {
    /// The generation, unless the whole installation is concerned.
    pub generation: Option<Generation>,
    /// What, and what is wrong with it.
    pub refusal: Refusal,
}

/// Every generation of this host.
///
/// # Errors
/// The first damaged, foreign or missing thing: a start never works with half of what there is, and never begins empty.
pub fn discover(root: &Root) -> Result<BTreeMap<Generation, Local>, Refused> {
    let whole = |refusal| Refused { generation: None, refusal };
    let enrolled = claim::required(Object::Base, root.base).map_err(whole)?;
    let directory = claim::sound(Object::Directory, root.directory).map_err(whole)?;
    if directory.is_none() && !root.generations.is_empty() {
        return Err(whole(Refusal::new(Object::Directory, Cause::Missing)));
    }
    let mut generations = root.generations.clone();
    generations.entry(enrolled).or_insert(Journals::NONE);
    let judge = |(generation, journals): (Generation, Journals)| {
        let journals = Journals { enrolled: generation == enrolled, ..journals };
        let refused = |refusal| Refused { generation: Some(generation), refusal };
        local(&journals).map(|local| (generation, local)).map_err(refused)
    };
    generations.into_iter().map(judge).collect()
}

/// Where the generation stands.
///
/// # Errors
/// Its damaged, foreign or missing file.
pub fn local(journals: &Journals) -> Result<Local, Refusal> {
    claim::require_sound_journals(journals)?;
    let retained = journals.is_retained();
    Ok(if journals.dropped != Entry::Absent {
        Local::Dropped
    } else if journals.collecting != Entry::Absent && !retained {
        return Err(Refusal::new(Object::Configuration, Cause::Missing));
    } else if journals.collecting != Entry::Absent {
        Local::Collecting
    } else if journals.preparing != Entry::Absent {
        Local::Unfinished
    } else if retained {
        Local::Configured
    } else {
        Local::Nothing
    })
}

impl Local {
    /// Whether release, image and store are kept for it, and there is anything of it to collect (node-host §3.5).
    #[must_use]
    pub const fn uses_files(self) -> bool {
        match self {
            Self::Nothing | Self::Dropped => false,
            Self::Collecting | Self::Unfinished | Self::Configured => true,
        }
    }

    /// What the start does with it.
    #[must_use]
    pub const fn start(self) -> Start {
        match self {
            Self::Nothing | Self::Dropped => Start::Skip,
            Self::Collecting => Start::Enter(Found::Collecting),
            Self::Unfinished => Start::Enter(Found::Recovery),
            Self::Configured => Start::Construct,
        }
    }
}

impl Construction {
    /// How a configured generation enters the table.
    ///
    /// # Errors
    /// A construction that failed for another reason than a missing file: the start fails.
    pub fn found(self) -> Result<Found, Refusal> {
        match self {
            Self::Built(declaration) => Ok(Found::Provider(declaration)),
            Self::FileMissing => Ok(Found::Recovery),
            Self::Failed => Err(Refusal::new(Object::Provider, Cause::Damaged(Damage::Content))),
        }
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = self.refusal.object.path(self.generation.unwrap_or(Generation::FIRST));
        match (self.generation, path) {
            (_, Some(path)) => write!(f, "{path}: {}", self.refusal),
            (Some(generation), None) => write!(f, "generation {generation}: {}", self.refusal),
            (None, None) => self.refusal.fmt(f),
        }
    }
}

impl std::error::Error for Refused {}
