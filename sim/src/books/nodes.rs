//! What each host's node did: its start, its heartbeats, its dials, its end.

use std::collections::{BTreeMap, BTreeSet};

use palisade_core::units::Id;

use super::Books;
use super::requests::Received;
use crate::clock::Time;

/// One host.
#[derive(Debug, Default)]
pub(super) struct HostBook {
    /// The highest epoch that the node acknowledged as stored, or started with.
    stored_epoch: u64,
    /// The highest epoch that this process accepted or found.
    pub(super) known_epoch: u64,
    /// The connection that it is welcome on.
    pub(super) link: Option<usize>,
    /// When it sent its last heartbeat, or went live, on its own clock.
    beat: Option<u64>,
    /// Until when silence is excused: whoever was frozen, or whose clock jumped, first has to wake and to measure.
    excused: u64,
    /// The epoch of a welcome that is not durable yet: the connection is not live before (wire §4.5).
    storing: Option<u64>,
    /// The highest epoch that this process knows to be durable.
    durable: u64,
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

/// Longest measurement, and a little for the wake-up.
const REACTION_MAX_MS: u64 = 2_000 + 150;
/// Interval, and what a heartbeat takes when it is due.
const BEAT_MAX_MS: u64 = 10_000 + REACTION_MAX_MS;
/// Longest back-off, and a little for the wake-up.
const WAIT_MAX_MS: u64 = 30_000 + 200;

impl Books {
    pub(super) fn host(&mut self, host: usize) -> &mut HostBook {
        if self.hosts.len() <= host {
            self.hosts.resize_with(host + 1, HostBook::default);
        }
        &mut self.hosts[host]
    }

    /// Promise 15: a start finds what was acknowledged, and whatever an earlier start has found and worked with.
    pub(crate) fn node_started(&mut self, host: usize, _: Id, epoch: u64, known: &[u64]) {
        let place = self.host(host);
        (place.alive, place.known_epoch, place.durable) = (true, epoch, epoch);
        place.let_go();
        place.received.clear();
        place.removing = None;
        let stored = place.stored_epoch;
        let lost = place.loaded.iter().find(|of| !known.contains(of) && !place.dropped.contains(of)).copied();
        place.stored_epoch = stored.max(epoch);
        place.loaded.extend(known);
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
        place.let_go();
    }

    /// The host was installed again: its disk holds nothing of before.
    pub(crate) fn enrolled_again(&mut self, host: usize) {
        *self.host(host) = HostBook::default();
    }

    pub(crate) fn epoch_stored(&mut self, host: usize, epoch: u64, now: u64) {
        let place = self.host(host);
        place.stored_epoch = place.stored_epoch.max(epoch);
        place.known_epoch = place.known_epoch.max(epoch);
        place.durable = place.durable.max(epoch);
        if place.storing.take_if(|storing| *storing == epoch).is_some() {
            place.beat = Some(now);
        }
    }

    /// A welcome that the node accepts. Its first heartbeat is counted from when the connection is live.
    pub(super) fn welcomed(&mut self, host: usize, link: usize, epoch: u64, now: u64) {
        let place = self.host(host);
        place.link = Some(link);
        let live = epoch <= place.durable;
        (place.beat, place.storing) = if live { (Some(now), None) } else { (None, Some(epoch)) };
    }

    /// Promise 11: only Core's own 401 ends a node for good.
    pub(crate) fn node_rejected(&mut self, host: usize, believed_rightly: bool) {
        self.require(believed_rightly, "promise 11", || {
            format!("the node of host {host} ended without Core's own 401")
        });
    }

    pub(crate) fn waits(&mut self, host: usize, delay: u64) {
        let place = self.host(host);
        place.let_go();
        place.waiting = Some(0);
        self.require(delay <= 30_000, "promise 11", || format!("the node of host {host} waits {delay} ms"));
    }

    pub(crate) fn dialled(&mut self, host: usize, _: Time) {
        self.host(host).let_go();
    }

    /// Promise 10, measured at the heartbeat itself.
    pub(super) fn beat(&mut self, host: usize, now: u64) {
        let place = self.host(host);
        let (last, excused) = (place.beat.replace(now), now <= place.excused);
        let gap = last.map(|last| now.saturating_sub(last));
        self.require(excused || gap.is_none_or(|gap| gap <= BEAT_MAX_MS), "promise 10", || {
            format!("the node of host {host} sent a heartbeat after {gap:?} ms")
        });
    }

    /// Promises 10 and 11, measured while nothing is sent. `frozen` time does not count.
    pub(crate) fn look_at_node(&mut self, host: usize, now: u64, frozen: bool) {
        let Some(place) = self.hosts.get_mut(host) else { return };
        if frozen || !place.alive {
            return place.excuse(now);
        }
        if place.waiting == Some(0) {
            place.waiting = Some(now);
        }
        let excused = now <= place.excused;
        let silent = !excused && place.beat.is_some_and(|beat| now.saturating_sub(beat) > BEAT_MAX_MS + 50);
        let idle = place.waiting.is_some_and(|since| now.saturating_sub(since) > WAIT_MAX_MS);
        let beat = place.beat;
        self.require(!silent, "promise 10", || {
            format!("the node of host {host} sends no heartbeat at {now}; the last one was at {beat:?}")
        });
        self.require(!idle, "promise 11", || format!("the node of host {host} does not dial again"));
    }

    /// A node that stops says nothing more.
    pub(crate) fn node_stopping(&mut self, host: usize) {
        let place = self.host(host);
        (place.beat, place.storing, place.waiting) = (None, None, None);
    }

    /// Nothing could be sent while the host was frozen.
    pub(crate) fn thawed(&mut self, host: usize, now: u64) {
        self.host(host).excuse(now);
    }

    /// A heartbeat whose time was jumped over is sent at once.
    pub(crate) fn clock_jumped(&mut self, host: usize, ms: u64, now: u64) {
        let place = self.host(host);
        place.excused = place.excused.max(now + REACTION_MAX_MS);
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

impl HostBook {
    /// No connection: neither one that is live nor one that is waited for.
    fn let_go(&mut self) {
        (self.link, self.beat, self.storing, self.waiting) = (None, None, None, None);
    }

    fn excuse(&mut self, now: u64) {
        self.excused = self.excused.max(now + REACTION_MAX_MS);
        self.waiting = self.waiting.map(|_| now);
    }
}
