//! The eight frames (wire §1).

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::json;
use super::payload::{
    Bootstrap, Command, CommandResult, Compute, ComputeState, Deployment, Exchange, GenerationReference, Health,
    Identity, Info, ObservationTarget, RawReference, Resume, Retention, Sample, Snapshot, Suspend, Text,
    UnsupportedEvidence,
};
use crate::units::{Generation, Id, OwnerEpoch, Sequence};

/// A decoded frame. Payloads borrow from the message.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Frame<'a> {
    /// Node to Core, first frame of a connection.
    Hello {
        /// Who the node is.
        identity: Identity<'a>,
        /// What it measured.
        health: Health<'a>,
    },
    /// Core to node, answer to `hello`.
    Welcome(Announcement),
    /// Node to Core, every ten seconds.
    Heartbeat {
        /// From `welcome`.
        connection_id: Id,
        /// From `welcome`.
        owner_epoch: OwnerEpoch,
        /// What the node measured.
        health: Health<'a>,
    },
    /// Core to node, answer to `heartbeat`.
    HeartbeatAck(Announcement),
    /// Node to Core: which of these must I keep?
    Retention {
        /// Fencing members.
        exchange: Exchange,
        /// 1 to 8, unique generations.
        references: Vec<GenerationReference>,
    },
    /// Core to node, answer to `retention`.
    RetentionAck {
        /// Fencing members.
        exchange: Exchange,
        /// 1 to 8, unique generations, in the order asked.
        retentions: Vec<Retention>,
        /// The deployment.
        deployment: Deployment,
    },
    /// Core to node: do this.
    Request(Box<Request<'a>>),
    /// Node to Core: this came of it.
    Response(Box<Response<'a>>),
}

/// Members of `welcome` and `heartbeat_ack`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Announcement {
    /// New for each connection.
    pub connection_id: Id,
    /// Core's current epoch.
    pub owner_epoch: OwnerEpoch,
    /// The deployment.
    pub deployment: Deployment,
}

/// A request that decodes; [`crate::operation::Call::accept`] judges the rest (wire §1.8).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct Request<'a> {
    /// Which generation must carry it out.
    pub deployment_generation: Generation,
    /// Previous + 1; the first is 1.
    pub sequence: Sequence,
    /// Equal to the connection's.
    pub owner_epoch: OwnerEpoch,
    /// Equal to the connection's.
    pub connection_id: Id,
    /// Echoed unchanged, whatever it is.
    #[serde(borrow)]
    pub id: Cow<'a, str>,
    /// One of section 3, or `invalid`.
    #[serde(borrow)]
    pub operation: Cow<'a, str>,
    /// 1 … 120 000, or `invalid`.
    pub timeout_ms: i64,
    /// Three UUIDs, or `invalid`.
    #[serde(borrow)]
    pub reference: RawReference<'a>,
    /// See wire §3.1 for which operation takes which argument.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none", deserialize_with = "json::present")]
    pub bootstrap: Option<Box<Bootstrap<'a>>>,
    /// See wire §3.1.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none", deserialize_with = "json::present")]
    pub compute: Option<Compute<'a>>,
    /// `new_compute` only.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "json::present")]
    pub generation: Option<u64>,
    /// See wire §3.1.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none", deserialize_with = "json::present")]
    pub command: Option<Command<'a>>,
    /// See wire §3.1.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none", deserialize_with = "json::present")]
    pub suspend: Option<Box<Suspend<'a>>>,
    /// See wire §3.1.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none", deserialize_with = "json::present")]
    pub resume: Option<Box<Resume<'a>>>,
    /// See wire §3.1.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none", deserialize_with = "json::present")]
    pub snapshot: Option<Snapshot<'a>>,
    /// See wire §3.1.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none", deserialize_with = "json::present")]
    pub observation: Option<Box<ObservationTarget<'a>>>,
    /// Preparation operations only.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none", deserialize_with = "json::present_text")]
    pub key: Option<Text<'a>>,
}

/// An answer as it stands on the wire; [`crate::outcome`] judges it (wire §1.9).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct Response<'a> {
    /// The request's `id`, echoed.
    #[serde(borrow)]
    pub id: Cow<'a, str>,
    /// The live connection. `None` only in a response that was not addressed yet.
    #[serde(deserialize_with = "json::present")]
    pub connection_id: Option<Id>,
    /// Absent on success, never empty.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none", deserialize_with = "json::present_text")]
    pub error_code: Option<Text<'a>>,
    /// Only beside `unsupported`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none", deserialize_with = "json::present")]
    pub unsupported: Option<UnsupportedEvidence<'a>>,
    /// Success of `create`, `info`, `renew`, or a receipt.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none", deserialize_with = "json::present")]
    pub info: Option<Info<'a>>,
    /// Success of `initial`, `new_compute`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none", deserialize_with = "json::present")]
    pub compute: Option<Compute<'a>>,
    /// Success of `compute`, `resume_compute`, `suspend`, `resume`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none", deserialize_with = "json::present")]
    pub state: Option<Box<ComputeState<'a>>>,
    /// Success of `command`, `command_compute`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none", deserialize_with = "json::present")]
    pub command: Option<CommandResult<'a>>,
    /// Success of `observe`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none", deserialize_with = "json::present")]
    pub sample: Option<Sample<'a>>,
    /// Success of `restore_preparation`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "json::present")]
    pub restored: Option<bool>,
}
