//! Where the newest content of each sandbox is, and who may remove what.
//!
//! Content is in an incarnation, in a snapshot of it, or in both. It moves with a capture, a restore and every command; the
//! last holder of the newest content is never removed while somebody wants the sandbox.

use std::collections::{BTreeMap, BTreeSet};

use palisade_core::admin::node::ComputePhase as Phase;
use palisade_core::lifecycle::Environment;
use palisade_core::units::Id;

use super::Books;
use crate::clock::Time;
use crate::world::store::{AllocationState, Session, Store};

/// What exists of one allocation.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// Incarnations, each with the snapshot that it came from.
    incarnations: BTreeMap<u64, Option<String>>,
    snapshots: BTreeSet<String>,
    alive: BTreeSet<u64>,
    newest: BTreeSet<Holder>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Holder {
    Incarnation(u64),
    Snapshot(String),
}

/// Since when compute is kept.
#[derive(Debug)]
pub(super) struct Kept {
    phase: Phase,
    since: Time,
    expired: bool,
}

impl Held {
    pub(super) fn created() -> Self {
        let first = BTreeSet::from([Holder::Incarnation(0)]);
        Self { incarnations: BTreeMap::from([(0, None)]), newest: first, ..Self::default() }
    }

    fn is_empty(&self) -> bool {
        self.incarnations.is_empty() && self.snapshots.is_empty()
    }
}

impl Books {
    fn held(&mut self, allocation: Id) -> &mut Held {
        self.clients.held.entry(allocation).or_default()
    }

    fn is_wanted(&self, allocation: Id) -> bool {
        let state = self.clients.allocations.get(&allocation);
        !self.cloned && matches!(state, Some(AllocationState::Creating | AllocationState::Running))
    }

    /// Never compute that is captured or restored anywhere but on its own node.
    fn at_home(&mut self, host: usize, allocation: Id) {
        let home = self.clients.existing.get(&allocation).copied();
        self.require(self.cloned || home == Some(host), "no sandbox is duplicated", || {
            format!("host {host} works on compute of {allocation}, which is on host {home:?}")
        });
    }

    /// A snapshot of this incarnation is complete.
    pub(crate) fn captured(&mut self, host: usize, allocation: Id, source: u64, operation: &str) {
        self.at_home(host, allocation);
        let held = self.held(allocation);
        held.snapshots.insert(operation.to_owned());
        let newest = held.newest.contains(&Holder::Incarnation(source));
        held.newest.insert(Holder::Snapshot(operation.to_owned()));
        self.require(newest, "no sandbox is lost", || {
            format!("incarnation {source} of {allocation} is captured, but its content is not the newest")
        });
    }

    /// The captured source stopped for good: only its snapshot can go on.
    pub(crate) fn source_stopped(&mut self, allocation: Id, source: u64, operation: &str) {
        let held = self.held(allocation);
        held.alive.remove(&source);
        held.newest.remove(&Holder::Incarnation(source));
        let kept = held.newest.contains(&Holder::Snapshot(operation.to_owned()));
        self.require(kept, "no sandbox is lost", || {
            format!("incarnation {source} of {allocation} is stopped, but snapshot {operation} is not what it was")
        });
    }

    /// A target exists, and does not run yet.
    pub(crate) fn incarnation_made(&mut self, host: usize, allocation: Id, generation: u64, origin: &str) {
        self.at_home(host, allocation);
        let known = self.held(allocation).incarnations.insert(generation, Some(origin.to_owned()));
        self.require(known.is_none(), "no sandbox is duplicated", || {
            format!("incarnation {generation} of {allocation} is made twice")
        });
    }

    /// Never two incarnations of one sandbox run, and never one with content of long ago.
    pub(crate) fn incarnation_runs(&mut self, host: usize, allocation: Id, generation: u64) {
        let held = self.held(allocation);
        held.alive.insert(generation);
        let alive = held.alive.len();
        let origin = held.incarnations.get(&generation).cloned().flatten().map(Holder::Snapshot);
        let restored = origin.is_some_and(|origin| held.newest.contains(&origin));
        let newest = restored || held.newest.contains(&Holder::Incarnation(generation));
        held.newest.insert(Holder::Incarnation(generation));
        self.require(alive == 1 || self.cloned, "no sandbox is duplicated", || {
            format!("{alive} incarnations of {allocation} run on host {host}")
        });
        self.require(newest || self.cloned, "no sandbox is lost", || {
            format!("incarnation {generation} of {allocation} runs with content of long ago")
        });
    }

