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

impl Method {
    /// All seventeen, in the order of wire §3.1.
    pub const ALL: [Self; 17] = [
        Self::Create,
        Self::GetInfo,
        Self::Renew,
        Self::Kill,
        Self::RunCommand,
        Self::Observe,
        Self::Initial,
        Self::NewCompute,
        Self::GetCompute,
        Self::KillCompute,
        Self::ResumeCompute,
        Self::RunCommandCompute,
        Self::Suspend,
        Self::Resume,
        Self::DeleteSnapshot,
        Self::RestorePreparation,
        Self::SavePreparation,
    ];

    /// The provider method's name, as evidence of an unsupported operation carries it (wire §2.12).
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Create => "Create",
            Self::GetInfo => "GetInfo",
            Self::Renew => "Renew",
            Self::Kill => "Kill",
            Self::RunCommand => "RunCommand",
            Self::Observe => "Observe",
            Self::Initial => "Initial",
            Self::NewCompute => "NewCompute",
            Self::GetCompute => "GetCompute",
            Self::KillCompute => "KillCompute",
            Self::ResumeCompute => "ResumeCompute",
            Self::RunCommandCompute => "RunCommandCompute",
            Self::Suspend => "Suspend",
            Self::Resume => "Resume",
            Self::DeleteSnapshot => "DeleteSnapshot",
            Self::RestorePreparation => "RestorePreparation",
            Self::SavePreparation => "SavePreparation",
        }
    }

    /// Which methods share one decision of a declaration.
    #[must_use]
    pub const fn group(self) -> MethodGroup {
        match self {
            Self::Create | Self::GetInfo | Self::Renew | Self::Kill | Self::RunCommand => MethodGroup::Lifecycle,
            Self::Observe => MethodGroup::Observation,
            Self::Initial
            | Self::NewCompute
            | Self::GetCompute
            | Self::KillCompute
            | Self::ResumeCompute
            | Self::RunCommandCompute
            | Self::Suspend
            | Self::Resume
            | Self::DeleteSnapshot => MethodGroup::Checkpoint,
            Self::RestorePreparation | Self::SavePreparation => MethodGroup::Preparation,
        }
    }
}

/// Methods that are supported or unsupported together (wire §3.1, node-host §9.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MethodGroup {
    /// Supported by every provider.
    Lifecycle,
    /// `Observe`.
    Observation,
    /// The nine checkpoint methods.
    Checkpoint,
    /// `RestorePreparation`, `SavePreparation`.
    Preparation,
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

impl Operation<'_> {
    /// The provider method that carries it out.
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

/// Why a declaration was refused; the provider must not accept work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDeclaration {
    /// A method has no decision.
    #[error("method {} is not declared", .0.name())]
    Missing(Method),
    /// A method has two decisions.
    #[error("method {} is declared twice", .0.name())]
    Repeated(Method),
    /// Every provider carries out the five lifecycle methods.
    #[error("method {} must be supported", .0.name())]
    Required(Method),
    /// A group's methods are decided differently.
    #[error("method {} is decided differently from the rest of its group", .0.name())]
    Divided(Method),
    /// A reason is no reason code of wire §0.2.
    #[error("the reason of method {} is no reason code", .0.name())]
    Reason(Method),
}

/// Whether `text` is a reason code: `^[a-z][a-z0-9_]{0,95}$` on the whole text (wire §0.2).
#[must_use]
pub fn is_reason(text: &str) -> bool {
    text.len() <= crate::limits::REASON_MAX_BYTES
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

impl Declaration {
    /// Checks one decision for every method.
    ///
    /// # Errors
    /// The first method, in wire order, whose decision is missing, repeated, contradictory or badly explained.
    pub fn new(decisions: impl IntoIterator<Item = (Method, Support)>) -> Result<Self, InvalidDeclaration> {
        let mut entries = std::collections::BTreeMap::new();
        for (method, support) in decisions {
            if entries.insert(method, support).is_some() {
                return Err(InvalidDeclaration::Repeated(method));
            }
        }
        let mut groups = std::collections::BTreeMap::new();
        for method in Method::ALL {
            let support = entries.get(&method).ok_or(InvalidDeclaration::Missing(method))?;
            if let Support::Unsupported { reason } = support {
                if method.group() == MethodGroup::Lifecycle {
                    return Err(InvalidDeclaration::Required(method));
                }
                if !is_reason(reason) {
                    return Err(InvalidDeclaration::Reason(method));
                }
            }
            let supported = *support == Support::Supported;
            if *groups.entry(method.group()).or_insert(supported) != supported {
                return Err(InvalidDeclaration::Divided(method));
            }
        }
        Ok(Self { entries })
    }

    /// A declaration from one decision for each group but the lifecycle, which is supported.
    ///
    /// # Errors
    /// A reason that is no reason code.
    pub fn of_groups(
        observation: &Support,
        checkpoint: &Support,
        preparation: &Support,
    ) -> Result<Self, InvalidDeclaration> {
        Self::new(Method::ALL.into_iter().map(|method| {
            let support = match method.group() {
                MethodGroup::Lifecycle => Support::Supported,
                MethodGroup::Observation => observation.clone(),
                MethodGroup::Checkpoint => checkpoint.clone(),
                MethodGroup::Preparation => preparation.clone(),
            };
            (method, support)
        }))
    }

    /// The decision for `method`.
    #[must_use]
    pub fn support(&self, method: Method) -> &Support {
        &self.entries[&method]
    }
}

#[cfg(test)]
mod declaration_tests {
    use super::*;

    fn unsupported(reason: &str) -> Support {
        Support::Unsupported { reason: reason.to_owned() }
    }

    fn all_supported() -> Vec<(Method, Support)> {
        Method::ALL.map(|method| (method, Support::Supported)).to_vec()
    }

    #[test]
    fn method_without_a_decision_is_refused() {
        for method in Method::ALL {
            let decisions = all_supported().into_iter().filter(|(name, _)| *name != method);
            assert_eq!(Declaration::new(decisions), Err(InvalidDeclaration::Missing(method)));
        }
    }

    #[test]
    fn method_with_two_decisions_is_refused() {
        let decisions = all_supported().into_iter().chain([(Method::Observe, unsupported("a"))]);
        assert_eq!(Declaration::new(decisions), Err(InvalidDeclaration::Repeated(Method::Observe)));
    }

    #[test]
    fn lifecycle_method_cannot_be_unsupported() {
        let mut decisions = all_supported();
        decisions[3].1 = unsupported("no_kill");
        assert_eq!(Declaration::new(decisions), Err(InvalidDeclaration::Required(Method::Kill)));
    }

    #[test]
    fn half_supported_group_is_refused() {
        let mut decisions = all_supported();
        decisions[10].1 = unsupported("no_thaw");
        assert_eq!(Declaration::new(decisions), Err(InvalidDeclaration::Divided(Method::ResumeCompute)));
    }

    #[test]
    fn unsafe_reason_is_refused() {
        for reason in ["", "A", "1abc", "_abc", "native-metrics", "native_metrics\n", "\u{e9}", &"a".repeat(97)] {
            let refused = Declaration::of_groups(&unsupported(reason), &Support::Supported, &Support::Supported);
            assert_eq!(refused, Err(InvalidDeclaration::Reason(Method::Observe)), "{reason:?}");
        }
        let longest = "a".repeat(96);
        assert!(Declaration::of_groups(&unsupported(&longest), &unsupported("a0_9"), &Support::Supported).is_ok());
    }
}
