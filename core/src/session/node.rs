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

use super::lanes::{Lanes, Ticket};
use crate::generation::{self, Drop, Probed, Table};
use crate::limits::{HEARTBEAT_INTERVAL_MS, HELLO_TIMEOUT_MS, IDLE_TIMEOUT_MS, STOP_GRACE_MS};
use crate::operation::{Call, Declaration};
use crate::outcome::{self, Answer, Failed, Failure};
use crate::units::{Generation, Id, Millis, OwnerEpoch};
use crate::wire;
use crate::wire::frame::{Announcement, Frame, Request};
use crate::wire::payload::{Deployment, Diagnostic, Exchange, Health, Identity, Retention};
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

    /// The next action.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When [`Node::handle_timeout`] wants to run next, and why.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Millis, Wake)> {
        let (link, idle, removal) = match &self.link {
            Link::Down | Link::Storing(_) => (None, None, None),
            Link::Measuring { deadline } | Link::Greeting { deadline } => {
                (Some((*deadline, Wake::Welcome)), None, None)
            }
            Link::Live(live) => {
                let idle = (!self.paused).then_some((live.idle, Wake::Idle));
                (Some((live.heartbeat, Wake::Heartbeat)), idle, live.exchanges.poll_timeout())
            }
        };
        let budget = self.lanes.poll_timeout().map(|at| (at, Wake::Budget));
        let table = self.table.poll_timeout().map(|(at, wake)| (at, Wake::Generation(wake)));
        let removal = removal.map(|at| (at, Wake::Generation(generation::Wake::Deadline)));
        // Asked after every input: no iterator, which costs several times as much.
        earlier(earlier(earlier(earlier(link, idle), budget), table), removal)
    }

    /// Whether the next message may be read. `false` is back-pressure: an epoch is being stored, or the byte budget
    /// has no room for another message (decision 30). Silence is not counted meanwhile.
    #[must_use]
    pub fn may_read(&self) -> bool {
        !self.paused && !matches!(self.link, Link::Storing(_))
    }

    /// Whether a connection is open as far as the node is concerned.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        !matches!(self.link, Link::Down)
    }

    /// The connection's identifier and epoch, once it is live.
    #[must_use]
    pub fn live(&self) -> Option<(Id, OwnerEpoch)> {
        match &self.link {
            Link::Live(live) => Some((live.connection_id, live.owner_epoch)),
            Link::Down | Link::Measuring { .. } | Link::Greeting { .. } | Link::Storing(_) => None,
        }
    }

    /// The generations of this node.
    #[must_use]
    pub const fn table(&self) -> &Table {
        &self.table
    }

    /// Until when a node that stops waits for what executes; `None` when nothing does. A command whose budget ended is
    /// still being ended in its sandbox: it is given [`STOP_GRACE_MS`] for that.
    #[must_use]
    pub fn busy_until(&self) -> Option<Millis> {
        self.lanes.last_deadline().map(|deadline| deadline.after(STOP_GRACE_MS))
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

    /// An operation really ended.
    pub fn handle_result(&mut self, now: Millis, ticket: Ticket, outcome: Result<Answer<'static>, Failed<'static>>) {
        if let Some(finished) = self.lanes.finish(ticket) {
            self.table.release(finished.generation);
            if let Some(origin) = finished.origin {
                self.respond(&origin, outcome);
            }
        }
        self.drain(now);
    }

    /// A preparation or repair ended.
    pub fn handle_prepared(&mut self, now: Millis, generation: Generation, outcome: Result<Declaration, Diagnostic>) {
        self.table.handle_prepared(now, generation, outcome);
        self.drain(now);
    }

    /// A probe ended.
    pub fn handle_probed(&mut self, now: Millis, generation: Generation, outcome: Probed) {
        self.table.handle_probed(generation, outcome);
        self.drain(now);
    }

    /// A removal ended; `finished` only when nothing of the generation is left.
    pub fn handle_removed(&mut self, now: Millis, generation: Generation, finished: bool) {
        self.table.handle_removed(generation, finished);
        if let Link::Live(live) = &mut self.link {
            live.exchanges.handle_removed(generation);
        }
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

    fn handle_retentions(
        &mut self,
        exchange: &Exchange,
        retentions: Vec<Retention>,
        deployment: Deployment,
    ) -> Result<(), Ended> {
        let Link::Live(live) = &mut self.link else { return Err(Ended::Unexpected) };
        if (exchange.connection_id, exchange.owner_epoch) != (live.connection_id, live.owner_epoch) {
            return Err(Ended::Ownership(Ownership::Fencing));
        }
        if !live.exchanges.matches(exchange, &retentions) {
            return Err(Ended::Ownership(Ownership::Retention));
        }
        self.table.announce(deployment).map_err(|refusal| Ended::Ownership(refusal.into()))?;
        live.exchanges.grant(retentions);
        Ok(())
    }

    fn handle_request(&mut self, now: Millis, request: Request<'_>, bytes: u64) -> Result<(), Ended> {
        let Link::Live(live) = &mut self.link else { return Err(Ended::Unexpected) };
        if (request.connection_id, request.owner_epoch) != (live.connection_id, live.owner_epoch) {
            return Err(Ended::Ownership(Ownership::Fencing));
        }
        let (expected, got) = (live.sequence + 1, request.sequence.get());
        if got != expected {
            return Err(Ended::Ownership(Ownership::Sequence { expected, got }));
        }
        live.sequence = got;
        let connection = live.connection_id;
        match Call::accept(request) {
            Ok(call) => self.admit(now, connection, call.into_owned(), bytes),
            Err(rejected) => {
                self.send_response(connection, outcome::refusal(rejected.id, &Failure::Invalid));
                Ok(())
            }
        }
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

    /// Works off the granted batch, one removal at a time.
    fn drain_grants(&mut self, now: Millis) {
        let Link::Live(live) = &mut self.link else { return };
        while let Some(retention) = live.exchanges.poll_grant() {
            if !retention.keep && self.table.drop_granted(retention.reference) == Drop::Remove {
                live.exchanges.start_removal(now, retention.reference.generation);
                self.actions.push_back(Action::Remove(retention.reference));
            }
        }
        self.actions.extend(live.exchanges.poll_overdue(now).map(Action::CancelRemoval));
    }

    fn ask_retention(&mut self, id: Id) -> Result<(), Ended> {
        let Link::Live(live) = &mut self.link else { return Ok(()) };
        let references = live.exchanges.next(|cursor| self.table.candidates(cursor));
        let Some((sequence, references)) = references else { return Ok(()) };
        let (connection_id, owner_epoch) = (live.connection_id, live.owner_epoch);
        let exchange = Exchange { id, sequence, connection_id, owner_epoch };
        live.exchanges.asked(exchange, references.clone());
        self.send_control(&Frame::Retention { exchange, references })
    }
}

/// The earlier of two times; the first when they are equal.
fn earlier(first: Option<(Millis, Wake)>, second: Option<(Millis, Wake)>) -> Option<(Millis, Wake)> {
    match (first, second) {
        (Some(first), Some(second)) => Some(if second.0 < first.0 { second } else { first }),
        (first, second) => first.or(second),
    }
}
