//! What is compared after every event, and when a history is over.

use palisade_core::units::Generation;

use super::World;
use super::store::{AllocationState, Compute, Session, TurnState};
use crate::clock::Time;

/// Nodes are back this long after the last fault: 35 s of silence, 30 s of back-off, dials and storage.
const RECONNECTED_AFTER_MS: Time = 150_000;
/// What is left over is settled: five minutes of absence, and questions in between.
const SETTLED_AFTER_MS: Time = 1_200_000;
/// How long after its last frame a connection may still stand in the way of another (E1), storage calls included.
const CONFLICT_MAX_MS: u64 = 35_000 + 12_000;

impl World {
    /// Compares the parties with the books.
    pub(super) fn audit(&mut self) {
        if self.store.paused && self.paused_until <= self.now {
            self.store.paused = false;
        }
        for host in 0..self.hosts.len() {
            // In its very last moment a host is still frozen: what waits for it may come first.
            let frozen = self.hosts[host].frozen_until >= self.now;
            let now = self.hosts[host].clock.show(self.now).0;
            self.books.look_at_node(host, now, frozen);
            self.books.strangers(host, self.hosts[host].engine.strangers);
        }
        self.books.overdue(self.now);
        self.books.late_stops(self.now);
        for core in 0..self.cores.len() {
            let frozen = self.cores[core].frozen_until > self.now;
            if frozen || !self.cores[core].alive {
                continue;
            }
            for (link, connection) in &self.cores[core].connections {
                let readiness = connection.machine.readiness();
                let is_ready = |of: u64| Generation::new(of).is_some_and(|of| readiness.is_ready(of));
                if connection.open {
                    self.books.readiness(*link, is_ready);
                }
            }
        }
    }

    /// E1, when a dial is refused because of an earlier connection.
    pub(super) fn judge_conflict(&mut self, core: usize, first: Option<usize>) {
        let Some(first) = first else { return };
        let silent = self.books.silent_for(first, self.now).unwrap_or(0);
        let thawed = self.now.saturating_sub(self.cores[core].frozen_until);
        let calm = self.now.saturating_sub(self.store.silent_until);
        if silent > CONFLICT_MAX_MS && thawed > CONFLICT_MAX_MS && calm > CONFLICT_MAX_MS {
            self.books.fail("E1", format!("connection {first} is silent for {silent} ms and still in the way"));
        }
    }

    /// Whether everything has settled after the last fault, or should have.
    pub(super) fn is_over(&mut self) -> bool {
        let Some(since) = self.books.quiet_since() else { return false };
        let quiet = self.now - since;
        let (connected, settled) = (self.all_connected(), self.all_settled());
        if !connected && quiet > RECONNECTED_AFTER_MS {
            self.books.fail("convergence", format!("a node is not connected {quiet} ms after the last fault"));
        }
        if !settled && quiet > SETTLED_AFTER_MS + self.store.set_back_ms {
            self.books.fail("convergence", format!("work is left over {quiet} ms after the last fault"));
        }
        if connected && settled && quiet > 1_000 {
            self.books.settled(&self.store);
            return true;
        }
        false
    }

    fn all_connected(&self) -> bool {
        self.hosts.iter().filter(|host| !host.rejected).all(|host| {
            let live = host.process.as_ref().is_some_and(|process| process.machine.live().is_some());
            let known = self.cores.iter().any(|core| core.peers.contains_key(&host.identity.node));
            live && known
        })
    }

    fn all_settled(&self) -> bool {
        // Copies of an identity scatter sandboxes over hosts; nothing is promised about those.
        self.plan.shape.cloned || self.store.sessions.iter().all(|session| self.is_settled(session))
    }

    /// Ended, running without work, or waiting for a generation that is not ready.
    fn is_settled(&self, session: &Session) -> bool {
        let open = session.turns.iter().any(|turn| !turn.state.ended());
        let in_progress = session.turns.iter().any(|turn| turn.state == TurnState::InProgress);
        let ready = || {
            let node = session.placement.and_then(|placement| self.store.node(placement.node).zip(Some(placement)));
            let now = self.store.clock(self.now);
            let epoch = self.store.deployment().owner_epoch;
            node.is_some_and(|(node, placement)| node.standing.is_ready(placement.generation, epoch, now))
        };
        match session.allocation.as_ref() {
            Some(allocation) => match allocation.state {
                AllocationState::Creating => allocation.sent_at.is_none() && !in_progress && !ready(),
                AllocationState::Running => !open && allocation.compute.as_ref().is_none_or(Compute::is_at_rest),
                AllocationState::Released => !open,
                AllocationState::CleanupPending => false,
            },
            None => !in_progress && (!session.holds() || !ready()),
        }
    }
}
