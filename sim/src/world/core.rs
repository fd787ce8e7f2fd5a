//! One process of Core: what `native/control` does around the machines, with nothing but their decisions in it.

mod calls;
mod compute;
mod dial;
mod drain;
mod hub;
mod owner;

use std::collections::BTreeMap;

use palisade_core::lifecycle::Deadlines;
use palisade_core::session::hub::reservations::Reservations;
use palisade_core::units::{Id, Millis, OwnerEpoch};

use super::{Event, World, note};
use crate::clock::{Clock, Time};
use crate::plan::{Party, Trap};
use crate::random::Random;

pub(crate) use calls::StoreCall;
use drain::Stopping;
pub(crate) use hub::{Caller, HubConnection, short};
pub(crate) use owner::Task;

/// A process of Core. A crash loses everything but its clock.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) alive: bool,
    pub(crate) life: u32,
    pub(crate) clock: Clock,
    pub(crate) frozen_until: Time,
    pub(crate) trap: Option<(Trap, u64)>,
    pub(crate) lease: Option<OwnerEpoch>,
    pub(crate) reservations: Reservations,
    pub(crate) connections: BTreeMap<usize, HubConnection>,
    /// Published connections by node.
    pub(crate) peers: BTreeMap<Id, usize>,
    pub(crate) tasks: BTreeMap<usize, Task>,
    /// What this owner has seen of the times until which compute is kept.
    kept: Deadlines<usize>,
    /// Counts what the owner should look at again.
    pub(crate) news: u64,
    serial: u64,
    stopping: Stopping,
    pub(crate) luck: Random,
}

/// What happens in one process.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CoreEvent {
    /// The lease is proved, or asked for.
    Lease,
    /// The owner looks for work.
    Scan,
    /// A transaction is answered.
    Reply(u64),
    /// A transaction took too long for whoever asked.
    GiveUp(u64),
    /// The running callback of a connection came to nothing.
    CallbackFailed(usize),
    Written {
        link: usize,
        written: bool,
    },
    /// The machine's next time, as it was known when this was set.
    WakeConnection {
        link: usize,
        at: Time,
    },
    WakeTask {
        session: usize,
        serial: u64,
    },
    /// An operator removed this node.
    Disconnect(Id),
    /// Open requests had their time.
    Drained,
    /// Every connection has ended.
    Exit,
}

const LEASE_INTERVAL_MS: u64 = 2_000;
const SCAN_INTERVAL_MS: u64 = 5_000;

impl Core {
    pub(super) fn new(clock: Clock, luck: Random) -> Self {
        Self {
            alive: false,
            life: 0,
            clock,
            frozen_until: 0,
            trap: None,
            lease: None,
            reservations: Reservations::default(),
            connections: BTreeMap::new(),
            peers: BTreeMap::new(),
            tasks: BTreeMap::new(),
            kept: Deadlines::default(),
            news: 0,
            serial: 0,
            stopping: Stopping::No,
            luck,
        }
    }
}

impl World {
    pub(super) fn core_now(&self, core: usize) -> Millis {
        self.cores[core].clock.show(self.now)
    }

    pub(super) fn start_core(&mut self, core: usize) {
        let process = &mut self.cores[core];
        if process.alive {
            return;
        }
        (process.alive, process.stopping, process.frozen_until) = (true, Stopping::No, 0);
        process.life += 1;
        self.cover.hit("event: core starts");
        note!(self, "core {core} starts");
        self.lease_tick(core);
        let at = self.now + self.cores[core].luck.below(500);
        self.core_later(core, at, CoreEvent::Scan);
    }

    pub(super) fn core_later(&mut self, core: usize, at: Time, event: CoreEvent) {
        let life = self.cores[core].life;
        self.queue.push(at, Event::Core(core, life, event));
    }

