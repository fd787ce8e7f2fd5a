//! The seventeen operations and a request that was accepted (wire §3).

mod accept;
mod declaration;
mod method;

pub use accept::{Flaw, Invalid};
pub use declaration::{Declaration, Entry, InvalidDeclaration, Support, is_reason};
pub use method::{Class, Method, MethodGroup};

use crate::limits::{BUDGET_MAX_MS, BUDGET_MIN_MS};
use crate::units::{Generation, Id, OwnerEpoch, Sequence};
use crate::wire::IntoOwned;
use crate::wire::frame::Request;
use crate::wire::payload::{
    Bootstrap, Command, Compute, ObservationTarget, RawReference, Reference, Resume, Snapshot, Suspend,
};

/// An operation with exactly its arguments, checked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
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
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
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

/// What the answer to a call is judged by, on both sides; small enough to keep while the call runs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Asked {
    /// The request's identifier.
    pub id: Id,
    /// What was asked.
    pub method: Method,
    /// Of which sandbox.
    pub reference: Reference,
    /// Incarnation that a `resume` was to create.
    pub target: Option<Compute<'static>>,
}

/// The members that bind a request to one connection (wire §1.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fencing {
    /// Previous + 1 on this connection; the first is 1.
    pub sequence: Sequence,
    /// The connection's epoch.
    pub owner_epoch: OwnerEpoch,
    /// The connection.
    pub connection_id: Id,
}

/// The budget to send when `remaining_ms` are left: at most 120 000, `None` when nothing is left (W 24-29).
#[must_use]
pub const fn budget(remaining_ms: u64) -> Option<u64> {
    match remaining_ms {
        0..BUDGET_MIN_MS => None,
        BUDGET_MIN_MS..=BUDGET_MAX_MS => Some(remaining_ms),
        _ => Some(BUDGET_MAX_MS),
    }
}

impl Operation<'_> {
    /// The operation's name.
    #[must_use]
    pub const fn method(&self) -> Method {
        match self {
            Self::Create(_) => Method::Create,
            Self::GetInfo => Method::GetInfo,
            Self::Renew => Method::Renew,
            Self::Kill => Method::Kill,
            Self::RunCommand(_) => Method::RunCommand,
            Self::Observe(_) => Method::Observe,
            Self::Initial => Method::Initial,
            Self::NewCompute { .. } => Method::NewCompute,
            Self::GetCompute(_) => Method::GetCompute,
            Self::KillCompute(_) => Method::KillCompute,
            Self::ResumeCompute(_) => Method::ResumeCompute,
            Self::RunCommandCompute { .. } => Method::RunCommandCompute,
            Self::Suspend(_) => Method::Suspend,
            Self::Resume(_) => Method::Resume,
            Self::DeleteSnapshot(_) => Method::DeleteSnapshot,
            Self::RestorePreparation(_) => Method::RestorePreparation,
            Self::SavePreparation(_) => Method::SavePreparation,
        }
    }

    /// Whether it only looks: a `suspend` or `resume` with `ObserveOnly`.
    #[must_use]
    pub fn observes_only(&self) -> bool {
        match self {
            Self::Suspend(suspend) => suspend.observe_only,
            Self::Resume(resume) => resume.observe_only,
            Self::Create(_)
            | Self::GetInfo
            | Self::Renew
            | Self::Kill
            | Self::RunCommand(_)
            | Self::Observe(_)
            | Self::Initial
            | Self::NewCompute { .. }
            | Self::GetCompute(_)
            | Self::KillCompute(_)
            | Self::ResumeCompute(_)
            | Self::RunCommandCompute { .. }
            | Self::DeleteSnapshot(_)
            | Self::RestorePreparation(_)
            | Self::SavePreparation(_) => false,
        }
    }

    /// What may be done with it again (wire §3.1).
    #[must_use]
    pub fn class(&self) -> Class {
        if self.observes_only() { Class::Read } else { self.method().class() }
    }

    /// Whether the generation must be ready at the moment of execution (wire §3.1).
    #[must_use]
    pub fn needs_ready(&self) -> bool {
        self.method().needs_ready() && !self.observes_only()
    }
}

impl<'a> Call<'a> {
    /// What the answer will be judged by.
    #[must_use]
    pub fn asked(&self) -> Asked {
        let target = match &self.operation {
            Operation::Resume(resume) => Some(resume.target.clone().into_owned()),
            _ => None,
        };
        Asked { id: self.id, method: self.operation.method(), reference: self.reference, target }
    }

