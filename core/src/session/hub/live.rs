//! What a live connection carries, and how it works off one control frame after another: heartbeat (wire §5.3),
//! retention (wire §7.3), and the send lock under which both answers and requests are written (wire §5.4).

use std::collections::{BTreeMap, VecDeque};

use super::{Action, Callback, Cause, CloseReason, Connection, Phase, Reply, Wake, Write, same_node};
use crate::limits::{IDLE_TIMEOUT_MS, REFERENCES_MAX};
use crate::operation::budget;
use crate::units::{Generation, Id, Millis, OwnerEpoch, Sequence};
use crate::wire::IntoOwned as _;
use crate::wire::payload::{Deployment, Exchange, GenerationReference, Health, Observation, Retention};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Live {
    pub(super) heard: Millis,
    pub(super) control: Control,
    pub(super) slot: Slot,
    pub(super) queue: VecDeque<Waiting>,
    pub(super) pending: BTreeMap<Id, Pending>,
    pub(super) last_sequence: u64,
    pub(super) last_retention: u64,
}

/// The control frame that is being processed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Control {
    None,
    Authenticating { epoch: OwnerEpoch, health: Box<Health<'static>> },
    ReadingEpoch { epoch: OwnerEpoch, health: Box<Health<'static>> },
    Recording { observations: Vec<Observation<'static>> },
    Retaining { exchange: Exchange, references: Vec<GenerationReference> },
    Answering,
}

/// The send lock.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Slot {
    Free,
    ReadingDeployment,
    Ack,
    RetentionAck { dropped: Vec<Generation> },
    Request,
}

/// Who waits for the send lock.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Waiting {
    Ack,
    RetentionAck { exchange: Exchange, retentions: Vec<Retention>, deployment: Deployment },
    Request(Id),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Pending {
    pub(super) deadline: Millis,
    pub(super) sent: bool,
}

impl Connection {
    pub(super) fn heartbeat(&mut self, now: Millis, connection_id: Id, epoch: OwnerEpoch, health: Health<'_>) {
        if connection_id != self.id {
            return self.close(now, CloseReason::Fenced);
        }
        self.step(
            now,
            Control::Authenticating { epoch, health: Box::new(health.into_owned()) },
            Callback::Authenticate,
        );
    }

    pub(super) fn retention(&mut self, now: Millis, exchange: Exchange, references: Vec<GenerationReference>) {
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

    pub(super) fn control_reply(&mut self, now: Millis, reply: Reply) {
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
    pub(super) fn take_turns(&mut self, now: Millis) {
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
}

impl Live {
    pub(super) const fn new(now: Millis) -> Self {
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
    pub(super) fn idle_at(&self) -> Option<Millis> {
        matches!(self.control, Control::None).then(|| self.heard.after(IDLE_TIMEOUT_MS))
    }

    pub(super) fn timeout(&self) -> Option<(Millis, Wake)> {
        let request = self.pending.values().map(|pending| (pending.deadline, Wake::Request)).min();
        self.idle_at().map(|idle| (idle, Wake::Idle)).into_iter().chain(request).min()
    }

    /// Whether somebody waits for `id`; a request that was never sent has no answer.
    pub(super) fn answered(&mut self, id: Id) -> bool {
        let sent = self.pending.get(&id).is_some_and(|pending| pending.sent);
        if sent {
            self.pending.remove(&id);
        }
        sent
    }

    pub(super) fn expired(&mut self, now: Millis) -> Vec<(Id, bool)> {
        let late = |pending: &Pending| now >= pending.deadline;
        let expired: Vec<_> = self.pending.iter().filter(|(_, p)| late(p)).map(|(id, p)| (*id, p.sent)).collect();
        self.pending.retain(|_, pending| !late(pending));
        self.forget_waiting();
        expired
    }

    /// Nobody waits in line whose caller is gone.
    pub(super) fn forget_waiting(&mut self) {
        let pending = &self.pending;
        self.queue.retain(|waiting| match waiting {
            Waiting::Request(id) => pending.contains_key(id),
            Waiting::Ack | Waiting::RetentionAck { .. } => true,
        });
    }

    /// Frees the send lock; gives the generations whose readiness is to be forgotten.
    pub(super) fn written(&mut self, now: Millis) -> Vec<Generation> {
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

    pub(super) fn listen(&mut self, now: Millis) {
        self.control = Control::None;
        self.heard = now;
    }
}