    pub(super) fn core_event(&mut self, core: usize, event: CoreEvent) {
        match event {
            CoreEvent::Lease => self.lease_tick(core),
            CoreEvent::Scan => {
                self.scan(core);
                self.core_later(core, self.now + SCAN_INTERVAL_MS, CoreEvent::Scan);
            }
            CoreEvent::Reply(ticket) => self.replied(ticket),
            CoreEvent::GiveUp(ticket) => self.give_up(ticket),
            CoreEvent::CallbackFailed(link) => self.callback_failed(core, link),
            CoreEvent::Written { link, written } => self.connection_written(core, link, written),
            CoreEvent::WakeConnection { link, at } => self.wake_connection(core, link, at),
            CoreEvent::WakeTask { session, serial } => self.wake_task(core, session, serial),
            CoreEvent::Disconnect(node) => self.disconnect(core, node),
            CoreEvent::Drained => self.close_connections(core),
            CoreEvent::Exit => self.exit_core(core),
        }
        self.settle_news(core);
    }

    /// Keeps the lease, or asks for it.
    fn lease_tick(&mut self, core: usize) {
        let at = self.cores[core].clock.when(Millis(self.core_now(core).0 + LEASE_INTERVAL_MS), self.now);
        self.core_later(core, at, CoreEvent::Lease);
        if self.cores[core].stopping != Stopping::No {
            return;
        }
        let (life, held) = (self.cores[core].life, self.cores[core].lease);
        if self.store.silent_until > self.now + 5_000 {
            if held.is_some() {
                self.cover.hit("event: lease lost, the database is silent");
                self.store.lock.take_if(|holder| *holder == (core, life));
                self.change_lease(core, None);
            }
        } else if held.is_none() {
            if let Some(epoch) = self.store.claim(core, life) {
                note!(self, "core {core} owns epoch {epoch}");
                self.cover.hit("event: ownership claimed");
                self.change_lease(core, Some(epoch));
            }
        } else if self.store.lock != Some((core, life)) {
            self.cover.hit("event: lease lost");
            self.change_lease(core, None);
        }
    }

    /// Work of another lease is dropped; what it asked of connections is cancelled.
    pub(super) fn change_lease(&mut self, core: usize, lease: Option<OwnerEpoch>) {
        note!(self, "core {core} has lease {lease:?}");
        self.cores[core].lease = lease;
        self.cores[core].kept = Deadlines::default();
        let dropped = std::mem::take(&mut self.cores[core].tasks);
        for request in dropped.values().filter_map(Task::request) {
            self.cancel_request(core, request);
        }
        if lease.is_some() {
            self.scan(core);
        }
    }

    /// Everything in memory is gone; the operating system closes the sockets, unless the power went.
    pub(super) fn end_core(&mut self, core: usize, crashed: bool) {
        let process = &mut self.cores[core];
        if !process.alive {
            return;
        }
        self.books.core_ended(core);
        let process = &mut self.cores[core];
        (process.alive, process.lease, process.trap) = (false, None, None);
        process.reservations = Reservations::default();
        process.peers.clear();
        let life = process.life;
        let tasks = std::mem::take(&mut process.tasks);
        let connections = std::mem::take(&mut process.connections);
        drop(tasks);
        note!(self, "core {core} ends{}", if crashed { " by a crash" } else { "" });
        for (link, connection) in connections {
            self.books.core_gone(link);
            if connection.open {
                self.close_core_side(link);
            }
            for id in connection.requests.keys() {
                self.books.forgotten(*id);
            }
        }
        self.store.lock.take_if(|holder| *holder == (core, life));
        let back = self.now + 200 + self.cores[core].luck.below(6_000);
        self.queue.push(back, Event::StartCore(core));
    }

    /// The connection of `node` is asked to end, if there is one.
    pub(super) fn disconnect(&mut self, core: usize, node: Id) {
        let links = self.cores[core].connections.iter().filter(|(_, held)| held.node == node);
        for link in links.map(|(link, _)| *link).collect::<Vec<usize>>() {
            self.ask_to_close(core, link);
        }
    }

    pub(super) fn thaw_core(&mut self, core: usize) {
        if !self.cores[core].alive || self.cores[core].frozen_until > self.now {
            return;
        }
        let links: Vec<_> = self.cores[core].connections.keys().copied().collect();
        for link in links {
            self.pump_connection(core, link);
        }
        self.settle_news(core);
    }

    pub(super) fn core_is_doomed(&self, core: usize) -> bool {
        self.is_doomed(Party::Core(core))
    }
}
