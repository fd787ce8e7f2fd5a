//! The node's half of its connections, with everything that outlives them (wire §4.5-4.10, §7).
//!
//! ```text
//!          opened            health            welcome           epoch stored
//!  Down ───────────► Measuring ─────► Greeting ───────► Storing ─────────────► Live
//!   ▲                    │               │     (epoch equal: straight to Live)  │
//!   └────────────────────┴── any end ────┴───────────────────────────────────────┘
//! ```
//!
//! - Never is a request of a lower epoch, of another connection or out of sequence carried out
//!   (`a_lower_epoch_ends_the_connection`, `an_epoch_that_is_still_being_stored_fences_already`,
//!   `a_repeated_sequence_ends_the_connection`, `a_gap_in_the_sequence_and_a_foreign_request_end_the_connection`).
//! - Never does an epoch take effect before it is durable (`a_higher_epoch_is_stored_before_anything_else_happens`).
//! - Never does a connection's end cancel an operation that runs; never does what it queued run afterwards
//!   (`a_lost_connection_neither_cancels_nor_replays`).
//! - Never does a stale, partial or foreign retention answer delete anything
//!   (`a_retention_answer_must_match_the_whole_request`, `forged_and_late_answers_delete_nothing`).
//! - Never does silence go unnoticed for longer than 35 s (`both_sides_close_after_35_seconds_without_a_frame`).
//!
//! # Driving it
//!
//! One mutation, then drain. An effect is answered with the `handle_*` method that its action names, whenever it ends.
//!
//! ```
//! use palisade_core::generation::{Found, Table};
//! use palisade_core::session::node::{Action, Node, Wake};
//! use palisade_core::testing::{declaration, deployment, epoch, health, id, identity, reference};
//! use palisade_core::units::Millis;
//! use palisade_core::wire::{self, Frame, frame::Announcement};
//!
//! /// Does what the node wants, and gives back the messages that it writes.
//! fn drain(node: &mut Node, now: Millis) -> Vec<Vec<u8>> {
//!     let mut written = Vec::new();
//!     while let Some(action) = node.poll_action() {
//!         match action {
//!             Action::MeasureHealth => node.handle_health(now, health([]), [7; 16]),
//!             Action::StoreEpoch(epoch) => node.handle_epoch_stored(now, epoch),
//!             Action::Send(message) => {
//!                 node.handle_written(now, message.len());
//!                 written.push(message);
//!             }
//!             Action::Execute { .. } | Action::Task(_) | Action::Remove(_) => {} // started here, answered later
//!             Action::CancelRemoval(_) => {}
//!             Action::Close(ended) => panic!("{ended}"),
//!         }
//!     }
//!     written
//! }
//!
//! let table = Table::new([(reference(1), Found::Provider(declaration()))]);
//! let (mut node, now) = (Node::new(identity(), None, table), Millis(0));
//! node.handle_opened(now);
//! let hello = drain(&mut node, now);
//! assert!(matches!(wire::decode(&hello[0]), Ok(Frame::Hello { .. })));
//!
//! let (connection_id, owner_epoch) = (id(200), epoch(1));
//! let welcome = Announcement { connection_id, owner_epoch, deployment: deployment(1, None) };
//! let message = wire::encode(&Frame::Welcome(welcome)).unwrap();
//! node.handle_message(now, std::str::from_utf8(&message).unwrap());
//! drain(&mut node, now);
//! assert_eq!(node.live(), Some((connection_id, owner_epoch)));
//!
//! // The first heartbeat follows ten seconds later.
//! assert_eq!(node.poll_timeout(), Some((Millis(10_000), Wake::Heartbeat)));
//! node.handle_timeout(Millis(10_000));
//! let heartbeat = drain(&mut node, Millis(10_000));
//! assert!(matches!(wire::decode(&heartbeat[0]), Ok(Frame::Heartbeat { .. })));
//! ```

mod driving;
mod retention;
#[cfg(test)]
mod tests;
mod work;

use std::collections::VecDeque;

pub use driving::{Action, Ended, Ownership, Wake};

use super::lanes::Lanes;
use crate::generation::Table;
use crate::limits::{HEARTBEAT_INTERVAL_MS, HELLO_TIMEOUT_MS, IDLE_TIMEOUT_MS};
use crate::units::{Id, Millis, OwnerEpoch};
use crate::wire;
use crate::wire::frame::{Announcement, Frame};
use crate::wire::payload::{Deployment, Health, Identity};
use retention::Exchanges;

