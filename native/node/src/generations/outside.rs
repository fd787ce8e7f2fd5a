//! What a preparation or collection needs from beyond the files of its installation. A test has its own.

use std::path::Path;

use palisade_core::deployment::specification::Specification;
use palisade_core::distribution::manifest::Manifest;
use palisade_core::generation::assignment::Assignment;
use palisade_core::generation::recovery::{Cause, Object, Refusal, Refused};
use palisade_core::limits::PREPARER_TRANSFER_FAILED;
use palisade_core::units::Generation;

use super::records::RecordsError;
use super::setup::{Drifted, Setup};
use crate::download::DownloadError;
use crate::files::FileError;
use crate::files::disk::Disk;
use crate::identity::IdentityError;

/// Core, as far as a preparation asks it.
pub(super) trait Authority {
    /// Core's configuration for exactly this generation, asked for with the node's credential.
    fn assignment(&mut self, generation: Generation) -> Result<Assignment, Failure>;
}

/// Where the files of releases come from.
pub(super) trait Releases {
    /// The verified manifest of the release that a specification selects; it agrees with the whole selection.
    fn manifest(&mut self, specification: &Specification) -> Result<Manifest, Failure>;

    /// Brings one file that is missing below `release`: verified, durable, with its mode. What was interrupted before is
    /// cleared or resumed; what is there is not touched.
    fn fetch(&mut self, disk: &mut dyn Disk, manifest: &Manifest, path: &str, release: &Path) -> Result<(), Failure>;

    /// Unpacks the image's archive below `release` beside itself, verified, for an engine that cannot read it packed.
    fn unpack(&mut self, disk: &mut dyn Disk, manifest: &Manifest, release: &Path) -> Result<(), Failure>;
}

/// The provider's engine, without its sandboxes.
pub(super) trait Engine {
    /// Whether the engine has the image of the specification, and what it calls it. A program of microsandbox makes its
    /// store when it is missing: it is asked only for a store that is there, by [`super::run::Run::image`].
    fn image(&mut self, setup: &Setup, specification: &Specification) -> Found;

    /// Whether the network is there; microsandbox has none.
    fn has_network(&mut self, setup: &Setup, name: &str) -> Result<bool, Failure>;

    /// Makes the installation's network.
    fn make_network(&mut self, setup: &Setup, name: &str) -> Result<(), Failure>;

    /// Imports the verified archive of the release's folder: docker the packed one, microsandbox the unpacked one.
    fn import(&mut self, setup: &Setup, manifest: &Manifest) -> Result<(), Failure>;

    /// The whole list of images of a store, each `name@sha256:…`; `None` when the query failed or a line is malformed.
    fn images(&mut self, setup: &Setup) -> Option<Vec<String>>;

    /// Removes an image of a store; `false` when something uses it.
    fn remove_image(&mut self, setup: &Setup, image: &str) -> Result<bool, Failure>;

    /// Whether a store holds sandboxes; `None` when the query failed or its answer is malformed.
    fn has_sandboxes(&mut self, setup: &Setup) -> Option<bool>;
}

/// What an engine answers for an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    /// It is there, under this name of the engine.
    Image(String),
    /// It is not there.
    Nothing,
    /// Something else stands in its place.
    Other,
    /// The engine did not say.
    Unknown,
}

/// All of it.
pub(super) struct Outside<'a> {
    pub(super) core: &'a mut dyn Authority,
    pub(super) releases: &'a mut dyn Releases,
    pub(super) engine: &'a mut dyn Engine,
}

/// Why a preparation or collection ended without being done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// Something forbids the next step; nothing was changed by that step.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Something recorded of this or another generation forbids everything.
    #[error(transparent)]
    Records(#[from] Refused),
    /// The installation is not the one that was named, or has no identity.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The records cannot be read as a whole.
    #[error(transparent)]
    Names(#[from] RecordsError),
    /// A file of the release, or what is said about it, could not be had.
    #[error("the runtime release could not be had: {0}")]
    Download(#[from] DownloadError),
    /// Core did not say what it wants.
    #[error("core's configuration could not be read: {0}")]
    Core(String),
    /// The engine did not do what was asked.
    #[error("the engine failed: {0}")]
    Engine(String),
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// Nothing can be planned from the enrolled configuration.
    #[error(transparent)]
    Drifted(#[from] Drifted),
    /// The steps did not come to an end.
    #[error(
        "the {0} did not come to an end after {1} steps; report this with the names of the files of the generation"
    )]
    Endless(&'static str, usize),
}

impl Failure {
    /// The exit status of the preparer: 65 for transfer, checksum and provenance alone (node-host §3.1, §3.4).
    pub(crate) const fn exit_code(&self) -> u8 {
        const TRANSFER: u8 = PREPARER_TRANSFER_FAILED.to_le_bytes()[0];
        match self {
            Self::Refused(Refusal { object: Object::Release, cause: Cause::Conflict }) => TRANSFER,
            Self::Download(error) if error.is_transfer() => TRANSFER,
            Self::Download(_)
            | Self::Refused(_)
            | Self::Records(_)
            | Self::Identity(_)
            | Self::Names(_)
            | Self::Core(_)
            | Self::Engine(_)
            | Self::File(_)
            | Self::Drifted(_)
            | Self::Endless(..) => 1,
        }
    }
}
