//! The end of a Core in order: it takes nobody in, leaves no connection open, and does not take for ever.

use super::Books;
use crate::clock::Time;

/// Time for open requests, for the storage call that a connection is in, and for its last one.
const STOP_MAX_MS: Time = 10_000 + 2 * 5_000 + 1_000;

impl Books {
    pub(crate) fn core_stopping(&mut self, core: usize, now: Time) {
        self.stopping.insert(core, now + STOP_MAX_MS);
    }

    /// Whoever is frozen has as much time left afterwards as before.
    pub(super) fn stop_delayed(&mut self, core: usize, ms: u64) {
        if let Some(by) = self.stopping.get_mut(&core) {
            *by += ms;
        }
    }

    pub(crate) fn core_ended(&mut self, core: usize) {
        self.stopping.remove(&core);
    }

    pub(super) fn not_while_stopping(&mut self, core: usize, link: usize) {
        let stops = self.stopping.contains_key(&core);
        self.require(!stops, "drain", || format!("core {core} accepts connection {link}, although it stops"));
    }

    /// Never does a Core that stops in order leave a connection behind, or a storage call of one.
    pub(crate) fn core_exits(&mut self, core: usize, calls: usize) {
        let left = self.accepted.iter().find(|((of, _), _)| *of == core).map(|(_, link)| *link);
        self.require(left.is_none() && calls == 0, "drain", || {
            format!("core {core} ends with connection {left:?} open and {calls} storage calls under way")
        });
    }

    /// Cores that should have ended and have not.
    pub(crate) fn late_stops(&mut self, now: Time) {
        let late = self.stopping.iter().find(|(_, by)| **by < now).map(|(core, by)| (*core, *by));
        self.require(late.is_none(), "drain", || format!("a core was to have ended: {late:?}, and it is {now}"));
    }
}
