//! What each host's node did: its start, its heartbeats, its dials, its end.

use std::collections::{BTreeMap, BTreeSet};

use palisade_core::units::Id;

use super::Books;
use super::requests::Received;
use crate::clock::Time;

/// One host.
#[derive(Debug, Default)]
pub(super) struct HostBook {
    /// The highest epoch that the node acknowledged as stored.
    stored_epoch: u64,
    /// The highest epoch that this process accepted or found.
    pub(super) known_epoch: u64,
    /// The connection that it is welcome on.
    pub(super) link: Option<usize>,
    /// When it sent its last heartbeat, or was welcomed, on its own clock.
    pub(super) beat: Option<u64>,
    /// Since when it waits for its next dial.
    waiting: Option<u64>,
    pub(super) received: BTreeMap<String, Received>,
    /// Operations of the provider that have not ended, with their generation.
    pub(super) running: BTreeMap<String, u64>,
    pub(super) loaded: BTreeSet<u64>,
    pub(super) dropped: BTreeSet<u64>,
    pub(super) removing: Option<u64>,
    alive: bool,
}

/// Interval, longest measurement, and a little for the wake-up.
const BEAT_MAX_MS: u64 = 10_000 + 2_000 + 150;
/// Longest back-off, and a little for the wake-up.
const WAIT_MAX_MS: u64 = 30_000 + 200;

impl Books {
    pub(super) fn host(&mut self, host: usize) -> &mut HostBook {
        self.hosts.entry(host).or_default()
    }

    /// Promise 15: a start finds what was acknowledged.
    pub(crate) fn node_started(&mut self, host: usize, _: Id, epoch: u64, known: &[u64]) {
        let place = self.host(host);
        (place.alive, place.known_epoch) = (true, epoch);
        (place.beat, place.waiting, place.link) = (None, None, None);
        place.received.clear();
        place.removing = None;
        let stored = place.stored_epoch;
        let lost = place.loaded.iter().find(|of| !known.contains(of) && !place.dropped.contains(of)).copied();
        self.require(epoch >= stored, "promise 15", || {
            format!("the node of host {host} starts with epoch {epoch}, but acknowledged {stored}")
        });
        self.require(lost.is_none(), "promise 15", || {
            format!("the node of host {host} starts without generation {lost:?}, which it had prepared")
        });
    }

    /// A refused start names the damaged file; nothing was lost by it.
    pub(crate) fn start_refused(&mut self, host: usize) {
        self.host(host).alive = false;
    }

    pub(crate) fn node_gone(&mut self, host: usize) {
        let place = self.host(host);
        place.alive = false;
        (place.beat, place.waiting, place.link) = (None, None, None);
    }

    /// The host was installed again: its disk holds nothing of before.
    pub(crate) fn enrolled_again(&mut self, host: usize) {
        self.hosts.insert(host, HostBook::default());
    }

    pub(crate) fn epoch_stored(&mut self, host: usize, epoch: u64) {
        let place = self.host(host);
        place.stored_epoch = place.stored_epoch.max(epoch);
        place.known_epoch = place.known_epoch.max(epoch);
    }

    /// Promise 11: only Core's own 401 ends a node for good.
    pub(crate) fn node_rejected(&mut self, host: usize, believed_rightly: bool) {
        self.require(believed_rightly, "promise 11", || {
            format!("the node of host {host} ended without Core's own 401")
        });
    }

    pub(crate) fn waits(&mut self, host: usize, delay: u64) {
        let place = self.host(host);
        (place.beat, place.link) = (None, None);
        place.waiting = Some(0);
        self.require(delay <= 30_000, "promise 11", || format!("the node of host {host} waits {delay} ms"));
    }

    pub(crate) fn dialled(&mut self, host: usize, _: Time) {
        let place = self.host(host);
        (place.waiting, place.beat, place.link) = (None, None, None);
    }

    /// Promise 10, measured at the heartbeat itself.
    pub(super) fn beat(&mut self, host: usize, now: u64) {
        let last = self.host(host).beat.replace(now);
        let gap = last.map(|last| now.saturating_sub(last));
        self.require(gap.is_none_or(|gap| gap <= BEAT_MAX_MS), "promise 10", || {
            format!("the node of host {host} sent a heartbeat after {gap:?} ms")
        });
    }

    /// Promises 10 and 11, measured while nothing is sent. `frozen` time does not count.
    pub(crate) fn look_at_node(&mut self, host: usize, now: u64, frozen: bool) {
        let Some(place) = self.hosts.get_mut(&host) else { return };
        if frozen || !place.alive {
            place.beat = place.beat.map(|beat| beat.max(now.saturating_sub(5_000)));
            place.waiting = place.waiting.map(|_| now);
            return;
        }
        if place.waiting == Some(0) {
            place.waiting = Some(now);
        }
        let silent = place.beat.is_some_and(|beat| now.saturating_sub(beat) > BEAT_MAX_MS + 50);
        let idle = place.waiting.is_some_and(|since| now.saturating_sub(since) > WAIT_MAX_MS);
        let beat = place.beat;
        self.require(!silent, "promise 10", || {
            format!("the node of host {host} sends no heartbeat at {now}; the last one counts as of {beat:?}")
        });
        self.require(!idle, "promise 11", || format!("the node of host {host} does not dial again"));
    }

    /// A node that stops says nothing more.
    pub(crate) fn node_stopping(&mut self, host: usize) {
        let place = self.host(host);
        (place.beat, place.waiting) = (None, None);
    }

    /// Nothing could be sent while the host was frozen.
    pub(crate) fn thawed(&mut self, host: usize, now: u64) {
        let place = self.host(host);
        place.beat = place.beat.map(|beat| beat.max(now.saturating_sub(5_000)));
        place.waiting = place.waiting.map(|_| now);
    }

    pub(crate) fn clock_jumped(&mut self, host: usize, ms: u64) {
        let place = self.host(host);
        place.beat = place.beat.map(|beat| beat + ms);
        place.waiting = place.waiting.map(|since| since + ms);
    }

    /// The books know how long a host was suspended, whatever its clock says.
    pub(crate) fn clock_stood_still(&mut self, host: usize, ms: u64) {
        for received in self.host(host).received.values_mut() {
            received.deadline = received.deadline.saturating_sub(2 * ms);
        }
    }

    pub(crate) fn node_removed(&mut self, node: Id) {
        self.removed_nodes.insert(node);
    }
}
