//! What is recorded in `generations/`, read strictly (node-host §3.5, §3.10).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use palisade_core::generation::configuration::Configuration;
use palisade_core::generation::recovery::{
    self, Damage, Entry, IllegalName, Local, Looks, Name, Plan, Recorded, Refused, Root,
};
use palisade_core::limits::{MARKER_MAX_BYTES, PLAN_MAX_BYTES};
use palisade_core::units::Generation;

use super::layout::name;
use crate::files::look::{Folder, Seen, look};

/// The directory of the generations' records, below the state directory.
pub(crate) const GENERATIONS: &str = "generations";

/// Why the records cannot be read as a whole.
#[derive(Debug, thiserror::Error)]
pub enum RecordsError {
    /// A name that only resembles a record's.
    #[error("{}: expected a number without leading zeros before the dot, such as 7.json; {error}", path.display())]
    Name {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: IllegalName,
    },
    /// The directory could not be listed.
    #[error("the generations cannot be listed: {}: {error}", path.display())]
    List {
        /// The directory.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// Every generation of which something is recorded.
#[derive(Debug, Clone)]
pub(crate) struct Records {
    directory: Entry<()>,
    generations: BTreeMap<Generation, Known>,
    base: Configuration,
}

/// What is recorded of one generation.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) recorded: Recorded,
    /// The plan of a preparation or repair that did not end.
    pub(crate) plan: Option<Plan>,
}

impl Known {
    /// What the generation serves with, or is to become.
    pub(crate) fn configuration(&self) -> Option<&Configuration> {
        self.recorded.configuration.as_ref().or(self.plan.as_ref().map(|plan| &plan.configuration))
    }
}

impl Records {
    /// Reads `directory`, which need not be there, beside the enrolled configuration.
    pub(crate) fn read(directory: &Path, base: &Configuration) -> Result<Self, RecordsError> {
        let entry = look(directory, 0).borrow().directory();
        let generations = if entry == Entry::Ours(()) { read(directory, base)? } else { Some(BTreeMap::new()) };
        let replaced = Entry::Damaged(Damage::Replaced);
        let directory = if generations.is_some() { entry } else { replaced };
        Ok(Self { directory, generations: generations.unwrap_or_default(), base: base.clone() })
    }

    /// `generations/` itself.
    pub(crate) const fn directory(&self) -> Entry<()> {
        self.directory
    }

    /// What is recorded of one generation.
    pub(crate) fn of(&self, generation: Generation) -> Recorded {
        self.known(generation).recorded
    }

    /// The same, with its plan.
    pub(crate) fn known(&self, generation: Generation) -> Known {
        let nothing = || Known { recorded: Looks::NONE.read(&self.base, generation), plan: None };
        self.generations.get(&generation).cloned().unwrap_or_else(nothing)
    }

    /// Where every generation stands.
    ///
    /// # Errors
    /// The first thing that cannot be believed.
    pub(crate) fn locals(&self) -> Result<BTreeMap<Generation, Local>, Refused> {
        self.locals_but(None)
    }

    /// Where every other generation stands; the enrolled one is always among them.
    pub(crate) fn others(&self, generation: Generation) -> Result<BTreeMap<Generation, Local>, Refused> {
        let mut locals = self.locals_but(Some(generation))?;
        locals.remove(&generation);
        Ok(locals)
    }

    fn locals_but(&self, left_out: Option<Generation>) -> Result<BTreeMap<Generation, Local>, Refused> {
        let others = self.generations.iter().filter(|(generation, _)| Some(**generation) != left_out);
        recovery::discover(&Root {
            base: Entry::Ours(self.base.envelope.generation),
            directory: self.directory,
            generations: others.map(|(&generation, known)| (generation, known.recorded.journals)).collect(),
        })
    }
}

/// Every generation that a name stands for; `None` when the directory is no longer the one that was looked at.
fn read(directory: &Path, base: &Configuration) -> Result<Option<BTreeMap<Generation, Known>>, RecordsError> {
    let unlisted = |error| RecordsError::List { path: directory.to_owned(), error };
    let folder = match Folder::open(directory) {
        Ok(folder) => folder,
        Err(Errno::ENOENT | Errno::ELOOP | Errno::ENOTDIR) => return Ok(None),
        Err(error) => return Err(unlisted(error.into())),
    };
    let mut numbers = BTreeSet::new();
    for entry in directory.read_dir().map_err(unlisted)? {
        let entry = entry.map_err(unlisted)?;
        let name = Name::parse(&entry.file_name().to_string_lossy());
        match name.map_err(|error| RecordsError::Name { path: directory.join(entry.file_name()), error })? {
            Name::Configuration(generation)
            | Name::Preparing(generation)
            | Name::Collecting(generation)
            | Name::Dropped(generation)
            | Name::Lease(generation)
            | Name::LeaseRecord(generation) => drop(numbers.insert(generation)),
            Name::Unknown => {}
        }
    }
    Ok(Some(numbers.into_iter().map(|generation| (generation, record(&folder, base, generation))).collect()))
}

/// The four records of one generation.
pub(super) fn record(folder: &Folder, base: &Configuration, generation: Generation) -> Known {
    let at = |suffix: &str, max| -> Seen { folder.look(&name(generation, suffix), max) };
    let (configuration, preparing) = (at("json", PLAN_MAX_BYTES), at("preparing", PLAN_MAX_BYTES));
    let (collecting, dropped) = (at("collecting", MARKER_MAX_BYTES), at("dropped", MARKER_MAX_BYTES));
    let looks = Looks {
        configuration: configuration.borrow(),
        preparing: preparing.borrow(),
        collecting: collecting.borrow(),
        dropped: dropped.borrow(),
    };
    let recorded = looks.read(base, generation);
    let plan = looks.preparing.preparing(&base.envelope, generation, recorded.configuration.as_ref()).ours();
    Known { recorded, plan }
}
