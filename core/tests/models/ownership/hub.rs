//! One Core: its reservations, and a driver for each connection as the real shell has it.

use palisade_core::operation::{Method, Support};
use palisade_core::session::hub::dispatch::{Facts, Peer, check};
use palisade_core::session::hub::presence::Connected;
use palisade_core::session::hub::reservations::{Reservations, Ticket};
use palisade_core::session::hub::{Action, Callback, CloseReason, Connection, Reply, Submission};
use palisade_core::wire::decode;
use palisade_core::wire::payload::Retention;

use super::Broken;
use super::store::{Kind, Transaction};
use crate::fixtures::{NODE, NOW, deployment, epoch, frame, generation, id, identity};

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Core {
    /// The epoch that this Core believes to own.
    pub(super) lease: Option<u64>,
    pub(super) table: Reservations,
    pub(super) sessions: Vec<Session>,
}

/// A connection and what runs for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Session {
    pub(super) number: u8,
    ticket: Ticket,
    machine: Connection,
    callback: Option<Running>,
    /// Requests find it.
    pub(super) published: bool,
    open: bool,
    over: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Running {
    kind: Kind,
    /// What the transaction came to, once it has ended.
    ended: Option<Reply>,
    cancelled: bool,
}

/// What the connections of one Core did to the world.
#[derive(Default)]
pub(super) struct Drained {
    pub(super) messages: Vec<(u8, String)>,
    pub(super) closed: Vec<u8>,
}

impl Core {
    /// Accepts connection `number` under the lease, unless another one holds the identity.
    pub(super) fn accept(&mut self, number: u8) -> Option<()> {
        let lease = self.lease.expect("only an owner is dialled");
        let ticket = self.table.reserve(NODE).ok()?;
        self.sessions.push(Session {
            number,
            ticket,
            machine: Connection::new(NOW, identity(), id(number), epoch(lease)),
            callback: None,
            published: false,
            open: true,
            over: false,
        });
        Some(())
    }

    pub(super) fn position(&self, number: u8) -> Option<usize> {
        self.sessions.iter().position(|session| session.number == number && session.open)
    }

    /// Whether the next frame of connection `number` can arrive; for a connection that is gone it arrives nowhere.
    pub(super) fn listens(&self, number: u8) -> bool {
        self.position(number).is_none_or(|at| self.sessions[at].machine.accepts_frames())
    }

    /// Does what the machines say until they say nothing more.
    pub(super) fn drain(&mut self, broken: Option<Broken>) -> Drained {
        let mut drained = Drained::default();
        let mut sessions = std::mem::take(&mut self.sessions);
        for session in &mut sessions {
            while let Some(action) = session.machine.poll_action() {
                self.perform(session, action, broken, &mut drained);
            }
        }
        sessions.retain(|session| !session.over);
        self.sessions = sessions;
        drained
    }

    fn perform(&mut self, session: &mut Session, action: Action, broken: Option<Broken>, drained: &mut Drained) {
        match action {
            Action::Call(callback) => self.call(session, &callback),
            Action::CancelCallback => session.cancel(),
            Action::Write(write) => {
                drained.messages.push((session.number, frame(&session.machine, write)));
                session.machine.handle_written(NOW, true);
            }
            Action::Publish => {
                session.published = true;
                self.table.publish(NODE, session.ticket);
            }
            Action::Abandon { .. } => {}
            Action::Close(_) => {
                (session.open, session.published) = (false, false);
                drained.closed.push(session.number);
                self.table.close(NODE, session.ticket);
                if broken == Some(Broken::EarlyRelease) {
                    self.table.release(NODE, session.ticket);
                }
            }
            Action::Finish => {
                session.over = true;
                self.table.release(NODE, session.ticket);
            }
        }
    }

    /// A transaction takes its time; what is only read is answered at once.
    fn call(&self, session: &mut Session, callback: &Callback) {
        if let Some(kind) = Kind::of(callback) {
            session.callback = Some(Running { kind, ended: None, cancelled: false });
            return;
        }
        let announced = deployment(1, Some(1));
        let reply = match callback {
            Callback::Authenticate => Reply::Authenticated(Box::new(identity())),
            Callback::Epoch => self.lease.map_or(Reply::Failed, |lease| Reply::Epoch(epoch(lease))),
            Callback::Retain(asked) => {
                let keep = |reference: &_| Retention { reference: *reference, keep: true };
                Reply::Retained(asked.iter().map(keep).collect(), announced)
            }
            Callback::Deployment | Callback::Connect | Callback::Record(_) | Callback::Disconnect => {
                Reply::Deployment(announced)
            }
        };
        session.machine.handle_callback(NOW, reply);
    }
}

impl Session {
    pub(super) fn epoch(&self) -> u64 {
        self.machine.owner_epoch().get()
    }

    pub(super) const fn is_open(&self) -> bool {
        self.open
    }

    pub(super) const fn is_busy(&self) -> bool {
        self.callback.is_some()
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.callback.as_ref().is_some_and(|running| running.cancelled)
    }

    /// The transaction that has not ended yet.
    pub(super) fn pending(&self) -> Option<Transaction> {
        let running = self.callback.as_ref().filter(|running| running.ended.is_none())?;
        let by = Connected { connection_id: self.machine.connection_id(), owner_epoch: self.machine.owner_epoch() };
        Some(Transaction { by, kind: running.kind.clone() })
    }

    pub(super) fn committed(&mut self, reply: Reply) {
        self.callback.as_mut().expect("a transaction has a callback").ended = Some(reply);
    }

    /// The callback returns: with its outcome if there is one and it is `known`, else as failed.
    pub(super) fn give_back(&mut self, known: bool) {
        let ended = self.callback.take().and_then(|running| running.ended).filter(|_| known);
        self.machine.handle_callback(NOW, ended.unwrap_or(Reply::Failed));
    }

    fn cancel(&mut self) {
        if let Some(running) = &mut self.callback {
            running.cancelled = true;
        }
    }

    pub(super) fn lose(&mut self) {
        self.machine.handle_close(NOW, CloseReason::PeerGone);
    }

    pub(super) fn receive(&mut self, message: &str) {
        let frame = decode(message.as_bytes()).expect("a node sends valid frames only");
        self.machine.handle_frame(NOW, frame);
    }

    /// Asks the node something, if the checks before a dispatch allow it.
    pub(super) fn request(&mut self, lease: Option<u64>, number: u8) {
        let deadline = NOW.after(1_000);
        let facts = Facts {
            support: Support::Supported,
            generation: Some(generation(1)),
            deadline,
            owner_epoch: lease.map(epoch),
            peer: Some(Peer { owner_epoch: self.machine.owner_epoch(), ready: false }),
            valid: true,
        };
        if let Ok(generation) = check(Method::GetInfo, false, &facts, NOW) {
            let request = Submission { id: id(50 + number), generation, needs_ready: false, deadline };
            self.machine.handle_request(NOW, request);
        }
    }
}
