//! The private state of a node: who it is, and the lock that makes it the only one (wire §4.2, node-host §1.5).

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use crate::origin::Origin;
use palisade_core::deployment::contract::{Mode, Provider as Kind};
use palisade_core::limits::ENROLLMENT_MAX_BYTES;
use palisade_core::strict;
use palisade_core::units::{Digest, Generation, Id, OwnerEpoch};
use palisade_core::wire::payload;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::configuration::Configuration;
use crate::files::disk::{Disk, System};
use crate::files::{self, FileError, Privacy, writer};
use crate::generations::GENERATIONS;
use crate::limits::CAPACITY_MAX;

const IDENTITY: &str = "identity.json";
const TEMPORARY: &str = ".identity-partial";
const LOCK: &str = "identity.lock";

/// Who a node is. Everything but the capacities is immutable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Chosen by the node.
    pub node_id: Id,
    /// Core's installation.
    pub installation_id: Id,
    /// The provider's name.
    pub provider: String,
    /// The place where sandboxes live.
    pub backend_fingerprint: Digest,
    /// The enrolled generation; not the current target.
    pub deployment_generation: Generation,
    /// The enrolled digest.
    pub specification_digest: Digest,
    /// Approved by Core; 0 before the first approval.
    pub max_active: i64,
    /// Approved by Core; 0 before the first approval.
    pub max_retained: i64,
}

impl Identity {
    /// The identity as `hello` carries it.
    #[must_use]
    pub fn on_the_wire(&self) -> payload::Identity<'static> {
        payload::Identity {
            node_id: self.node_id.to_string().into(),
            installation_id: self.installation_id.to_string().into(),
            provider: self.provider.clone().into(),
            backend_fingerprint: self.backend_fingerprint.to_string().into(),
            deployment_generation: self.deployment_generation.get(),
            specification_digest: self.specification_digest.to_string().into(),
            max_active: self.max_active,
            max_retained: self.max_retained,
        }
    }

    /// Whether Core has approved a capacity, which it does with the enrollment.
    #[must_use]
    pub const fn is_approved(&self) -> bool {
        1 <= self.max_active && self.max_active <= self.max_retained && self.max_retained <= CAPACITY_MAX
    }

    const fn has_possible_capacity(&self) -> bool {
        self.is_approved() || (self.max_active == 0 && self.max_retained == 0)
    }
}

/// The node's secret, 64 lower-case hexadecimal characters. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Credential(Zeroizing<String>);

impl Credential {
    fn generate() -> Self {
        let secret: Zeroizing<[u8; 32]> = Zeroizing::new(rand::random());
        let hex = secret.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
        Self(Zeroizing::new(hex.map(|nibble| char::from_digit(nibble.into(), 16).unwrap_or('0')).collect()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[secret]")
    }
}

/// Everything that `identity.json` holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) identity: Identity,
    pub(crate) credential: Credential,
    pub(crate) core_url: Origin,
    /// The highest epoch that was current; `None` before the first connection.
    pub(crate) owner_epoch: Option<OwnerEpoch>,
    /// The operator's choice at the first registration (decision 10).
    pub(crate) allow_insecure_origin: bool,
}

/// Members of `identity.json`, exactly.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Members {
    #[serde(deserialize_with = "strict::nested")]
    identity: Identity,
    credential: String,
    core_url: String,
    owner_epoch: u64,
    #[serde(default, deserialize_with = "strict::present", skip_serializing_if = "Option::is_none")]
    allow_insecure_origin: Option<bool>,
}

/// Why the private state cannot be used. Nothing is ever replaced because of one of these.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A file or directory is not what it must be.
    #[error("the state directory cannot be used: {0}")]
    File(#[from] FileError),
    /// Another process holds the lock.
    #[error("{} is already in use by another process; stop that node first", .0.display())]
    InUse(PathBuf),
    /// `identity.json` does not read back as an identity.
    #[error("{} is damaged and is kept as it is: {reason}; restore it, or remove this node and register a new one in an empty state directory", .path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it; never a value from it.
        reason: &'static str,
    },
    /// The identity belongs to another backend or another Core.
    #[error(
        "the retained identity belongs to another {0} and is kept as it is; use its own configuration and address, or another state directory"
    )]
    Foreign(&'static str),
    /// There is no identity yet.
    #[error("{} has no identity; run palisade node register first", .0.display())]
    Unregistered(PathBuf),
    /// A connection that is gone brought a higher epoch, which was stored meanwhile.
    #[error("a higher owner epoch is stored already")]
    LowerEpoch,
    /// Plain http to another host, without the opt-in that is stored at the first registration.
    #[error(
        "{0} is plain http to another host: the node's credential would travel unprotected; use https, or register with --allow-insecure-origin"
    )]
    Insecure(Origin),
}

