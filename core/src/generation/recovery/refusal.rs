//! What a recovery refuses, and what to do about it.

use super::facts::{Damage, Difference};
use crate::units::Generation;

/// A thing on the host that a refusal names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Object {
    /// `install.lock`.
    InstallationLock,
    /// `provider.json`.
    Base,
    /// `state/node/generations`.
    Directory,
    /// A name in `state/node/generations` that no generation has.
    Name,
    /// `<g>.lease`.
    Lease,
    /// `<g>.lease-identity`.
    LeaseRecord,
    /// `<g>.json`.
    Configuration,
    /// `<g>.preparing`.
    Preparing,
    /// `<g>.collecting`.
    Collecting,
    /// `<g>.dropped`.
    Dropped,
    /// Another generation's configuration or journal.
    Others,
    /// Core's configuration for the generation.
    CoreConfiguration,
    /// Core's drop grant.
    Grant,
    /// The files of its Runtime release.
    Release,
    /// The files of the original generation.
    Originals,
    /// The microsandbox store.
    Store,
    /// The microsandbox program.
    Executable,
    /// The Runtime image.
    Image,
    /// The list of sandboxes in the store.
    Sandboxes,
    /// The provider made from a configuration.
    Provider,
}

/// What is wrong with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// It is not what belongs there.
    Damaged(Damage),
    /// It speaks of something else.
    Foreign(Difference),
    /// It should be there and is not.
    Missing,
    /// It is there without its record, from a run that crashed (node-host §3.3 row 2).
    Unrecorded,
    /// Its content is not the recorded one.
    Conflict,
    /// Somebody else works with it.
    Busy,
    /// The provider did not say what it has.
    Unknown,
    /// Something still uses it.
    InUse,
    /// The generation was dropped for good (promise 6).
    Final,
    /// The generation's collection began: nothing but a collection touches it.
    Begun,
}

/// Why nothing was done: what, and what is wrong with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Refusal {
    /// The thing.
    pub object: Object,
    /// What is wrong with it.
    pub cause: Cause,
}

/// Whether trying again can help (node-host §2.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Remedy {
    /// Somebody else may be done, or the provider may answer, later.
    Retry,
    /// An operator has to look at the named thing.
    Inspect,
    /// Never, and nothing is wrong.
    Never,
}

impl Refusal {
    pub(super) const fn new(object: Object, cause: Cause) -> Self {
        Self { object, cause }
    }

    /// Whether trying again can help.
    #[must_use]
    pub const fn remedy(self) -> Remedy {
        match self.cause {
            Cause::Busy | Cause::Unknown | Cause::InUse => Remedy::Retry,
            Cause::Final | Cause::Begun => Remedy::Never,
            Cause::Damaged(_) | Cause::Foreign(_) | Cause::Missing | Cause::Unrecorded | Cause::Conflict => {
                Remedy::Inspect
            }
        }
    }
}

impl Object {
    /// Its path below ROOT, where it has exactly one.
    #[must_use]
    pub fn path(self, generation: Generation) -> Option<String> {
        let of = |suffix: &str| Some(format!("state/node/generations/{generation}.{suffix}"));
        match self {
            Self::InstallationLock => Some("install.lock".to_owned()),
            Self::Base => Some("provider.json".to_owned()),
            Self::Directory => Some("state/node/generations".to_owned()),
            Self::Lease => of("lease"),
            Self::LeaseRecord => of("lease-identity"),
            Self::Configuration => of("json"),
            Self::Preparing => of("preparing"),
            Self::Collecting => of("collecting"),
            Self::Dropped => of("dropped"),
            Self::Name
            | Self::Others
            | Self::CoreConfiguration
            | Self::Grant
            | Self::Release
            | Self::Originals
            | Self::Store
            | Self::Executable
            | Self::Image
            | Self::Sandboxes
            | Self::Provider => None,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::InstallationLock => "the installation lock",
            Self::Base => "the enrolled configuration",
            Self::Directory => "the generations directory",
            Self::Name => "a file name in the generations directory",
            Self::Lease => "the lease of the generation",
            Self::LeaseRecord => "the lease record of the generation",
            Self::Configuration => "the configuration of the generation",
            Self::Preparing => "the preparation journal of the generation",
            Self::Collecting => "the collection journal of the generation",
            Self::Dropped => "the drop record of the generation",
            Self::Others => "a configuration or journal of another generation",
            Self::CoreConfiguration => "core's configuration for the generation",
            Self::Grant => "the drop grant",
            Self::Release => "a file of the runtime release",
            Self::Originals => "a file of the original runtime release",
            Self::Store => "the microsandbox store",
            Self::Executable => "the microsandbox program",
            Self::Image => "the runtime image",
            Self::Sandboxes => "the list of sandboxes in the store",
            Self::Provider => "the provider of the generation",
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.object.name();
        match self.cause {
            Cause::Damaged(damage) => write!(f, "{name} {}; inspect it, nothing was changed", damage.text()),
            Cause::Foreign(difference) => {
                write!(f, "{name} names another {}; inspect it, nothing was changed", difference.text())
            }
            Cause::Missing => write!(f, "{name} is missing; restore it, nothing is rebuilt without it"),
            Cause::Unrecorded => write!(f, "{name} has no record, a run crashed between the two; inspect it"),
            Cause::Conflict => write!(f, "{name} has other content than recorded; correct it, nothing was replaced"),
            Cause::Busy => write!(f, "{name} is held by another process; it is tried again later"),
            Cause::Unknown => write!(f, "{name} could not be determined; it is asked for again later"),
            Cause::InUse => write!(f, "{name} is in use; it is tried again later"),
            Cause::Final => f.write_str("the generation was dropped for good and is never prepared again"),
            Cause::Begun => f.write_str("the collection of the generation began; only a drop grant continues it"),
        }
    }
}

impl std::error::Error for Refusal {}

impl Damage {
    const fn text(self) -> &'static str {
        match self {
            Self::Link => "is reached through a symbolic link",
            Self::Kind => "is no regular file or directory as expected",
            Self::Access => "has another owner or other permissions than expected",
            Self::HardLink => "has several names",
            Self::Size => "is longer than allowed",
            Self::Content => "does not hold exactly the expected members",
            Self::Replaced => "was replaced while it was read",
            Self::Unreadable => "cannot be read",
            Self::Mount => "has something else mounted on it",
        }
    }
}

impl Difference {
    const fn text(self) -> &'static str {
        match self {
            Self::Installation => "installation",
            Self::Provider => "provider",
            Self::Core => "core",
            Self::Generation => "generation",
            Self::Specification => "specification",
            Self::Inode => "lease file",
            Self::Native => "provider setup than the recorded one",
        }
    }
}