/// A node: one connection at a time, and the lanes and generations that outlive it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Node {
    identity: Identity<'static>,
    /// The highest epoch that is stored; `None` before the first connection.
    epoch: Option<OwnerEpoch>,
    /// The highest epoch that is stored or being stored: one that was seen counts before it takes effect.
    seen: Option<OwnerEpoch>,
    table: Table,
    lanes: Lanes,
    link: Link,
    /// Bytes handed out in [`Action::Send`] and not written yet.
    unsent: u64,
    /// Whether reading is suspended for want of room.
    paused: bool,
    actions: VecDeque<Action>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Link {
    Down,
    /// Waits for a measurement to say hello with.
    Measuring {
        deadline: Millis,
    },
    /// `hello` is sent.
    Greeting {
        deadline: Millis,
    },
    /// A higher epoch is being stored; nothing is read.
    Storing(Announcement),
    Live(Box<Live>),
}

/// What a live connection carries.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Live {
    connection_id: Id,
    owner_epoch: OwnerEpoch,
    /// Of the last request, 0 before the first.
    sequence: u64,
    idle: Millis,
    heartbeat: Millis,
    measuring: bool,
    exchanges: Exchanges,
}

impl Node {
    /// A node that is not connected. `epoch` is the highest one it ever stored.
    #[must_use]
    pub fn new(identity: Identity<'static>, epoch: Option<OwnerEpoch>, table: Table) -> Self {
        Self {
            identity,
            epoch,
            seen: epoch,
            table,
            lanes: Lanes::default(),
            link: Link::Down,
            unsent: 0,
            paused: false,
            actions: VecDeque::new(),
        }
    }

    /// A WebSocket is open.
    pub fn handle_opened(&mut self, now: Millis) {
        self.link = Link::Measuring { deadline: now.after(HELLO_TIMEOUT_MS) };
        self.unsent = 0;
        self.actions.push_back(Action::MeasureHealth);
        self.drain(now);
    }

    /// The WebSocket is closed, by whomever.
    pub fn handle_closed(&mut self, now: Millis) {
        self.disconnect();
        self.drain(now);
    }

    /// A fragment of a message arrived, which is a sign of life (decision 29).
    pub fn handle_fragment(&mut self, now: Millis) {
        if let Link::Live(live) = &mut self.link {
            live.idle = now.after(IDLE_TIMEOUT_MS);
        }
    }

    /// A text message arrived.
    pub fn handle_message(&mut self, now: Millis, message: &str) {
        if !self.is_connected() {
            return;
        }
        let outcome = match wire::decode_text(message) {
            Ok(frame) => self.handle_frame(now, frame, message.len() as u64),
            Err(violation) => Err(Ended::Invalid(violation)),
        };
        self.settle(now, outcome);
    }

    /// A binary message arrived.
    pub fn handle_binary(&mut self, now: Millis) {
        self.settle(now, Err(Ended::Binary));
    }

    /// The measurement that [`Action::MeasureHealth`] asked for. The node fills in `active_operations` and
    /// `generations`. `random` becomes the identifier of a retention exchange.
    pub fn handle_health(&mut self, now: Millis, health: Health<'static>, random: [u8; 16]) {
        let health = Health { active_operations: self.lanes.executing(), generations: self.table.observe(), ..health };
        let outcome = match &mut self.link {
            Link::Measuring { deadline } => {
                self.link = Link::Greeting { deadline: *deadline };
                self.send_control(&Frame::Hello { identity: self.identity.clone(), health })
            }
            Link::Live(live) if live.measuring => {
                live.measuring = false;
                let (connection_id, owner_epoch) = (live.connection_id, live.owner_epoch);
                self.send_control(&Frame::Heartbeat { connection_id, owner_epoch, health })
                    .and_then(|()| self.ask_retention(Id::from_random(random)))
            }
            Link::Down | Link::Greeting { .. } | Link::Storing(_) | Link::Live(_) => Ok(()),
        };
        self.settle(now, outcome);
    }

    /// `epoch` is durable, whatever became of the connection that brought it: nothing lower counts from here on.
    pub fn handle_epoch_stored(&mut self, now: Millis, epoch: OwnerEpoch) {
        self.epoch = self.epoch.max(Some(epoch));
        if let Link::Storing(announcement) = self.link
            && announcement.owner_epoch == epoch
        {
            let outcome = self.go_live(now, announcement);
            self.settle(now, outcome);
        }
    }

    /// The epoch of this connection could not be made durable.
    pub fn handle_epoch_not_stored(&mut self, now: Millis) {
        if matches!(self.link, Link::Storing(_)) {
            self.settle(now, Err(Ended::EpochNotStored));
        }
    }

    /// A message of `bytes` was written.
    pub fn handle_written(&mut self, now: Millis, bytes: usize) {
        self.unsent = self.unsent.saturating_sub(bytes as u64);
        self.drain(now);
    }