    /// A command changes what it runs in: nothing else is the newest any more.
    pub(crate) fn incarnation_used(&mut self, host: usize, allocation: Id, generation: u64) {
        let held = self.held(allocation);
        let newest = held.newest.contains(&Holder::Incarnation(generation));
        held.newest = BTreeSet::from([Holder::Incarnation(generation)]);
        self.require(newest || self.cloned, "no sandbox is lost", || {
            format!("host {host} runs a command in incarnation {generation} of {allocation}, which is not the newest")
        });
    }

    /// The power went, or somebody stopped them.
    pub(crate) fn incarnations_stopped(&mut self, host: usize, only: Option<Id>) {
        for (allocation, home) in &self.clients.existing {
            if *home == host
                && only.is_none_or(|only| only == *allocation)
                && let Some(held) = self.clients.held.get_mut(allocation)
            {
                held.alive.clear();
            }
        }
    }

    pub(crate) fn incarnation_removed(&mut self, host: usize, allocation: Id, generation: u64) {
        self.incarnation_gone(allocation, generation);
        self.still_somewhere(host, allocation, &format!("incarnation {generation}"));
    }

    pub(super) fn incarnation_gone(&mut self, allocation: Id, generation: u64) {
        let held = self.held(allocation);
        held.incarnations.remove(&generation);
        held.alive.remove(&generation);
        held.newest.remove(&Holder::Incarnation(generation));
        self.forget_what_is_gone(allocation);
    }

    pub(crate) fn snapshot_removed(&mut self, host: usize, allocation: Id, operation: &str) {
        let held = self.held(allocation);
        held.snapshots.remove(operation);
        held.newest.remove(&Holder::Snapshot(operation.to_owned()));
        self.forget_what_is_gone(allocation);
        self.still_somewhere(host, allocation, &format!("snapshot {operation}"));
    }

    fn forget_what_is_gone(&mut self, allocation: Id) {
        if self.held(allocation).is_empty() {
            self.clients.existing.remove(&allocation);
        }
    }

    fn still_somewhere(&mut self, host: usize, allocation: Id, what: &str) {
        let lost = self.held(allocation).newest.is_empty() && self.is_wanted(allocation);
        self.require(!lost, "no sandbox is deleted by mistake", || {
            format!("host {host} removes {what} of {allocation}, the last place of its content")
        });
    }

    /// What is kept until a time is kept until then, however its phases change meanwhile.
    pub(super) fn look_at_compute(&mut self, session: &Session, store: &Store, now: Time) {
        let Some((allocation, compute)) =
            session.allocation.as_ref().and_then(|held| Some((held.id, held.compute.as_ref()?)))
        else {
            return;
        };
        let phase = compute.state.phase();
        let kept = self.clients.kept.entry(allocation).or_insert(Kept { phase, since: now, expired: false });
        let anew = matches!((kept.phase, phase), (Phase::Running, _) | (Phase::Suspended, Phase::Restoring));
        if anew {
            kept.since = now;
        }
        kept.phase = phase;
        let expired = compute.outlived && session.status == Environment::Expired;
        if !expired || std::mem::replace(&mut kept.expired, true) {
            return;
        }
        // A clock that was set forward may have cost it so much after a change of the owner; an owner's own clock gains
        // 1 % at most.
        let kept = now - kept.since + store.set_forward_ms;
        let promised = store.policy.map_or(0, |policy| policy.retention_ms * 99 / 100 - 5);
        self.require(kept >= promised, "no sandbox is deleted by mistake", || {
            format!("allocation {allocation} expires after {kept} ms, and was to be kept for {promised} ms")
        });
    }
}
