//! The phases of an allocation's compute: each write compares the revision, the phase and everything that could speak
//! against it in the transaction that writes (deployment §4.4).

use palisade_core::admin::node::ComputePhase as Phase;
use palisade_core::admin::time::Timestamp;
use palisade_core::lifecycle::Environment;
use palisade_core::lifecycle::compute::{Change, Facts, State};
use palisade_core::units::{Id, OwnerEpoch};

use super::{Allocation, AllocationState, CAPACITY, Fenced, Session, Store};
use crate::clock::Time;

/// When compute is suspended, and for how long it is kept then.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Policy {
    pub(crate) idle_ms: u64,
    pub(crate) retention_ms: u64,
}

/// The compute of an allocation.
#[derive(Debug, Clone)]
pub(crate) struct Compute {
    revision: u64,
    pub(crate) state: State,
    changed_at: Timestamp,
    /// When it was used last; `None` before the first command that completed.
    used_at: Option<Timestamp>,
    pub(crate) retained_until: Option<Timestamp>,
    /// It was kept for as long as promised, and is removed for that.
    pub(crate) outlived: bool,
}

/// Compute as one transaction read it.
#[derive(Debug, Clone)]
pub(crate) struct Held {
    revision: u64,
    pub(crate) state: State,
    pub(crate) retained_until: Option<Timestamp>,
    handed_ms: Option<u64>,
    since_ms: u64,
    idle: bool,
    room: bool,
}

impl Compute {
    pub(super) const fn new(now: Timestamp) -> Self {
        let (retained_until, used_at) = (None, None);
        Self { revision: 0, state: State::Disabled, changed_at: now, used_at, retained_until, outlived: false }
    }

    /// Idle time begins with the end of a command; what never completed one is not suspended.
    pub(super) fn used(&mut self, completed: bool, now: Timestamp) {
        if self.state != State::Disabled && (completed || self.used_at.is_some()) {
            self.used_at = Some(now);
        }
    }

    /// It runs or is suspended, and nothing of before is left.
    pub(crate) fn is_at_rest(&self) -> bool {
        matches!(self.state.phase(), Phase::Running | Phase::Suspended) && self.state.leftovers().is_empty()
    }

    fn is_idle(&self, policy: Policy, now: Timestamp) -> bool {
        self.used_at.is_some_and(|used| now.since(used) >= policy.idle_ms)
    }
}

impl Held {
    /// What the lifecycle decides by.
    pub(crate) fn facts(&self, expired: bool) -> Facts {
        Facts {
            phase: self.state.phase(),
            handed_ms: self.handed_ms,
            captured: matches!(self.state, State::Suspending { snapshot: Some(_), .. }),
            leftovers: !self.state.leftovers().is_empty(),
            since_ms: self.since_ms,
            idle: self.idle,
            expired,
            room: self.room,
        }
    }
}

impl Store {
    /// The compute of a session, where it can be suspended and is not gone.
    pub(super) fn held(&self, session: &Session, now: Timestamp) -> Option<Held> {
        let (policy, allocation) = (self.policy?, session.allocation.as_ref()?);
        let compute = allocation.compute.as_ref().filter(|_| allocation.state != AllocationState::Released)?;
        let used = compute.used_at.map(|used| used.max(compute.changed_at));
        let elsewhere = session.placement.and_then(|placement| self.node(placement.node));
        Some(Held {
            revision: compute.revision,
            state: compute.state.clone(),
            retained_until: compute.retained_until,
            handed_ms: compute.state.handed_at().map(|at| now.since(Timestamp(at))),
            since_ms: now.since(compute.changed_at),
            idle: used.is_some_and(|used| now.since(used) >= policy.idle_ms),
            room: elsewhere.is_some_and(|node| node.active < u64::from(CAPACITY)),
        })
    }

    /// Whether an owner has something to do with running compute.
    pub(super) fn compute_is_unfinished(&self, compute: &Compute, now: Timestamp) -> bool {
        let Some(policy) = self.policy else { return false };
        match compute.state.phase() {
            Phase::Suspended => false,
            Phase::Running => compute.state.holds_snapshot() || compute.is_idle(policy, now),
            Phase::Disabled | Phase::Quiescing | Phase::Suspending | Phase::Restoring | Phase::Waking => true,
        }
    }

    /// What is kept until a time, with that time.
    pub(crate) fn retained(&self) -> Vec<(usize, Timestamp)> {
        let until = |session: &Session| {
            let allocation = session.allocation.as_ref().filter(|held| held.state == AllocationState::Running)?;
            allocation.compute.as_ref()?.retained_until
        };
        self.sessions.iter().enumerate().filter_map(|(at, session)| Some((at, until(session)?))).collect()
    }

