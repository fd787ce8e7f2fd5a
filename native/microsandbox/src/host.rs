//! The host's side of one generation, constructed with every check (node-host §8.1).

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use palisade_core::deployment::specification::Specification;
use palisade_core::microsandbox::native::{Construction, Context};
use palisade_core::microsandbox::{helper, native, readiness};
use palisade_core::units::{Digest, Generation, Id};

use crate::directory::{self, Unsafe};
use crate::helper::{Helpers, Leases};
use crate::msb::Msb;
use crate::probe::{Machine, Probe};

/// The folder of the generations' records in a state directory.
const GENERATIONS: &str = "generations";

/// What one deployment generation asks of this provider.
#[derive(Debug, Clone, Copy)]
pub struct Configuration<'a> {
    /// Whose sandboxes these are.
    pub installation: Id,
    /// Which deployment generation.
    pub generation: Generation,
    /// Sizes, image and programs.
    pub specification: &'a Specification,
    /// The JSON text of the provider's own object.
    pub native: &'a str,
    /// Standalone, or in which state directory; see [`Context::explicit`].
    pub context: Context<'a>,
}

/// Why a configuration was refused.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// What it says.
    #[error(transparent)]
    Configuration(#[from] native::Refused),
    /// The folder of the generations' records.
    #[error("the generations of the node cannot be used: {0}")]
    Generations(#[from] Unsafe),
}

/// One generation on this host: its programs, its store, its readiness. It runs no sandbox by itself.
pub struct MicrosandboxHost {
    installation: Id,
    generation: Generation,
    construction: Construction,
    probe: Probe,
}

impl MicrosandboxHost {
    /// Checks a configuration. In a generation's context the folder of records is made when it is missing, and must be a
    /// real private directory.
    ///
    /// # Errors
    /// The first thing that is wrong; nothing that was there is changed.
    pub fn new(configuration: Configuration<'_>, machine: Machine) -> Result<Self, Refused> {
        let construction = Construction::check(configuration.specification, configuration.native)?;
        if let Context::Generation { state } = configuration.context {
            directory::ensure(&Path::new(state).join(GENERATIONS))?;
        }
        let checks = readiness::Check::of(configuration.context);
        Ok(Self {
            installation: configuration.installation,
            generation: configuration.generation,
            probe: Probe::new(machine, checks, &construction),
            construction,
        })
    }

    /// Which generation.
    #[must_use]
    pub const fn generation(&self) -> Generation {
        self.generation
    }

    /// Names the provider and the place its resources live in.
    #[must_use]
    pub fn fingerprint(&self) -> Digest {
        self.construction.fingerprint()
    }

    /// What a helper must know.
    #[must_use]
    pub fn config(&self) -> helper::Config {
        helper::Config::of(self.installation, &self.construction)
    }

    /// The helpers of this generation, with what they may have of the environment `has`.
    #[must_use]
    pub fn helpers(
        &self,
        leases: Option<Arc<dyn Leases>>,
        has: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Helpers {
        Helpers::new(&self.construction.native, leases, has)
    }

    /// The `msb` of this generation.
    #[must_use]
    pub fn msb(&self) -> Msb {
        Msb::of(&self.construction.native)
    }

    /// Whether a sandbox could be created now. Nothing is changed and nothing repaired.
    ///
    /// # Errors
    /// The first check that fails, in the order of node-host §8.9.
    pub async fn probe(&self) -> Result<(), palisade_provider::NotReady> {
        self.probe.run().await
    }
}
