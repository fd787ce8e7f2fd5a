//! A process that works with a generation and keeps it alive (node-host §2.4, §2.5).

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use palisade_core::generation::configuration::Configuration;
use palisade_core::generation::recovery::{Expected, Lock, Refusal, admit_helper};
use palisade_core::limits::PLAN_MAX_BYTES;
use palisade_core::units::Digest;
use palisade_core::wire::payload::GenerationReference;
use palisade_microsandbox::{Helper, LeaseUnavailable, Leases};
use tokio::process::Command;

use super::super::layout::Layout;
use super::super::records::record;
use super::{Held, Lease, Mode};
use crate::files::look::{Folder, look};

/// Why, for the log.
#[derive(Debug, thiserror::Error)]
enum Cause {
    #[error("provider.json of the installation cannot be believed")]
    Base,
    #[error(transparent)]
    System(#[from] io::Error),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("the generation is known with another specification here")]
    Specification,
}

/// The right to start one helper process: the lease, locked shared, with every check passed under the lock.
#[derive(Debug)]
pub struct HelperLease {
    lease: Lease,
}

/// The lease of one generation, for whoever starts its helpers.
#[derive(Debug, Clone)]
pub struct GenerationLease {
    root: PathBuf,
    reference: GenerationReference,
}

impl GenerationLease {
    /// The lease of a generation below the installation's `root`. Nothing is opened yet.
    #[must_use]
    pub fn new(root: &Path, reference: GenerationReference) -> Self {
        Self { root: root.to_owned(), reference }
    }
}

impl Leases for GenerationLease {
    fn shared(&self) -> Result<File, LeaseUnavailable> {
        HelperLease::acquire(&self.root, self.reference).map(|held| held.lease.file)
    }
}

impl HelperLease {
    /// Locks the lease of a generation below the installation's `root`, without waiting.
    ///
    /// # Errors
    /// Anything that is not exactly as it must be, and anything unfinished. Nothing on disk is changed.
    pub fn acquire(root: &Path, reference: GenerationReference) -> Result<Self, LeaseUnavailable> {
        acquire(&Layout::new(root), reference).map_err(|cause| {
            tracing::warn!(generation = %reference.generation, %cause, "no helper was started");
            LeaseUnavailable
        })
    }

    /// Starts the helper with a copy of the lease as descriptor 3, which no other child of this process gets.
    ///
    /// # Errors
    /// A program that cannot be started; the lock is given back.
    pub fn spawn(self, command: Command) -> io::Result<Helper> {
        Helper::start(command, self.lease.file)
    }
}

fn acquire(layout: &Layout, reference: GenerationReference) -> Result<HelperLease, Cause> {
    let directory = layout.generations();
    let held = Lease::open(&directory, reference.generation, Mode::Shared)?;
    let base = look(&layout.base(), PLAN_MAX_BYTES).borrow().base().ours().ok_or(Cause::Base)?;
    let recorded = record(&Folder::open(&directory).map_err(io::Error::from)?, &base, reference.generation).recorded;
    require_specification(recorded.configuration.as_ref(), reference.specification_digest)?;
    let expected = Expected {
        installation: base.envelope.installation,
        generation: reference.generation,
        specification_digest: Some(reference.specification_digest),
    };
    let located = look(&directory, 0).borrow().directory();
    // The installation's own lock plays no part for a helper.
    let claim = held.claim(Lock::Open, &directory, located, &expected);
    admit_helper(&claim, &recorded.journals)?;
    match held {
        Held::Yes(lease) => Ok(HelperLease { lease }),
        Held::No | Held::Busy => Err(Cause::System(io::ErrorKind::WouldBlock.into())),
    }
}

fn require_specification(configuration: Option<&Configuration>, digest: Digest) -> Result<(), Cause> {
    let known = configuration.is_none_or(|configuration| configuration.envelope.digest() == digest);
    if known { Ok(()) } else { Err(Cause::Specification) }
}
