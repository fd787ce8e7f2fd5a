//! What the task of one connection does around its machine.

use std::collections::{BTreeMap, VecDeque};

use palisade_core::lifecycle::{CallError, Outcome};
use palisade_core::operation::{Asked, Call, Fencing};
use palisade_core::outcome::{Failure, judge};
use palisade_core::session::hub::presence::Connected;
use palisade_core::session::hub::reservations::Ticket;
use palisade_core::session::hub::{
    Action, Callback, CloseReason, Connection, Delivery, Readiness, Reply, Submission, Uncertain, Write,
};
use palisade_core::units::{Id, Millis, Sequence};
use palisade_core::wire::{Frame, IntoOwned as _, decode_text, encode};

use super::CoreEvent;
use super::calls::Purpose;
use crate::books::Duty;
use crate::clock::Time;
use crate::coverage::names;
use crate::plan::{Party, Trap};
use crate::sabotage::Sabotage;
use crate::world::net::Parcel;
use crate::world::store::Link;
use crate::world::{World, note};

/// One accepted connection.
#[derive(Debug)]
pub(crate) struct HubConnection {
    pub(crate) node: Id,
    pub(super) ticket: Ticket,
    pub(crate) machine: Connection,
    pub(crate) open: bool,
    inbox: VecDeque<Parcel>,
    pub(crate) requests: BTreeMap<Id, Request>,
    callback: Option<u64>,
    wake: Option<Time>,
    readiness: Readiness,
}

/// A request and who waits for it.
#[derive(Debug)]
pub(crate) struct Request {
    pub(super) asked: Asked,
    pub(super) call: Option<Call<'static>>,
    pub(super) caller: Caller,
}

/// Who waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    Task { session: usize, serial: u64 },
    Client,
}

const WRITE_TIMEOUT_MS: u64 = 10_000;

impl HubConnection {
    pub(super) fn new(node: Id, ticket: Ticket, machine: Connection) -> Self {
        Self {
            node,
            ticket,
            machine,
            open: true,
            inbox: VecDeque::new(),
            requests: BTreeMap::new(),
            callback: None,
            wake: None,
            readiness: Readiness::default(),
        }
    }
}

impl World {
    pub(in crate::world) fn core_receives(&mut self, link: usize, parcel: Parcel) {
        let (core, life) = (self.links[link].core, self.links[link].core_life);
        if !self.links[link].core_open || self.cores[core].life != life {
            return;
        }
        let Some(connection) = self.cores[core].connections.get_mut(&link) else { return };
        connection.inbox.push_back(parcel);
        if self.cores[core].frozen_until <= self.now {
            self.pump_connection(core, link);
            self.settle_news(core);
        }
    }

    /// Reads while the machine lets the driver read.
    pub(super) fn pump_connection(&mut self, core: usize, link: usize) {
        loop {
            let Some(connection) = self.cores[core].connections.get_mut(&link) else { return };
            if !connection.open || !connection.machine.accepts_frames() || self.core_is_doomed(core) {
                break;
            }
            let Some(connection) = self.cores[core].connections.get_mut(&link) else { return };
            let Some(parcel) = connection.inbox.pop_front() else { break };
            self.connection_reads(core, link, parcel);
        }
        self.drain_connection(core, link);
    }

    fn connection_reads(&mut self, core: usize, link: usize, parcel: Parcel) {
        let now = self.core_now(core);
        self.effect(Party::Core(core), Trap::Received);
        let duty = match &parcel {
            Parcel::Text(bytes) => self.books.core_reads(core, link, bytes, self.now),
            Parcel::Binary => Duty::Close("a binary message"),
            Parcel::Malformed(_) => Duty::Close("a malformed frame"),
            Parcel::Fragment => self.books.core_hears(link, self.now),
            Parcel::End => Duty::None,
        };
        let Some(connection) = self.cores[core].connections.get_mut(&link) else { return };
        match parcel {
            Parcel::Text(bytes) | Parcel::Malformed(bytes) => self.connection_reads_text(core, link, now, &bytes),
            Parcel::Binary => connection.machine.handle_close(now, CloseReason::Violation),
            Parcel::Fragment => connection.machine.handle_fragment(now),
            Parcel::End => connection.machine.handle_close(now, CloseReason::PeerGone),
        }
        self.drain_connection(core, link);
        if self.core_is_doomed(core) {
            return;
        }
        let open = self.cores[core].connections.get(&link).is_some_and(|connection| connection.open);
        self.books.core_did(core, link, duty, open, self.now);
    }

