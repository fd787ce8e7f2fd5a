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

pub mod dispatch;
mod driving;
pub mod presence;
mod readiness;
pub mod reservations;
pub mod upgrade;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

pub use dispatch::{Cause, Uncertain};
pub use driving::{Action, Callback, CloseReason, Delivery, Reply, Submission, Wake, Write};
pub use readiness::Readiness;

use crate::limits::{CALLBACK_TIMEOUT_MS, HELLO_TIMEOUT_MS, IDLE_TIMEOUT_MS, PENDING_MAX, REFERENCES_MAX};
use crate::operation::budget;
use crate::units::{Generation, Id, Millis, OwnerEpoch, Sequence};
use crate::wire::IntoOwned as _;
use crate::wire::frame::{Announcement, Frame};
use crate::wire::payload::{Deployment, Exchange, GenerationReference, Health, Identity, Observation, Retention};

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

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Live {
    heard: Millis,
    control: Control,
    slot: Slot,
    queue: VecDeque<Waiting>,
    pending: BTreeMap<Id, Pending>,
    last_sequence: u64,
    last_retention: u64,
}

/// The control frame that is being processed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Control {
    None,
    Authenticating { epoch: OwnerEpoch, health: Box<Health<'static>> },
    ReadingEpoch { epoch: OwnerEpoch, health: Box<Health<'static>> },
    Recording { observations: Vec<Observation<'static>> },
    Retaining { exchange: Exchange, references: Vec<GenerationReference> },
    Answering,
}

/// The send lock.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Slot {
    Free,
    ReadingDeployment,
    Ack,
    RetentionAck { dropped: Vec<Generation> },
    Request,
}

/// Who waits for the send lock.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Waiting {
    Ack,
    RetentionAck { exchange: Exchange, retentions: Vec<Retention>, deployment: Deployment },
    Request(Id),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Pending {
    deadline: Millis,
    sent: bool,
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

    fn heartbeat(&mut self, now: Millis, connection_id: Id, epoch: OwnerEpoch, health: Health<'_>) {
        if connection_id != self.id {
            return self.close(now, CloseReason::Fenced);
        }
        self.step(
            now,
            Control::Authenticating { epoch, health: Box::new(health.into_owned()) },
            Callback::Authenticate,
        );
    }

    fn retention(&mut self, now: Millis, exchange: Exchange, references: Vec<GenerationReference>) {
        let Phase::Live(live) = &mut self.phase else { return };
        let expected = live.last_retention + 1;
        let fenced = exchange.connection_id != self.id
            || exchange.owner_epoch != self.owner_epoch
            || exchange.sequence.get() != expected;
        if fenced {
            return self.close(now, CloseReason::Fenced);
        }
        if references.is_empty() || references.len() > REFERENCES_MAX {
            return self.close(now, CloseReason::Violation);
        }
        live.last_retention = expected;
        self.step(now, Control::Retaining { exchange, references: references.clone() }, Callback::Retain(references));
    }

    fn control_reply(&mut self, now: Millis, reply: Reply) {
        let Phase::Live(live) = &mut self.phase else { return };
        match (std::mem::replace(&mut live.control, Control::Answering), reply) {
            (Control::Authenticating { epoch, health }, Reply::Authenticated(identity)) => {
                if !same_node(&self.node, &identity) {
                    return self.close(now, CloseReason::Identity);
                }
                self.node = *identity;
                self.step(now, Control::ReadingEpoch { epoch, health }, Callback::Epoch);
            }
            (Control::ReadingEpoch { epoch, health }, Reply::Epoch(current)) => {
                if current != self.owner_epoch {
                    return self.close(now, CloseReason::EpochChanged);
                }
                if epoch != self.owner_epoch {
                    return self.close(now, CloseReason::Fenced);
                }
                let observations = health.generations.clone();
                self.step(now, Control::Recording { observations }, Callback::Record(health));
            }
            (Control::Recording { observations }, Reply::Recorded(kept)) => {
                self.readiness.record(&observations, &kept);
                live.queue.push_front(Waiting::Ack);
                self.take_turns(now);
            }
            (Control::Retaining { exchange, references }, Reply::Retained(retentions, deployment)) => {
                if !retentions.iter().map(|retention| retention.reference).eq(references) {
                    return self.close(now, CloseReason::Storage);
                }
                live.queue.push_front(Waiting::RetentionAck { exchange, retentions, deployment });
                self.take_turns(now);
            }
            (Control::Answering, Reply::Deployment(deployment)) if matches!(live.slot, Slot::ReadingDeployment) => {
                live.slot = Slot::Ack;
                let announcement = self.announcement(deployment);
                self.actions.push_back(Action::Write(Write::HeartbeatAck(announcement)));
            }
            (_, _) => self.close(now, CloseReason::Storage),
        }
    }

    fn step(&mut self, now: Millis, control: Control, callback: Callback) {
        if let Phase::Live(live) = &mut self.phase {
            live.control = control;
            self.call(now, callback);
        }
    }

    /// Hands the send lock to whoever waits longest; control answers go first.
    fn take_turns(&mut self, now: Millis) {
        while let Phase::Live(live) = &mut self.phase
            && matches!(live.slot, Slot::Free)
            && let Some(next) = live.queue.pop_front()
        {
            match next {
                Waiting::Ack => {
                    live.slot = Slot::ReadingDeployment;
                    self.call(now, Callback::Deployment);
                }
                Waiting::RetentionAck { exchange, retentions, deployment } => {
                    let dropped = retentions.iter().filter(|entry| !entry.keep);
                    let dropped = dropped.map(|entry| entry.reference.generation).collect();
                    live.slot = Slot::RetentionAck { dropped };
                    self.actions.push_back(Action::Write(Write::RetentionAck { exchange, retentions, deployment }));
                }
                Waiting::Request(id) => self.send(now, id),
            }
        }
    }

    /// Budget and sequence are fixed here, under the send lock, directly before the write.
    fn send(&mut self, now: Millis, id: Id) {
        let Phase::Live(live) = &mut self.phase else { return };
        let Some(pending) = live.pending.get_mut(&id) else { return };
        let Some(timeout_ms) = budget(pending.deadline.since(now)) else {
            live.pending.remove(&id);
            return self.abandon(id, Cause::Deadline, false);
        };
        let Some(sequence) = Sequence::new(live.last_sequence + 1) else {
            return self.close(now, CloseReason::Fenced);
        };
        pending.sent = true;
        live.last_sequence = sequence.get();
        live.slot = Slot::Request;
        self.actions.push_back(Action::Write(Write::Request { id, sequence, timeout_ms }));
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

impl Live {
    const fn new(now: Millis) -> Self {
        Self {
            heard: now,
            control: Control::None,
            slot: Slot::Free,
            queue: VecDeque::new(),
            pending: BTreeMap::new(),
            last_sequence: 0,
            last_retention: 0,
        }
    }

    /// The silence of a node counts only while Core listens.
    fn idle_at(&self) -> Option<Millis> {
        matches!(self.control, Control::None).then(|| self.heard.after(IDLE_TIMEOUT_MS))
    }

    fn timeout(&self) -> Option<(Millis, Wake)> {
        let request = self.pending.values().map(|pending| (pending.deadline, Wake::Request)).min();
        self.idle_at().map(|idle| (idle, Wake::Idle)).into_iter().chain(request).min()
    }

    /// Whether somebody waits for `id`; a request that was never sent has no answer.
    fn answered(&mut self, id: Id) -> bool {
        let sent = self.pending.get(&id).is_some_and(|pending| pending.sent);
        if sent {
            self.pending.remove(&id);
        }
        sent
    }

    fn expired(&mut self, now: Millis) -> Vec<(Id, bool)> {
        let late = |pending: &Pending| now >= pending.deadline;
        let expired: Vec<_> = self.pending.iter().filter(|(_, p)| late(p)).map(|(id, p)| (*id, p.sent)).collect();
        self.pending.retain(|_, pending| !late(pending));
        self.forget_waiting();
        expired
    }

    /// Nobody waits in line whose caller is gone.
    fn forget_waiting(&mut self) {
        let pending = &self.pending;
        self.queue.retain(|waiting| match waiting {
            Waiting::Request(id) => pending.contains_key(id),
            Waiting::Ack | Waiting::RetentionAck { .. } => true,
        });
    }

    /// Frees the send lock; gives the generations whose readiness is to be forgotten.
    fn written(&mut self, now: Millis) -> Vec<Generation> {
        match std::mem::replace(&mut self.slot, Slot::Free) {
            Slot::Ack => {
                self.listen(now);
                Vec::new()
            }
            Slot::RetentionAck { dropped } => {
                self.listen(now);
                dropped
            }
            Slot::Free | Slot::ReadingDeployment | Slot::Request => Vec::new(),
        }
    }

    fn listen(&mut self, now: Millis) {
        self.control = Control::None;
        self.heard = now;
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
