//! Core's half of one connection (wire §5.1 steps 9–14, §5.3, §5.4, §7.3).
//!
//! ```text
//!  Hello ──hello──▶ Presence ──▶ Health ──▶ Deployment ──▶ Welcoming ──▶ Live
//!    │                 │           │            │              │          │
//!    └─────────────────┴───────────┴── any failure ────────────┴──────────┘
//!                                       │
//!               Draining (the callback that still runs must return)
//!                                       │
//!     presence never attempted ◀────────┴────────▶ Disconnecting (own 5 s)
//!                │                                        │
//!                └───────────────▶ Finished ◀─────────────┘
//! ```
//!
//! At most one callback and one write are outstanding at a time. Frames are processed one after another: while a control
//! frame waits for storage, later frames of the same node, responses included, are not read.
//!
//! - Never can a request find a connection before its presence, its health and its welcome are on record
//!   (`opening_records_presence_then_health_then_reads_the_deployment_and_publishes_last`).
//! - Never is presence left behind that may have been recorded, and never does its cleanup begin before the record
//!   returned (`failed_presence_is_cleaned_up_once`, `cleanup_waits_for_the_cancelled_presence_record`).
//! - Never is a sequence number skipped or used twice (`sequence_starts_at_one_and_follows_the_wire_order`,
//!   `caller_that_expires_in_line_consumes_no_sequence`).
//! - Never do more than 32 requests wait for an answer (`thirty_third_pending_request_is_unavailable`).
//! - Never is a request sent again, and never is its unknown outcome called anything else
//!   (`lost_answer_is_uncertain_and_never_replayed`, `late_and_second_answers_are_ignored`).
//! - Never is a retention request answered out of sequence, or in another order than asked
//!   (`retention_out_of_sequence_or_of_another_connection_closes`, `retention_answer_for_other_references_closes`).
//! - Never does a connection outlive a change of its epoch, its credential, or 35 s of silence
//!   (`changed_epoch_closes_at_the_next_heartbeat`, `revoked_credential_closes_at_the_next_heartbeat`,
//!   `both_sides_close_after_35_seconds_without_a_frame`).
//!
//! # Driving it
//!
//! ```
//! use palisade_core::session::hub::{Action, Callback, Connection, Reply, Write};
//! use palisade_core::testing::{deployment, epoch, generation, health, id, identity, ready};
//! use palisade_core::units::Millis;
//! use palisade_core::wire::Frame;
//!
//! /// What Core's records answer in this example.
//! fn records(callback: &Callback) -> Reply {
//!     match callback {
//!         Callback::Connect | Callback::Disconnect => Reply::Done,
//!         Callback::Record(_) => Reply::Recorded(vec![generation(1)]),
//!         Callback::Deployment => Reply::Deployment(deployment(1, None)),
//!         Callback::Authenticate => Reply::Authenticated(Box::new(identity())),
//!         Callback::Epoch => Reply::Epoch(epoch(1)),
//!         Callback::Retain(_) => Reply::Failed,
//!     }
//! }
//!
//! let now = Millis(0);
//! let mut connection = Connection::new(now, identity(), id(200), epoch(1));
//! let (mut welcomed, mut published) = (false, false);
//! connection.handle_frame(now, Frame::Hello { identity: identity(), health: health([ready(1)]) });
//! while let Some(action) = connection.poll_action() {
//!     match action {
//!         Action::Call(callback) => connection.handle_callback(now, records(&callback)),
//!         Action::Write(write) => {
//!             welcomed |= matches!(write, Write::Welcome(_));
//!             connection.handle_written(now, true);
//!         }
//!         Action::Publish => published = true,
//!         Action::CancelCallback | Action::Abandon { .. } | Action::Close(_) | Action::Finish => unreachable!(),
//!     }
//! }
//! assert!(welcomed && published && connection.readiness().is_ready(generation(1)));
//! ```

pub mod dispatch;
mod driving;
mod live;
pub mod presence;
mod readiness;
pub mod reservations;
pub mod upgrade;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

pub use dispatch::{Cause, Uncertain};
pub use driving::{Action, Callback, CloseReason, Delivery, Reply, Submission, Wake, Write};
pub use readiness::Readiness;

