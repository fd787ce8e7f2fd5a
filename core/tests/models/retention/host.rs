//! The node: its machine, its disk, and the work that it has under way.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use palisade_core::generation::{Found, Probed, Table, Task};
use palisade_core::limits::HEARTBEAT_INTERVAL_MS;
use palisade_core::outcome::Failure;
use palisade_core::session::lanes::Ticket;
use palisade_core::session::node::{Action, Ended, Node, Ownership};
use palisade_core::wire::payload::Exchange;
use palisade_core::wire::{Frame, decode, encode};

use super::{Broken, Notable};
use crate::fixtures::{NOW, declaration, generation, health, identity, reference};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Host {
    pub(super) node: Node,
    pub(super) disk: BTreeMap<u64, Disk>,
    pub(super) removal: Option<Removal>,
    pub(super) probing: Option<u64>,
    pub(super) preparing: Option<u64>,
    /// Operations that run, oldest first, with their generations.
    pub(super) running: VecDeque<(Ticket, u64)>,
    pub(super) up: VecDeque<String>,
    pub(super) down: VecDeque<String>,
    /// The last answer that arrived, on whatever connection.
    pub(super) answer: Option<String>,
    /// The question that was asked last on this connection.
    question: Option<Exchange>,
    /// What the whole answer to it allows to remove.
    pub(super) granted: BTreeSet<u64>,
}

/// What of a generation is on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Disk {
    Whole,
    /// A removal began, durably.
    Begun,
}

/// A removal that runs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Removal {
    pub(super) generation: u64,
}

/// What the machine did that the model looks at.
pub(super) enum Event {
    Removes(u64),
    Refused,
}

impl Host {
    pub(super) fn new(disk: BTreeMap<u64, Disk>) -> Self {
        let node = Node::new(identity(), None, Table::new([]));
        let host = Self {
            node,
            disk,
            removal: None,
            probing: None,
            preparing: None,
            running: VecDeque::new(),
            up: VecDeque::new(),
            down: VecDeque::new(),
            answer: None,
            question: None,
            granted: BTreeSet::new(),
        };
        host.started()
    }

    /// The machine of what is on the disk now.
    fn started(self) -> Self {
        let found = self.disk.iter().map(|(number, disk)| {
            let found = match disk {
                Disk::Whole => Found::Provider(declaration()),
                Disk::Begun => Found::Collecting,
            };
            (reference(*number), found)
        });
        let node = Node::new(identity(), None, Table::new(found));
        Self { node, ..self }
    }

    /// Nothing outlives the process but the disk.
    pub(super) fn restart(&mut self) {
        let answer = self.answer.take();
        *self = Self { answer, ..Self::new(std::mem::take(&mut self.disk)) };
    }

    /// Whether an operation or a probe uses the generation.
    pub(super) fn uses(&self, number: u64) -> bool {
        self.probing == Some(number) || self.running.iter().any(|(_, used)| *used == number)
    }

    pub(super) fn open(&mut self) {
        self.node.handle_opened(NOW);
    }

    pub(super) fn close(&mut self) {
        self.node.handle_closed(NOW);
        self.up.clear();
        self.down.clear();
        self.question = None;
        self.granted.clear();
    }

    pub(super) fn heartbeat(&mut self) {
        self.node.handle_timeout(NOW.after(HEARTBEAT_INTERVAL_MS));
    }

    /// What Core really sent arrives, once and whole.
    pub(super) fn receive(&mut self, message: &str) {
        if let Ok(Frame::RetentionAck { exchange, retentions, .. }) = decode(message.as_bytes()) {
            if self.question == Some(exchange) {
                let dropped = retentions.iter().filter(|retention| !retention.keep);
                self.granted = dropped.map(|retention| retention.reference.generation.get()).collect();
            }
            self.answer = Some(message.to_owned());
        }
        self.node.handle_message(NOW, message);
    }

