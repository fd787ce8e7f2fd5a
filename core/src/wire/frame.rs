//! The eight frames (wire §1).

use super::payload::{
    Bootstrap, Command, CommandResult, Compute, ComputeState, Deployment, Exchange, GenerationReference, Health,
    Identity, Info, ObservationTarget, RawReference, Resume, Retention, Sample, Snapshot, Suspend, Text,
    UnsupportedEvidence,
};
use crate::units::{Generation, Id, OwnerEpoch, Sequence};

/// A decoded frame. Payloads borrow from the message.
#[derive(Debug, Clone, PartialEq)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Announcement {
    /// New for each connection.
    pub connection_id: Id,
    /// Core's current epoch.
    pub owner_epoch: OwnerEpoch,
    /// The deployment.
    pub deployment: Deployment,
}

/// A request that decodes; [`crate::operation::Call::accept`] judges the rest (wire §1.8).
#[derive(Debug, Clone, PartialEq)]
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
    pub id: Text<'a>,
    /// One of section 3, or `invalid`.
    pub operation: Text<'a>,
    /// 1 … 120 000, or `invalid`.
    pub timeout_ms: i64,
    /// Three UUIDs, or `invalid`.
    pub reference: RawReference<'a>,
    /// See wire §3.1 for which operation takes which argument.
    pub bootstrap: Option<Bootstrap<'a>>,
    /// See wire §3.1.
    pub compute: Option<Compute<'a>>,
    /// `new_compute` only.
    pub generation: Option<u64>,
    /// See wire §3.1.
    pub command: Option<Command<'a>>,
    /// See wire §3.1.
    pub suspend: Option<Suspend<'a>>,
    /// See wire §3.1.
    pub resume: Option<Resume<'a>>,
    /// See wire §3.1.
    pub snapshot: Option<Snapshot<'a>>,
    /// See wire §3.1.
    pub observation: Option<ObservationTarget<'a>>,
    /// Preparation operations only.
    pub key: Option<Text<'a>>,
}

/// An answer as it stands on the wire; [`crate::outcome`] judges it (wire §1.9).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Response<'a> {
    /// The request's `id`, echoed.
    pub id: Text<'a>,
    /// The live connection. `None` only in a response that was not addressed yet.
    pub connection_id: Option<Id>,
    /// Absent on success, never empty.
    pub error_code: Option<Text<'a>>,
    /// Only beside `unsupported`.
    pub unsupported: Option<UnsupportedEvidence<'a>>,
    /// Success of `create`, `info`, `renew`, or a receipt.
    pub info: Option<Info<'a>>,
    /// Success of `initial`, `new_compute`.
    pub compute: Option<Compute<'a>>,
    /// Success of `compute`, `resume_compute`, `suspend`, `resume`.
    pub state: Option<ComputeState<'a>>,
    /// Success of `command`, `command_compute`.
    pub command: Option<CommandResult<'a>>,
    /// Success of `observe`.
    pub sample: Option<Sample<'a>>,
    /// Success of `restore_preparation`.
    pub restored: Option<bool>,
}
