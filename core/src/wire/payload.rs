//! The provider-owned and protocol-owned objects that frames carry (wire §2).
//!
//! Long strings borrow from the message they were read from; `'static` forms own them.

mod compute;
mod health;
mod observe;

pub use compute::{Compute, ComputeState, Resume, Snapshot, Suspend};
pub use health::{Checkpoint, Diagnostic, Health, Identity, Observation, ObservedState};
pub use observe::{Instance, ObservationTarget, Sample};

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::json;
use crate::units::{Digest, Generation, Id, OwnerEpoch, Sequence};

/// A string that borrows from the message when it holds no escape.
///
/// A derived structure spells it out: serde lets only what is called `Cow` borrow, and copies what has another name.
pub type Text<'a> = Cow<'a, str>;

/// What stands for a number in a hash: equal numbers, both zeros among them, have equal bits.
fn bits(number: Option<f64>) -> Option<u64> {
    number.map(|number| (number + 0.0).to_bits())
}

/// Which sandbox: three identifiers, fresh `allocation` per creation attempt (wire §2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Reference {
    /// `TenantID`.
    pub tenant: Id,
    /// `EnvironmentID`.
    pub environment: Id,
    /// `AllocationID`.
    pub allocation: Id,
}

/// A credential; never shown by `Debug` or `Display`.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Secret<'a>(#[serde(borrow)] pub Cow<'a, str>);

impl fmt::Debug for Secret<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

/// What a new sandbox needs to know (wire §2.2). The flattened reference equals the request's.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields, rename_all = "PascalCase")]
pub struct Bootstrap<'a> {
    /// `TenantID`.
    #[serde(rename = "TenantID", borrow)]
    pub tenant_id: Cow<'a, str>,
    /// `EnvironmentID`.
    #[serde(rename = "EnvironmentID", borrow)]
    pub environment_id: Cow<'a, str>,
    /// `AllocationID`.
    #[serde(rename = "AllocationID", borrow)]
    pub allocation_id: Cow<'a, str>,
    /// `SessionID`, checked by the provider.
    #[serde(rename = "SessionID", borrow)]
    pub session_id: Cow<'a, str>,
    /// `DeviceID`, checked by the provider.
    #[serde(rename = "DeviceID", borrow)]
    pub device_id: Cow<'a, str>,
    /// `CoreURL`, checked by the provider.
    #[serde(rename = "CoreURL", borrow)]
    pub core_url: Cow<'a, str>,
    /// `Credential`.
    #[serde(borrow)]
    pub credential: Secret<'a>,
    /// `NetworkAccess`.
    #[serde(borrow)]
    pub network_access: Cow<'a, str>,
    /// `AllowedDomains`, nullable.
    #[serde(borrow, deserialize_with = "json::nullable_texts")]
    pub allowed_domains: Option<Vec<Text<'a>>>,
    /// `Workspace`, omitted when absent.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none", deserialize_with = "json::present")]
    pub workspace: Option<Workspace<'a>>,
}

/// A command to run in a sandbox (wire §2.5). `Debug` shows sizes, never content.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields, rename_all = "PascalCase")]
pub struct Command<'a> {
    /// Argument vector; the provider requires at least one element.
    #[serde(borrow, deserialize_with = "json::texts")]
    pub args: Vec<Text<'a>>,
    /// Empty or absolute.
    #[serde(borrow)]
    pub directory: Cow<'a, str>,
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
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields, rename_all = "PascalCase")]
pub struct CommandResult<'a> {
    /// At most 1 MiB, bytes that are no UTF-8 replaced.
    #[serde(borrow)]
    pub stdout: Cow<'a, str>,
    /// At most 1 MiB, bytes that are no UTF-8 replaced.
    #[serde(borrow)]
    pub stderr: Cow<'a, str>,
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

/// A reference before its three texts were checked (wire §2.1).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields, rename_all = "PascalCase")]
pub struct RawReference<'a> {
    /// `TenantID`.
    #[serde(rename = "TenantID", borrow)]
    pub tenant_id: Cow<'a, str>,
    /// `EnvironmentID`.
    #[serde(rename = "EnvironmentID", borrow)]
    pub environment_id: Cow<'a, str>,
    /// `AllocationID`.
    #[serde(rename = "AllocationID", borrow)]
    pub allocation_id: Cow<'a, str>,
}

/// What a provider knows of one sandbox (wire §2.11).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Info<'a> {
    /// Flattened reference.
    pub reference: RawReference<'a>,
    /// Native identity, may be empty.
    pub provider_id: Cow<'a, str>,
    /// Native state; `absent` has a meaning.
    pub state: Cow<'a, str>,
    /// Whether the last step of the bootstrap was reached.
    pub bootstrap_complete: bool,
    /// The original creation attempt can no longer change resources.
    pub create_settled: bool,
}

/// Evidence of an unsupported operation (wire §2.12); raw, judged by [`crate::outcome`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Retention {
    /// Which generation.
    pub reference: GenerationReference,
    /// Whether the node must keep it.
    pub keep: bool,
}

/// The fencing members of a retention exchange (wire §2.14).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Workspace<'a> {
    /// `Configuration.ID`.
    pub configuration_id: Cow<'a, str>,
    /// `Configuration.Adapter`.
    pub adapter: Cow<'a, str>,
    /// `Configuration.Parameters`, opaque JSON object text.
    pub parameters: Cow<'a, str>,
    /// `Attachment.Reference.TenantID`.
    pub tenant_id: Cow<'a, str>,
    /// `Attachment.Reference.EnvironmentID`.
    pub environment_id: Cow<'a, str>,
    /// `Attachment.Reference.ObjectID`.
    pub object_id: Cow<'a, str>,
    /// `Attachment.ConfigurationID`.
    pub attachment_configuration_id: Cow<'a, str>,
    /// `Attachment.Kind`.
    pub kind: Cow<'a, str>,
    /// `Attachment.Native`, opaque JSON object text.
    pub native: Cow<'a, str>,
}
