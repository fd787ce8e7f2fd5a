//! The provider-owned and protocol-owned objects that frames carry (wire §2).
//!
//! Long strings borrow from the message they were read from; `'static` forms own them.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::json;
use crate::units::{Digest, Generation, Id, OwnerEpoch, Sequence};

/// A string that borrows from the message when it holds no escape.
pub type Text<'a> = Cow<'a, str>;

/// Which sandbox: three identifiers, fresh `allocation` per creation attempt (wire §2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reference {
    /// `TenantID`.
    pub tenant: Id,
    /// `EnvironmentID`.
    pub environment: Id,
    /// `AllocationID`.
    pub allocation: Id,
}

/// A credential; never shown by `Debug` or `Display`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret<'a>(#[serde(borrow)] pub Text<'a>);

impl fmt::Debug for Secret<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

/// What a new sandbox needs to know (wire §2.2). The flattened reference equals the request's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields, rename_all = "PascalCase")]
pub struct Bootstrap<'a> {
    /// `TenantID`.
    #[serde(rename = "TenantID", borrow)]
    pub tenant_id: Text<'a>,
    /// `EnvironmentID`.
    #[serde(rename = "EnvironmentID", borrow)]
    pub environment_id: Text<'a>,
    /// `AllocationID`.
    #[serde(rename = "AllocationID", borrow)]
    pub allocation_id: Text<'a>,
    /// `SessionID`, checked by the provider.
    #[serde(rename = "SessionID", borrow)]
    pub session_id: Text<'a>,
    /// `DeviceID`, checked by the provider.
    #[serde(rename = "DeviceID", borrow)]
    pub device_id: Text<'a>,
    /// `CoreURL`, checked by the provider.
    #[serde(rename = "CoreURL", borrow)]
    pub core_url: Text<'a>,
    /// `Credential`.
    #[serde(borrow)]
    pub credential: Secret<'a>,
    /// `NetworkAccess`.
    #[serde(borrow)]
    pub network_access: Text<'a>,
    /// `AllowedDomains`, nullable.
    #[serde(borrow, deserialize_with = "json::nullable_texts")]
    pub allowed_domains: Option<Vec<Text<'a>>>,
    /// `Workspace`, omitted when absent.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none", deserialize_with = "json::present")]
    pub workspace: Option<Workspace<'a>>,
}

/// Identity of one compute incarnation (wire §2.3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields, rename_all = "PascalCase")]
pub struct Compute<'a> {
    /// Incarnation, 0 for the initial one; not the deployment generation.
    #[serde(with = "json::natural")]
    pub generation: u64,
    /// Derived by the provider.
    #[serde(borrow)]
    pub name: Text<'a>,
    /// Native identity; empty until the create or restore was observed.
    #[serde(rename = "ID", borrow)]
    pub id: Text<'a>,
    /// `None` for the initial incarnation.
    #[serde(borrow, deserialize_with = "json::nullable")]
    pub restored_from: Option<Snapshot<'a>>,
}

/// State of one compute incarnation (wire §2.3b).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields, rename_all = "PascalCase")]
pub struct ComputeState<'a> {
    /// Which incarnation.
    #[serde(borrow)]
    pub compute: Compute<'a>,
    /// Native status text.
    #[serde(borrow)]
    pub status: Text<'a>,
    /// Whether the last step of the bootstrap was reached.
    pub bootstrap_complete: bool,
    /// Verified capture, when there is one.
    #[serde(borrow, deserialize_with = "json::nullable")]
    pub snapshot: Option<Snapshot<'a>>,
    /// The captured source is confirmed stopped.
    pub source_stopped: bool,
}

