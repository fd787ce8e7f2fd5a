//! The seventeen operations and a request that was accepted (wire §3).

use crate::units::{Generation, Id};
use crate::wire::payload::{Bootstrap, Command, Compute, ObservationTarget, Reference, Resume, Snapshot, Suspend};

/// An operation's name, on the wire and as a provider method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each variant is the provider method of wire §3.1")]
pub enum Method {
    Create,
    GetInfo,
    Renew,
    Kill,
    RunCommand,
    Observe,
    Initial,
    NewCompute,
    GetCompute,
    KillCompute,
    ResumeCompute,
    RunCommandCompute,
    Suspend,
    Resume,
    DeleteSnapshot,
    RestorePreparation,
    SavePreparation,
}

/// An operation with exactly its arguments, checked.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation<'a> {
    /// Mutation, at most once, never replayed.
    Create(Box<Bootstrap<'a>>),
    /// Read.
    GetInfo,
    /// Extends a lease or only observes; never revives.
    Renew,
    /// Cleanup; may be asked again as a new request.
    Kill,
    /// Mutation, never replayed.
    RunCommand(Command<'a>),
    /// Read.
    Observe(Box<ObservationTarget<'a>>),
    /// Constructs a reference, allocates nothing.
    Initial,
    /// Constructs a reference, allocates nothing.
    NewCompute {
        /// Positive.
        generation: Generation,
        /// What it will be restored from.
        snapshot: Option<Snapshot<'a>>,
    },
    /// Read.
    GetCompute(Compute<'a>),
    /// Cleanup of one exact incarnation.
    KillCompute(Compute<'a>),
    /// Thaws only the same resident instance.
    ResumeCompute(Compute<'a>),
    /// Mutation, never replayed.
    RunCommandCompute {
        /// Which incarnation.
        compute: Compute<'a>,
        /// What to run.
        command: Command<'a>,
    },
    /// Mutation; read when it only observes.
    Suspend(Box<Suspend<'a>>),
    /// Mutation; read when it only observes.
    Resume(Box<Resume<'a>>),
    /// Cleanup of one exact snapshot.
    DeleteSnapshot(Snapshot<'a>),
    /// Mutation of the allocation, never replayed.
    RestorePreparation(String),
    /// Mutation, never replayed.
    SavePreparation(String),
}

/// A request that passed every check of wire §3.1.
#[derive(Debug, Clone, PartialEq)]
pub struct Call<'a> {
    /// The request's identifier.
    pub id: Id,
    /// Which deployment generation carries it out.
    pub deployment_generation: Generation,
    /// Which sandbox.
    pub reference: Reference,
    /// Whole budget in milliseconds, 1 … 120 000, counted from receipt.
    pub timeout_ms: u64,
    /// What to do.
    pub operation: Operation<'a>,
}

/// Whether a provider carries out a method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Support {
    /// The method is carried out.
    Supported,
    /// The method is refused before any native I/O.
    Unsupported {
        /// Reason code of wire §0.2.
        reason: String,
    },
}

/// A validated decision for every method (wire §3.1, node-host §9.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declaration {
    entries: std::collections::BTreeMap<Method, Support>,
}

impl Declaration {
    /// The decision for `method`.
    #[must_use]
    pub fn support(&self, method: Method) -> &Support {
        &self.entries[&method]
    }
}