    /// The request that carries this call over one connection. [`Call::verify`] has to hold before.
    #[must_use]
    pub fn into_request(self, fencing: Fencing) -> Request<'a> {
        let Fencing { sequence, owner_epoch, connection_id } = fencing;
        let mut request = Request {
            deployment_generation: self.deployment_generation,
            sequence,
            owner_epoch,
            connection_id,
            id: self.id.to_string().into(),
            operation: self.operation.method().operation().into(),
            timeout_ms: i64::try_from(self.timeout_ms).unwrap_or(i64::MAX),
            reference: self.reference.into(),
            bootstrap: None,
            compute: None,
            generation: None,
            command: None,
            suspend: None,
            resume: None,
            snapshot: None,
            observation: None,
            key: None,
        };
        match self.operation {
            Operation::GetInfo | Operation::Renew | Operation::Kill | Operation::Initial => {}
            Operation::Create(bootstrap) => request.bootstrap = Some(bootstrap),
            Operation::RunCommand(command) => request.command = Some(command),
            Operation::Observe(target) => request.observation = Some(target),
            Operation::NewCompute { generation, snapshot } => {
                request.generation = Some(generation.get());
                request.snapshot = snapshot;
            }
            Operation::GetCompute(compute) | Operation::KillCompute(compute) | Operation::ResumeCompute(compute) => {
                request.compute = Some(compute);
            }
            Operation::RunCommandCompute { compute, command } => {
                request.compute = Some(compute);
                request.command = Some(command);
            }
            Operation::Suspend(suspend) => request.suspend = Some(suspend),
            Operation::Resume(resume) => request.resume = Some(resume),
            Operation::DeleteSnapshot(snapshot) => request.snapshot = Some(snapshot),
            Operation::RestorePreparation(key) | Operation::SavePreparation(key) => request.key = Some(key.into()),
        }
        request
    }

    /// The same call, borrowing nothing of its message.
    #[must_use]
    pub fn into_owned(self) -> Call<'static> {
        Call {
            id: self.id,
            deployment_generation: self.deployment_generation,
            reference: self.reference,
            timeout_ms: self.timeout_ms,
            operation: self.operation.into_owned(),
        }
    }
}

impl IntoOwned for Operation<'_> {
    type Owned = Operation<'static>;

    fn into_owned(self) -> Operation<'static> {
        match self {
            Self::Create(bootstrap) => Operation::Create(bootstrap.into_owned()),
            Self::GetInfo => Operation::GetInfo,
            Self::Renew => Operation::Renew,
            Self::Kill => Operation::Kill,
            Self::RunCommand(command) => Operation::RunCommand(command.into_owned()),
            Self::Observe(target) => Operation::Observe(target.into_owned()),
            Self::Initial => Operation::Initial,
            Self::NewCompute { generation, snapshot } => {
                Operation::NewCompute { generation, snapshot: snapshot.into_owned() }
            }
            Self::GetCompute(compute) => Operation::GetCompute(compute.into_owned()),
            Self::KillCompute(compute) => Operation::KillCompute(compute.into_owned()),
            Self::ResumeCompute(compute) => Operation::ResumeCompute(compute.into_owned()),
            Self::RunCommandCompute { compute, command } => {
                Operation::RunCommandCompute { compute: compute.into_owned(), command: command.into_owned() }
            }
            Self::Suspend(suspend) => Operation::Suspend(suspend.into_owned()),
            Self::Resume(resume) => Operation::Resume(resume.into_owned()),
            Self::DeleteSnapshot(snapshot) => Operation::DeleteSnapshot(snapshot.into_owned()),
            Self::RestorePreparation(key) => Operation::RestorePreparation(key),
            Self::SavePreparation(key) => Operation::SavePreparation(key),
        }
    }
}

impl From<Reference> for RawReference<'static> {
    fn from(reference: Reference) -> Self {
        Self {
            tenant_id: reference.tenant.to_string().into(),
            environment_id: reference.environment.to_string().into(),
            allocation_id: reference.allocation.to_string().into(),
        }
    }
}

impl Reference {
    /// Whether `raw` writes exactly this reference.
    #[must_use]
    pub fn is(&self, raw: &RawReference<'_>) -> bool {
        self.is_written(&raw.tenant_id, &raw.environment_id, &raw.allocation_id)
    }

    pub(crate) fn is_written(&self, tenant: &str, environment: &str, allocation: &str) -> bool {
        let same = |id: Id, text: &str| Id::parse(text) == Ok(id);
        same(self.tenant, tenant) && same(self.environment, environment) && same(self.allocation, allocation)
    }
}
