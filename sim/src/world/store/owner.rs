//! What the owner reads and writes of one environment. Every write proves the owner's epoch in its own transaction.

use palisade_core::admin::node::ComputePhase;
use palisade_core::admin::time::Timestamp;
use palisade_core::lifecycle::{self, Attempt, Change, Environment, Facts, NodeState, TurnError};
use palisade_core::limits::CONFIRM_INTERVAL_MS;
use palisade_core::outcome::Answer;
use palisade_core::units::{Generation, Id, OwnerEpoch};
use palisade_core::wire::payload::Reference;

use super::{Allocation, AllocationState, Compute, Held, Session, Store, Turn, TurnState};
use crate::clock::Time;

/// The epoch is not the owner's any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fenced;

/// One environment as one transaction read it.
#[derive(Debug, Clone)]
pub(crate) struct Work {
    pub(crate) placement: Option<(Id, Generation)>,
    pub(crate) reference: Option<Reference>,
    pub(crate) device: Option<Id>,
    pub(crate) compute: Option<Held>,
    pub(crate) read_at: Timestamp,
    facts: Facts,
    seen_ms: Option<u64>,
}

/// The command of a Turn whose start was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Started {
    pub(crate) turn: Id,
    pub(crate) timeout_ms: u64,
}

impl Work {
    /// What the lifecycle decides by.
    pub(crate) fn facts(&self, live: bool, ready: bool, expired: bool) -> Facts {
        let node = match (live, ready) {
            (true, true) => NodeState::Ready,
            (true, false) => NodeState::Unready,
            (false, _) => NodeState::Offline { away_ms: self.seen_ms.unwrap_or(u64::MAX) },
        };
        Facts { node, compute: self.compute.as_ref().map(|held| held.facts(expired)), ..self.facts }
    }

    /// Whether everything is to go.
    pub(crate) const fn is_ending(&self) -> bool {
        matches!(self.facts.allocation, lifecycle::Allocation::CleanupPending { .. })
    }
}

impl Store {
    /// Takes the advisory lock and raises the epoch, unless somebody else holds it.
    pub(crate) fn claim(&mut self, core: usize, life: u32) -> Option<OwnerEpoch> {
        if self.lock.is_some() {
            return None;
        }
        self.lock = Some((core, life));
        self.owner_epoch += 1;
        OwnerEpoch::new(self.owner_epoch)
    }

    pub(super) fn fence(&self, epoch: OwnerEpoch) -> Result<(), Fenced> {
        if self.owner_epoch == epoch.get() { Ok(()) } else { Err(Fenced) }
    }

    /// Environments with something to do.
    pub(crate) fn unfinished(&self, now: Time) -> Vec<usize> {
        let clock = self.clock(now);
        let unfinished = |session: &Session| {
            let ended = session.deleted || matches!(session.status, Environment::Failed | Environment::Expired);
            let allocated = match session.allocation.as_ref().map(|allocation| allocation.state) {
                Some(AllocationState::Creating | AllocationState::CleanupPending) => true,
                Some(AllocationState::Running) => ended || self.is_online(session) && self.wants_a_look(session, clock),
                Some(AllocationState::Released) => false,
                None => {
                    session.status == Environment::Pending && session.placement.is_some_and(|place| !place.released)
                }
            };
            allocated || session.turns.iter().any(|turn| !turn.state.ended())
        };
        (0..self.sessions.len()).filter(|at| unfinished(&self.sessions[*at])).collect()
    }

    fn is_online(&self, session: &Session) -> bool {
        let node = session.placement.and_then(|placement| self.nodes.get(&placement.node));
        node.is_some_and(|node| node.standing.connection.is_some())
    }

    /// Nobody has seen it for a while, or its compute moves.
    fn wants_a_look(&self, session: &Session, now: Timestamp) -> bool {
        let Some(allocation) = &session.allocation else { return false };
        let stale = now.since(allocation.kept_at) >= CONFIRM_INTERVAL_MS;
        match &allocation.compute {
            None => stale,
            Some(compute) => {
                let runs = matches!(compute.state.phase(), ComputePhase::Disabled | ComputePhase::Running);
                stale && runs || self.compute_is_unfinished(compute, now)
            }
        }
    }

