//! What the machine of one connection and its driver say to each other.

use super::dispatch::Uncertain;
use crate::units::{Generation, Id, Millis, OwnerEpoch, Sequence};
use crate::wire::frame::{Announcement, Response};
use crate::wire::payload::{Deployment, Exchange, GenerationReference, Health, Identity, Retention};

/// What the driver does next, in order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// Start this; answer with [`super::Connection::handle_callback`] when it really ended.
    Call(Callback),
    /// End the running callback early. It is still answered, once it returned.
    CancelCallback,
    /// Write this frame; answer with [`super::Connection::handle_written`].
    Write(Write),
    /// Requests may find this connection from here on.
    Publish,
    /// The caller of this request gets no answer.
    Abandon {
        /// Which request.
        id: Id,
        /// What its caller knows.
        outcome: Uncertain,
    },
    /// Close the socket now, without waiting for the peer.
    Close(CloseReason),
    /// Release the reservation; nothing follows.
    Finish,
}

/// A storage call, bounded by five seconds.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Callback {
    /// Record presence under this connection and epoch.
    Connect,
    /// Record health and observations.
    Record(Box<Health<'static>>),
    /// Read the deployment.
    Deployment,
    /// Accept the bearer of the upgrade again.
    Authenticate,
    /// Read the owner epoch.
    Epoch,
    /// Decide what the node must keep.
    Retain(Vec<GenerationReference>),
    /// Clear the presence of this connection and epoch.
    Disconnect,
}

/// What a callback came to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Reply {
    /// Of [`Callback::Connect`] and [`Callback::Disconnect`].
    Done,
    /// Of [`Callback::Record`]: the reported generations that Core keeps for this node.
    Recorded(Vec<Generation>),
    /// Of [`Callback::Deployment`].
    Deployment(Deployment),
    /// Of [`Callback::Authenticate`].
    Authenticated(Box<Identity<'static>>),
    /// Of [`Callback::Epoch`].
    Epoch(OwnerEpoch),
    /// Of [`Callback::Retain`], in the order asked.
    Retained(Vec<Retention>, Deployment),
    /// Failed, was rejected or was cancelled. It may have had its effect.
    Failed,
}

/// A frame to write.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Write {
    /// Answer to `hello`.
    Welcome(Announcement),
    /// Answer to `heartbeat`.
    HeartbeatAck(Announcement),
    /// Answer to `retention`.
    RetentionAck {
        /// Fencing members, as asked.
        exchange: Exchange,
        /// In the order asked.
        retentions: Vec<Retention>,
        /// The deployment.
        deployment: Deployment,
    },
    /// The request with this identifier; its arguments are with the driver.
    Request {
        /// Which request.
        id: Id,
        /// Assigned just now.
        sequence: Sequence,
        /// Remaining budget, 1 … 120 000 ms.
        timeout_ms: u64,
    },
}

/// A request that a caller waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Submission {
    /// Fresh.
    pub id: Id,
    /// Which generation carries it out.
    pub generation: Generation,
    /// Whether that generation must be ready now.
    pub needs_ready: bool,
    /// When the caller stops waiting.
    pub deadline: Millis,
}

/// A response and the request it answers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Delivery<'a> {
    /// Which request.
    pub id: Id,
    /// What the node said.
    pub response: Box<Response<'a>>,
}

/// Why a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum CloseReason {
    /// No `hello` in time.
    #[error("no hello within 15 s")]
    HelloTimeout,
    /// No frame in time.
    #[error("no frame for 35 s")]
    Idle,
    /// An invalid frame, or one of another phase or direction.
    #[error("an invalid or misplaced frame")]
    Violation,
    /// A frame named another connection, epoch or retention sequence.
    #[error("a frame of another connection, epoch or sequence")]
    Fenced,
    /// The node is not who it authenticated as.
    #[error("the identity differs from the authenticated one")]
    Identity,
    /// Core's epoch moved on.
    #[error("the owner epoch changed")]
    EpochChanged,
    /// A callback failed or was rejected.
    #[error("a storage call failed or was refused")]
    Storage,
    /// A callback did not end within five seconds.
    #[error("a storage call took longer than 5 s")]
    StorageTimeout,
    /// A frame could not be written.
    #[error("a frame could not be written")]
    WriteFailed,
    /// The peer went away.
    #[error("the node closed the connection")]
    PeerGone,
    /// Core closes, or disconnects this node.
    #[error("core closed the connection")]
    Asked,
}

/// Why [`super::Connection::handle_timeout`] is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wake {
    /// `hello` is late.
    Hello,
    /// The running callback is late.
    Callback,
    /// The node is silent.
    Idle,
    /// A caller's time ends.
    Request,
}