/// Identity of one snapshot; persisted and returned unchanged (wire §2.4).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields, rename_all = "PascalCase")]
pub struct Snapshot<'a> {
    /// A snapshot name.
    #[serde(borrow)]
    pub reference: Text<'a>,
    /// `ID`.
    #[serde(rename = "ID", borrow)]
    pub id: Text<'a>,
    /// `Digest`.
    #[serde(borrow)]
    pub digest: Text<'a>,
    /// `CheckpointID`.
    #[serde(rename = "CheckpointID", borrow)]
    pub checkpoint_id: Text<'a>,
    /// `CheckpointRoot`.
    #[serde(borrow)]
    pub checkpoint_root: Text<'a>,
    /// The suspend operation's UUID.
    #[serde(rename = "OperationID", borrow)]
    pub operation_id: Text<'a>,
    /// Incarnation that was captured.
    #[serde(with = "json::natural")]
    pub source_generation: u64,
    /// Name of that incarnation.
    #[serde(borrow)]
    pub source_name: Text<'a>,
    /// Native identity of that incarnation.
    #[serde(rename = "SourceID", borrow)]
    pub source_id: Text<'a>,
}

/// A command to run in a sandbox (wire §2.5). `Debug` shows sizes, never content.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields, rename_all = "PascalCase")]
pub struct Command<'a> {
    /// Argument vector; the provider requires at least one element.
    #[serde(borrow, deserialize_with = "json::texts")]
    pub args: Vec<Text<'a>>,
    /// Empty or absolute.
    #[serde(borrow)]
    pub directory: Text<'a>,
    /// Standard input after base64 decoding.
    #[serde(borrow, with = "json::base64")]
    pub stdin: Option<Cow<'a, [u8]>>,
}

impl fmt::Debug for Command<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stdin = self.stdin.as_ref().map(|bytes| bytes.len());
        f.debug_struct("Command").field("args", &self.args.len()).field("stdin_bytes", &stdin).finish_non_exhaustive()
    }
}

/// The settled outcome of a command (wire §2.5b). `Debug` shows sizes, never content.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields, rename_all = "PascalCase")]
pub struct CommandResult<'a> {
    /// At most 1 MiB, bytes that are no UTF-8 replaced.
    #[serde(borrow)]
    pub stdout: Text<'a>,
    /// At most 1 MiB, bytes that are no UTF-8 replaced.
    #[serde(borrow)]
    pub stderr: Text<'a>,
    /// Nonzero is a settled outcome, not an error.
    pub exit_code: i64,
}

impl fmt::Debug for CommandResult<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommandResult")
            .field("stdout_bytes", &self.stdout.len())
            .field("stderr_bytes", &self.stderr.len())
            .field("exit_code", &self.exit_code)
            .finish()
    }
}

/// Arguments of `suspend` (wire §2.6).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields, rename_all = "PascalCase")]
pub struct Suspend<'a> {
    /// `Reference`, three texts equal to the request's reference.
    #[serde(borrow)]
    pub reference: RawReference<'a>,
    /// UUID, checked by the provider.
    #[serde(rename = "OperationID", borrow)]
    pub operation_id: Text<'a>,
    /// Exact incarnation to capture.
    #[serde(borrow)]
    pub source: Compute<'a>,
    /// Earlier evidence of the same operation.
    #[serde(borrow, deserialize_with = "json::nullable")]
    pub snapshot: Option<Snapshot<'a>>,
    /// Only observe the previous attempt.
    pub observe_only: bool,
}

/// Arguments of `resume` (wire §2.7).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields, rename_all = "PascalCase")]
pub struct Resume<'a> {
    /// `Workspace`, omitted when absent.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none", deserialize_with = "json::present")]
    pub workspace: Option<Workspace<'a>>,
    /// `Reference`, three texts equal to the request's reference.
    #[serde(borrow)]
    pub reference: RawReference<'a>,
    /// UUID, checked by the provider.
    #[serde(rename = "OperationID", borrow)]
    pub operation_id: Text<'a>,
    /// What to restore.
    #[serde(borrow)]
    pub snapshot: Snapshot<'a>,
    /// Incarnation to create.
    #[serde(borrow)]
    pub target: Compute<'a>,
    /// Only observe; needs no ready generation.
    pub observe_only: bool,
}