    pub(crate) fn work(&self, at: usize, now: Time) -> Work {
        let session = &self.sessions[at];
        let clock = self.clock(now);
        let elapsed = |then: palisade_core::admin::time::Timestamp| clock.since(then);
        let placement = session.placement.filter(|placement| !placement.released);
        let allocation = session.allocation.as_ref();
        let node = placement.and_then(|placement| self.nodes.get(&placement.node));
        let attempt = |allocation: &Allocation| match allocation.sent_at {
            Some(sent) => Attempt::Handed { ago_ms: elapsed(sent) },
            None => Attempt::None,
        };
        let state = allocation.map_or(lifecycle::Allocation::None, |allocation| match allocation.state {
            AllocationState::Creating => lifecycle::Allocation::Creating(attempt(allocation)),
            AllocationState::Running => lifecycle::Allocation::Running,
            AllocationState::CleanupPending => {
                lifecycle::Allocation::CleanupPending { attempt: attempt(allocation), settled: allocation.settled }
            }
            AllocationState::Released => lifecycle::Allocation::Released,
        });
        let open = || session.turns.iter().filter(|turn| !turn.state.ended());
        let turn = open().find(|turn| turn.state == TurnState::InProgress).or_else(|| open().next());
        let turn_state = |turn: &Turn| match turn.state {
            TurnState::InProgress => lifecycle::TurnState::InProgress,
            _ => lifecycle::TurnState::Queued { waited_ms: elapsed(turn.created) },
        };
        Work {
            placement: placement.map(|placement| (placement.node, placement.generation)),
            reference: allocation.map(|allocation| Reference {
                tenant: session.tenant,
                environment: session.environment,
                allocation: allocation.id,
            }),
            device: allocation.map(|allocation| allocation.device),
            compute: self.held(session, clock),
            read_at: clock,
            facts: Facts {
                admission_open: !self.paused && self.reset.is_none(),
                session_deleted: session.deleted,
                environment: session.status,
                node: NodeState::Offline { away_ms: u64::MAX },
                allocation: state,
                compute: None,
                stale: allocation.is_some_and(|held| elapsed(held.kept_at) >= CONFIRM_INTERVAL_MS),
                turn: turn.map(|turn| lifecycle::Turn { id: turn.id, state: turn_state(turn) }),
            },
            seen_ms: node.and_then(|node| node.standing.last_seen_at).map(elapsed),
        }
    }

    pub(crate) fn reserve(&mut self, epoch: OwnerEpoch, at: usize, fresh: (Id, Id), now: Time) -> Result<bool, Fenced> {
        self.fence(epoch)?;
        let open = !self.paused && self.reset.is_none();
        let kept_at = self.clock(now);
        let compute = self.policy.map(|_| Compute::new(kept_at));
        let session = &mut self.sessions[at];
        let placed = session.placement.is_some_and(|placement| !placement.released);
        let may = open && session.status == Environment::Pending && !session.deleted && placed;
        if !may || session.allocation.is_some() {
            return Ok(false);
        }
        session.allocation = Some(Allocation {
            id: fresh.0,
            device: fresh.1,
            state: AllocationState::Creating,
            sent_at: None,
            settled: false,
            provider_id: String::new(),
            kept_at,
            compute,
        });
        Ok(true)
    }

    pub(crate) fn record_attempt(&mut self, epoch: OwnerEpoch, at: usize, now: Time) -> Result<bool, Fenced> {
        self.fence(epoch)?;
        let clock = self.clock(now);
        let allocation = self.sessions[at].allocation.as_mut();
        let fresh = allocation.filter(|held| held.state == AllocationState::Creating && held.sent_at.is_none());
        Ok(fresh.map(|allocation| allocation.sent_at = Some(clock)).is_some())
    }

    pub(crate) fn start_turn(&mut self, epoch: OwnerEpoch, at: usize, turn: Id) -> Result<Option<Started>, Fenced> {
        self.fence(epoch)?;
        let session = &mut self.sessions[at];
        let running = session.allocation.as_ref().is_some_and(|held| held.state == AllocationState::Running);
        let queued = |row: &&mut Turn| row.id == turn && row.state == TurnState::Queued && !row.cancel_requested;
        Ok(session.turns.iter_mut().find(queued).filter(|_| running).map(|row| {
            row.state = TurnState::InProgress;
            Started { turn, timeout_ms: row.timeout_ms }
        }))
    }

    pub(crate) fn turn_is_unwanted(&self, at: usize, turn: Id) -> bool {
        let session = &self.sessions[at];
        let running = session.allocation.as_ref().is_some_and(|held| held.state == AllocationState::Running);
        let wanted = |row: &Turn| row.id == turn && row.state == TurnState::InProgress && !row.cancel_requested;
        !running || !session.turns.iter().any(wanted)
    }

