//! The one declaration of providers, resources and runtime members (deployment §0, §1.2.1, §2.2; decision 3).
//!
//! Validation, the canonical bytes and every listing read these tables. Another shape is a change of data here.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::e2b;

/// Where sandboxes of a provider run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// On enrolled nodes.
    Nodes,
    /// At the provider's own service.
    Direct,
}

/// How long idle compute stays, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Suspension {
    /// Idle time before compute is suspended.
    pub idle_seconds: u64,
    /// Time that suspended compute is kept.
    pub retention_seconds: u64,
}

/// A registered provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    /// Containers of a Docker engine.
    Docker,
    /// Small virtual machines.
    Microsandbox,
    /// The E2B service.
    E2b,
}

/// What a provider needs and allows.
#[allow(clippy::struct_excessive_bools, reason = "a row of a table, not a state")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProviderRule {
    /// The name in requests, answers and digests.
    pub name: &'static str,
    /// Where sandboxes run.
    pub mode: Mode,
    /// Disks have an enforced size.
    pub disks: bool,
    /// A Runtime release belongs to the specification.
    pub runtime: bool,
    /// The public origin must not be a loopback address.
    pub public_origin: bool,
    /// Members of the configuration, all of them texts; a stored selection has every one. Only the provider's own
    /// module knows what they mean.
    pub configuration: &'static [&'static str],
    /// The one member of a credential; `None` when no credential is stored.
    pub credential: Option<&'static str>,
    /// Compute is suspended when idle.
    pub suspension: Option<Suspension>,
}

impl Provider {
    /// All providers, in declaration order.
    pub const ALL: [Self; 3] = [Self::Docker, Self::Microsandbox, Self::E2b];

    /// The provider's declaration.
    #[must_use]
    pub const fn rule(self) -> ProviderRule {
        match self {
            Self::Docker => ProviderRule {
                name: "docker",
                mode: Mode::Nodes,
                disks: false,
                runtime: true,
                public_origin: false,
                configuration: &[],
                credential: None,
                suspension: None,
            },
            Self::Microsandbox => ProviderRule {
                name: "microsandbox",
                mode: Mode::Nodes,
                disks: true,
                runtime: true,
                public_origin: false,
                configuration: &[],
                credential: None,
                suspension: Some(Suspension { idle_seconds: 300, retention_seconds: 86_400 }),
            },
            Self::E2b => ProviderRule {
                name: "e2b",
                mode: Mode::Direct,
                disks: false,
                runtime: false,
                public_origin: true,
                configuration: &[e2b::TEMPLATE, e2b::API_URL, e2b::DOMAIN],
                credential: Some("api_key"),
                suspension: None,
            },
        }
    }

    /// The name in requests, answers and digests.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.rule().name
    }

    /// The provider with exactly this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|provider| provider.name() == name)
    }
}

/// A size that the administrator chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Resource {
    /// Whole CPUs.
    Cpus,
    /// Memory in MiB.
    MemoryMib,
    /// Root disk in MiB.
    RootDiskMib,
    /// Environment disk in MiB.
    EnvironmentDiskMib,
}

/// Smallest disk of a provider that has disks, in MiB.
pub const DISK_MIN_MIB: u32 = 1024;

/// What a value of a resource must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Smallest value.
    pub min: u32,
    /// Largest value.
    pub max: u32,
    /// Whether a refusal names the largest value; where it is only the range of the type, it does not.
    pub reported_max: Option<u32>,
}

impl Resource {
    /// All resources, in declaration order.
    pub const ALL: [Self; 4] = [Self::Cpus, Self::MemoryMib, Self::RootDiskMib, Self::EnvironmentDiskMib];
    /// Their names, in declaration order.
    pub const NAMES: [&'static str; 4] = ["cpus", "memory_mib", "root_disk_mib", "environment_disk_mib"];

    /// The member's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// The bounds of the value for a provider.
    #[must_use]
    pub const fn bounds(self, provider: Provider) -> Bounds {
        match (self, provider.rule().disks) {
            (Self::Cpus, _) => Bounds { min: 1, max: 255, reported_max: Some(255) },
            (Self::MemoryMib, _) => Bounds { min: 512, max: 1_048_576, reported_max: Some(1_048_576) },
            (Self::RootDiskMib | Self::EnvironmentDiskMib, true) => {
                Bounds { min: DISK_MIN_MIB, max: u32::MAX, reported_max: None }
            }
            (Self::RootDiskMib | Self::EnvironmentDiskMib, false) => Bounds { min: 0, max: 0, reported_max: Some(0) },
        }
    }
}

/// One identity of the Runtime release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RuntimeMember {
    /// Commit that the release was built from.
    SourceCommit,
    /// Docker image identifier.
    ImageId,
    /// Docker image manifest digest.
    ImageManifestDigest,
    /// Image reference for microsandbox.
    MicrosandboxRef,
    /// Digest of the microsandbox executable.
    RuntimeSha256,
    /// Digest of the microsandbox firmware.
    FirmwareSha256,
}

impl RuntimeMember {
    /// All members, in declaration order.
    pub const ALL: [Self; 6] = [
        Self::SourceCommit,
        Self::ImageId,
        Self::ImageManifestDigest,
        Self::MicrosandboxRef,
        Self::RuntimeSha256,
        Self::FirmwareSha256,
    ];
    /// Their names, in declaration order.
    pub const NAMES: [&'static str; 6] =
        ["source_commit", "image_id", "image_manifest_digest", "microsandbox_ref", "runtime_sha256", "firmware_sha256"];

    /// The member's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// The literal text before the lower-case hexadecimal digits, and their number.
    #[must_use]
    pub const fn pattern(self) -> (&'static str, usize) {
        match self {
            Self::SourceCommit => ("", 40),
            Self::ImageId | Self::ImageManifestDigest => ("sha256:", 64),
            Self::MicrosandboxRef => ("oac-runtime@sha256:", 64),
            Self::RuntimeSha256 | Self::FirmwareSha256 => ("", 64),
        }
    }

    /// Whether the whole text matches the pattern.
    #[must_use]
    pub fn matches(self, text: &str) -> bool {
        let (prefix, digits) = self.pattern();
        text.strip_prefix(prefix).is_some_and(|rest| {
            rest.len() == digits && rest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D 2. The declaration order of the enumerations is the order of their names.
    #[test]
    fn every_table_stands_in_declaration_order() {
        for (at, resource) in Resource::ALL.into_iter().enumerate() {
            assert_eq!(resource as usize, at);
            assert_eq!(resource.name(), Resource::NAMES[at]);
        }
        for (at, member) in RuntimeMember::ALL.into_iter().enumerate() {
            assert_eq!(member as usize, at);
            assert_eq!(member.name(), RuntimeMember::NAMES[at]);
        }
        for provider in Provider::ALL {
            assert_eq!(Provider::from_name(provider.name()), Some(provider));
            assert_eq!(serde_json::to_value(provider).unwrap(), provider.name());
        }
    }

    /// D 52. Only E2B declares that it needs a public origin, and an unknown provider is none.
    #[test]
    fn only_e2b_needs_a_public_origin() {
        let needing: Vec<_> = Provider::ALL.into_iter().filter(|provider| provider.rule().public_origin).collect();
        assert_eq!(needing, [Provider::E2b]);
        for name in ["", "Docker", "podman"] {
            assert_eq!(Provider::from_name(name), None, "{name}");
        }
    }
}
