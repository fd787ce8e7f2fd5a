//! Generations on each host: what was prepared, what may be deleted, what was.

use palisade_core::units::Id;
use palisade_core::wire::payload::Retention;

use super::Books;
use crate::clock::Time;
use crate::world::store::Store;

impl Books {
    /// Promise 6: what was dropped is never prepared again.
    pub(crate) fn prepared(&mut self, host: usize, generation: u64) {
        let dropped = self.host(host).dropped.contains(&generation);
        self.require(!dropped, "promise 6", || {
            format!("host {host} prepares generation {generation}, which it dropped")
        });
    }

    pub(crate) fn loaded(&mut self, host: usize, generation: u64) {
        self.host(host).loaded.insert(generation);
    }

    pub(crate) fn dropped_durable(&mut self, host: usize, generation: u64) {
        let place = self.host(host);
        place.dropped.insert(generation);
        place.loaded.remove(&generation);
    }

    /// Promise 5 in Core: what somebody still needs is never given up.
    pub(crate) fn decided(&mut self, node: Id, retentions: &[Retention], store: &Store) {
        for retention in retentions.iter().filter(|retention| !retention.keep) {
            let generation = retention.reference.generation.get();
            let needed = needs(store, node, generation);
            self.require(!needed, "promise 5", || format!("core gives up generation {generation}, which is needed"));
        }
    }

    /// Promises 5 and 7: a removal begins only with a grant of this connection, and when nobody uses the generation.
    pub(crate) fn removing(&mut self, host: usize, generation: u64, store: &Store, _: Time) {
        let place = self.host(host);
        let link = place.link;
        // What an earlier process left behind holds a lease that the preparer finds.
        let used = place.running.iter().any(|(id, of)| *of == generation && place.received.contains_key(id));
        place.removing = Some(generation);
        place.loaded.remove(&generation);
        let granted = link.is_some_and(|link| {
            let book = self.link(link);
            let pinned = book.target.0 == generation || book.target.2 == generation;
            book.granted.remove(&generation) && !book.node_closed && !pinned
        });
        self.require(granted, "promise 5", || {
            format!("host {host} removes generation {generation} without a fresh grant of its connection")
        });
        self.require(!used, "promise 7", || format!("host {host} removes generation {generation}, which is in use"));
        self.unneeded(host, generation, store);
    }

    pub(crate) fn removed(&mut self, host: usize) {
        self.host(host).removing = None;
    }

    /// Promise 7, at each deletion: nothing that still runs uses the generation.
    pub(crate) fn deleted(&mut self, host: usize, generation: u64, store: &Store, _: Time) {
        let used = self.host(host).running.values().any(|of| *of == generation);
        self.require(!used, "promise 7", || format!("host {host} deletes of generation {generation}, which is in use"));
        self.unneeded(host, generation, store);
    }

    fn unneeded(&mut self, host: usize, generation: u64, store: &Store) {
        let Some(node) = self.node_of(host) else { return };
        let held = store.sessions.iter().filter(|session| session.holds()).filter_map(|session| session.placement);
        let held = held.filter(|place| place.node == node).any(|place| place.generation.get() == generation);
        self.require(!held, "promise 5", || {
            format!("host {host} removes generation {generation}, which a sandbox on it still needs")
        });
    }

    fn node_of(&self, host: usize) -> Option<Id> {
        self.clients.nodes.get(&host).copied()
    }
}

/// Target, pin, or what a sandbox on the node needs.
fn needs(store: &Store, node: Id, generation: u64) -> bool {
    let pin = store.nodes.get(&node).and_then(|row| row.standing.pin).map(palisade_core::units::Generation::get);
    let target = store.target().map(palisade_core::units::Generation::get);
    let mut held = store.sessions.iter().filter(|session| session.holds()).filter_map(|session| session.placement);
    target == Some(generation)
        || pin == Some(generation)
        || held.any(|place| place.node == node && place.generation.get() == generation)
}