    pub(crate) fn abandon_turn(&mut self, epoch: OwnerEpoch, at: usize, turn: Id) -> Result<(), Fenced> {
        self.fence(epoch)?;
        let row = self.sessions[at].turns.iter_mut().find(|row| row.id == turn && !row.state.ended());
        if let Some(row) = row {
            let unknown = TurnState::Failed(TurnError::Unconfirmed);
            row.state = if row.cancel_requested { TurnState::Cancelled } else { unknown };
        }
        Ok(())
    }

    /// Writes what an outcome changes, all of it or nothing.
    pub(crate) fn conclude(
        &mut self,
        epoch: OwnerEpoch,
        at: usize,
        changes: &[Change],
        answer: Option<&Answer<'_>>,
        now: Time,
    ) -> Result<(), Fenced> {
        self.fence(epoch)?;
        let clock = self.clock(now);
        let session = &mut self.sessions[at];
        for change in changes {
            session.change(*change, answer);
            session.record_use(*change, clock);
            if let (Change::Running | Change::Looked(_), Some(held)) = (change, &mut session.allocation) {
                held.kept_at = clock;
            }
        }
        Ok(())
    }
}

impl Session {
    fn record_use(&mut self, change: Change, now: Timestamp) {
        let completed = match change {
            Change::TurnCompleted(_) => true,
            Change::TurnFailed(..) => false,
            Change::AttemptCleared
            | Change::Running
            | Change::Settled
            | Change::CleanupRequested
            | Change::Looked(_)
            | Change::Released
            | Change::TurnRequeued(_) => return,
        };
        if let Some(compute) = self.allocation.as_mut().and_then(|held| held.compute.as_mut()) {
            compute.used(completed, now);
        }
    }

    fn change(&mut self, change: Change, answer: Option<&Answer<'_>>) {
        match change {
            Change::TurnCompleted(turn) => {
                if let (Some(Answer::Command(result)), Some(row)) = (answer, self.open_turn(turn)) {
                    row.state = TurnState::Completed { stdout: result.stdout.to_string(), exit_code: result.exit_code };
                }
            }
            Change::TurnFailed(turn, error) => {
                if let Some(row) = self.open_turn(turn) {
                    row.state = TurnState::Failed(error);
                }
            }
            Change::TurnRequeued(turn) => {
                if let Some(row) = self.open_turn(turn).filter(|row| row.state == TurnState::InProgress) {
                    row.state = if row.cancel_requested { TurnState::Cancelled } else { TurnState::Queued };
                }
            }
            Change::AttemptCleared => {
                if let Some(allocation) = self.allocation.as_mut().filter(|allocation| !allocation.settled) {
                    allocation.sent_at = None;
                }
            }
            Change::Running => self.run(answer),
            Change::Settled => {
                if let Some(allocation) = &mut self.allocation {
                    allocation.settled = true;
                }
            }
            Change::Looked(_) => {}
            Change::CleanupRequested => self.request_cleanup(),
            Change::Released => self.release(),
        }
    }

    fn open_turn(&mut self, turn: Id) -> Option<&mut Turn> {
        self.turns.iter_mut().find(|row| row.id == turn && !row.state.ended())
    }

    fn run(&mut self, answer: Option<&Answer<'_>>) {
        let Some(allocation) = &mut self.allocation else { return };
        allocation.settled = true;
        if let Some(Answer::Info(info)) = answer {
            allocation.provider_id = info.provider_id.to_string();
        }
        if allocation.state == AllocationState::Creating {
            allocation.state = AllocationState::Running;
        }
        if self.status == Environment::Pending {
            self.status = Environment::Connected;
        }
    }

    fn request_cleanup(&mut self) {
        if let Some(allocation) = &mut self.allocation
            && matches!(allocation.state, AllocationState::Creating | AllocationState::Running)
        {
            allocation.state = AllocationState::CleanupPending;
        }
        if matches!(self.status, Environment::Pending | Environment::Connected | Environment::Disconnected) {
            self.status = Environment::Failed;
        }
    }

    /// A creation that was never handed over is settled by that alone.
    fn release(&mut self) {
        if let Some(allocation) = &mut self.allocation
            && allocation.state == AllocationState::CleanupPending
            && (allocation.settled || allocation.sent_at.is_none())
        {
            allocation.state = AllocationState::Released;
            allocation.settled = true;
        }
        let held = self.allocation.as_ref().is_some_and(|held| held.state != AllocationState::Released);
        if let Some(placement) = self.placement.as_mut().filter(|_| !held) {
            placement.released = true;
        }
    }
}
