//! The owner's work on environments: read the facts, take the step they ask for, write what came of it, again.

use std::collections::{BTreeSet, VecDeque};

use palisade_core::lifecycle::{CallError, Change, Lifecycle, Outcome, Step};
use palisade_core::limits::{ASK_AGAIN_MIN_MS, BUDGET_DEFAULT_MS, BUDGET_MAX_MS, CREATE_BUDGET_MS};
use palisade_core::operation::{Call, Method, MethodGroup, Operation, Support};
use palisade_core::outcome::Answer;
use palisade_core::session::hub::dispatch::{Facts, Peer, Refusal, check};
use palisade_core::session::hub::{Cause, Uncertain};
use palisade_core::units::{Generation, Id};
use palisade_core::wire::payload::{Bootstrap, Command, Compute, Reference, Secret};

use super::CoreEvent;
use super::calls::{Ask, Done, Purpose};
use super::hub::Caller;
use crate::coverage::names;
use crate::sabotage::Sabotage;
use crate::world::store::{Fenced, Started, Work};
use crate::world::{World, note};

/// Work on one environment.
#[derive(Debug)]
pub(crate) struct Task {
    serial: u64,
    pub(super) lifecycle: Lifecycle,
    state: State,
    /// The last news it has looked at.
    news: u64,
    pub(super) work: Option<Work>,
    /// The name of the first incarnation, once it is known.
    pub(super) named: Option<Compute<'static>>,
    /// What else is to be removed.
    pub(super) removals: VecDeque<Operation<'static>>,
}

#[derive(Debug)]
enum State {
    /// Waits for the database.
    Asking,
    /// Waits for a node.
    Calling { step: Step, request: Id },
    /// Looks again later, or at news.
    Waiting,
    /// Tries the same write again later.
    Retrying(Box<Ask>),
}

impl Task {
    /// The request it waits for.
    pub(super) fn request(&self) -> Option<Id> {
        match self.state {
            State::Calling { request, .. } => Some(request),
            State::Asking | State::Waiting | State::Retrying(_) => None,
        }
    }
}

impl World {
    /// Starts work on every environment that has something to do and none yet.
    pub(super) fn scan(&mut self, core: usize) {
        if self.cores[core].lease.is_none() || self.store.silent_until > self.now {
            return;
        }
        self.advance_reset(core);
        let (read_at, now) = (self.store.clock(self.now), self.core_now(core));
        let mut unfinished = self.store.unfinished(self.now);
        let retained = self.store.retained();
        let known: BTreeSet<usize> = retained.iter().map(|(of, _)| *of).collect();
        let kept = &mut self.cores[core].kept;
        kept.retain(|of| known.contains(of));
        unfinished
            .extend(retained.iter().filter(|(of, until)| kept.passed(*of, *until, read_at, now)).map(|(of, _)| *of));
        for session in unfinished {
            if !self.cores[core].tasks.contains_key(&session) {
                self.start_task(core, session);
            }
        }
    }

    fn advance_reset(&mut self, core: usize) {
        let owner = self.store.lock == Some((core, self.cores[core].life));
        let epoch = self.cores[core].lease.map(palisade_core::units::OwnerEpoch::get);
        if owner && epoch == Some(self.store.owner_epoch) && self.store.advance_reset() {
            self.cover.hit("event: reset completed");
            self.books.reset_completed();
            let next = palisade_core::units::OwnerEpoch::new(self.store.owner_epoch);
            self.change_lease(core, next);
            let links: Vec<_> = self.cores[core].connections.keys().copied().collect();
            for link in links {
                self.ask_to_close(core, link);
            }
        }
        self.books.committed(&self.store, self.now);
    }

    fn start_task(&mut self, core: usize, session: usize) {
        let process = &mut self.cores[core];
        process.serial += 1;
        let (serial, news) = (process.serial, process.news);
        let (state, removals) = (State::Asking, VecDeque::new());
        let task = Task { serial, lifecycle: Lifecycle::default(), state, news, work: None, named: None, removals };
        process.tasks.insert(session, task);
        self.ask_for(core, session, serial, Ask::Work);
    }

    pub(super) fn ask_for(&mut self, core: usize, session: usize, serial: u64, ask: Ask) {
        if let Some(task) = self.task(core, session, serial) {
            task.state = State::Asking;
            self.ask_store(core, Purpose::Task { session, serial, ask: Box::new(ask) });
        }
    }

    pub(super) fn task(&mut self, core: usize, session: usize, serial: u64) -> Option<&mut Task> {
        self.cores[core].tasks.get_mut(&session).filter(|task| task.serial == serial)
    }

