//! The names and classes of the seventeen operations (wire §3.1).

use std::fmt;

/// What a caller may do with an operation whose outcome it does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// Changes nothing; may be asked again.
    Read,
    /// Changes something; is never replayed.
    Mutation,
    /// Removes one exact thing; may be asked again as a new request.
    Cleanup,
    /// Only derives a reference; allocates nothing.
    Construction,
}

macro_rules! methods {
    ($($name:ident = $operation:literal, $class:ident;)+) => {
        /// An operation's name, on the wire and as a provider method.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs, reason = "each variant is the provider method of wire §3.1")]
        pub enum Method { $($name),+ }

        impl Method {
            /// All methods, in the order of wire §3.1.
            pub const ALL: [Self; 17] = [$(Self::$name),+];

            /// The provider method's name, as `unsupported.operation` carries it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name)),+ }
            }

            /// The value of `request.operation`.
            #[must_use]
            pub const fn operation(self) -> &'static str {
                match self { $(Self::$name => $operation),+ }
            }

            /// What may be done with it again. `suspend` and `resume` that only observe are reads; see
            /// [`super::Operation::class`].
            #[must_use]
            pub const fn class(self) -> Class {
                match self { $(Self::$name => Class::$class),+ }
            }
        }
    };
}

methods! {
    Create = "create", Mutation;
    GetInfo = "info", Read;
    Renew = "renew", Read;
    Kill = "kill", Cleanup;
    RunCommand = "command", Mutation;
    Observe = "observe", Read;
    Initial = "initial", Construction;
    NewCompute = "new_compute", Construction;
    GetCompute = "compute", Read;
    KillCompute = "kill_compute", Cleanup;
    ResumeCompute = "resume_compute", Mutation;
    RunCommandCompute = "command_compute", Mutation;
    Suspend = "suspend", Mutation;
    Resume = "resume", Mutation;
    DeleteSnapshot = "delete_snapshot", Cleanup;
    RestorePreparation = "restore_preparation", Mutation;
    SavePreparation = "save_preparation", Mutation;
}

impl Method {
    /// The method of exactly this `operation`.
    #[must_use]
    pub fn from_operation(operation: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.operation() == operation)
    }

    /// The method of exactly this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.name() == name)
    }

    /// Whether the generation must be ready when it runs; [`super::Operation::needs_ready`] knows about
    /// `ObserveOnly`.
    #[must_use]
    pub const fn needs_ready(self) -> bool {
        matches!(self, Self::Create | Self::Resume)
    }

    /// Whether it runs a command, whose unknown outcome has its own name (wire §6.3).
    #[must_use]
    pub const fn is_command(self) -> bool {
        matches!(self, Self::RunCommand | Self::RunCommandCompute)
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