    fn connection_reads_text(&mut self, core: usize, link: usize, now: Millis, bytes: &[u8]) {
        let Some(connection) = self.cores[core].connections.get_mut(&link) else { return };
        let Ok(text) = std::str::from_utf8(bytes) else {
            return connection.machine.handle_close(now, CloseReason::Violation);
        };
        let frame = match decode_text(text) {
            Ok(frame) => frame,
            Err(violation) => {
                self.cover.hit(names::violation(violation.reason));
                return connection.machine.handle_close(now, CloseReason::Violation);
            }
        };
        self.cover.hit(names::frame_at_core(frame.kind()));
        let Some(Delivery { id, response }) = connection.machine.handle_frame(now, frame) else { return };
        let Some(request) = connection.requests.remove(&id) else { return };
        let unknown = response.error_code.as_deref().is_some_and(|code| !names::is_known_code(code));
        let outcome = match judge(&request.asked, *response) {
            _ if unknown && self.sabotage == Some(Sabotage::CoreTakesUnknownCodeForFailure) => {
                Err(CallError::Failed(Failure::NotFound.into()))
            }
            Ok(answer) => Ok(answer.into_owned()),
            Err(failed) => Err(CallError::Failed(failed.into_owned())),
        };
        self.tell(core, id, &request, outcome);
    }

    /// A caller learns what came of its request.
    fn tell(&mut self, core: usize, id: Id, request: &Request, outcome: Outcome<'static>) {
        self.cover.hit(names::outcome(&outcome));
        note!(self, "core {core} learns of {} {}: {}", request.asked.method, short(id), names::outcome(&outcome));
        self.books.told(id, request.asked.method.operation(), &outcome);
        match request.caller {
            Caller::Task { session, serial } => self.task_answered(core, session, serial, outcome),
            Caller::Client => self.drained(core),
        }
    }

    pub(super) fn connection_written(&mut self, core: usize, link: usize, written: bool) {
        let now = self.core_now(core);
        let Some(connection) = self.cores[core].connections.get_mut(&link) else { return };
        if connection.open {
            if written {
                self.books.retention_written(link);
            }
            connection.machine.handle_written(now, written);
        }
        self.pump_connection(core, link);
    }

    pub(super) fn callback_done(&mut self, core: usize, link: usize, reply: Reply) {
        let now = self.core_now(core);
        let Some(connection) = self.cores[core].connections.get_mut(&link) else { return };
        connection.callback = None;
        if let Reply::Recorded(kept) = &reply {
            let kept: Vec<u64> = kept.iter().map(|generation| generation.get()).collect();
            self.books.recorded(link, &kept);
        }
        connection.machine.handle_callback(now, reply);
        self.pump_connection(core, link);
    }

    pub(super) fn callback_failed(&mut self, core: usize, link: usize) {
        self.callback_done(core, link, Reply::Failed);
    }

    pub(super) fn wake_connection(&mut self, core: usize, link: usize, at: Time) {
        let now = self.core_now(core);
        let Some(connection) = self.cores[core].connections.get_mut(&link) else { return };
        if connection.wake != Some(at) {
            return;
        }
        connection.wake = None;
        if let Some((at, wake)) = connection.machine.poll_timeout()
            && at <= now
        {
            self.cover.hit(names::core_wake(wake));
            connection.machine.handle_timeout(now);
        }
        self.pump_connection(core, link);
    }