/// A locked state directory. The lock is released by the end of the process, or by dropping this.
#[derive(Debug)]
pub(crate) struct State {
    directory: PathBuf,
    _lock: File,
}

impl State {
    /// Opens the directory, made when only its parent exists, and takes its lock.
    pub(crate) fn create(directory: &Path) -> Result<Self, IdentityError> {
        files::require_clean(directory)?;
        files::ensure_private_directory(directory)?;
        Self::lock(&mut System, directory)
    }

    /// Opens the directory of a registered node and takes its lock.
    pub(crate) fn open(directory: &Path) -> Result<Self, IdentityError> {
        files::require_clean(directory)?;
        match files::require_private_directory(directory) {
            Err(error) if error.is_missing() => Err(IdentityError::Unregistered(directory.to_owned())),
            checked => Ok(checked?),
        }?;
        Self::lock(&mut System, directory)
    }

    /// Takes the lock, and makes durable what an earlier process may have been killed before it synced: Core may learn of
    /// whatever is read from here on, and a loss of power must not take it back afterwards (promise 15).
    fn lock(disk: &mut dyn Disk, directory: &Path) -> Result<Self, IdentityError> {
        let path = directory.join(LOCK);
        let lock = files::open_lock(&path)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(IdentityError::InUse(directory.to_owned())),
            Err(TryLockError::Error(error)) => return Err(FileError::new(&path, error).into()),
        }
        for settled in [directory, &directory.join(GENERATIONS)] {
            writer::settle(disk, settled)?;
        }
        Ok(Self { directory: directory.to_owned(), _lock: lock })
    }

    /// Where the state is.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// The identity; `None` when none was ever stored.
    pub(crate) fn read(&self) -> Result<Option<Stored>, IdentityError> {
        peek(&self.directory)
    }

    /// The identity of a registered node.
    pub(crate) fn registered(&self) -> Result<Stored, IdentityError> {
        self.read()?.ok_or_else(|| IdentityError::Unregistered(self.directory.clone()))
    }

    /// The retained identity, or a new one, stored before this returns.
    pub(crate) fn adopt_or_create(
        &self,
        configuration: &Configuration,
        fingerprint: Digest,
        core_url: &Origin,
        allow_insecure_origin: bool,
    ) -> Result<Stored, IdentityError> {
        if let Some(stored) = self.read()? {
            stored.require_backend(configuration, fingerprint)?;
            stored.require_core_url(core_url)?;
            return Ok(stored);
        }
        let stored = Stored::new(configuration, fingerprint, core_url.clone(), allow_insecure_origin)?;
        self.write(&stored)?;
        Ok(stored)
    }

    /// Stores `stored` durably: a crash leaves the identity before or after.
    pub(crate) fn write(&self, stored: &Stored) -> Result<(), IdentityError> {
        Ok(files::replace(&self.directory, IDENTITY, TEMPORARY, &stored.encode())?)
    }

    /// Stores a higher epoch, before the connection that brought it becomes current (wire §4.5).
    ///
    /// # Errors
    /// A higher one is stored already, or the file cannot be written.
    pub(crate) fn record_epoch(&self, stored: &mut Stored, epoch: OwnerEpoch) -> Result<(), IdentityError> {
        if stored.owner_epoch > Some(epoch) {
            return Err(IdentityError::LowerEpoch);
        }
        let next = Stored { owner_epoch: Some(epoch), ..stored.clone() };
        self.write(&next)?;
        *stored = next;
        Ok(())
    }
}

/// Whether another process holds the lock of `directory`. Makes nothing.
pub(crate) fn is_in_use(directory: &Path) -> Result<bool, IdentityError> {
    let path = directory.join(LOCK);
    let lock = match files::open(&path, Privacy::Private) {
        Err(error) if error.is_missing() => return Ok(false),
        opened => opened?,
    };
    match lock.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(FileError::new(&path, error).into()),
    }
}

/// Reads the identity without the lock; a replacement is atomic, so it is whole.
pub(crate) fn peek(directory: &Path) -> Result<Option<Stored>, IdentityError> {
    files::require_clean(directory)?;
    match files::require_private_directory(directory) {
        Err(error) if error.is_missing() => return Ok(None),
        checked => checked?,
    }
    let path = directory.join(IDENTITY);
    match files::read(&path, Privacy::Private, ENROLLMENT_MAX_BYTES) {
        Err(error) if error.is_missing() => Ok(None),
        bytes => Stored::decode(&Zeroizing::new(bytes?)).map(Some).map_err(|reason| match reason {
            Undecodable::Reason(reason) => IdentityError::Damaged { path, reason },
            Undecodable::Insecure(origin) => IdentityError::Insecure(origin),
        }),
    }
}