    /// The time of [`Node::poll_timeout`] came.
    pub fn handle_timeout(&mut self, now: Millis) {
        let paused = self.paused;
        let outcome = match &mut self.link {
            Link::Measuring { deadline } | Link::Greeting { deadline } if *deadline <= now => Err(Ended::NoWelcome),
            Link::Live(live) if live.idle <= now && !paused => Err(Ended::Silent),
            Link::Live(live) => {
                if live.heartbeat <= now {
                    live.heartbeat =
                        now.after(HEARTBEAT_INTERVAL_MS - now.since(live.heartbeat) % HEARTBEAT_INTERVAL_MS);
                    if !std::mem::replace(&mut live.measuring, true) {
                        self.actions.push_back(Action::MeasureHealth);
                    }
                }
                Ok(())
            }
            Link::Down | Link::Measuring { .. } | Link::Greeting { .. } | Link::Storing(_) => Ok(()),
        };
        self.settle(now, outcome);
    }

    fn handle_frame(&mut self, now: Millis, frame: Frame<'_>, bytes: u64) -> Result<(), Ended> {
        self.handle_fragment(now);
        match (frame, &self.link) {
            (Frame::Welcome(announcement), Link::Greeting { .. }) => self.handle_welcome(now, announcement),
            (Frame::HeartbeatAck(announcement), Link::Live(_)) => self.handle_acknowledgement(announcement),
            (Frame::RetentionAck { exchange, retentions, deployment }, Link::Live(_)) => {
                self.handle_retentions(&exchange, retentions, deployment)
            }
            (Frame::Request(request), Link::Live(_)) => self.handle_request(now, *request, bytes),
            (
                Frame::Hello { .. }
                | Frame::Welcome(_)
                | Frame::Heartbeat { .. }
                | Frame::HeartbeatAck(_)
                | Frame::Retention { .. }
                | Frame::RetentionAck { .. }
                | Frame::Request(_)
                | Frame::Response(_),
                _,
            ) => Err(Ended::Unexpected),
        }
    }

    fn handle_welcome(&mut self, now: Millis, announcement: Announcement) -> Result<(), Ended> {
        let epoch = Some(announcement.owner_epoch);
        if epoch < self.seen {
            return Err(Ended::Ownership(Ownership::LowerEpoch));
        }
        if epoch == self.epoch {
            return self.go_live(now, announcement);
        }
        self.seen = epoch;
        self.link = Link::Storing(announcement);
        self.actions.push_back(Action::StoreEpoch(announcement.owner_epoch));
        Ok(())
    }

    fn go_live(&mut self, now: Millis, announcement: Announcement) -> Result<(), Ended> {
        self.link = Link::Live(Box::new(Live {
            connection_id: announcement.connection_id,
            owner_epoch: announcement.owner_epoch,
            sequence: 0,
            idle: now.after(IDLE_TIMEOUT_MS),
            heartbeat: now.after(HEARTBEAT_INTERVAL_MS),
            measuring: false,
            exchanges: Exchanges::default(),
        }));
        self.announce(announcement.deployment)
    }

    fn announce(&mut self, deployment: Deployment) -> Result<(), Ended> {
        self.table.announce(deployment).map_err(|refusal| Ended::Ownership(refusal.into()))
    }

    fn handle_acknowledgement(&mut self, announcement: Announcement) -> Result<(), Ended> {
        let live = self.live();
        if live.is_none_or(|(connection_id, _)| connection_id != announcement.connection_id) {
            return Err(Ended::Foreign);
        }
        if live.is_none_or(|(_, owner_epoch)| owner_epoch != announcement.owner_epoch) {
            return Err(Ended::Ownership(Ownership::Fencing));
        }
        self.announce(announcement.deployment)
    }

    /// Ends the connection when it must end, then does all that became possible.
    fn settle(&mut self, now: Millis, outcome: Result<(), Ended>) {
        if let Err(ended) = outcome
            && self.is_connected()
        {
            self.disconnect();
            self.actions.push_back(Action::Close(ended));
        }
        self.drain(now);
    }

    fn disconnect(&mut self) {
        if let Link::Live(live) = std::mem::replace(&mut self.link, Link::Down) {
            for generation in self.lanes.abandon(live.connection_id) {
                self.table.release(generation);
            }
            self.actions.extend(live.exchanges.removing().map(Action::CancelRemoval));
        }
        self.unsent = 0;
    }

    fn drain(&mut self, now: Millis) {
        while let Some(step) = self.lanes.poll(now) {
            self.handle_step(step);
        }
        // What is wanted comes before what is not: both need the host's one lock.
        while let Some(task) = self.table.poll_task(now) {
            self.actions.push_back(Action::Task(task));
        }
        self.drain_grants(now);
        self.update_pause(now);
    }
}
