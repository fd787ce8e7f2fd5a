//! The provider-owned and protocol-owned objects that frames carry (wire §2).
//!
//! Long strings borrow from the message they were read from; `'static` forms own them.

use std::borrow::Cow;
use std::fmt;

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
#[derive(Clone, PartialEq, Eq)]
pub struct Secret<'a>(pub Text<'a>);

impl fmt::Debug for Secret<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

/// What a new sandbox needs to know (wire §2.2). The flattened reference equals the request's.
#[derive(Debug, Clone, PartialEq)]
pub struct Bootstrap<'a> {
    /// `TenantID`.
    pub tenant_id: Text<'a>,
    /// `EnvironmentID`.
    pub environment_id: Text<'a>,
    /// `AllocationID`.
    pub allocation_id: Text<'a>,
    /// `SessionID`, checked by the provider.
    pub session_id: Text<'a>,
    /// `DeviceID`, checked by the provider.
    pub device_id: Text<'a>,
    /// `CoreURL`, checked by the provider.
    pub core_url: Text<'a>,
    /// `Credential`.
    pub credential: Secret<'a>,
    /// `NetworkAccess`.
    pub network_access: Text<'a>,
    /// `AllowedDomains`, nullable.
    pub allowed_domains: Option<Vec<Text<'a>>>,
    /// `Workspace`, omitted when absent.
    pub workspace: Option<Workspace<'a>>,
}

/// Identity of one compute incarnation (wire §2.3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compute<'a> {
    /// Incarnation, 0 for the initial one; not the deployment generation.
    pub generation: u64,
    /// Derived by the provider.
    pub name: Text<'a>,
    /// Native identity; empty until the create or restore was observed.
    pub id: Text<'a>,
    /// `None` for the initial incarnation.
    pub restored_from: Option<Snapshot<'a>>,
}

/// State of one compute incarnation (wire §2.3b).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComputeState<'a> {
    /// Which incarnation.
    pub compute: Compute<'a>,
    /// Native status text.
    pub status: Text<'a>,
    /// Whether the last step of the bootstrap was reached.
    pub bootstrap_complete: bool,
    /// Verified capture, when there is one.
    pub snapshot: Option<Snapshot<'a>>,
    /// The captured source is confirmed stopped.
    pub source_stopped: bool,
}

/// Identity of one snapshot; persisted and returned unchanged (wire §2.4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot<'a> {
    /// A snapshot name.
    pub reference: Text<'a>,
    /// `ID`.
    pub id: Text<'a>,
    /// `Digest`.
    pub digest: Text<'a>,
    /// `CheckpointID`.
    pub checkpoint_id: Text<'a>,
    /// `CheckpointRoot`.
    pub checkpoint_root: Text<'a>,
    /// The suspend operation's UUID.
    pub operation_id: Text<'a>,
    /// Incarnation that was captured.
    pub source_generation: u64,
    /// Name of that incarnation.
    pub source_name: Text<'a>,
    /// Native identity of that incarnation.
    pub source_id: Text<'a>,
}

/// A command to run in a sandbox (wire §2.5). `Debug` shows sizes, never content.
#[derive(Clone, PartialEq, Eq)]
pub struct Command<'a> {
    /// Argument vector; the provider requires at least one element.
    pub args: Vec<Text<'a>>,
    /// Empty or absolute.
    pub directory: Text<'a>,
    /// Standard input after base64 decoding.
    pub stdin: Option<Cow<'a, [u8]>>,
}

impl fmt::Debug for Command<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stdin = self.stdin.as_ref().map(|bytes| bytes.len());
        f.debug_struct("Command").field("args", &self.args.len()).field("stdin_bytes", &stdin).finish_non_exhaustive()
    }
}

/// The settled outcome of a command (wire §2.5b). `Debug` shows sizes, never content.
#[derive(Clone, PartialEq, Eq)]
pub struct CommandResult<'a> {
    /// At most 1 MiB, bytes that are no UTF-8 replaced.
    pub stdout: Text<'a>,
    /// At most 1 MiB, bytes that are no UTF-8 replaced.
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suspend<'a> {
    /// `Reference`, three texts equal to the request's reference.
    pub reference: RawReference<'a>,
    /// UUID, checked by the provider.
    pub operation_id: Text<'a>,
    /// Exact incarnation to capture.
    pub source: Compute<'a>,
    /// Earlier evidence of the same operation.
    pub snapshot: Option<Snapshot<'a>>,
    /// Only observe the previous attempt.
    pub observe_only: bool,
}

/// Arguments of `resume` (wire §2.7).
#[derive(Debug, Clone, PartialEq)]
pub struct Resume<'a> {
    /// `Workspace`, omitted when absent.
    pub workspace: Option<Workspace<'a>>,
    /// `Reference`, three texts equal to the request's reference.
    pub reference: RawReference<'a>,
    /// UUID, checked by the provider.
    pub operation_id: Text<'a>,
    /// What to restore.
    pub snapshot: Snapshot<'a>,
    /// Incarnation to create.
    pub target: Compute<'a>,
    /// Only observe; needs no ready generation.
    pub observe_only: bool,
}

