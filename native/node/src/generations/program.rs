//! `palisade generation prepare|collect`: the program of a process of its own (node-host §3.1, decision 23).

use std::path::PathBuf;

use nix::sys::signal::{Signal, killpg};
use nix::sys::stat::{SFlag, fstat};
use nix::unistd::{Pid, getpgrp};
use palisade_core::generation::recovery::{Cause, Object};
use palisade_core::limits::PLAN_MAX_BYTES;
use palisade_core::units::{Digest, Generation, Id};
use palisade_core::wire::payload::GenerationReference;
use tokio::runtime::Builder;

use super::collect::Collecting;
use super::engines::Engines;
use super::host::{Core, Downloads};
use super::layout::Layout;
use super::outside::{Failure, Outside};
use super::prepare::Preparing;
use super::run::{Run, refused};
use crate::files::disk::System;
use crate::files::look::look;
use crate::files::{self, FileError};
use crate::identity::{self, IdentityError, Stored};

/// What a preparer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// Brings a generation to this host, or repairs it.
    Prepare,
    /// Takes a generation from this host that Core does not need any more.
    Collect,
}

impl Action {
    /// The word for it on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Prepare => "prepare",
            Self::Collect => "collect",
        }
    }
}

/// What a preparer is told; nothing else, and no secret.
#[derive(Debug, Clone)]
pub struct Assigned {
    /// The root of the installation: the folder of `provider.json`.
    pub root: PathBuf,
    /// Whose installation it must be.
    pub installation: Id,
    /// What to do.
    pub action: Action,
    /// With which generation.
    pub generation: Generation,
    /// And with which specification.
    pub specification_digest: Digest,
}

/// Does it, and gives the exit status: 0 done, 65 a transfer, checksum or provenance failed, 1 everything else. The log
/// says what and why.
///
/// Started by a node, in a process group of its own with a pipe as standard input, it ends with all of its own children
/// when the pipe does.
#[must_use]
pub fn perform(assigned: &Assigned) -> u8 {
    if belongs_to_a_node() {
        std::thread::spawn(end_with_the_node);
    }
    let (action, generation) = (assigned.action.name(), assigned.generation);
    match try_perform(assigned) {
        Ok(()) => {
            tracing::info!(%generation, "{action} is done");
            0
        }
        Err(failure) => {
            tracing::error!(%generation, %failure, "{action} was not done");
            failure.exit_code()
        }
    }
}

/// Set by a node for its preparers.
pub(super) const OF_NODE: &str = "PALISADE_PREPARER_OF_NODE";

/// Whether a node started this process, and nobody by hand: a pipe may be the standard input of that as well.
fn belongs_to_a_node() -> bool {
    let kind = fstat(std::io::stdin()).map(|found| found.st_mode & SFlag::S_IFMT.bits());
    let piped = kind == Ok(SFlag::S_IFIFO.bits()) && getpgrp() == Pid::this();
    piped && std::env::var_os(OF_NODE).is_some()
}

/// A preparation may take half an hour, and would keep the next node's out for as long. It may be killed anywhere.
fn end_with_the_node() {
    // Whatever ends the reading, nobody holds the other end any more.
    let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
    tracing::warn!("the node that started this preparer is gone; it ends as well");
    if let Err(error) = killpg(getpgrp(), Signal::SIGKILL) {
        tracing::error!(%error, "this preparer could not end itself");
    }
}

fn try_perform(assigned: &Assigned) -> Result<(), Failure> {
    let layout = Layout::new(&assigned.root);
    let stored = identity_of(&layout, assigned.installation)?;
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| FileError::new(layout.root(), error))?;
    let base = look(&layout.base(), PLAN_MAX_BYTES).borrow().base().ours();
    let provider = base.ok_or_else(|| refused(Object::Base, Cause::Missing))?.envelope.provider();
    let mut core = Core { runtime: &runtime, stored: &stored };
    let mut releases = Downloads::new(&runtime, &layout, &stored, provider)?;
    let mut engine = Engines { runtime: &runtime };
    let outside = Outside { core: &mut core, releases: &mut releases, engine: &mut engine };
    let Assigned { generation, specification_digest, .. } = *assigned;
    let reference = GenerationReference { generation, specification_digest };
    let mut disk = System;
    let run = Run::new(&layout, reference, &mut disk, outside);
    match assigned.action {
        Action::Prepare => Preparing::new(run).finish(),
        Action::Collect => Collecting::new(run).finish(),
    }
}

/// The node of this installation, whose directories are private.
fn identity_of(layout: &Layout, installation: Id) -> Result<Stored, Failure> {
    files::require_clean(layout.root())?;
    files::require_private_directory(layout.root())?;
    let state = layout.state();
    let stored = identity::peek(&state)?.ok_or(IdentityError::Unregistered(state))?;
    if stored.identity.installation_id == installation {
        Ok(stored)
    } else {
        Err(IdentityError::Foreign("installation").into())
    }
}
