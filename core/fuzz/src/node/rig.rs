//! The driver of a node under test, which remembers what it saw and judges each action by it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use palisade_core::generation::{self, Probed, Table, Task};
use palisade_core::limits::{EXECUTING_MAX, OBSERVATIONS_MAX, REFERENCES_MAX};
use palisade_core::operation::{Call, Fencing, Operation};
use palisade_core::outcome::{Answer, Failure};
use palisade_core::session::lanes::Ticket;
use palisade_core::session::node::{Action, Node};
use palisade_core::units::{Generation, Id, Millis, OwnerEpoch, Sequence};
use palisade_core::wire::frame::{Announcement, Frame};
use palisade_core::wire::payload::{
    Command, CommandResult, Diagnostic, Exchange, GenerationReference, Health, Reference, Retention,
};
use palisade_core::wire::{decode, encode};

use super::super::values::{declaration, deployment, epoch, generation, health, id, identity, reference};
use super::events::{Event, Fence, Found, Request, Start};

const DIAGNOSTICS: [Diagnostic; 4] = [
    Diagnostic::RuntimeImageUnavailable,
    Diagnostic::ProviderUnavailable,
    Diagnostic::DockerUnavailable,
    Diagnostic::KvmUnavailable,
];

pub(super) struct Rig {
    node: Node,
    now: Millis,
    /// The connection as this side knows it: identifier, epoch and the sequence of the last request.
    connection: Option<(Id, OwnerEpoch, u64)>,
    /// Highest epoch of a welcome that the node accepted or stored.
    highest: Option<OwnerEpoch>,
    storing: Vec<OwnerEpoch>,
    /// Requests of this connection without an answer: what they ask and until when they may start.
    asked: BTreeMap<Id, Millis>,
    running: Vec<(Ticket, Call<'static>)>,
    question: Option<(Exchange, Vec<GenerationReference>)>,
    granted: BTreeSet<Generation>,
    removing: Option<Generation>,
    preparing: Option<Generation>,
    probing: Option<Generation>,
    unsent: VecDeque<usize>,
    target: Option<Generation>,
    connections: u64,
    requests: u64,
    open: bool,
}

impl Rig {
    pub(super) fn new(start: &Start) -> Self {
        let found = start.found.iter().take(24).map(|(choice, found)| {
            let found = match found {
                Found::Provider => generation::Found::Provider(declaration(choice % 2 == 0)),
                Found::Recovery => generation::Found::Recovery,
                Found::Collecting => generation::Found::Collecting,
            };
            (reference(*choice), found)
        });
        let stored = start.epoch.map(epoch);
        Self {
            node: Node::new(identity(), stored, Table::new(found)),
            now: Millis(1_000_000),
            connection: None,
            highest: stored,
            storing: Vec::new(),
            asked: BTreeMap::new(),
            running: Vec::new(),
            question: None,
            granted: BTreeSet::new(),
            removing: None,
            preparing: None,
            probing: None,
            unsent: VecDeque::new(),
            target: None,
            connections: 0,
            requests: 0,
            open: false,
        }
    }

    pub(super) fn handle(&mut self, event: &Event) {
        match event {
            Event::Opened => self.open(),
            Event::Closed => self.close(),
            Event::Fragment => self.node.handle_fragment(self.now),
            Event::Binary => self.node.handle_binary(self.now),
            Event::Noise(text) => self.receive(text),
            Event::Connect { epoch: number, target, serving } => {
                self.open();
                self.drain();
                self.node.handle_health(self.now, health(), [3; 16]);
                self.drain();
                self.welcome(*number, *target, *serving);
                self.drain();
                self.store(0, true);
            }
            Event::Welcome { epoch, target, serving } => {
                self.welcome(*epoch, *target, *serving);
            }
            Event::Acknowledgement { fence, target, serving } => self.acknowledge(*fence, *target, *serving),
            Event::Retention { fence, keep, reorder, cut, target } => {
                self.retain(*fence, *keep, (*reorder, *cut), *target);
            }
            Event::Request(request) => self.request(request),
            Event::Misplaced(choice) => self.misplace(*choice),
            Event::Measured => self.node.handle_health(self.now, health(), [9; 16]),
            Event::EpochStored { which, stored } => self.store(usize::from(*which), *stored),
            Event::Written(count) => self.written(*count),
            Event::Result { which, outcome } => self.end(*which, *outcome),
            Event::Prepared { outcome } => self.prepared(*outcome),
            Event::Probed { outcome } => self.probed(*outcome),
            Event::Removed { finished } => {
                if let Some(removing) = self.removing.take() {
                    self.node.handle_removed(self.now, removing, *finished);
                }
            }
            Event::Wake => self.wake(),
            Event::Wait(span) => {
                self.now = self.now.after(u64::from(*span));
                self.node.handle_timeout(self.now);
            }
        }
        self.drain();
        self.check();
    }

