//! Core: one connection, and the rows that say which generations the node must keep.

use std::collections::BTreeSet;

use palisade_core::admin::time::Timestamp;
use palisade_core::deployment::contract::Provider;
use palisade_core::deployment::node::{Counts, Measurements, Node, Presence};
use palisade_core::deployment::retention::{Verdict, is_kept_for, judge};
use palisade_core::deployment::{Deployment, Selected};
use palisade_core::operation::Fencing;
use palisade_core::session::hub::{Action, Callback, Connection, Reply, Submission, Write};
use palisade_core::wire::payload::{GenerationReference, Retention};
use palisade_core::wire::{Frame, decode, encode};

use super::Broken;
use crate::fixtures::{NODE, NOW, call, deployment, epoch, generation, id, identity, reference};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Hub {
    pub(super) epoch: u64,
    pub(super) target: u64,
    /// The node's serving pin.
    pub(super) pin: u64,
    /// Generations of the node's sandboxes.
    pub(super) held: BTreeSet<u64>,
    pub(super) session: Option<Session>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Session {
    machine: Connection,
    /// What the node asked about, and the target at that time.
    asked: Option<(Vec<GenerationReference>, u64)>,
}

impl Hub {
    pub(super) fn open(&mut self, number: u8) {
        let machine = Connection::new(NOW, identity(), id(number), epoch(self.epoch));
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
        asked.is_some_and(|(_, target)| *target != self.target)
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
        is_kept_for(&self.node(), generation(number), &self.deployment())
    }

    /// One transaction: each reference is judged by the rows as they are now.
    pub(super) fn decide(&mut self, broken: Option<Broken>) {
        let (references, _) = self.session.as_mut().and_then(|session| session.asked.take()).expect("asked");
        let mut rows = self.clone();
        if broken == Some(Broken::SandboxesForgotten) {
            rows.held.clear();
        }
        let retentions = references.iter().map(|asked| Retention { reference: *asked, keep: rows.is_answered(*asked) });
        let reply = Reply::Retained(retentions.collect(), self.announced());
        self.session.as_mut().expect("still there").machine.handle_callback(NOW, reply);
    }

    fn is_answered(&self, asked: GenerationReference) -> bool {
        let number = asked.generation.get();
        let stored = Some(reference(number).specification_digest);
        judge(self.keeps(number), stored, asked.specification_digest) == Verdict::Keep
    }

    /// Does what the machine says, and gives back what it writes.
    pub(super) fn drain(&mut self) -> Vec<String> {
        let mut messages = Vec::new();
        while let Some(action) = self.session.as_mut().and_then(|session| session.machine.poll_action()) {
            match action {
                Action::Call(callback) => self.call(callback),
                Action::Write(write) => {
                    let session = self.session.as_mut().expect("it just said something");
                    messages.push(session.frame(write));
                    session.machine.handle_written(NOW, true);
                }
                Action::Close(_) => self.session = None,
                Action::CancelCallback | Action::Publish | Action::Abandon { .. } | Action::Finish => {}
            }
        }
        messages
    }

    fn call(&mut self, callback: Callback) {
        let (announced, target) = (self.announced(), self.target);
        let current = epoch(self.epoch);
        let session = self.session.as_mut().expect("it just said something");
        let reply = match callback {
            Callback::Connect | Callback::Disconnect => Reply::Done,
            Callback::Record(health) => {
                let reported = health.generations.iter().map(|observation| observation.generation);
                Reply::Recorded(reported.collect())
            }
            Callback::Deployment => Reply::Deployment(announced),
            Callback::Authenticate => Reply::Authenticated(Box::new(identity())),
            Callback::Epoch => Reply::Epoch(current),
            Callback::Retain(references) => {
                session.asked = Some((references, target));
                return;
            }
        };
        session.machine.handle_callback(NOW, reply);
    }

    fn announced(&self) -> palisade_core::wire::payload::Deployment {
        deployment(self.target, Some(self.pin))
    }

    fn node(&self) -> Node {
        Node {
            id: NODE,
            name: String::new(),
            core_url: String::new(),
            enrollment_id: None,
            created_at: Timestamp(0),
            max_active: 2,
            max_retained: 8,
            pin: Some(generation(self.pin)),
            presence: Presence::default(),
            statuses: Vec::new(),
            counts: Counts::default(),
            held: self.held.iter().map(|held| generation(*held)).collect(),
            measured: Measurements::default(),
        }
    }

    fn deployment(&self) -> Deployment {
        Deployment {
            installation: Some(id(101)),
            web_managed: true,
            generation: self.target,
            owner_epoch: self.epoch,
            core_url: String::new(),
            admission_paused: false,
            reset: None,
            selected: Some(Selected {
                provider: Provider::Docker,
                specification: None,
                configuration: palisade_core::admin::deployment::Configuration::default(),
                metadata: palisade_core::admin::deployment::Metadata::default(),
                credential_configured: false,
            }),
        }
    }
}

impl Session {
    fn frame(&self, write: Write) -> String {
        let frame = match write {
            Write::Welcome(announcement) => Frame::Welcome(announcement),
            Write::HeartbeatAck(announcement) => Frame::HeartbeatAck(announcement),
            Write::RetentionAck { exchange, retentions, deployment } => {
                Frame::RetentionAck { exchange, retentions, deployment }
            }
            Write::Request { id, sequence, timeout_ms } => {
                let (owner_epoch, connection_id) = (self.machine.owner_epoch(), self.machine.connection_id());
                let call = call(id, generation(1), timeout_ms);
                Frame::Request(Box::new(call.into_request(Fencing { sequence, owner_epoch, connection_id })))
            }
        };
        String::from_utf8(encode(&frame).expect("Core writes valid frames only")).unwrap()
    }
}