/// A reference before its three texts were checked (wire §2.1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields, rename_all = "PascalCase")]
pub struct RawReference<'a> {
    /// `TenantID`.
    #[serde(rename = "TenantID", borrow)]
    pub tenant_id: Text<'a>,
    /// `EnvironmentID`.
    #[serde(rename = "EnvironmentID", borrow)]
    pub environment_id: Text<'a>,
    /// `AllocationID`.
    #[serde(rename = "AllocationID", borrow)]
    pub allocation_id: Text<'a>,
}

/// Who a node is (wire §2.8).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct Identity<'a> {
    /// `node_id`.
    #[serde(borrow)]
    pub node_id: Text<'a>,
    /// `installation_id`.
    #[serde(borrow)]
    pub installation_id: Text<'a>,
    /// `provider`.
    #[serde(borrow)]
    pub provider: Text<'a>,
    /// `backend_fingerprint`.
    #[serde(borrow)]
    pub backend_fingerprint: Text<'a>,
    /// The enrolled generation, immutable; not the current target.
    pub deployment_generation: u64,
    /// The enrolled digest.
    #[serde(borrow)]
    pub specification_digest: Text<'a>,
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
    pub observed_at: Text<'a>,
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

/// What a node says of one generation (wire §2.9b).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation<'a> {
    /// Which generation.
    pub generation: Generation,
    /// Its digest.
    pub specification_digest: Digest,
    /// State with what belongs to it.
    pub state: ObservedState<'a>,
}

/// State of an observation; each state carries only what it may carry.
#[derive(Debug, Clone, PartialEq, Eq)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct Checkpoint<'a> {
    /// Opaque, 1 … 256 bytes.
    #[serde(borrow)]
    pub artifact_domain: Text<'a>,
    /// Opaque, 1 … 256 bytes.
    #[serde(borrow)]
    pub execution_class: Text<'a>,
}

/// The declared readiness classes, in declaration order (decision 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
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

/// What `observe` asks for (wire §2.10). Raw texts; [`crate::operation`] checks them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields, rename_all = "PascalCase")]
pub struct ObservationTarget<'a> {
    /// `TenantID`.
    #[serde(rename = "TenantID", borrow)]
    pub tenant_id: Text<'a>,
    /// `SessionID`.
    #[serde(rename = "SessionID", borrow)]
    pub session_id: Text<'a>,
    /// `EnvironmentID`.
    #[serde(rename = "EnvironmentID", borrow)]
    pub environment_id: Text<'a>,
    /// Exactly `openai_hosted`.
    #[serde(borrow)]
    pub mode: Text<'a>,
    /// Which instance.
    #[serde(borrow)]
    pub instance: Instance<'a>,
    /// Whether `TokenUsage` held anything but null, which is invalid.
    #[serde(rename = "TokenUsage", with = "json::token_usage")]
    pub token_usage_present: bool,
}

/// `ObservationTarget.Instance` (wire §2.10).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields, rename_all = "PascalCase")]
pub struct Instance<'a> {
    /// `AllocationID`.
    #[serde(rename = "AllocationID", borrow)]
    pub allocation_id: Text<'a>,
    /// The installation's UUID.
    #[serde(borrow)]
    pub provider_key: Text<'a>,
    /// May be empty.
    #[serde(borrow)]
    pub connection_generation: Text<'a>,
    /// For example `running`.
    #[serde(borrow)]
    pub allocation_state: Text<'a>,
    /// RFC 3339; the zero time is allowed.
    #[serde(borrow)]
    pub allocation_created_at: Text<'a>,
    /// For example `running`, `suspended`, `disabled`.
    #[serde(borrow)]
    pub compute_phase: Text<'a>,
    /// Opaque JSON text, carried unchanged; `null` included.
    #[serde(borrow, with = "json::provider_state")]
    pub provider_state: Text<'a>,
}