    fn open(&mut self) {
        if !self.node.is_connected() {
            self.forget();
            self.open = true;
            self.node.handle_opened(self.now);
        }
    }

    fn close(&mut self) {
        self.node.handle_closed(self.now);
        self.forget();
    }

    /// Nothing of a connection outlives it.
    fn forget(&mut self) {
        self.connection = None;
        self.asked.clear();
        self.question = None;
        self.granted.clear();
        self.unsent.clear();
        self.open = false;
    }

    /// The driver reads only when the node may.
    fn receive(&mut self, text: &str) {
        if self.node.may_read() && self.open {
            self.node.handle_message(self.now, text);
        }
    }

    fn send(&mut self, frame: &Frame<'_>) {
        if let Ok(message) = encode(frame) {
            self.receive(std::str::from_utf8(&message).expect("JSON is text"));
        }
    }

    fn welcome(&mut self, number: u8, target: u8, serving: Option<u8>) {
        // Core never uses an identifier twice.
        self.connections += 1;
        let announcement = Announcement {
            connection_id: id(4, self.connections),
            owner_epoch: epoch(number),
            deployment: deployment(target, serving),
        };
        if self.open && self.node.may_read() && self.node.live().is_none() {
            self.connection = Some((announcement.connection_id, announcement.owner_epoch, 0));
        }
        self.send(&Frame::Welcome(announcement));
    }

    /// The fence of a frame, as it should be but for what is off.
    fn fence(&self, fence: Fence) -> (Id, OwnerEpoch) {
        let (connection, current, _) = self.connection.unwrap_or((id(4, 0), OwnerEpoch::FIRST, 0));
        let connection = if Fence::is_off(fence.connection) { id(5, 0) } else { connection };
        let current = if Fence::is_off(fence.epoch) { epoch(fence.epoch) } else { current };
        (connection, current)
    }

    fn acknowledge(&mut self, fence: Fence, target: u8, serving: Option<u8>) {
        let (connection_id, owner_epoch) = self.fence(fence);
        let deployment = deployment(target, serving);
        self.send(&Frame::HeartbeatAck(Announcement { connection_id, owner_epoch, deployment }));
    }

    fn retain(&mut self, fence: Fence, keep: u8, (reorder, cut): (bool, bool), target: u8) {
        let Some((question, references)) = self.question.clone() else { return };
        let (connection_id, owner_epoch) = self.fence(fence);
        // Stale answers are what this exchange is about: they are common.
        let sequence = u64::from(fence.sequence > 127) + question.sequence.get();
        let sequence = Sequence::new(sequence).expect("positive");
        let exchange = Exchange { connection_id, owner_epoch, sequence, ..question };
        let kept = |at: usize| keep >> (at % 8) & 1 == 1;
        let mut retentions: Vec<_> = references
            .iter()
            .enumerate()
            .map(|(at, reference)| Retention { reference: *reference, keep: kept(at) })
            .collect();
        if reorder {
            retentions.reverse();
        }
        if cut {
            retentions.pop();
        }
        let is_answer = exchange == question && retentions.iter().map(|entry| &entry.reference).eq(&references);
        if is_answer && self.node.may_read() && self.granted.is_empty() {
            let dropped = retentions.iter().filter(|entry| !entry.keep);
            self.granted = dropped.map(|entry| entry.reference.generation).collect();
        }
        self.send(&Frame::RetentionAck { exchange, retentions, deployment: deployment(target, None) });
    }

    fn request(&mut self, request: &Request) {
        let (connection_id, owner_epoch) = self.fence(request.fence);
        let last = self.connection.map_or(0, |(_, _, sequence)| sequence);
        let sequence = last + 1 + u64::from(Fence::is_off(request.fence.sequence));
        self.requests += 1;
        let call = Call {
            id: id(6, self.requests),
            deployment_generation: generation(request.generation),
            reference: Reference {
                tenant: id(7, 0),
                environment: id(7, 1),
                allocation: id(8, u64::from(request.allocation % 40)),
            },
            timeout_ms: u64::from(request.timeout_ms).max(1),
            operation: operation(request.operation),
        };
        let fenced = self.connection.is_some_and(|(id, epoch, _)| (id, epoch) == (connection_id, owner_epoch))
            && sequence == last + 1;
        if fenced && self.node.live().is_some() && self.node.may_read() {
            self.asked.insert(call.id, self.now.after(call.timeout_ms));
            if let Some((_, _, sequence)) = &mut self.connection {
                *sequence += 1;
            }
        }
        let sequence = Sequence::new(sequence).expect("positive");
        let fencing = Fencing { sequence, owner_epoch, connection_id };
        self.send(&Frame::Request(Box::new(call.into_request(fencing))));
    }

