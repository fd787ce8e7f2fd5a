//! Work on one environment: read the facts, take the step they ask for, write what came of it, again.

use std::pin::pin;
use std::time::Duration;

use palisade_core::lifecycle::{CallError, Change, Lifecycle, Step, TurnError};
use palisade_core::limits::{ASK_AGAIN_MIN_MS, BUDGET_DEFAULT_MS, CREATE_BUDGET_MS, KILL_BUDGET_MS};
use palisade_core::operation::Operation;
use palisade_core::outcome::Answer;
use palisade_core::units::{Digest, Id, Millis};
use palisade_core::wire::payload::{Bootstrap, Command, Secret};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::clock::Clock;
use super::waiting::Waiting;
use crate::Core;
use crate::execution::Lease;
use crate::hub::{Outcome, Placement, Room};
use crate::store::allocations::Concluded;
use crate::store::commands::Outputs;
use crate::store::work::Work;
use crate::store::{Result, StoreError};

pub(super) struct Task {
    pub(super) core: Core,
    pub(super) lease: Lease,
    pub(super) environment: Id,
    news: watch::Receiver<u64>,
    nodes: Option<watch::Receiver<u64>>,
    pub(super) lifecycle: Lifecycle,
    clock: Clock,
    started: Instant,
    waiting: Waiting,
}

impl Task {
    pub(super) fn new(core: Core, lease: Lease, clock: Clock, environment: Id, news: watch::Receiver<u64>) -> Self {
        let nodes = core.hub().changes();
        let (lifecycle, waiting) = (Lifecycle::default(), Waiting::default());
        Self { core, lease, environment, news, nodes, lifecycle, clock, started: Instant::now(), waiting }
    }

    /// Until nothing is left to do, or this process lost the lease. Gives the last news it has seen.
    pub(super) async fn run(mut self) -> u64 {
        loop {
            let seen = *self.news.borrow_and_update();
            self.take_hint();
            match self.advance().await {
                Ok(true) => {}
                Ok(false) | Err(StoreError::Fenced) => return seen,
                Err(error) => {
                    tracing::warn!(environment = %self.environment, %error, "work is interrupted");
                    sleep(Duration::from_millis(ASK_AGAIN_MIN_MS)).await;
                }
            }
        }
    }

    /// A node that came back makes every answer likelier.
    fn take_hint(&mut self) {
        if let Some(nodes) = &mut self.nodes
            && nodes.has_changed().unwrap_or(false)
        {
            nodes.mark_unchanged();
            self.lifecycle.handle_hint();
        }
    }

    /// One step. `false`: nothing is left to do.
    async fn advance(&mut self) -> Result<bool> {
        let Some(work) = self.core.store().work(self.environment).await? else { return Ok(false) };
        let hub = self.core.hub();
        let placed = work.placement;
        let live = placed.is_some_and(|placed| hub.is_live(placed.node));
        let ready = placed.is_some_and(|placed| hub.is_ready(placed.node, placed.generation));
        let expired = self.clock.expired(&work);
        let facts = work.facts(live, ready, expired);
        let step = self.lifecycle.step(&facts, self.now());
        self.waiting.look(&facts, self.lease, &work);
        match step {
            Step::Rest => return Ok(false),
            Step::Wait(until) => self.wait(until).await,
            Step::Reserve => self.reserve(&work).await?,
            Step::Create => self.create(&work).await?,
            Step::Observe { .. } | Step::Settle => {
                self.ask(&work, step, Operation::GetInfo, BUDGET_DEFAULT_MS).await?;
            }
            Step::Verify => self.look(&work, step, Operation::GetInfo).await?,
            Step::Confirm => self.look(&work, step, Operation::Renew).await?,
            Step::Compute(step) => self.compute(&work, step).await?,
            Step::Kill => self.remove(&work).await?,
            Step::Dispatch(turn) => self.dispatch(&work, turn).await?,
            Step::FailTurn(turn, error) => self.write(&work, &[Change::TurnFailed(turn, error)], None).await?,
            Step::RequestCleanup => self.write(&work, &[Change::CleanupRequested], None).await?,
            Step::Release => {
                self.write(&work, &[Change::Released], None).await?;
                tracing::info!(environment = %self.environment, "sandbox released");
                // Somebody may wait for its place.
                self.core.wake_owner();
            }
        }
        Ok(true)
    }

