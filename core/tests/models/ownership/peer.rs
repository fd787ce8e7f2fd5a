//! A holder of the node's identity: its machine, its disk and its end of a connection.

use std::collections::VecDeque;

use palisade_core::generation::{Found, Table};
use palisade_core::limits::HEARTBEAT_INTERVAL_MS;
use palisade_core::outcome::Failure;
use palisade_core::session::node::{Action, Ended, Node, Ownership};

use super::Notable;
use crate::fixtures::{NOW, declaration, epoch, health, identity, reference};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Peer {
    pub(super) node: Node,
    /// The epoch on its disk.
    pub(super) durable: Option<u64>,
    /// Epochs on their way to the disk.
    pub(super) storing: VecDeque<u64>,
    /// The highest epoch of a welcome since the process started, or on the disk when it did.
    highest: u64,
    pub(super) link: Option<Link>,
}

/// This end of a connection, and what is under way in both directions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Link {
    pub(super) core: usize,
    pub(super) number: u8,
    pub(super) up: VecDeque<String>,
    pub(super) down: VecDeque<String>,
    /// The other end is closed.
    pub(super) cut: bool,
}

impl Peer {
    pub(super) fn new(durable: Option<u64>) -> Self {
        let table = Table::new([(reference(1), Found::Provider(declaration()))]);
        let node = Node::new(identity(), durable.map(epoch), table);
        Self { node, durable, storing: VecDeque::new(), highest: durable.unwrap_or(0), link: None }
    }

    pub(super) fn is_linked(&self, core: usize, number: u8) -> bool {
        self.link.as_ref().is_some_and(|link| (link.core, link.number) == (core, number))
    }

    pub(super) fn open(&mut self, core: usize, number: u8) {
        self.link = Some(Link { core, number, up: VecDeque::new(), down: VecDeque::new(), cut: false });
        self.node.handle_opened(NOW);
        self.drain();
    }

    pub(super) fn close(&mut self) {
        self.link = None;
        self.node.handle_closed(NOW);
        self.drain();
    }

    pub(super) fn restart(&mut self) {
        *self = Self::new(self.durable);
    }

    pub(super) fn heartbeat(&mut self) {
        self.node.handle_timeout(NOW.after(HEARTBEAT_INTERVAL_MS));
        self.drain();
    }

    pub(super) fn stored(&mut self, stored: bool) {
        let Some(number) = self.storing.pop_front() else { return };
        if stored {
            self.durable = self.durable.max(Some(number));
            self.node.handle_epoch_stored(NOW, epoch(number));
        } else {
            self.node.handle_epoch_not_stored(NOW);
        }
        self.drain();
    }

    /// The next frame arrives while the store says `current`.
    pub(super) fn receive(&mut self, current: u64) -> Option<Notable> {
        let message = self.link.as_mut()?.down.pop_front()?;
        self.node.handle_message(NOW, &message);
        let done = self.drain();
        done.map(|done| match done {
            Done::Executed(epoch) => Notable::Executed { epoch, highest: self.highest, current },
            Done::LowerEpoch => Notable::LowerEpochRefused,
        })
    }

    /// Does what the machine says; operations end at once, and background work never does.
    fn drain(&mut self) -> Option<Done> {
        let mut done = None;
        while let Some(action) = self.node.poll_action() {
            match action {
                Action::MeasureHealth => self.node.handle_health(NOW, health(), [7; 16]),
                Action::Send(message) => self.send(message),
                Action::StoreEpoch(epoch) => {
                    self.highest = self.highest.max(epoch.get());
                    self.storing.push_back(epoch.get());
                }
                Action::Execute { ticket, .. } => {
                    done = self.node.live().map(|(_, epoch)| Done::Executed(epoch.get()));
                    self.node.handle_result(NOW, ticket, Err(Failure::NotFound.into()));
                }
                Action::Close(ended) => {
                    self.link = None;
                    if ended == Ended::Ownership(Ownership::LowerEpoch) {
                        done = Some(Done::LowerEpoch);
                    }
                }
                Action::Task(_) | Action::Remove(_) | Action::CancelRemoval(_) => {}
            }
        }
        done
    }

    fn send(&mut self, message: Vec<u8>) {
        let bytes = message.len();
        if let Some(link) = self.link.as_mut().filter(|link| !link.cut) {
            link.up.push_back(String::from_utf8(message).unwrap());
        }
        self.node.handle_written(NOW, bytes);
    }
}

enum Done {
    Executed(u64),
    LowerEpoch,
}
