//! A process that works with a generation and keeps it alive (node-host §2.4, §2.5).

use std::io;
use std::path::Path;
use std::process::ExitStatus;

use command_fds::{CommandFdExt as _, FdMapping};
use palisade_core::generation::configuration::Configuration;
use palisade_core::generation::recovery::{Expected, Lock, Refusal, admit_helper};
use palisade_core::limits::PLAN_MAX_BYTES;
use palisade_core::units::Digest;
use palisade_core::wire::payload::GenerationReference;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;

use super::super::layout::Layout;
use super::super::records::record;
use super::{Held, Lease, Mode};
use crate::files::look::{Folder, look};

/// Where a helper finds the lease.
const DESCRIPTOR: i32 = 3;
/// The variable that tells a helper so.
const VARIABLE: &str = "OAC_NODE_GENERATION_LEASE_FD";

/// The one answer when a helper must not be started; what was wrong is in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the lease of the generation is unavailable")]
pub struct LeaseUnavailable;

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

/// A helper process. It is never killed: it ends when it is done, and gives the generation back by ending.
#[derive(Debug)]
pub struct Helper {
    /// Its standard input, when piped.
    pub stdin: Option<ChildStdin>,
    /// Its standard output, when piped.
    pub stdout: Option<ChildStdout>,
    /// Its standard error, when piped.
    pub stderr: Option<ChildStderr>,
    /// Ends with the process, and only then gives the lock back. To drop this ends the waiting of the caller alone.
    pub exited: JoinHandle<io::Result<ExitStatus>>,
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
    pub fn spawn(self, mut command: Command) -> io::Result<Helper> {
        let copy = self.lease.file.try_clone()?.into();
        let mappings = vec![FdMapping { parent_fd: copy, child_fd: DESCRIPTOR }];
        command.env(VARIABLE, DESCRIPTOR.to_string());
        command.fd_mappings(mappings).map_err(io::Error::other)?;
        let mut child = command.spawn()?;
        // With it goes the copy that was passed on.
        drop(command);
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let exited = tokio::spawn(async move {
            let exited = child.wait().await;
            drop(self.lease);
            exited
        });
        Ok(Helper { stdin, stdout, stderr, exited })
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