use crate::limits::{CALLBACK_TIMEOUT_MS, HELLO_TIMEOUT_MS, PENDING_MAX};
use crate::units::{Id, Millis, OwnerEpoch};
use crate::wire::IntoOwned as _;
use crate::wire::frame::{Announcement, Frame};
use crate::wire::payload::{Deployment, Health, Identity, Observation};
use live::{Control, Live, Pending, Waiting};

/// Core's half of one connection, from the upgrade to the last callback.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Connection {
    node: Identity<'static>,
    id: Id,
    owner_epoch: OwnerEpoch,
    phase: Phase,
    callback: Option<Running>,
    presence_attempted: bool,
    readiness: Readiness,
    actions: VecDeque<Action>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Phase {
    Hello { deadline: Millis },
    Presence { health: Box<Health<'static>> },
    Health { observations: Vec<Observation<'static>> },
    Deployment,
    Welcoming,
    Live(Live),
    Draining,
    Disconnecting,
    Finished,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Running {
    deadline: Millis,
    cancelled: bool,
}

impl Connection {
    /// A connection right after its upgrade, authenticated as `node`.
    #[must_use]
    pub fn new(now: Millis, node: Identity<'static>, connection_id: Id, owner_epoch: OwnerEpoch) -> Self {
        Self {
            node,
            id: connection_id,
            owner_epoch,
            phase: Phase::Hello { deadline: now.after(HELLO_TIMEOUT_MS) },
            callback: None,
            presence_attempted: false,
            readiness: Readiness::default(),
            actions: VecDeque::new(),
        }
    }

    /// The identifier that `welcome` carries.
    #[must_use]
    pub const fn connection_id(&self) -> Id {
        self.id
    }

    /// The epoch of this connection.
    #[must_use]
    pub const fn owner_epoch(&self) -> OwnerEpoch {
        self.owner_epoch
    }

    /// The identity that was accepted last, with Core's approved capacity.
    #[must_use]
    pub const fn node(&self) -> &Identity<'static> {
        &self.node
    }

    /// What the node said of its generations on this connection.
    #[must_use]
    pub const fn readiness(&self) -> &Readiness {
        &self.readiness
    }

    /// Whether the driver may read the next frame. Slow storage delays later frames of the same node only.
    #[must_use]
    pub fn accepts_frames(&self) -> bool {
        match &self.phase {
            Phase::Hello { .. } => true,
            Phase::Live(live) => matches!(live.control, Control::None),
            Phase::Presence { .. }
            | Phase::Health { .. }
            | Phase::Deployment
            | Phase::Welcoming
            | Phase::Draining
            | Phase::Disconnecting
            | Phase::Finished => false,
        }
    }

    /// The next thing to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When to call [`Connection::handle_timeout`], and why.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Millis, Wake)> {
        let callback = self.callback.as_ref().filter(|running| !running.cancelled);
        let callback = callback.map(|running| (running.deadline, Wake::Callback));
        let phase = match &self.phase {
            Phase::Hello { deadline } => Some((*deadline, Wake::Hello)),
            Phase::Live(live) => live.timeout(),
            Phase::Presence { .. }
            | Phase::Health { .. }
            | Phase::Deployment
            | Phase::Welcoming
            | Phase::Draining
            | Phase::Disconnecting
            | Phase::Finished => None,
        };
        callback.into_iter().chain(phase).min()
    }

    /// A part of a message arrived: the node is not silent (decision 29).
    pub fn handle_fragment(&mut self, now: Millis) {
        if let Phase::Live(live) = &mut self.phase {
            live.heard = now;
        }
    }

    /// A frame arrived. A response that somebody waits for comes back for delivery.
    pub fn handle_frame<'a>(&mut self, now: Millis, frame: Frame<'a>) -> Option<Delivery<'a>> {
        self.handle_fragment(now);
        match (&mut self.phase, frame) {
            (Phase::Hello { .. }, Frame::Hello { identity, health }) => self.hello(now, &identity, health),
            (Phase::Live(_), Frame::Heartbeat { connection_id, owner_epoch, health }) => {
                self.heartbeat(now, connection_id, owner_epoch, health);
            }
            (Phase::Live(_), Frame::Retention { exchange, references }) => self.retention(now, exchange, references),
            (Phase::Live(live), Frame::Response(response)) => {
                if response.connection_id != Some(self.id) {
                    self.close(now, CloseReason::Fenced);
                    return None;
                }
                let id = Id::parse(&response.id).ok()?;
                return live.answered(id).then_some(Delivery { id, response });
            }
            (Phase::Draining | Phase::Disconnecting | Phase::Finished, _) => {}
            (
                Phase::Hello { .. }
                | Phase::Presence { .. }
                | Phase::Health { .. }
                | Phase::Deployment
                | Phase::Welcoming
                | Phase::Live(_),
                _,
            ) => self.close(now, CloseReason::Violation),
        }
        None
    }

    /// The connection must end: bytes that are no frame, a closed stream, or Core's own wish.
    pub fn handle_close(&mut self, now: Millis, reason: CloseReason) {
        self.close(now, reason);
    }

    /// A caller wants an answer. It either waits in line or is abandoned at once.
    pub fn handle_request(&mut self, now: Millis, request: Submission) {
        let Phase::Live(live) = &mut self.phase else {
            return self.abandon(request.id, Cause::Unavailable, false);
        };
        if live.pending.len() >= PENDING_MAX || request.needs_ready && !self.readiness.is_ready(request.generation) {
            return self.abandon(request.id, Cause::Unavailable, false);
        }
        live.pending.insert(request.id, Pending { deadline: request.deadline, sent: false });
        live.queue.push_back(Waiting::Request(request.id));
        self.take_turns(now);
    }

    /// A caller stopped waiting; its slot is free and a late answer is ignored.
    pub fn handle_cancel(&mut self, id: Id) {
        if let Phase::Live(live) = &mut self.phase
            && let Some(pending) = live.pending.remove(&id)
        {
            live.forget_waiting();
            self.abandon(id, Cause::Cancelled, pending.sent);
        }
    }

    /// The frame of the last [`Action::Write`] was written, or was not.
    pub fn handle_written(&mut self, now: Millis, written: bool) {
        if !written {
            return self.close(now, CloseReason::WriteFailed);
        }
        match &mut self.phase {
            Phase::Welcoming => {
                self.phase = Phase::Live(Live::new(now));
                self.actions.push_back(Action::Publish);
            }
            Phase::Live(live) => {
                for generation in live.written(now) {
                    self.readiness.forget(generation);
                }
                self.take_turns(now);
            }
            Phase::Hello { .. }
            | Phase::Presence { .. }
            | Phase::Health { .. }
            | Phase::Deployment
            | Phase::Draining
            | Phase::Disconnecting
            | Phase::Finished => {}
        }
    }

    /// The running callback returned.
    pub fn handle_callback(&mut self, now: Millis, reply: Reply) {
        self.callback = None;
        match std::mem::replace(&mut self.phase, Phase::Draining) {
            Phase::Draining => self.leave(now),
            Phase::Disconnecting => self.finish(),
            Phase::Live(live) => {
                self.phase = Phase::Live(live);
                self.control_reply(now, reply);
            }
            opening @ (Phase::Presence { .. } | Phase::Health { .. } | Phase::Deployment) => {
                self.opening_reply(now, opening, reply);
            }
            other @ (Phase::Hello { .. } | Phase::Welcoming | Phase::Finished) => self.phase = other,
        }
    }

    /// Time passed.
    pub fn handle_timeout(&mut self, now: Millis) {
        if let Some(running) = &self.callback
            && !running.cancelled
            && now >= running.deadline
        {
            self.close(now, CloseReason::StorageTimeout);
        }
        match &mut self.phase {
            Phase::Hello { deadline } if now >= *deadline => self.close(now, CloseReason::HelloTimeout),
            Phase::Live(live) => {
                if live.idle_at().is_some_and(|idle| now >= idle) {
                    return self.close(now, CloseReason::Idle);
                }
                for (id, sent) in live.expired(now) {
                    self.abandon(id, Cause::Deadline, sent);
                }
            }
            Phase::Hello { .. }
            | Phase::Presence { .. }
            | Phase::Health { .. }
            | Phase::Deployment
            | Phase::Welcoming
            | Phase::Draining
            | Phase::Disconnecting
            | Phase::Finished => {}
        }
    }

    fn hello(&mut self, now: Millis, identity: &Identity<'_>, health: Health<'_>) {
        if !same_node(&self.node, identity) {
            return self.close(now, CloseReason::Identity);
        }
        self.presence_attempted = true;
        self.phase = Phase::Presence { health: Box::new(health.into_owned()) };
        self.call(now, Callback::Connect);
    }

    fn opening_reply(&mut self, now: Millis, phase: Phase, reply: Reply) {
        match (phase, reply) {
            (Phase::Presence { health }, Reply::Done) => {
                self.phase = Phase::Health { observations: health.generations.clone() };
                self.call(now, Callback::Record(health));
            }
            (Phase::Health { observations }, Reply::Recorded(kept)) => {
                self.readiness.record(&observations, &kept);
                self.phase = Phase::Deployment;
                self.call(now, Callback::Deployment);
            }
            (Phase::Deployment, Reply::Deployment(deployment)) => {
                self.phase = Phase::Welcoming;
                let welcome = self.announcement(deployment);
                self.actions.push_back(Action::Write(Write::Welcome(welcome)));
            }
            (phase, _) => {
                self.phase = phase;
                self.close(now, CloseReason::Storage);
            }
        }
    }

    fn announcement(&self, deployment: Deployment) -> Announcement {
        Announcement { connection_id: self.id, owner_epoch: self.owner_epoch, deployment }
    }

    fn call(&mut self, now: Millis, callback: Callback) {
        debug_assert!(self.callback.is_none(), "one callback at a time");
        self.callback = Some(Running { deadline: now.after(CALLBACK_TIMEOUT_MS), cancelled: false });
        self.actions.push_back(Action::Call(callback));
    }

    fn abandon(&mut self, id: Id, cause: Cause, sent: bool) {
        self.actions.push_back(Action::Abandon { id, outcome: Uncertain { cause, sent } });
    }

    fn close(&mut self, now: Millis, reason: CloseReason) {
        match std::mem::replace(&mut self.phase, Phase::Draining) {
            phase @ (Phase::Draining | Phase::Finished) => self.phase = phase,
            Phase::Disconnecting => {
                self.phase = Phase::Disconnecting;
                self.cancel_callback();
            }
            Phase::Live(live) => {
                self.actions.push_back(Action::Close(reason));
                let cause = if reason == CloseReason::WriteFailed { Cause::Write } else { Cause::Unavailable };
                for (id, pending) in live.pending {
                    self.abandon(id, cause, pending.sent);
                }
                self.drain(now);
            }
            Phase::Hello { .. }
            | Phase::Presence { .. }
            | Phase::Health { .. }
            | Phase::Deployment
            | Phase::Welcoming => {
                self.actions.push_back(Action::Close(reason));
                self.drain(now);
            }
        }
    }

    fn drain(&mut self, now: Millis) {
        if self.callback.is_some() {
            self.cancel_callback();
        } else {
            self.leave(now);
        }
    }

    fn cancel_callback(&mut self) {
        if let Some(running) = &mut self.callback
            && !running.cancelled
        {
            running.cancelled = true;
            self.actions.push_back(Action::CancelCallback);
        }
    }

    fn leave(&mut self, now: Millis) {
        if self.presence_attempted {
            self.phase = Phase::Disconnecting;
            self.call(now, Callback::Disconnect);
        } else {
            self.finish();
        }
    }

    fn finish(&mut self) {
        self.phase = Phase::Finished;
        self.actions.push_back(Action::Finish);
    }
}

/// Whether two identities name the same enrolled node; capacities are Core's to approve (wire §2.8).
fn same_node(authenticated: &Identity<'_>, claimed: &Identity<'_>) -> bool {
    authenticated.node_id == claimed.node_id
        && authenticated.installation_id == claimed.installation_id
        && authenticated.provider == claimed.provider
        && authenticated.backend_fingerprint == claimed.backend_fingerprint
        && authenticated.deployment_generation == claimed.deployment_generation
        && authenticated.specification_digest == claimed.specification_digest
}