    /// Tells every task of what changed since it looked.
    pub(super) fn settle_news(&mut self, core: usize) {
        let news = self.cores[core].news;
        let behind = |task: &Task| task.news != news;
        let tasks: Vec<_> = self.cores[core]
            .tasks
            .iter()
            .filter(|(_, task)| behind(task))
            .map(|(at, task)| (*at, task.serial))
            .collect();
        if tasks.is_empty() {
            return;
        }
        for (session, serial) in tasks {
            let Some(task) = self.task(core, session, serial) else { continue };
            task.news = news;
            task.lifecycle.handle_hint();
            match &task.state {
                State::Waiting => self.ask_for(core, session, serial, Ask::Work),
                State::Calling { step: Step::Dispatch(turn), .. } => {
                    let turn = *turn;
                    self.ask_store(core, Purpose::Task { session, serial, ask: Box::new(Ask::Unwanted(turn)) });
                }
                State::Asking | State::Calling { .. } | State::Retrying(_) => {}
            }
        }
    }

    /// Somebody wrote a fact: every owner looks again.
    pub(in crate::world) fn tell_owners(&mut self) {
        for core in 0..self.cores.len() {
            if self.cores[core].alive && self.cores[core].frozen_until <= self.now {
                self.cores[core].news += 1;
                self.scan(core);
                self.settle_news(core);
            }
        }
    }

    pub(super) fn wake_task(&mut self, core: usize, session: usize, serial: u64) {
        let Some(task) = self.task(core, session, serial) else { return };
        match std::mem::replace(&mut task.state, State::Asking) {
            State::Waiting => self.ask_for(core, session, serial, Ask::Work),
            State::Retrying(ask) => self.ask_for(core, session, serial, *ask),
            other @ (State::Asking | State::Calling { .. }) => task.state = other,
        }
    }

    pub(super) fn task_replied(&mut self, core: usize, session: usize, serial: u64, ask: Ask, done: Done) {
        if self.task(core, session, serial).is_none() {
            return;
        }
        match (ask, done) {
            (
                _,
                Done::Flag(Err(Fenced))
                | Done::Started(Err(Fenced))
                | Done::Written(Err(Fenced))
                | Done::Handed(Err(Fenced)),
            ) => {
                self.cover.hit("owner: a write is fenced");
                self.cores[core].tasks.remove(&session);
            }
            (Ask::Unwanted(turn), Done::Flag(Ok(true))) => self.abandon_turn(core, session, serial, turn),
            (Ask::Unwanted(_), _) => {}
            (Ask::Work, Done::Work(work)) => self.advance(core, session, serial, &work),
            (Ask::Reserve(_), Done::Flag(Ok(done))) => self.refused_or_again(core, session, serial, done),
            (Ask::Attempt, Done::Flag(Ok(true))) => self.create(core, session, serial),
            (Ask::Attempt, Done::Flag(Ok(false))) | (Ask::StartTurn(_), Done::Started(Ok(None))) => {
                self.refused_or_again(core, session, serial, false);
            }
            (Ask::StartTurn(_), Done::Started(Ok(Some(started)))) => self.run_command(core, session, serial, started),
            (Ask::SetCompute(..) | Ask::GiveUp(..) | Ask::Expire(_), Done::Flag(Ok(advanced))) => {
                if advanced {
                    // Somebody may wait for its place.
                    self.cores[core].news += 1;
                }
                self.compute_moved(core, session, serial, advanced);
            }
            (Ask::HandOver(_, step, _), Done::Handed(Ok(held))) => {
                self.handed_over(core, session, serial, step, held.map(|held| *held));
            }
            (Ask::Conclude(..) | Ask::Abandon(_), Done::Written(Ok(()))) => {
                self.ask_for(core, session, serial, Ask::Work);
            }
            // An outcome that is known must become durable; everything else begins with the facts again.
            (ask @ (Ask::Conclude(..) | Ask::SetCompute(..) | Ask::GiveUp(..)), _) => {
                self.retry_later(core, session, serial, ask);
            }
            (_, _) => self.retry_later(core, session, serial, Ask::Work),
        }
    }

    fn retry_later(&mut self, core: usize, session: usize, serial: u64, ask: Ask) {
        self.cover.hit("owner: a transaction failed and is tried again");
        if let Some(task) = self.task(core, session, serial) {
            task.state = State::Retrying(Box::new(ask));
        }
        self.core_later(core, self.now + ASK_AGAIN_MIN_MS, CoreEvent::WakeTask { session, serial });
    }

    fn refused_or_again(&mut self, core: usize, session: usize, serial: u64, done: bool) {
        let now = self.core_now(core);
        if let Some(task) = self.task(core, session, serial)
            && !done
        {
            task.lifecycle.handle_refused(now);
            self.cover.hit("owner: a write is refused");
        }
        self.ask_for(core, session, serial, Ask::Work);
    }

