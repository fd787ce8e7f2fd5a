//! What a starting node has on its host (node-host §3.10). All judgements are the core's; this reads and builds.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;

use nix::fcntl::OFlag;
use palisade_core::generation::Found;
use palisade_core::generation::recovery::{
    self, Construction, Damage, Entry, FileKind, IllegalName, Look, Looks, Name, Recorded, Refused, Root, Start, Status,
};
use palisade_core::limits::{MARKER_MAX_BYTES, PLAN_MAX_BYTES};
use palisade_core::units::Generation;
use palisade_core::wire::payload::GenerationReference;
use palisade_provider::Provider;

use crate::configuration::{Backend, Configuration, ConfigurationError};
use crate::identity::{IdentityError, Stored};

/// The directory of the generations' records, below the state directory.
const GENERATIONS: &str = "generations";

/// Why a start was refused. Everything on the host is as it was.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// A file is damaged, foreign or missing.
    #[error("the node does not start: {0}")]
    Refused(#[from] Refused),
    /// A name that only resembles a record's.
    #[error("the node does not start: {0}")]
    Name(#[from] IllegalName),
    /// The directory could not be listed.
    #[error("the generations cannot be listed: {0}")]
    List(#[from] io::Error),
    /// A provider could not be made from its configuration.
    #[error("generation {generation}: {error}")]
    Provider {
        /// Which generation.
        generation: Generation,
        /// Why.
        error: ConfigurationError,
    },
    /// A generation works on another backend than the node was enrolled with.
    #[error("generation {generation}: {error}")]
    Backend {
        /// Which generation.
        generation: Generation,
        /// What differs.
        error: IdentityError,
    },
}

/// The generations of this host.
pub(crate) struct Local {
    /// What enters the table.
    pub(crate) found: Vec<(GenerationReference, Found)>,
    /// The constructed ones.
    pub(crate) providers: BTreeMap<Generation, Arc<dyn Provider>>,
    /// Everything that a file belongs to.
    pub(crate) recorded: BTreeSet<Generation>,
}

impl Local {
    /// Reads the records below the state directory and constructs every provider that a final configuration names.
    ///
    /// # Errors
    /// The first thing that cannot be believed: a node never starts with half of what it has.
    pub(crate) fn discover(
        state: &Path,
        base: &Configuration,
        stored: &Stored,
        build: impl Fn(&Configuration) -> Result<Backend, ConfigurationError>,
    ) -> Result<Self, DiscoveryError> {
        let directory = state.join(GENERATIONS);
        let (entry, mut records) = read(&directory, base)?;
        let generations = records.iter().map(|(&generation, recorded)| (generation, recorded.journals)).collect();
        let root = Root { base: Entry::Ours(base.generation()), directory: entry, generations };
        let nothing = || Looks::NONE.read(&base.record, base.generation());
        let mut local = Self { found: Vec::new(), providers: BTreeMap::new(), recorded: BTreeSet::new() };
        for (generation, place) in recovery::discover(&root)? {
            let recorded = records.remove(&generation).unwrap_or_else(nothing);
            local.recorded.insert(generation);
            match place.start() {
                Start::Skip => drop(local.recorded.remove(&generation)),
                Start::Enter(found) => local.enter(generation, &recorded, found),
                Start::Construct => local.construct(generation, &recorded, stored, &build)?,
            }
        }
        Ok(local)
    }

    fn enter(&mut self, generation: Generation, recorded: &Recorded, found: Found) {
        let specification_digest = recorded.specification_digest.expect("a configuration or a plan names it");
        self.found.push((GenerationReference { generation, specification_digest }, found));
    }

    fn construct(
        &mut self,
        generation: Generation,
        recorded: &Recorded,
        stored: &Stored,
        build: impl Fn(&Configuration) -> Result<Backend, ConfigurationError>,
    ) -> Result<(), DiscoveryError> {
        let configuration = recorded.configuration.clone().expect("a configured generation has a configuration");
        let construction = match build(&configuration.into()) {
            Ok(Backend { provider, fingerprint }) => {
                let backend = |error| DiscoveryError::Backend { generation, error };
                stored.require_fingerprint(fingerprint).map_err(backend)?;
                let declaration = provider.declaration().clone();
                self.providers.insert(generation, provider);
                Construction::Built(declaration)
            }
            Err(error) if error.misses_a_file() => {
                tracing::warn!(%generation, %error, "the generation has to be repaired before it can be used");
                Construction::FileMissing
            }
            Err(error) => return Err(DiscoveryError::Provider { generation, error }),
        };
        let refused = |refusal| Refused { generation: Some(generation), refusal };
        let found = construction.found().map_err(refused)?;
        self.enter(generation, recorded, found);
        Ok(())
    }
}

type Records = BTreeMap<Generation, Recorded>;

fn read(directory: &Path, base: &Configuration) -> Result<(Entry<()>, Records), DiscoveryError> {
    let entry = look(directory, 0).borrow().directory();
    let entry = if is_real(directory) { entry } else { Entry::Damaged(Damage::Link) };
    let generations = if entry == Entry::Ours(()) { numbers(directory)? } else { BTreeSet::new() };
    let records = generations.into_iter().map(|generation| (generation, record(directory, base, generation)));
    Ok((entry, records.collect()))
}

/// Whether no link stands on the path, also when there is nothing at its end.
fn is_real(directory: &Path) -> bool {
    match directory.canonicalize() {
        Ok(real) => real == directory,
        Err(error) => {
            let absent = error.kind() == io::ErrorKind::NotFound && directory.symlink_metadata().is_err();
            absent && directory.parent().is_some_and(|parent| parent.canonicalize().is_ok_and(|real| real == parent))
        }
    }
}

/// Every generation that a name stands for.
fn numbers(directory: &Path) -> Result<BTreeSet<Generation>, DiscoveryError> {
    let mut numbers = BTreeSet::new();
    for entry in directory.read_dir()? {
        match Name::parse(&entry?.file_name().to_string_lossy())? {
            Name::Configuration(generation)
            | Name::Preparing(generation)
            | Name::Collecting(generation)
            | Name::Dropped(generation)
            | Name::Lease(generation)
            | Name::LeaseRecord(generation) => drop(numbers.insert(generation)),
            Name::Unknown => {}
        }
    }
    Ok(numbers)
}

fn record(directory: &Path, base: &Configuration, generation: Generation) -> Recorded {
    let at = |suffix: &str, max| look(&directory.join(format!("{generation}.{suffix}")), max);
    let (configuration, preparing) = (at("json", PLAN_MAX_BYTES), at("preparing", PLAN_MAX_BYTES));
    let (collecting, dropped) = (at("collecting", MARKER_MAX_BYTES), at("dropped", MARKER_MAX_BYTES));
    let looks = Looks {
        configuration: configuration.borrow(),
        preparing: preparing.borrow(),
        collecting: collecting.borrow(),
        dropped: dropped.borrow(),
    };
    looks.read(&base.record, generation)
}

/// A [`Look`] with its bytes.
enum Seen {
    Absent,
    Failed(Damage),
    Opened(Status, Vec<u8>),
}

impl Seen {
    fn borrow(&self) -> Look<'_> {
        match self {
            Self::Absent => Look::Absent,
            Self::Failed(damage) => Look::Failed(*damage),
            Self::Opened(status, bytes) => Look::Opened(*status, bytes),
        }
    }
}

/// Looks at what stands at a path, without following a link and without waiting for a pipe.
fn look(path: &Path, max: usize) -> Seen {
    match seen(path, max) {
        Ok(seen) => seen,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Seen::Absent,
        Err(error) if error.raw_os_error() == Some(nix::errno::Errno::ELOOP as i32) => Seen::Failed(Damage::Link),
        Err(_) => Seen::Failed(Damage::Unreadable),
    }
}

fn seen(path: &Path, max: usize) -> io::Result<Seen> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = opened(path, flags)?;
    let metadata = file.metadata()?;
    let kind = if metadata.is_file() {
        FileKind::File
    } else if metadata.is_dir() {
        FileKind::Directory
    } else {
        FileKind::Other
    };
    let status = Status {
        kind,
        owned: metadata.uid() == nix::unistd::geteuid().as_raw(),
        mode: metadata.mode() & 0o7777,
        links: metadata.nlink(),
        device: metadata.dev(),
        inode: metadata.ino(),
    };
    let mut bytes = Vec::new();
    if kind == FileKind::File {
        file.take(max as u64 + 1).read_to_end(&mut bytes)?;
    }
    let named = path.symlink_metadata()?;
    let same = (named.dev(), named.ino()) == (status.device, status.inode);
    Ok(if same { Seen::Opened(status, bytes) } else { Seen::Failed(Damage::Replaced) })
}

fn opened(path: &Path, flags: OFlag) -> io::Result<File> {
    File::options().read(true).custom_flags(flags.bits()).open(path)
}

#[cfg(test)]
mod tests;