    /// Stores the next state. `None`: a fact that speaks against it changed in between.
    pub(crate) fn set_compute(
        &mut self,
        epoch: OwnerEpoch,
        at: usize,
        held: &Held,
        next: &State,
        now: Time,
    ) -> Result<Option<Held>, Fenced> {
        self.fence(epoch)?;
        let clock = self.clock(now);
        if !self.may_advance(at, held, next.phase(), clock) {
            return Ok(None);
        }
        Ok(self.store_compute(at, held, next, clock))
    }

    /// Stores that the operation is about to be handed over, in the commit before it is.
    pub(crate) fn hand_over(
        &mut self,
        epoch: OwnerEpoch,
        at: usize,
        held: &Held,
        fresh: Id,
        now: Time,
    ) -> Result<Option<Held>, Fenced> {
        let handed = held.state.handed(fresh, self.clock(now).0);
        handed.map_or(Ok(None), |next| self.set_compute(epoch, at, held, &next, now))
    }

    /// Ends an environment whose compute was kept for long enough.
    pub(crate) fn expire(&mut self, epoch: OwnerEpoch, at: usize, held: &Held) -> Result<bool, Fenced> {
        self.fence(epoch)?;
        let session = &mut self.sessions[at];
        let Some(allocation) = session.allocation.as_mut().filter(|held| held.state == AllocationState::Running) else {
            return Ok(false);
        };
        let Some(compute) = &mut allocation.compute else { return Ok(false) };
        if compute.revision != held.revision || compute.retained_until != held.retained_until {
            return Ok(false);
        }
        (compute.outlived, allocation.state) = (true, AllocationState::CleanupPending);
        session.end(Environment::Expired);
        Ok(true)
    }

    /// Gives up what cannot be restored, with what of it is to be removed.
    pub(crate) fn give_up(
        &mut self,
        epoch: OwnerEpoch,
        at: usize,
        held: &Held,
        last: &State,
        now: Time,
    ) -> Result<bool, Fenced> {
        self.fence(epoch)?;
        let clock = self.clock(now);
        if self.store_compute(at, held, last, clock).is_none() {
            return Ok(false);
        }
        let session = &mut self.sessions[at];
        if let Some(allocation) = session.allocation.as_mut().filter(|held| held.state == AllocationState::Running) {
            allocation.state = AllocationState::CleanupPending;
        }
        session.end(Environment::Failed);
        Ok(true)
    }

    /// Everything that may have changed since `held` was read, except its revision.
    fn may_advance(&self, at: usize, held: &Held, to: Phase, now: Timestamp) -> bool {
        let session = &self.sessions[at];
        let busy = session.turns.iter().any(|turn| !turn.state.ended());
        let compute = session.allocation.as_ref().and_then(|allocation| allocation.compute.as_ref());
        match (held.state.phase(), to) {
            (Phase::Running, Phase::Quiescing) => {
                !busy && compute.zip(self.policy).is_some_and(|(compute, policy)| compute.is_idle(policy, now))
            }
            (Phase::Quiescing, Phase::Suspending) => !busy,
            (Phase::Suspended, Phase::Restoring) => session.placement.is_some_and(|placement| {
                let epoch = OwnerEpoch::new(self.owner_epoch);
                let node = self.node(placement.node).filter(|node| node.active < u64::from(CAPACITY));
                node.is_some_and(|node| node.standing.is_ready(placement.generation, epoch, now))
            }),
            _ => true,
        }
    }

    /// Writes one state over the one that was read. What is learnt while everything is to go changes no phase.
    fn store_compute(&mut self, at: usize, held: &Held, next: &State, now: Timestamp) -> Option<Held> {
        let policy = self.policy?;
        let (from, to) = (held.state.phase(), next.phase());
        let fresh = Timestamp(now.0 + i64::try_from(policy.retention_ms).ok()?);
        let retained_until = match (from, to) {
            (_, Phase::Running | Phase::Disabled) => None,
            (Phase::Running, _) | (Phase::Suspended, Phase::Restoring) => Some(fresh),
            _ => held.retained_until,
        };
        let text = next.encode();
        let change = Change { from, to, state: &text, retained_until, idle_seconds: policy.idle_ms.div_ceil(1_000) };
        change.check().ok()?;
        let allocation = self.sessions[at].allocation.as_mut()?;
        let live = may_write(allocation, from, to);
        let compute = allocation.compute.as_mut().filter(|row| row.revision == held.revision && live)?;
        compute.state = State::decode(to, &text)?;
        compute.retained_until = retained_until;
        compute.revision += 1;
        if from != to {
            compute.changed_at = now;
        }
        self.held(&self.sessions[at], now)
    }
}

fn may_write(allocation: &Allocation, from: Phase, to: Phase) -> bool {
    match allocation.state {
        AllocationState::Running => true,
        AllocationState::CleanupPending => from == to,
        AllocationState::Creating | AllocationState::Released => false,
    }
}