    pub(in crate::world) fn ask_to_close(&mut self, core: usize, link: usize) {
        let now = self.core_now(core);
        let Some(connection) = self.cores[core].connections.get_mut(&link).filter(|held| held.open) else { return };
        connection.machine.handle_close(now, CloseReason::Asked);
        self.drain_connection(core, link);
    }

    /// Performs what the machine wants, then waits for its next time.
    pub(super) fn drain_connection(&mut self, core: usize, link: usize) {
        while !self.core_is_doomed(core)
            && let Some(connection) = self.cores[core].connections.get_mut(&link)
            && let Some(action) = connection.machine.poll_action()
        {
            self.act_for_connection(core, link, action);
        }
        let now = self.now;
        let process = &mut self.cores[core];
        let Some(connection) = process.connections.get_mut(&link) else { return };
        if connection.readiness != *connection.machine.readiness() {
            connection.readiness = connection.machine.readiness().clone();
            process.news += 1;
        }
        let due = connection.machine.poll_timeout().filter(|(_, wake)| {
            self.sabotage != Some(Sabotage::CoreNeverTiresOfSilence) || *wake != palisade_core::session::hub::Wake::Idle
        });
        let due = due.map(|(at, _)| process.clock.when(at, now));
        if let Some(at) = due
            && connection.wake.is_none_or(|wake| wake > at)
        {
            connection.wake = Some(at);
            self.core_later(core, at, CoreEvent::WakeConnection { link, at });
        }
    }

    fn act_for_connection(&mut self, core: usize, link: usize, action: Action) {
        match action {
            Action::Call(callback) => self.start_callback(core, link, callback),
            Action::CancelCallback => {
                if let Some(ticket) = self.cores[core].connections[&link].callback {
                    self.cover.hit("core cancels a storage call");
                    self.give_up(ticket);
                }
            }
            Action::Write(write) => self.write(core, link, write),
            Action::Publish => {
                let (node, ticket) = self.held(core, link);
                self.cores[core].reservations.publish(node, ticket);
                self.cores[core].peers.insert(node, link);
                self.cores[core].news += 1;
                self.cover.hit("event: connection live in core");
            }
            Action::Abandon { id, outcome } => self.abandon(core, link, id, outcome),
            Action::Close(reason) => self.close_connection(core, link, reason),
            Action::Finish => {
                let (node, ticket) = self.held(core, link);
                self.cores[core].reservations.release(node, ticket);
                self.cores[core].connections.remove(&link);
                self.books.core_gone(link);
                self.closed(core);
            }
        }
    }

    fn held(&self, core: usize, link: usize) -> (Id, Ticket) {
        let connection = &self.cores[core].connections[&link];
        (connection.node, connection.ticket)
    }

    fn start_callback(&mut self, core: usize, link: usize, callback: Callback) {
        let connection = &self.cores[core].connections[&link];
        let (connection_id, owner_epoch) = (connection.machine.connection_id(), connection.machine.owner_epoch());
        let scope = Link { node: connection.node, by: Connected { connection_id, owner_epoch } };
        let ticket = self.ask_store(core, Purpose::Connection { link, scope, callback });
        if let Some(connection) = self.cores[core].connections.get_mut(&link) {
            connection.callback = Some(ticket);
        }
    }

    fn close_connection(&mut self, core: usize, link: usize, reason: CloseReason) {
        self.cover.hit(names::core_close(reason));
        note!(self, "core {core} closes connection {link}: {reason}");
        let (node, ticket) = self.held(core, link);
        self.cores[core].reservations.close(node, ticket);
        self.cores[core].peers.retain(|_, peer| *peer != link);
        self.cores[core].news += 1;
        if let Some(connection) = self.cores[core].connections.get_mut(&link) {
            connection.open = false;
            connection.inbox.clear();
        }
        self.books.core_closed(link, self.now);
        self.close_core_side(link);
    }

