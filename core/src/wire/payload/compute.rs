//! Incarnations, snapshots, and how one becomes the other (wire §2.3, §2.4, §2.6, §2.7).

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::{RawReference, Workspace};
use crate::wire::json;

/// Identity of one compute incarnation (wire §2.3).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields, rename_all = "PascalCase")]
pub struct Compute<'a> {
    /// Incarnation, 0 for the initial one; not the deployment generation.
    #[serde(with = "json::natural")]
    pub generation: u64,
    /// Derived by the provider.
    #[serde(borrow)]
    pub name: Cow<'a, str>,
    /// Native identity; empty until the create or restore was observed.
    #[serde(rename = "ID", borrow)]
    pub id: Cow<'a, str>,
    /// `None` for the initial incarnation.
    #[serde(borrow, deserialize_with = "json::nullable")]
    pub restored_from: Option<Snapshot<'a>>,
}

/// State of one compute incarnation (wire §2.3b).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields, rename_all = "PascalCase")]
pub struct ComputeState<'a> {
    /// Which incarnation.
    #[serde(borrow)]
    pub compute: Compute<'a>,
    /// Native status text.
    #[serde(borrow)]
    pub status: Cow<'a, str>,
    /// Whether the last step of the bootstrap was reached.
    pub bootstrap_complete: bool,
    /// Verified capture, when there is one.
    #[serde(borrow, deserialize_with = "json::nullable")]
    pub snapshot: Option<Snapshot<'a>>,
    /// The captured source is confirmed stopped.
    pub source_stopped: bool,
}

/// Identity of one snapshot; persisted and returned unchanged (wire §2.4).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields, rename_all = "PascalCase")]
pub struct Snapshot<'a> {
    /// A snapshot name.
    #[serde(borrow)]
    pub reference: Cow<'a, str>,
    /// `ID`.
    #[serde(rename = "ID", borrow)]
    pub id: Cow<'a, str>,
    /// `Digest`.
    #[serde(borrow)]
    pub digest: Cow<'a, str>,
    /// `CheckpointID`.
    #[serde(rename = "CheckpointID", borrow)]
    pub checkpoint_id: Cow<'a, str>,
    /// `CheckpointRoot`.
    #[serde(borrow)]
    pub checkpoint_root: Cow<'a, str>,
    /// The suspend operation's UUID.
    #[serde(rename = "OperationID", borrow)]
    pub operation_id: Cow<'a, str>,
    /// Incarnation that was captured.
    #[serde(with = "json::natural")]
    pub source_generation: u64,
    /// Name of that incarnation.
    #[serde(borrow)]
    pub source_name: Cow<'a, str>,
    /// Native identity of that incarnation.
    #[serde(rename = "SourceID", borrow)]
    pub source_id: Cow<'a, str>,
}

/// Arguments of `suspend` (wire §2.6).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields, rename_all = "PascalCase")]
pub struct Suspend<'a> {
    /// `Reference`, three texts equal to the request's reference.
    #[serde(borrow)]
    pub reference: RawReference<'a>,
    /// UUID, checked by the provider.
    #[serde(rename = "OperationID", borrow)]
    pub operation_id: Cow<'a, str>,
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
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
    pub operation_id: Cow<'a, str>,
    /// What to restore.
    #[serde(borrow)]
    pub snapshot: Snapshot<'a>,
    /// Incarnation to create.
    #[serde(borrow)]
    pub target: Compute<'a>,
    /// Only observe; needs no ready generation.
    pub observe_only: bool,
}