    async fn wait(&mut self, until: Millis) {
        let until = self.started + Duration::from_millis(until.0);
        tokio::select! {
            () = sleep_until(until) => {}
            _ = self.news.changed() => {}
        }
    }

    async fn reserve(&mut self, work: &Work) -> Result<()> {
        let fresh = (Id::from_random(rand::random()), Id::from_random(rand::random()));
        if !self.core.store().reserve_allocation(self.lease.epoch, work, fresh).await? {
            self.lifecycle.handle_refused(self.now());
        }
        Ok(())
    }

    /// The attempt is durable before the hub sees it; the credential exists for this attempt alone.
    async fn create(&mut self, work: &Work) -> Result<()> {
        let credential = credential();
        let digest = Digest::of(credential.as_bytes());
        if !self.core.store().record_attempt(self.lease.epoch, work, digest).await? {
            self.lifecycle.handle_refused(self.now());
            return Ok(());
        }
        let Some(bootstrap) = bootstrap(work, self.core.public_url(), credential) else { return Ok(()) };
        self.ask(work, Step::Create, Operation::Create(Box::new(bootstrap)), CREATE_BUDGET_MS).await
    }

    /// Room for the command of a Turn in line, before anything of it is read. `None`: it is not in line any more.
    async fn room(&mut self, turn: Id) -> Result<Option<Room>> {
        let core = self.core.clone();
        let Some(bytes) = core.store().queued_stdin_bytes(turn).await? else { return Ok(None) };
        let mut room = pin!(core.hub().room(bytes));
        loop {
            tokio::select! {
                room = &mut room => return Ok(Some(room)),
                Ok(()) = self.news.changed() => {
                    if core.store().queued_stdin_bytes(turn).await?.is_none() {
                        return Ok(None);
                    }
                }
            }
        }
    }

    async fn dispatch(&mut self, work: &Work, turn: Id) -> Result<()> {
        let Some(room) = self.room(turn).await? else { return Ok(()) };
        let Some(started) = self.core.store().start_turn(self.lease.epoch, work, turn).await? else {
            self.lifecycle.handle_refused(self.now());
            return Ok(());
        };
        let core = self.core.clone();
        let call = call(&core, work, command(work, started.command), started.timeout_ms, Some(room));
        let outcome = tokio::select! {
            outcome = call => outcome,
            () = self.unwanted(turn) => {
                let unknown = TurnError::Unconfirmed.code();
                return self.core.store().abandon_turn(self.lease.epoch, work, turn, unknown).await;
            }
        };
        self.conclude(work, Step::Dispatch(turn), &outcome).await
    }