    fn misplace(&mut self, choice: u8) {
        let (connection_id, owner_epoch) = self.fence(Fence { connection: 0, epoch: 0, sequence: 0 });
        let frame = match choice % 3 {
            0 => Frame::Hello { identity: identity(), health: health() },
            1 => Frame::Heartbeat { connection_id, owner_epoch, health: health() },
            _ => Frame::Response(Box::new(palisade_core::wire::frame::Response {
                connection_id: Some(connection_id),
                ..Default::default()
            })),
        };
        self.send(&frame);
    }

    fn store(&mut self, which: usize, stored: bool) {
        if self.storing.is_empty() {
            return;
        }
        let epoch = self.storing.remove(which % self.storing.len());
        if stored {
            self.node.handle_epoch_stored(self.now, epoch);
        } else {
            self.node.handle_epoch_not_stored(self.now);
        }
    }

    fn written(&mut self, count: u16) {
        for _ in 0..count {
            let Some(bytes) = self.unsent.pop_front() else { return };
            self.node.handle_written(self.now, bytes);
        }
    }

    fn end(&mut self, which: u8, outcome: u8) {
        if self.running.is_empty() {
            return;
        }
        let (ticket, call) = self.running.remove(usize::from(which) % self.running.len());
        let outcome = match (&call.operation, outcome % 4) {
            (Operation::Kill, 0) => Ok(Answer::Done),
            (Operation::RunCommand(_), 0) => {
                Ok(Answer::Command(CommandResult { stdout: "o".into(), stderr: "".into(), exit_code: 3 }))
            }
            (_, 1) => Err(Failure::NotFound.into()),
            (_, 2) => Err(Failure::CommandUnconfirmed.into()),
            (_, _) => Err(Failure::Unconfirmed.into()),
        };
        self.node.handle_result(self.now, ticket, outcome);
    }

    fn prepared(&mut self, outcome: Option<u8>) {
        if let Some(generation) = self.preparing.take() {
            let outcome = outcome.map_or_else(|| Ok(declaration(true)), |class| Err(diagnostic(class)));
            self.node.handle_prepared(self.now, generation, outcome);
        }
    }

    fn probed(&mut self, outcome: Option<u8>) {
        if let Some(generation) = self.probing.take() {
            let outcome = match outcome {
                None => Probed::Ready(None),
                Some(0) => Probed::Cancelled,
                Some(class) => Probed::NotReady(diagnostic(class)),
            };
            self.node.handle_probed(self.now, generation, outcome);
        }
    }

    /// Waiting for what the node waits for always brings it on.
    fn wake(&mut self) {
        let Some((at, _)) = self.node.poll_timeout() else { return };
        self.now = self.now.max(at);
        self.node.handle_timeout(self.now);
        self.drain();
        let next = self.node.poll_timeout();
        assert!(next.is_none_or(|(at, _)| at > self.now), "it wakes at {next:?} again, now is {:?}", self.now);
    }

    fn drain(&mut self) {
        while let Some(action) = self.node.poll_action() {
            self.judge(action);
        }
        self.target = self.node.table().announced().map(|deployment| deployment.generation);
    }

    fn judge(&mut self, action: Action) {
        match action {
            Action::MeasureHealth => assert!(self.open, "a measurement without a connection"),
            Action::Send(message) => self.judge_message(&message),
            Action::StoreEpoch(epoch) => {
                assert!(self.highest.is_none_or(|highest| epoch >= highest), "a lower epoch is stored");
                self.highest = Some(epoch);
                self.storing.push(epoch);
            }
            Action::Execute { ticket, call, deadline } => self.judge_execution(ticket, *call, deadline),
            Action::Task(task) => self.judge_task(task),
            Action::Remove(reference) => self.judge_removal(reference.generation),
            Action::CancelRemoval(generation) => assert_eq!(self.removing, Some(generation)),
            Action::Close(_) => {
                assert!(self.open, "a connection is closed once");
                self.forget();
            }
        }
    }