    /// The operating system tells the peer, if it can.
    pub(in crate::world) fn close_core_side(&mut self, link: usize) {
        if std::mem::replace(&mut self.links[link].core_open, false) {
            self.transmit(link, false, Parcel::End);
        }
    }

    fn abandon(&mut self, core: usize, link: usize, id: Id, outcome: Uncertain) {
        let Some(connection) = self.cores[core].connections.get_mut(&link) else { return };
        if let Some(request) = connection.requests.remove(&id) {
            self.tell(core, id, &request, Err(CallError::Uncertain(outcome)));
        }
    }

    fn write(&mut self, core: usize, link: usize, write: Write) {
        self.cover.hit(names::core_write(&write));
        let frame = match write {
            Write::Welcome(announcement) => Some(Frame::Welcome(announcement)),
            Write::HeartbeatAck(announcement) => Some(Frame::HeartbeatAck(announcement)),
            Write::RetentionAck { exchange, retentions, deployment } => {
                Some(Frame::RetentionAck { exchange, retentions, deployment })
            }
            Write::Request { id, sequence, timeout_ms } => self.request_frame(core, link, id, sequence, timeout_ms),
        };
        let encoded = frame.and_then(|frame| encode(&frame).ok());
        let Some(bytes) = encoded else {
            return self.core_later(core, self.now, CoreEvent::Written { link, written: false });
        };
        self.books.core_writes(core, link, &bytes, self.now);
        let blocked = self.links[link].down.blocked_until.saturating_sub(self.now);
        let refused = self.links[link].reset_at_core || blocked >= WRITE_TIMEOUT_MS;
        let took = if refused { blocked.min(WRITE_TIMEOUT_MS) } else { blocked };
        if blocked > 0 && self.links[link].down.stalled_until < self.now + took {
            self.links[link].down.stalled_until = self.now + took;
        }
        if !refused {
            self.transmit(link, false, Parcel::Text(bytes));
        } else if blocked > 0 {
            self.cover.hit("fault: write timed out in core");
        }
        self.effect(Party::Core(core), Trap::Sent);
        let at = self.now + took + self.network_luck.below(2);
        self.core_later(core, at, CoreEvent::Written { link, written: !refused });
    }

    fn request_frame(
        &mut self,
        core: usize,
        link: usize,
        id: Id,
        sequence: Sequence,
        timeout_ms: u64,
    ) -> Option<Frame<'static>> {
        let connection = self.cores[core].connections.get_mut(&link)?;
        let call = connection.requests.get_mut(&id)?.call.take()?;
        let fencing = Fencing {
            sequence,
            owner_epoch: connection.machine.owner_epoch(),
            connection_id: connection.machine.connection_id(),
        };
        Some(Frame::Request(Box::new(Call { timeout_ms, ..call }.into_request(fencing))))
    }

    /// Hands a call to a connection.
    pub(super) fn submit(&mut self, core: usize, link: usize, call: Call<'static>, deadline: Millis, caller: Caller) {
        let now = self.core_now(core);
        let submission = Submission {
            id: call.id,
            generation: call.deployment_generation,
            needs_ready: call.operation.needs_ready(),
            deadline,
        };
        let Some(connection) = self.cores[core].connections.get_mut(&link) else { return };
        let request = Request { asked: call.asked(), call: Some(call), caller };
        self.books.submitted(link, submission.id, connection.requests.len(), now.0, deadline.0);
        connection.requests.insert(submission.id, request);
        connection.machine.handle_request(now, submission);
        self.drain_connection(core, link);
    }

    pub(super) fn cancel_request(&mut self, core: usize, id: Id) {
        let held = self.cores[core].connections.iter().find(|(_, held)| held.requests.contains_key(&id));
        let Some(link) = held.map(|(link, _)| *link) else { return };
        if let Some(connection) = self.cores[core].connections.get_mut(&link) {
            connection.machine.handle_cancel(id);
        }
        self.drain_connection(core, link);
    }
}

/// Enough of an identifier for people.
pub(crate) fn short(id: Id) -> String {
    id.to_string().chars().take(8).collect()
}