/// Measured use of one sandbox (wire §2.10b). `None` is unknown; an observed zero is a zero.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields, rename_all = "PascalCase")]
pub struct Sample<'a> {
    /// RFC 3339.
    #[serde(borrow)]
    pub observed_at: Text<'a>,
    /// RFC 3339.
    #[serde(borrow, deserialize_with = "json::nullable_text")]
    pub started_at: Option<Text<'a>>,
    /// Seconds.
    #[serde(rename = "CPUUsageSecondsTotal", deserialize_with = "json::nullable_number")]
    pub cpu_usage_seconds_total: Option<f64>,
    /// Cores.
    #[serde(rename = "CPUCapacityCores", deserialize_with = "json::nullable_number")]
    pub cpu_capacity_cores: Option<f64>,
    /// Omitted when absent.
    #[serde(
        rename = "CPUUtilizationRatio",
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "json::present_number"
    )]
    pub cpu_utilization_ratio: Option<f64>,
    /// Bytes.
    #[serde(deserialize_with = "json::nullable")]
    pub memory_usage_bytes: Option<u64>,
    /// Bytes.
    #[serde(deserialize_with = "json::nullable")]
    pub memory_limit_bytes: Option<u64>,
    /// Bytes, omitted when absent.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "json::present")]
    pub disk_usage_bytes: Option<u64>,
    /// Bytes, omitted when absent.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "json::present")]
    pub disk_limit_bytes: Option<u64>,
}

/// What a provider knows of one sandbox (wire §2.11).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Info<'a> {
    /// Flattened reference.
    pub reference: RawReference<'a>,
    /// Native identity, may be empty.
    pub provider_id: Text<'a>,
    /// Native state; `absent` has a meaning.
    pub state: Text<'a>,
    /// Whether the last step of the bootstrap was reached.
    pub bootstrap_complete: bool,
    /// The original creation attempt can no longer change resources.
    pub create_settled: bool,
}

/// Evidence of an unsupported operation (wire §2.12); raw, judged by [`crate::outcome`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct UnsupportedEvidence<'a> {
    /// Provider method name.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none", deserialize_with = "json::present_text")]
    pub operation: Option<Text<'a>>,
    /// Reason code.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none", deserialize_with = "json::present_text")]
    pub reason: Option<Text<'a>>,
}

/// Core's announcement (wire §2.13).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct Deployment {
    /// The target.
    pub generation: Generation,
    /// Digest of the target.
    pub specification_digest: Digest,
    /// Durable serving pin; `None` is an explicit null.
    #[serde(deserialize_with = "json::nullable")]
    pub serving_generation: Option<Generation>,
}

/// A generation with its digest (wire §2.14).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct GenerationReference {
    /// Which generation.
    pub generation: Generation,
    /// Its digest.
    pub specification_digest: Digest,
}

/// Core's answer for one reference (wire §2.14).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Which generation.
    pub reference: GenerationReference,
    /// Whether the node must keep it.
    pub keep: bool,
}

/// The fencing members of a retention exchange (wire §2.14).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exchange {
    /// Exchange id.
    pub id: Id,
    /// Own counter per connection.
    pub sequence: Sequence,
    /// The connection.
    pub connection_id: Id,
    /// The epoch.
    pub owner_epoch: OwnerEpoch,
}

/// A workspace binding (wire §2.15); raw, judged by [`crate::operation`].
#[derive(Debug, Clone, PartialEq)]
pub struct Workspace<'a> {
    /// `Configuration.ID`.
    pub configuration_id: Text<'a>,
    /// `Configuration.Adapter`.
    pub adapter: Text<'a>,
    /// `Configuration.Parameters`, opaque JSON object text.
    pub parameters: Text<'a>,
    /// `Attachment.Reference.TenantID`.
    pub tenant_id: Text<'a>,
    /// `Attachment.Reference.EnvironmentID`.
    pub environment_id: Text<'a>,
    /// `Attachment.Reference.ObjectID`.
    pub object_id: Text<'a>,
    /// `Attachment.ConfigurationID`.
    pub attachment_configuration_id: Text<'a>,
    /// `Attachment.Kind`.
    pub kind: Text<'a>,
    /// `Attachment.Native`, opaque JSON object text.
    pub native: Text<'a>,
}