    fn advance(&mut self, core: usize, session: usize, serial: u64, work: &Work) {
        let now = self.core_now(core);
        let peer = work.placement.and_then(|(node, _)| self.cores[core].peers.get(&node).copied());
        let ready = peer.zip(work.placement).is_some_and(|(link, (_, generation))| {
            self.cores[core].connections.get(&link).is_some_and(|held| held.machine.readiness().is_ready(generation))
        });
        let until = work.compute.as_ref().and_then(|held| held.retained_until);
        let early = self.sabotage == Some(Sabotage::CoreExpiresEarly);
        let kept = &mut self.cores[core].kept;
        let expired = until.is_some_and(|until| early || kept.passed(session, until, work.read_at, now));
        let facts = work.facts(peer.is_some(), ready, expired);
        let Some(task) = self.task(core, session, serial) else { return };
        let step = task.lifecycle.step(&facts, now);
        task.work = Some(work.clone());
        self.cover.hit(names::step(step));
        note!(self, "core {core}, session {session}: {step:?}");
        match step {
            Step::Rest => drop(self.cores[core].tasks.remove(&session)),
            Step::Wait(until) => {
                if let Some(task) = self.task(core, session, serial) {
                    task.state = State::Waiting;
                }
                let at = self.cores[core].clock.when(until, self.now);
                self.core_later(core, at, CoreEvent::WakeTask { session, serial });
            }
            Step::Reserve => {
                let fresh = [self.core_id(), self.core_id()];
                self.ask_for(core, session, serial, Ask::Reserve(fresh));
            }
            Step::Create => self.ask_for(core, session, serial, Ask::Attempt),
            Step::Observe { .. } | Step::Settle => {
                self.call(core, session, serial, step, Operation::GetInfo, BUDGET_DEFAULT_MS);
            }
            Step::Verify => self.look_for(core, session, serial, step, Operation::GetInfo),
            Step::Confirm => self.look_for(core, session, serial, step, Operation::Renew),
            Step::Compute(step) => self.compute(core, session, serial, step),
            Step::Kill => self.remove(core, session, serial),
            Step::Dispatch(turn) => self.ask_for(core, session, serial, Ask::StartTurn(turn)),
            Step::FailTurn(turn, error) => {
                self.cover.hit(names::turn_error(error));
                self.conclude(core, session, serial, vec![Change::TurnFailed(turn, error)], None);
            }
            Step::RequestCleanup => self.conclude(core, session, serial, vec![Change::CleanupRequested], None),
            Step::Release => self.conclude(core, session, serial, vec![Change::Released], None),
        }
    }

    fn create(&mut self, core: usize, session: usize, serial: u64) {
        let Some(work) = self.task(core, session, serial).and_then(|task| task.work.clone()) else { return };
        let (Some(reference), Some(device)) = (work.reference, work.device) else { return };
        let bootstrap = Bootstrap {
            tenant_id: reference.tenant.to_string().into(),
            environment_id: reference.environment.to_string().into(),
            allocation_id: reference.allocation.to_string().into(),
            session_id: reference.environment.to_string().into(),
            device_id: device.to_string().into(),
            core_url: "https://core.example/api/v1".into(),
            credential: Secret("0123456789abcdef".into()),
            network_access: "disabled".into(),
            allowed_domains: None,
            workspace: None,
        };
        let operation = Operation::Create(Box::new(bootstrap));
        self.call(core, session, serial, Step::Create, operation, CREATE_BUDGET_MS);
    }

    fn run_command(&mut self, core: usize, session: usize, serial: u64, started: Started) {
        let args = vec!["run".into(), started.turn.to_string().into()];
        let command = Command { args, directory: "".into(), stdin: None };
        let held = self.task(core, session, serial).and_then(|task| task.work.as_ref()?.compute.as_ref());
        let operation = match held.and_then(|held| held.state.current()) {
            Some(compute) => Operation::RunCommandCompute { compute: compute.clone(), command },
            None => Operation::RunCommand(command),
        };
        self.call(core, session, serial, Step::Dispatch(started.turn), operation, started.timeout_ms);
    }

    /// A call to the sandbox, on its own node and generation and nowhere else.
    pub(super) fn call(
        &mut self,
        core: usize,
        session: usize,
        serial: u64,
        step: Step,
        operation: Operation<'static>,
        budget_ms: u64,
    ) {
        let placed = self
            .task(core, session, serial)
            .and_then(|task| task.work.as_ref())
            .map(|work| (work.placement, work.reference));
        let Some((Some(placement), Some(reference))) = placed else {
            return self.refused_or_again(core, session, serial, false);
        };
        let id = self.core_id();
        if let Some(task) = self.task(core, session, serial) {
            task.state = State::Calling { step, request: id };
        }
        let caller = Caller::Task { session, serial };
        if let Err(refusal) = self.dispatch(core, id, placement, reference, operation, budget_ms, caller) {
            self.cover.hit(names::refusal(&refusal));
            self.task_answered(core, session, serial, Err(CallError::Refused(refusal)));
        }
    }