/// A reference before its three texts were checked (wire §2.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawReference<'a> {
    /// `TenantID`.
    pub tenant_id: Text<'a>,
    /// `EnvironmentID`.
    pub environment_id: Text<'a>,
    /// `AllocationID`.
    pub allocation_id: Text<'a>,
}

/// Who a node is (wire §2.8).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity<'a> {
    /// `node_id`.
    pub node_id: Text<'a>,
    /// `installation_id`.
    pub installation_id: Text<'a>,
    /// `provider`.
    pub provider: Text<'a>,
    /// `backend_fingerprint`.
    pub backend_fingerprint: Text<'a>,
    /// The enrolled generation, immutable; not the current target.
    pub deployment_generation: u64,
    /// The enrolled digest.
    pub specification_digest: Text<'a>,
    /// Cached copy; Core's approved value wins.
    pub max_active: i64,
    /// Cached copy; Core's approved value wins.
    pub max_retained: i64,
}

/// Host measurements and generation observations (wire §2.9). `None` is unknown, never zero.
#[derive(Debug, Clone, PartialEq)]
pub struct Health<'a> {
    /// RFC 3339 time of the sample.
    pub observed_at: Text<'a>,
    /// Operations being executed, 0 … 32.
    pub active_operations: u32,
    /// 0 … 1.
    pub cpu_utilization: Option<f64>,
    /// 1 … 2^53 − 1 bytes.
    pub total_memory_bytes: Option<u64>,
    /// Greater than 0, finite.
    pub effective_cpu_cores: Option<f64>,
    /// 0 … 2^53 − 1.
    pub cpu_count: Option<u64>,
    /// 0 … 2^53 − 1 bytes, at most the total.
    pub available_memory_bytes: Option<u64>,
    /// 0 … 2^53 − 1 bytes.
    pub available_disk_bytes: Option<u64>,
    /// At most 8, unique generations.
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint<'a> {
    /// Opaque, 1 … 256 bytes.
    pub artifact_domain: Text<'a>,
    /// Opaque, 1 … 256 bytes.
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
#[derive(Debug, Clone, PartialEq)]
pub struct ObservationTarget<'a> {
    /// `TenantID`.
    pub tenant_id: Text<'a>,
    /// `SessionID`.
    pub session_id: Text<'a>,
    /// `EnvironmentID`.
    pub environment_id: Text<'a>,
    /// Exactly `openai_hosted`.
    pub mode: Text<'a>,
    /// Which instance.
    pub instance: Instance<'a>,
    /// Whether `TokenUsage` held anything but null, which is invalid.
    pub token_usage_present: bool,
}

/// `ObservationTarget.Instance` (wire §2.10).
#[derive(Debug, Clone, PartialEq)]
pub struct Instance<'a> {
    /// `AllocationID`.
    pub allocation_id: Text<'a>,
    /// The installation's UUID.
    pub provider_key: Text<'a>,
    /// May be empty.
    pub connection_generation: Text<'a>,
    /// For example `running`.
    pub allocation_state: Text<'a>,
    /// RFC 3339; the zero time is allowed.
    pub allocation_created_at: Text<'a>,
    /// For example `running`, `suspended`, `disabled`.
    pub compute_phase: Text<'a>,
    /// Opaque JSON text, carried unchanged; `null` included.
    pub provider_state: Text<'a>,
}

/// Measured use of one sandbox (wire §2.10b). `None` is unknown; an observed zero is a zero.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample<'a> {
    /// RFC 3339.
    pub observed_at: Text<'a>,
    /// RFC 3339.
    pub started_at: Option<Text<'a>>,
    /// Seconds.
    pub cpu_usage_seconds_total: Option<f64>,
    /// Cores.
    pub cpu_capacity_cores: Option<f64>,
    /// Omitted when absent.
    pub cpu_utilization_ratio: Option<f64>,
    /// Bytes.
    pub memory_usage_bytes: Option<u64>,
    /// Bytes.
    pub memory_limit_bytes: Option<u64>,
    /// Bytes, omitted when absent.
    pub disk_usage_bytes: Option<u64>,
    /// Bytes, omitted when absent.
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsupportedEvidence<'a> {
    /// Provider method name.
    pub operation: Option<Text<'a>>,
    /// Reason code.
    pub reason: Option<Text<'a>>,
}

/// Core's announcement (wire §2.13).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deployment {
    /// The target.
    pub generation: Generation,
    /// Digest of the target.
    pub specification_digest: Digest,
    /// Durable serving pin; `None` is an explicit null.
    pub serving_generation: Option<Generation>,
}

/// A generation with its digest (wire §2.14).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
