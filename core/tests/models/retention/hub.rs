//! Core: one connection, and the rows that say which generations the node must keep.

use std::collections::BTreeMap;

use palisade_core::session::hub::presence::{self, Authority, Change, Connected, Standing};
use palisade_core::session::hub::{Action, Callback, Connection, Reply, Submission};
use palisade_core::units::{Generation, OwnerEpoch};
use palisade_core::wire::decode;
use palisade_core::wire::payload::GenerationReference;

use super::Broken;
use super::host::Disk;
use crate::fixtures::{NOW, TIME, authority, frame, generation, id, identity, standing};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Hub {
    pub(super) authority: Authority,
    pub(super) rows: Standing,
    pub(super) session: Option<Session>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Session {
    machine: Connection,
    /// What the node asked about, and the target at that time.
    asked: Option<(Vec<GenerationReference>, Option<Generation>)>,
}

impl Hub {
    /// The second generation is the target, the first one serves and has a sandbox.
    pub(super) fn new() -> Self {
        let rows = Standing { held: [generation(1)].into(), ..standing(1) };
        Self { authority: authority(1, 2), rows, session: None }
    }

    /// Another process becomes the owner.
    pub(super) fn claim(&mut self) {
        self.authority.owner_epoch = self.authority.owner_epoch.and_then(OwnerEpoch::next);
    }

    pub(super) fn retarget(&mut self) {
        self.authority.target = self.authority.target.and_then(Generation::next);
    }

    pub(super) fn pin(&mut self) {
        self.rows.pin = self.authority.target;
    }

    /// The target is on the node's disk and may prove ready.
    pub(super) fn may_pin(&self, disk: &BTreeMap<u64, Disk>) -> bool {
        let target = self.authority.target.map_or(0, Generation::get);
        self.rows.pin < self.authority.target && disk.get(&target) == Some(&Disk::Whole)
    }

    pub(super) fn open(&mut self, number: u8) {
        let machine = Connection::new(NOW, identity(), id(number), self.authority.owner_epoch.expect("owned"));
        self.session = Some(Session { machine, asked: None });
    }

    pub(super) fn listens(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.machine.accepts_frames())
    }

    pub(super) fn is_asked(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.asked.is_some())
    }

    pub(super) fn is_overtaken(&self) -> bool {
        let asked = self.session.as_ref().and_then(|session| session.asked.as_ref());
        asked.is_some_and(|(_, target)| *target != self.authority.target)
    }

    pub(super) fn receive(&mut self, message: &str) {
        if let Some(session) = &mut self.session {
            session.machine.handle_frame(NOW, decode(message.as_bytes()).expect("a node sends valid frames only"));
        }
    }

    pub(super) fn request(&mut self) {
        if let Some(session) = &mut self.session {
            let deadline = NOW.after(1_000);
            let request = Submission { id: id(50), generation: generation(1), needs_ready: false, deadline };
            session.machine.handle_request(NOW, request);
        }
    }

    /// The real judgement over the rows as they are now.
    pub(super) fn keeps(&self, number: u64) -> bool {
        self.authority.needs(&self.rows, generation(number))
    }

    /// One transaction: each reference is judged by the rows as they are now.
    pub(super) fn decide(&mut self, broken: Option<Broken>) {
        let session = self.session.as_mut().expect("a connection asked");
        let (references, _) = session.asked.take().expect("it asked");
        let mut rows = self.rows.clone();
        if broken == Some(Broken::SandboxesForgotten) {
            rows.held.clear();
        }
        let retained = presence::retain(&self.authority, &rows, session.connected(), &references);
        let reply = retained.map_or(Reply::Failed, |retained| {
            for change in retained.changes {
                self.rows.apply(change);
            }
            Reply::Retained(retained.retentions, retained.deployment)
        });
        session.machine.handle_callback(NOW, reply);
    }

    /// Does what the machine says, and gives back what it writes.
    pub(super) fn drain(&mut self) -> Vec<String> {
        let mut messages = Vec::new();
        while let Some(action) = self.session.as_mut().and_then(|session| session.machine.poll_action()) {
            match action {
                Action::Call(callback) => self.call(callback),
                Action::Write(write) => {
                    let session = self.session.as_mut().expect("it just said something");
                    messages.push(frame(&session.machine, write));
                    session.machine.handle_written(NOW, true);
                }
                Action::Close(_) => self.session = None,
                Action::CancelCallback | Action::Publish | Action::Abandon { .. } | Action::Finish => {}
            }
        }
        messages
    }

    /// All but the answer to a retention request is one step with the question.
    fn call(&mut self, callback: Callback) {
        let session = self.session.as_mut().expect("it just said something");
        let by = session.connected();
        let judged = match callback {
            Callback::Connect => {
                presence::connect(&self.authority, &self.rows, by, TIME).map(|change| (vec![change], Reply::Done))
            }
            Callback::Disconnect => Ok((presence::disconnect(&self.rows, by).into_iter().collect(), Reply::Done)),
            Callback::Record(health) => presence::record(&self.authority, &self.rows, by, &health.generations, TIME)
                .map(|recorded| (without_pins(recorded.changes), Reply::Recorded(recorded.kept))),
            Callback::Deployment => {
                presence::announce(&self.authority, &self.rows).map(|announced| (vec![], Reply::Deployment(announced)))
            }
            Callback::Authenticate => Ok((vec![], Reply::Authenticated(Box::new(identity())))),
            Callback::Epoch => Ok((vec![], self.authority.owner_epoch.map_or(Reply::Failed, Reply::Epoch))),
            Callback::Retain(references) => {
                session.asked = Some((references, self.authority.target));
                return;
            }
        };
        let (changes, reply) = judged.unwrap_or((vec![], Reply::Failed));
        for change in changes {
            self.rows.apply(change);
        }
        self.session.as_mut().expect("still there").machine.handle_callback(NOW, reply);
    }
}

/// The pin rises in a step of its own, whenever it may, so that every order of events is seen.
fn without_pins(changes: Vec<Change>) -> Vec<Change> {
    changes.into_iter().filter(|change| !matches!(change, Change::Pinned(_))).collect()
}

impl Session {
    fn connected(&self) -> Connected {
        Connected { connection_id: self.machine.connection_id(), owner_epoch: self.machine.owner_epoch() }
    }
}
