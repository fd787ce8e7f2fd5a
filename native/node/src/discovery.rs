//! What a starting node has on its host (node-host §3.10). All judgements are the core's; this reads and builds.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use palisade_core::generation::Found;
use palisade_core::generation::recovery::{Construction, Recorded, Refused, Start};
use palisade_core::units::Generation;
use palisade_core::wire::payload::GenerationReference;
use palisade_provider::Provider;

use crate::configuration::{Backend, Configuration, ConfigurationError};
use crate::generations::{GENERATIONS, Records, RecordsError};
use crate::identity::{IdentityError, Stored};

/// Why a start was refused. Everything on the host is as it was.
#[derive(Debug, thiserror::Error)]
pub enum DiscoveryError {
    /// A file is damaged, foreign or missing.
    #[error("the node does not start: {0}")]
    Refused(#[from] Refused),
    /// The records cannot be read as a whole.
    #[error("the node does not start: {0}")]
    Records(#[from] RecordsError),
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
        let records = Records::read(&state.join(GENERATIONS), &base.record)?;
        let mut local = Self { found: Vec::new(), providers: BTreeMap::new(), recorded: BTreeSet::new() };
        for (generation, place) in records.locals()? {
            let recorded = records.of(generation);
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

#[cfg(test)]
mod tests;
