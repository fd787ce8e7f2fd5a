//! What must hold before a sandbox can be created, in the order in which it is looked at (node-host §8.9).

use super::native::Context;
use crate::wire::payload::Diagnostic;

/// One thing that a probe looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Check {
    /// The host runs Linux.
    System,
    /// `/dev/kvm` opens for reading and writing.
    Kvm,
    /// The host has the CPUs and the memory of one sandbox.
    Capacity,
    /// `msb` and the firmware are those of the release.
    Programs,
    /// The helper is a regular executable file.
    Helper,
    /// The store is a real directory of mode exactly 0700. A probe never repairs it.
    Store,
    /// The store has the release's image.
    Image,
}

/// The checks, in order. The first that fails is the answer.
const ALL: [Check; 7] =
    [Check::System, Check::Kvm, Check::Capacity, Check::Programs, Check::Helper, Check::Store, Check::Image];

impl Check {
    /// What a probe looks at in a context: the image only where generations are.
    #[must_use]
    pub const fn of(context: Context<'_>) -> &'static [Self] {
        match context {
            Context::Standalone => ALL.split_at(6).0,
            Context::Generation { .. } => &ALL,
        }
    }

    /// The class of its failure.
    #[must_use]
    pub const fn diagnostic(self) -> Diagnostic {
        match self {
            Self::System | Self::Kvm => Diagnostic::KvmUnavailable,
            Self::Capacity => Diagnostic::CapacityInsufficient,
            Self::Programs | Self::Helper => Diagnostic::MicrosandboxArtifactsUnavailable,
            Self::Store => Diagnostic::ProviderUnavailable,
            Self::Image => Diagnostic::RuntimeImageUnavailable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// H 179. H 222. Readiness of a generation looks at everything that standalone readiness does, and at the image last.
    #[test]
    fn the_context_decides_whether_the_image_counts() {
        let (alone, generation) = (Check::of(Context::Standalone), Check::of(Context::Generation { state: "/s" }));
        assert_eq!(generation.split_last(), Some((&Check::Image, alone)));
        assert!(generation.is_sorted(), "in the order of their declaration");
    }

    /// H 222. KVM comes before capacity, and capacity before the programs; each has its class.
    #[test]
    fn every_check_has_its_class() {
        let classes: Vec<_> = ALL.into_iter().map(|check| check.diagnostic().code()).collect();
        let expected = [
            "kvm_unavailable",
            "kvm_unavailable",
            "capacity_insufficient",
            "microsandbox_artifacts_unavailable",
            "microsandbox_artifacts_unavailable",
            "provider_unavailable",
            "runtime_image_unavailable",
        ];
        assert_eq!(classes, expected);
    }
}