    /// The last answer arrives again; a broken node takes it for the one it waits for.
    pub(super) fn repeat(&mut self, broken: Option<Broken>) {
        let answer = self.answer.clone().unwrap_or_default();
        let Ok(frame) = decode(answer.as_bytes()) else { return };
        let frame = match (frame, self.question) {
            (Frame::RetentionAck { retentions, deployment, .. }, Some(exchange))
                if broken == Some(Broken::StaleAccepted) =>
            {
                Frame::RetentionAck { exchange, retentions, deployment }
            }
            (frame, _) => frame,
        };
        let message = encode(&frame).expect("a frame that was decoded");
        self.node.handle_message(NOW, std::str::from_utf8(&message).unwrap());
    }

    /// Whether an answer with more than one entry is under way.
    pub(super) fn has_long_answer(&self) -> bool {
        self.down.front().is_some_and(|message| {
            matches!(decode(message.as_bytes()), Ok(Frame::RetentionAck { retentions, .. }) if retentions.len() > 1)
        })
    }

    pub(super) fn shorten(&mut self) {
        let Some(message) = self.down.pop_front() else { return };
        let Ok(Frame::RetentionAck { exchange, mut retentions, deployment }) = decode(message.as_bytes()) else {
            return;
        };
        retentions.pop();
        let message = encode(&Frame::RetentionAck { exchange, retentions, deployment }).expect("one entry is left");
        self.node.handle_message(NOW, std::str::from_utf8(&message).unwrap());
    }

    pub(super) fn end_operation(&mut self) {
        if let Some((ticket, _)) = self.running.pop_front() {
            self.node.handle_result(NOW, ticket, Err(Failure::NotFound.into()));
        }
    }

    pub(super) fn end_probe(&mut self) {
        if let Some(number) = self.probing.take() {
            self.node.handle_probed(NOW, generation(number), Probed::Ready(None));
        }
    }

    pub(super) fn end_preparation(&mut self) {
        if let Some(number) = self.preparing.take() {
            self.disk.insert(number, Disk::Whole);
            self.node.handle_prepared(NOW, generation(number), Ok(declaration()));
        }
    }

    pub(super) fn journal(&mut self) {
        if let Some(removal) = &self.removal {
            self.disk.insert(removal.generation, Disk::Begun);
        }
    }

    /// A removal begins durably before it finishes.
    pub(super) fn end_removal(&mut self, finished: bool) -> Option<Notable> {
        let Removal { generation: number } = self.removal.take()?;
        if finished {
            self.disk.remove(&number);
        }
        self.node.handle_removed(NOW, generation(number), finished);
        finished.then_some(Notable::Gone)
    }

    /// Does what the machine says until it says nothing more.
    pub(super) fn drain(&mut self, broken: Option<Broken>) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(action) = self.node.poll_action() {
            match action {
                Action::MeasureHealth => self.node.handle_health(NOW, health(), [7; 16]),
                Action::Send(message) => self.send(message),
                Action::StoreEpoch(epoch) => self.node.handle_epoch_stored(NOW, epoch),
                Action::Execute { ticket, call, .. } => {
                    self.running.push_back((ticket, call.deployment_generation.get()));
                    if broken == Some(Broken::EarlyRelease) {
                        self.node.handle_result(NOW, ticket, Err(Failure::NotFound.into()));
                    }
                }
                Action::Task(task) => self.start(task),
                Action::Remove(reference) => {
                    let number = reference.generation.get();
                    events.push(Event::Removes(number));
                    self.removal = Some(Removal { generation: number });
                }
                Action::Close(Ended::Ownership(Ownership::Retention | Ownership::Fencing)) => {
                    events.push(Event::Refused);
                }
                Action::CancelRemoval(_) | Action::Close(_) => {}
            }
        }
        events
    }

    fn start(&mut self, task: Task) {
        match task {
            Task::Probe(generation) => self.probing = Some(generation.get()),
            Task::Prepare(reference) => self.preparing = Some(reference.generation.get()),
            Task::CancelPreparation(_) => {}
        }
    }

    fn send(&mut self, message: Vec<u8>) {
        let bytes = message.len();
        if let Ok(Frame::Retention { exchange, .. }) = decode(&message) {
            self.question = Some(exchange);
            self.granted.clear();
        }
        self.up.push_back(String::from_utf8(message).unwrap());
        self.node.handle_written(NOW, bytes);
    }
}