    /// The checks before dispatch (wire §3.3), then the connection.
    #[expect(clippy::too_many_arguments, reason = "it is the whole of one call")]
    pub(in crate::world) fn dispatch(
        &mut self,
        core: usize,
        id: Id,
        (node, generation): (Id, Generation),
        reference: Reference,
        operation: Operation<'static>,
        budget_ms: u64,
        caller: Caller,
    ) -> Result<(), Refusal> {
        let now = self.core_now(core);
        let deadline = now.after(budget_ms);
        let call = Call {
            id,
            deployment_generation: generation,
            reference,
            timeout_ms: budget_ms.clamp(1, BUDGET_MAX_MS),
            operation,
        };
        let method = call.operation.method();
        let link = self.cores[core].peers.get(&node).copied();
        let peer = link.and_then(|link| self.cores[core].connections.get(&link)).map(|held| Peer {
            owner_epoch: held.machine.owner_epoch(),
            ready: held.machine.readiness().is_ready(generation),
        });
        let facts = Facts {
            support: declared(method),
            generation: Some(generation),
            deadline,
            owner_epoch: self.cores[core].lease,
            peer,
            valid: call.verify().is_ok(),
        };
        check(method, call.operation.needs_ready(), &facts, now)?;
        let unavailable = Refusal::Uncertain(Uncertain { cause: Cause::Unavailable, sent: false });
        let link = link.ok_or(unavailable)?;
        note!(self, "core {core} asks {method} {} on connection {link}", super::hub::short(id));
        self.submit(core, link, call, deadline, caller);
        Ok(())
    }

    pub(super) fn task_answered(&mut self, core: usize, session: usize, serial: u64, outcome: Outcome<'static>) {
        let sabotage = self.sabotage;
        let Some(task) = self.task(core, session, serial) else { return };
        let State::Calling { step, .. } = task.state else { return };
        if let Step::Compute(step) = step {
            return self.compute_answered(core, session, serial, step, &outcome);
        }
        if step == Step::Kill && matches!(outcome, Ok(Answer::Done)) && self.remove_next(core, session, serial) {
            return;
        }
        let unknown = matches!(outcome, Err(CallError::Uncertain(Uncertain { sent: true, .. })));
        let mut changes = match step {
            Step::Verify | Step::Confirm => self.looked(core, session, serial, step, &outcome),
            _ => self.concluded(core, session, serial, step, &outcome),
        };
        match (sabotage, step) {
            (Some(Sabotage::CoreReplaysCommand), Step::Dispatch(turn)) if unknown => {
                changes = vec![Change::TurnRequeued(turn)];
            }
            (Some(Sabotage::CoreForgetsAttempt), Step::Create) if unknown => changes = vec![Change::AttemptCleared],
            (Some(Sabotage::CoreReleasesEarly), Step::Kill) => changes = vec![Change::Settled, Change::Released],
            _ => {}
        }
        for change in &changes {
            self.cover.hit(names::change(*change));
        }
        if changes.is_empty() {
            return self.ask_for(core, session, serial, Ask::Work);
        }
        self.conclude(core, session, serial, changes, outcome.ok());
    }

    fn concluded(
        &mut self,
        core: usize,
        session: usize,
        serial: u64,
        step: Step,
        outcome: &Outcome<'static>,
    ) -> Vec<Change> {
        let now = self.core_now(core);
        self.task(core, session, serial).map_or_else(Vec::new, |task| task.lifecycle.conclude(now, step, outcome))
    }

    fn conclude(
        &mut self,
        core: usize,
        session: usize,
        serial: u64,
        changes: Vec<Change>,
        answer: Option<Answer<'static>>,
    ) {
        note!(self, "core {core}, session {session}: writes {changes:?}");
        self.ask_for(core, session, serial, Ask::Conclude(changes, answer.map(Box::new)));
    }

    /// Nobody wants the outcome of a Turn any more.
    fn abandon_turn(&mut self, core: usize, session: usize, serial: u64, turn: Id) {
        let Some(task) = self.task(core, session, serial) else { return };
        let State::Calling { step: Step::Dispatch(running), request } = task.state else { return };
        if running != turn {
            return;
        }
        self.cover.hit("owner: a turn is given up");
        self.ask_for(core, session, serial, Ask::Abandon(turn));
        self.cancel_request(core, request);
    }
}

/// What the transport carries for these nodes.
fn declared(method: Method) -> Support {
    match method.group() {
        MethodGroup::Lifecycle | MethodGroup::Observation | MethodGroup::Checkpoint => Support::Supported,
        MethodGroup::Preparation => Support::Unsupported { reason: "preparation_not_supported".to_owned() },
    }
}
