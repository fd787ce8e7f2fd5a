//! The end of a process in order: open requests have their time, then every connection really ends, then the process.

use super::hub::Caller;
use super::{CoreEvent, calls};
use crate::sabotage::Sabotage;
use crate::world::{World, note};

/// Where an end in order stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stopping {
    No,
    /// Nothing is accepted, and what is open may end.
    Draining,
    /// Every connection is asked to end.
    Closing,
}

/// Time that open requests have to end.
const DRAIN_MS: u64 = 10_000;

impl World {
    /// A process is asked to stop: it gives up its lease, accepts nothing, and lets open requests end.
    pub(in crate::world) fn stop_core(&mut self, core: usize) {
        if !self.cores[core].alive || self.cores[core].stopping != Stopping::No {
            return;
        }
        note!(self, "core {core} drains");
        self.cores[core].stopping = Stopping::Draining;
        self.books.core_stopping(core, self.now);
        self.change_lease(core, None);
        let life = self.cores[core].life;
        self.store.lock.take_if(|holder| *holder == (core, life));
        self.core_later(core, self.now + DRAIN_MS, CoreEvent::Drained);
        if self.sabotage == Some(Sabotage::CoreStopsInHaste) {
            self.core_later(core, self.now, CoreEvent::Exit);
        }
        self.drained(core);
    }

    /// Whether this process takes nobody in any more.
    pub(in crate::world) fn is_stopping(&self, core: usize) -> bool {
        self.cores[core].stopping != Stopping::No
    }

    /// Goes on as soon as nobody waits for an answer any more.
    pub(super) fn drained(&mut self, core: usize) {
        if self.cores[core].stopping != Stopping::Draining {
            return;
        }
        let mut requests = self.cores[core].connections.values().flat_map(|held| held.requests.values());
        if requests.any(|request| request.caller == Caller::Client) {
            self.cover.hit("drain: open requests are waited for");
        } else {
            self.close_connections(core);
        }
    }

    /// Every connection is asked to end; none begins any more.
    pub(super) fn close_connections(&mut self, core: usize) {
        if self.cores[core].stopping != Stopping::Draining {
            return;
        }
        self.cores[core].stopping = Stopping::Closing;
        self.cores[core].reservations.shut();
        let links: Vec<_> = self.cores[core].connections.keys().copied().collect();
        for link in links {
            self.ask_to_close(core, link);
        }
        self.closed(core);
    }

    /// The process ends when the last connection has, its last storage call included.
    pub(super) fn closed(&mut self, core: usize) {
        let ended = self.cores[core].stopping == Stopping::Closing && self.cores[core].reservations.count() == 0;
        if ended && self.sabotage != Some(Sabotage::CoreNeverEnds) {
            self.core_later(core, self.now, CoreEvent::Exit);
        }
    }

    pub(super) fn exit_core(&mut self, core: usize) {
        if self.is_stopping(core) {
            self.cover.hit("drain: every connection ended");
            let life = self.cores[core].life;
            let open = self.calls.values().filter(|call| call.core == core && call.is_of_connection(life)).count();
            self.books.core_exits(core, open);
            self.end_core(core, false);
        }
    }
}

impl calls::StoreCall {
    /// Whether a connection of this life still waits for it.
    fn is_of_connection(&self, life: u32) -> bool {
        self.life == life && !self.mute && matches!(self.of, calls::Purpose::Connection { .. })
    }
}
