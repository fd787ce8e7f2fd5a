//! Who a node is and what it says of itself (wire §2.8, §2.9).

use std::hash::{Hash, Hasher};

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::bits;
use crate::units::{Digest, Generation};
use crate::wire::json;

/// Who a node is (wire §2.8).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct Identity<'a> {
    /// `node_id`.
    #[serde(borrow)]
    pub node_id: Cow<'a, str>,
    /// `installation_id`.
    #[serde(borrow)]
    pub installation_id: Cow<'a, str>,
    /// `provider`.
    #[serde(borrow)]
    pub provider: Cow<'a, str>,
    /// `backend_fingerprint`.
    #[serde(borrow)]
    pub backend_fingerprint: Cow<'a, str>,
    /// The enrolled generation, immutable; not the current target.
    pub deployment_generation: u64,
    /// The enrolled digest.
    #[serde(borrow)]
    pub specification_digest: Cow<'a, str>,
    /// Cached copy; Core's approved value wins.
    pub max_active: i64,
    /// Cached copy; Core's approved value wins.
    pub max_retained: i64,
}

/// Host measurements and generation observations (wire §2.9). `None` is unknown, never zero.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct Health<'a> {
    /// RFC 3339 time of the sample.
    #[serde(borrow)]
    pub observed_at: Cow<'a, str>,
    /// Operations being executed, 0 … 32.
    pub active_operations: u32,
    /// 0 … 1.
    #[serde(deserialize_with = "json::nullable_number")]
    pub cpu_utilization: Option<f64>,
    /// 1 … 2^53 − 1 bytes.
    #[serde(deserialize_with = "json::nullable")]
    pub total_memory_bytes: Option<u64>,
    /// Greater than 0, finite.
    #[serde(deserialize_with = "json::nullable_number")]
    pub effective_cpu_cores: Option<f64>,
    /// 0 … 2^53 − 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_count: Option<u64>,
    /// 0 … 2^53 − 1 bytes, at most the total.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available_memory_bytes: Option<u64>,
    /// 0 … 2^53 − 1 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available_disk_bytes: Option<u64>,
    /// At most 8, unique generations.
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    pub generations: Vec<Observation<'a>>,
}

/// No frame carries a number that is not finite, so equality is reflexive.
impl Eq for Health<'_> {}

impl Hash for Health<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { observed_at, active_operations, generations, .. } = self;
        let integers =
            (self.total_memory_bytes, self.cpu_count, self.available_memory_bytes, self.available_disk_bytes);
        let numbers = [self.cpu_utilization, self.effective_cpu_cores].map(bits);
        (observed_at, active_operations, integers, numbers, generations).hash(state);
    }
}

/// What a node says of one generation (wire §2.9b).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Observation<'a> {
    /// Which generation.
    pub generation: Generation,
    /// Its digest.
    pub specification_digest: Digest,
    /// State with what belongs to it.
    pub state: ObservedState<'a>,
}

/// State of an observation; each state carries only what it may carry.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ObservedState<'a> {
    /// Ready, perhaps able to checkpoint.
    Ready {
        /// Only of a checkpoint-capable generation.
        checkpoint: Option<Checkpoint<'a>>,
    },
    /// Being prepared or probed.
    Preparing {
        /// Class of the last failure, if any.
        diagnostic: Option<Diagnostic>,
    },
    /// Not usable.
    Failed {
        /// Class of the failure.
        diagnostic: Option<Diagnostic>,
    },
}

/// Compatibility tokens of checkpoints (wire §2.9b).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct Checkpoint<'a> {
    /// Opaque, 1 … 256 bytes.
    #[serde(borrow)]
    pub artifact_domain: Cow<'a, str>,
    /// Opaque, 1 … 256 bytes.
    #[serde(borrow)]
    pub execution_class: Cow<'a, str>,
}

/// The declared readiness classes, in declaration order (decision 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Diagnostic {
    /// `provider_unavailable`.
    ProviderUnavailable,
    /// `docker_unavailable`.
    DockerUnavailable,
    /// `docker_limits_unsupported`.
    DockerLimitsUnsupported,
    /// `runtime_download_failed`.
    RuntimeDownloadFailed,
    /// `runtime_image_unavailable`.
    RuntimeImageUnavailable,
    /// `kvm_unavailable`.
    KvmUnavailable,
    /// `microsandbox_artifacts_unavailable`.
    MicrosandboxArtifactsUnavailable,
    /// `capacity_insufficient`.
    CapacityInsufficient,
}

impl Diagnostic {
    /// All classes, in declaration order.
    pub const ALL: [Self; 8] = [
        Self::ProviderUnavailable,
        Self::DockerUnavailable,
        Self::DockerLimitsUnsupported,
        Self::RuntimeDownloadFailed,
        Self::RuntimeImageUnavailable,
        Self::KvmUnavailable,
        Self::MicrosandboxArtifactsUnavailable,
        Self::CapacityInsufficient,
    ];

    /// The code on the wire.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::ProviderUnavailable => "provider_unavailable",
            Self::DockerUnavailable => "docker_unavailable",
            Self::DockerLimitsUnsupported => "docker_limits_unsupported",
            Self::RuntimeDownloadFailed => "runtime_download_failed",
            Self::RuntimeImageUnavailable => "runtime_image_unavailable",
            Self::KvmUnavailable => "kvm_unavailable",
            Self::MicrosandboxArtifactsUnavailable => "microsandbox_artifacts_unavailable",
            Self::CapacityInsufficient => "capacity_insufficient",
        }
    }

    /// The class with exactly this code.
    #[must_use]
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.code() == code)
    }
}