    fn judge_execution(&mut self, ticket: Ticket, call: Call<'static>, deadline: Millis) {
        // Promise 8: what the request left of its time, and never nothing.
        assert_eq!(self.asked.get(&call.id), Some(&deadline), "executed without having been asked on this connection");
        assert!(deadline > self.now);
        let allocation = call.reference.allocation;
        assert!(self.running.iter().all(|(_, running)| running.reference.allocation != allocation), "two in one lane");
        // Promise 2.
        let (_, epoch) = self.node.live().expect("only a live connection asks");
        assert!(self.highest.is_none_or(|highest| epoch >= highest), "a request of a lower epoch is carried out");
        assert_ne!(self.removing, Some(call.deployment_generation));
        self.running.push((ticket, call));
        assert!(self.running.len() <= EXECUTING_MAX);
    }

    fn judge_task(&mut self, task: Task) {
        match task {
            Task::Prepare(reference) => {
                assert_eq!(self.preparing.replace(reference.generation), None, "one preparation at a time");
                assert!(self.target.is_some() || self.node.table().announced().is_some(), "prepared before any target");
            }
            Task::CancelPreparation(generation) => assert_eq!(self.preparing, Some(generation)),
            Task::Probe(generation) => assert_eq!(self.probing.replace(generation), None, "one probe at a time"),
        }
    }

    fn judge_removal(&mut self, generation: Generation) {
        // Promise 5.
        assert!(self.granted.contains(&generation), "removed without the whole answer to the last question");
        // Promise 7.
        assert!(self.running.iter().all(|(_, call)| call.deployment_generation != generation));
        assert!(self.probing != Some(generation) && self.preparing != Some(generation));
        let announced = self.node.table().announced();
        assert!(
            announced
                .is_none_or(|target| target.generation != generation && target.serving_generation != Some(generation))
        );
        self.removing = Some(generation);
    }

    fn judge_message(&mut self, message: &[u8]) {
        assert!(self.open, "sent without a connection");
        self.unsent.push_back(message.len());
        match decode(message).expect("a node sends valid frames only") {
            Frame::Hello { health, .. } => self.judge_health(&health),
            Frame::Heartbeat { connection_id, owner_epoch, health } => {
                assert_eq!(self.node.live(), Some((connection_id, owner_epoch)));
                self.judge_health(&health);
            }
            Frame::Retention { exchange, references } => {
                assert_eq!(self.node.live(), Some((exchange.connection_id, exchange.owner_epoch)));
                assert!((1..=REFERENCES_MAX).contains(&references.len()));
                let last = self.question.as_ref().map_or(0, |(last, _)| last.sequence.get());
                assert_eq!(exchange.sequence.get(), last + 1);
                self.question = Some((exchange, references));
                self.granted.clear();
            }
            Frame::Response(response) => {
                assert_eq!(response.connection_id, self.node.live().map(|(connection, _)| connection));
                let id = Id::parse(&response.id).expect("the request's own");
                assert!(self.asked.remove(&id).is_some(), "an answer that nobody waits for");
            }
            Frame::Welcome(_) | Frame::HeartbeatAck(_) | Frame::RetentionAck { .. } | Frame::Request(_) => {
                panic!("a frame of the other direction")
            }
        }
    }

    fn judge_health(&self, health: &Health<'_>) {
        assert_eq!(health.active_operations as usize, self.running.len());
        assert!(health.generations.len() <= OBSERVATIONS_MAX);
        assert!(health.generations.iter().all(|observation| Some(observation.generation) != self.removing));
    }

    fn check(&self) {
        assert!(!self.node.is_connected() || self.open, "connected without a connection");
        if let Some((connection, epoch)) = self.node.live() {
            assert_eq!(self.connection.map(|(connection, epoch, _)| (connection, epoch)), Some((connection, epoch)));
            assert!(!self.storing.contains(&epoch) || self.highest == Some(epoch));
        }
    }
}

fn operation(choice: u8) -> Operation<'static> {
    match choice % 4 {
        0 => Operation::Kill,
        1 => Operation::GetInfo,
        2 => Operation::RunCommand(Command { args: vec!["true".into()], directory: "".into(), stdin: None }),
        _ => Operation::SavePreparation("venv".to_owned()),
    }
}

fn diagnostic(choice: u8) -> Diagnostic {
    DIAGNOSTICS[usize::from(choice) % DIAGNOSTICS.len()]
}