enum Undecodable {
    Reason(&'static str),
    Insecure(Origin),
}

impl From<&'static str> for Undecodable {
    fn from(reason: &'static str) -> Self {
        Self::Reason(reason)
    }
}

impl Stored {
    fn new(
        configuration: &Configuration,
        backend_fingerprint: Digest,
        core_url: Origin,
        allow_insecure_origin: bool,
    ) -> Result<Self, IdentityError> {
        if !core_url.is_permitted(allow_insecure_origin) {
            return Err(IdentityError::Insecure(core_url));
        }
        Ok(Self {
            identity: Identity {
                node_id: Id::from_random(rand::random()),
                installation_id: configuration.installation(),
                provider: configuration.kind().name().to_owned(),
                backend_fingerprint,
                deployment_generation: configuration.generation(),
                specification_digest: configuration.digest(),
                max_active: 0,
                max_retained: 0,
            },
            credential: Credential::generate(),
            core_url,
            owner_epoch: None,
            allow_insecure_origin,
        })
    }

    fn decode(bytes: &[u8]) -> Result<Self, Undecodable> {
        let members: Members = strict::object(bytes).map_err(|_| "it is not exactly the object of an identity")?;
        let Members { identity, credential, core_url, owner_epoch, allow_insecure_origin } = members;
        let credential = Credential(Zeroizing::new(credential));
        Kind::from_name(&identity.provider)
            .filter(|kind| kind.rule().mode == Mode::Nodes)
            .ok_or("provider is not one that has nodes")?;
        if !identity.has_possible_capacity() {
            return Err("max_active and max_retained are out of bounds".into());
        }
        Digest::parse(credential.as_str()).map_err(|_| "credential is not 64 lower-case hexadecimal characters")?;
        let core_url = Origin::parse(&core_url).map_err(|_| "core_url is no origin")?;
        let allow_insecure_origin = allow_insecure_origin.unwrap_or(false);
        if !core_url.is_permitted(allow_insecure_origin) {
            return Err(Undecodable::Insecure(core_url));
        }
        let owner_epoch = match owner_epoch {
            0 => None,
            epoch => Some(OwnerEpoch::new(epoch).ok_or("owner_epoch is out of bounds")?),
        };
        Ok(Self { identity, credential, core_url, owner_epoch, allow_insecure_origin })
    }

    fn encode(&self) -> Zeroizing<Vec<u8>> {
        let members = Members {
            identity: self.identity.clone(),
            credential: self.credential.as_str().to_owned(),
            core_url: self.core_url.to_string(),
            owner_epoch: self.owner_epoch.map_or(0, OwnerEpoch::get),
            allow_insecure_origin: self.allow_insecure_origin.then_some(true),
        };
        let mut bytes = serde_json::to_vec(&members).expect("plain members always serialise");
        bytes.push(b'\n');
        Zeroizing::new(bytes)
    }

    /// Refuses a configuration and a backend that are not the enrolled ones.
    pub(crate) fn require_backend(
        &self,
        configuration: &Configuration,
        fingerprint: Digest,
    ) -> Result<(), IdentityError> {
        self.require_enrolled(configuration)?;
        self.require_fingerprint(fingerprint)
    }

    /// Refuses a configuration that is not the enrolled one.
    pub(crate) fn require_enrolled(&self, configuration: &Configuration) -> Result<(), IdentityError> {
        let identity = &self.identity;
        let difference = [
            (identity.installation_id != configuration.installation(), "installation"),
            (identity.provider != configuration.kind().name(), "provider"),
            (identity.deployment_generation != configuration.generation(), "deployment generation"),
            (identity.specification_digest != configuration.digest(), "specification"),
        ];
        match difference.into_iter().find(|(differs, _)| *differs) {
            Some((_, what)) => Err(IdentityError::Foreign(what)),
            None => Ok(()),
        }
    }

    /// Refuses another backend than the enrolled one, for whichever generation: a node has one.
    pub(crate) fn require_fingerprint(&self, fingerprint: Digest) -> Result<(), IdentityError> {
        let enrolled = self.identity.backend_fingerprint == fingerprint;
        if enrolled { Ok(()) } else { Err(IdentityError::Foreign("backend")) }
    }

    /// Refuses another address than the stored one.
    pub(crate) fn require_core_url(&self, core_url: &Origin) -> Result<(), IdentityError> {
        if &self.core_url == core_url { Ok(()) } else { Err(IdentityError::Foreign("Core address")) }
    }
}

#[cfg(test)]
mod tests;
