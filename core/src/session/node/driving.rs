//! What the node's machine and its driver say to each other, and what the driver may ask it.

use super::super::lanes::{Full, Ticket};
use super::{Link, Node};
use crate::generation::{self, Refusal, Table, Task};
use crate::limits::STOP_GRACE_MS;
use crate::operation::Call;
use crate::units::{Generation, Id, Millis, OwnerEpoch};
use crate::wire::Violation;
use crate::wire::payload::GenerationReference;

/// What the driver does next, in order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// Sample the host, with a sampler of this connection; answer with [`super::Node::handle_health`].
    MeasureHealth,
    /// Write this message; answer with [`super::Node::handle_written`].
    Send(Vec<u8>),
    /// Store the epoch durably, unless a higher one is; answer with [`super::Node::handle_epoch_stored`], also when the
    /// connection has ended meanwhile, or [`super::Node::handle_epoch_not_stored`].
    StoreEpoch(OwnerEpoch),
    /// Execute on the generation's provider; answer with [`super::Node::handle_result`] when it really ended.
    Execute {
        /// Its name.
        ticket: Ticket,
        /// What to do.
        call: Box<Call<'static>>,
        /// When the wait for it ends.
        deadline: Millis,
    },
    /// Background work on generations.
    Task(Task),
    /// Remove the generation from this host; answer with [`super::Node::handle_removed`].
    Remove(GenerationReference),
    /// The connection ended, or [`crate::limits::COLLECTION_TIMEOUT_MS`] passed: end the running removal; it still
    /// answers with [`super::Node::handle_removed`].
    CancelRemoval(Generation),
    /// Close the connection without waiting for the peer, and count it as a failed attempt.
    Close(Ended),
}

/// Why the node ended a connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Ended {
    /// Core sent what no frame may look like.
    #[error("core sent an invalid frame: {0}")]
    Invalid(Violation),
    /// Core sent a binary message.
    #[error("core sent a binary message, expected text")]
    Binary,
    /// A frame that has no place in this phase or direction.
    #[error("core sent a frame that has no place here")]
    Unexpected,
    /// An acknowledgement of another connection.
    #[error("core named another connection")]
    Foreign,
    /// The rules of ownership were broken (wire §4.6).
    #[error("ownership violation: {0}")]
    Ownership(Ownership),
    /// A request found no waiting place.
    #[error("{0}, the connection is given up")]
    Full(#[from] Full),
    /// No `welcome` within 15 s.
    #[error("core did not answer hello within 15 s")]
    NoWelcome,
    /// No frame for 35 s.
    #[error("core was silent for 35 s")]
    Silent,
    /// The epoch could not be stored.
    #[error("the owner epoch could not be stored")]
    EpochNotStored,
    /// What the node measured cannot be written down.
    #[error("the measurements do not fit a frame: {0}")]
    Unencodable(Violation),
}

/// What was violated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Ownership {
    /// An epoch lower than the stored one.
    #[error("the owner epoch is lower than the stored one")]
    LowerEpoch,
    /// A request or an acknowledgement of another connection or epoch.
    #[error("the frame belongs to another connection or owner epoch")]
    Fencing,
    /// A gap or a repetition.
    #[error("expected sequence {expected}, got {got}")]
    Sequence {
        /// Previous + 1.
        expected: u64,
        /// What came.
        got: u64,
    },
    /// Deployment facts that cannot be true.
    #[error(transparent)]
    Deployment(#[from] Refusal),
    /// A retention answer that is not the answer to what was asked.
    #[error("the retention answer does not match the pending exchange")]
    Retention,
}

/// Why [`super::Node::poll_timeout`] wants to be driven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wake {
    /// `welcome` is overdue.
    Welcome,
    /// Core was silent too long.
    Idle,
    /// The next heartbeat is due.
    Heartbeat,
    /// The budget of an operation ends.
    Budget,
    /// A probe or a preparation is due.
    Generation(generation::Wake),
}

impl Node {
    /// The next action.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When [`Node::handle_timeout`] wants to run next, and why.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Millis, Wake)> {
        let (link, idle, removal) = match &self.link {
            Link::Down | Link::Storing(_) => (None, None, None),
            Link::Measuring { deadline } | Link::Greeting { deadline } => {
                (Some((*deadline, Wake::Welcome)), None, None)
            }
            Link::Live(live) => {
                let idle = (!self.paused).then_some((live.idle, Wake::Idle));
                (Some((live.heartbeat, Wake::Heartbeat)), idle, live.exchanges.poll_timeout())
            }
        };
        let budget = self.lanes.poll_timeout().map(|at| (at, Wake::Budget));
        let table = self.table.poll_timeout().map(|(at, wake)| (at, Wake::Generation(wake)));
        let removal = removal.map(|at| (at, Wake::Generation(generation::Wake::Deadline)));
        // Asked after every input: no iterator, which costs several times as much.
        earlier(earlier(earlier(earlier(link, idle), budget), table), removal)
    }

    /// Whether the next message may be read. `false` is back-pressure: an epoch is being stored, or the byte budget
    /// has no room for another message (decision 30). Silence is not counted meanwhile.
    #[must_use]
    pub fn may_read(&self) -> bool {
        !self.paused && !matches!(self.link, Link::Storing(_))
    }

    /// Whether a connection is open as far as the node is concerned.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        !matches!(self.link, Link::Down)
    }

    /// The connection's identifier and epoch, once it is live.
    #[must_use]
    pub fn live(&self) -> Option<(Id, OwnerEpoch)> {
        match &self.link {
            Link::Live(live) => Some((live.connection_id, live.owner_epoch)),
            Link::Down | Link::Measuring { .. } | Link::Greeting { .. } | Link::Storing(_) => None,
        }
    }

    /// The generations of this node.
    #[must_use]
    pub const fn table(&self) -> &Table {
        &self.table
    }

    /// Until when a node that stops waits for what executes; `None` when nothing does. A command whose budget ended is
    /// still being ended in its sandbox: it is given [`STOP_GRACE_MS`] for that.
    #[must_use]
    pub fn busy_until(&self) -> Option<Millis> {
        self.lanes.last_deadline().map(|deadline| deadline.after(STOP_GRACE_MS))
    }
}

/// The earlier of two times; the first when they are equal.
fn earlier(first: Option<(Millis, Wake)>, second: Option<(Millis, Wake)>) -> Option<(Millis, Wake)> {
    match (first, second) {
        (Some(first), Some(second)) => Some(if second.0 < first.0 { second } else { first }),
        (first, second) => first.or(second),
    }
}