    /// Ends when nobody wants the Turn's outcome any more. The time left is durable; the timer only wakes.
    async fn unwanted(&mut self, turn: Id) {
        let mut left = None;
        loop {
            let again = async {
                match left {
                    Some(left) => sleep(Duration::from_millis(left)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = again => {}
                Ok(()) = self.news.changed() => {}
            }
            // A clock that is set back does not give it more time.
            let now_left = self.core.store().turn_is_wanted_ms(turn).await.unwrap_or(left);
            left = now_left.map(|now_left| left.map_or(now_left, |left| now_left.min(left)));
            if left == Some(0) {
                return;
            }
        }
    }

    /// Looks for the incarnation that should be running: the first one is the allocation itself.
    async fn look(&mut self, work: &Work, step: Step, first: Operation<'static>) -> Result<()> {
        let later =
            work.compute.as_ref().and_then(|held| held.state.current()).filter(|current| current.generation > 0);
        let Some(current) = later.cloned() else { return self.ask(work, step, first, BUDGET_DEFAULT_MS).await };
        let operation = Operation::GetCompute(current.clone());
        let outcome = call(&self.core, work, operation, BUDGET_DEFAULT_MS, None).await;
        let changes = self.lifecycle.conclude_look(self.now(), step, &current, &outcome);
        self.record(work, &changes, outcome.as_ref().ok()).await
    }

    /// Removes everything that there may be, one after the other; whatever is not confirmed is asked for again.
    async fn remove(&mut self, work: &Work) -> Result<()> {
        let removals = work.compute.as_ref().map_or_else(|| vec![Operation::Kill], |held| held.state.removals());
        let mut outcome = Ok(Answer::Done);
        for removal in removals {
            outcome = call(&self.core, work, removal, KILL_BUDGET_MS, None).await;
            if !matches!(outcome, Ok(Answer::Done)) {
                break;
            }
        }
        if let Err(error) = &outcome {
            tracing::info!(environment = %self.environment, %error, "a removal was not confirmed");
        }
        self.conclude(work, Step::Kill, &outcome).await
    }

    async fn ask(&mut self, work: &Work, step: Step, operation: Operation<'static>, budget_ms: u64) -> Result<()> {
        let outcome = call(&self.core, work, operation, budget_ms, None).await;
        if let Err(error) = &outcome {
            tracing::info!(environment = %self.environment, ?step, %error, "a question was not answered");
        }
        self.conclude(work, step, &outcome).await
    }

    async fn conclude(&mut self, work: &Work, step: Step, outcome: &Outcome) -> Result<()> {
        let changes = self.lifecycle.conclude(self.now(), step, outcome);
        self.record(work, &changes, outcome.as_ref().ok()).await
    }

    /// An outcome that is known must become durable: a store that fails is asked again for as long as it takes.
    async fn record(&self, work: &Work, changes: &[Change], answer: Option<&Answer<'_>>) -> Result<()> {
        while let Err(error) = self.write(work, changes, answer).await {
            self.interrupted(error).await?;
        }
        Ok(())
    }

    /// A pause after a failure of the store, unless another process is the owner by now.
    pub(super) async fn interrupted(&self, error: StoreError) -> Result<()> {
        if matches!(error, StoreError::Fenced) {
            return Err(error);
        }
        tracing::warn!(environment = %self.environment, %error, "an outcome is not recorded yet");
        sleep(Duration::from_millis(ASK_AGAIN_MIN_MS)).await;
        Ok(())
    }

    async fn write(&self, work: &Work, changes: &[Change], answer: Option<&Answer<'_>>) -> Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        let outputs = match answer {
            Some(Answer::Command(result)) => {
                Some(Outputs { stdout: &result.stdout, stderr: &result.stderr, exit_code: result.exit_code })
            }
            _ => None,
        };
        let provider_id = match answer {
            Some(Answer::Info(info)) => &*info.provider_id,
            _ => "",
        };
        self.core.store().conclude(self.lease.epoch, work, Concluded { changes, provider_id, outputs }).await
    }

    pub(super) fn now(&self) -> Millis {
        Millis(u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}

/// A call to the sandbox of `work`, on its own node and generation and nowhere else.
pub(super) async fn call(
    core: &Core,
    work: &Work,
    operation: Operation<'static>,
    budget_ms: u64,
    room: Option<Room>,
) -> Outcome {
    let ownership = CallError::Refused(palisade_core::session::hub::dispatch::Refusal::Ownership);
    let (Some(placed), Some(reference)) = (work.placement, work.reference()) else { return Err(ownership) };
    let placement = Placement { provider: placed.provider, node: placed.node, generation: placed.generation };
    let budget = Duration::from_millis(budget_ms);
    match room {
        Some(room) => core.hub().call_in(room, placement, reference, operation, budget).await,
        None => core.hub().call(placement, reference, operation, budget).await,
    }
}

/// A command for exactly the incarnation that runs.
fn command(work: &Work, command: Command<'static>) -> Operation<'static> {
    match work.compute.as_ref().and_then(|held| held.state.current()) {
        Some(compute) => Operation::RunCommandCompute { compute: compute.clone(), command },
        None => Operation::RunCommand(command),
    }
}

/// 32 random bytes in hexadecimal.
fn credential() -> String {
    format!("{:032x}{:032x}", rand::random::<u128>(), rand::random::<u128>())
}

fn bootstrap(work: &Work, public_url: &str, credential: String) -> Option<Bootstrap<'static>> {
    let allocation = work.allocation?;
    Some(Bootstrap {
        tenant_id: work.tenant.to_string().into(),
        environment_id: work.environment.to_string().into(),
        allocation_id: allocation.id.to_string().into(),
        session_id: work.session.to_string().into(),
        device_id: allocation.device.to_string().into(),
        core_url: format!("{public_url}/api/v1").into(),
        credential: Secret(credential.into()),
        network_access: "disabled".into(),
        allowed_domains: None,
        workspace: None,
    })
}
