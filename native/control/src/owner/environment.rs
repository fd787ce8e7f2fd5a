//! Work on one environment: read the facts, take the step they ask for, write what came of it, again.

use std::pin::pin;
use std::time::Duration;

use palisade_core::lifecycle::{CallError, Change, Lifecycle, Step, TurnError};
use palisade_core::limits::{ASK_AGAIN_MIN_MS, BUDGET_DEFAULT_MS, CREATE_BUDGET_MS, KILL_BUDGET_MS};
use palisade_core::operation::Operation;
use palisade_core::outcome::Answer;
use palisade_core::units::{Digest, Id, Millis};
use palisade_core::wire::payload::{Bootstrap, Secret};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use crate::Core;
use crate::execution::Lease;
use crate::hub::{Outcome, Placement, Room};
use crate::store::allocations::{Concluded, Work};
use crate::store::commands::Outputs;
use crate::store::{Result, StoreError};

pub(super) struct Task {
    core: Core,
    lease: Lease,
    environment: Id,
    news: watch::Receiver<u64>,
    nodes: Option<watch::Receiver<u64>>,
    lifecycle: Lifecycle,
    started: Instant,
}

impl Task {
    pub(super) fn new(core: Core, lease: Lease, environment: Id, news: watch::Receiver<u64>) -> Self {
        let nodes = core.hub().changes();
        Self { core, lease, environment, news, nodes, lifecycle: Lifecycle::default(), started: Instant::now() }
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
        let step = self.lifecycle.step(&work.facts(live, ready), self.now());
        match step {
            Step::Rest => return Ok(false),
            Step::Wait(until) => self.wait(until).await,
            Step::Reserve => self.reserve(&work).await?,
            Step::Create => self.create(&work).await?,
            Step::Observe { .. } | Step::Verify | Step::Settle => {
                self.ask(&work, step, Operation::GetInfo, BUDGET_DEFAULT_MS).await?;
            }
            Step::Kill => self.ask(&work, step, Operation::Kill, KILL_BUDGET_MS).await?,
            Step::Dispatch(turn) => self.dispatch(&work, turn).await?,
            Step::FailTurn(turn, error) => self.write(&work, &[Change::TurnFailed(turn, error)], None).await?,
            Step::RequestCleanup => self.write(&work, &[Change::CleanupRequested], None).await?,
            Step::Release => {
                self.write(&work, &[Change::Released], None).await?;
                tracing::info!(environment = %self.environment, "sandbox released");
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
        let call = call(&core, work, Operation::RunCommand(started.command), started.timeout_ms, Some(room));
        let outcome = tokio::select! {
            outcome = call => outcome,
            () = self.unwanted(turn) => {
                let unknown = TurnError::Unconfirmed.code();
                return self.core.store().abandon_turn(self.lease.epoch, work, turn, unknown).await;
            }
        };
        self.conclude(work, Step::Dispatch(turn), &outcome).await
    }

    /// Ends when nobody wants the Turn's outcome any more.
    async fn unwanted(&mut self, turn: Id) {
        while self.news.changed().await.is_ok() {
            if self.core.store().turn_is_unwanted(turn).await.unwrap_or(false) {
                return;
            }
        }
        std::future::pending::<()>().await;
    }

    async fn ask(&mut self, work: &Work, step: Step, operation: Operation<'static>, budget_ms: u64) -> Result<()> {
        let outcome = call(&self.core, work, operation, budget_ms, None).await;
        if let Err(error) = &outcome {
            tracing::info!(environment = %self.environment, ?step, %error, "a question was not answered");
        }
        self.conclude(work, step, &outcome).await
    }

    /// An outcome that is known must become durable: a store that fails is asked again for as long as it takes.
    async fn conclude(&mut self, work: &Work, step: Step, outcome: &Outcome) -> Result<()> {
        let changes = self.lifecycle.conclude(self.now(), step, outcome);
        let answer = outcome.as_ref().ok();
        while let Err(error) = self.write(work, &changes, answer).await {
            if matches!(error, StoreError::Fenced) {
                return Err(error);
            }
            tracing::warn!(environment = %self.environment, %error, "an outcome is not recorded yet");
            sleep(Duration::from_millis(ASK_AGAIN_MIN_MS)).await;
        }
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

    fn now(&self) -> Millis {
        Millis(u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}

/// A call to the sandbox of `work`, on its own node and generation and nowhere else.
async fn call(core: &Core, work: &Work, operation: Operation<'static>, budget_ms: u64, room: Option<Room>) -> Outcome {
    let ownership = CallError::Refused(palisade_core::session::hub::dispatch::Refusal::Ownership);
    let (Some(placed), Some(reference)) = (work.placement, work.reference()) else { return Err(ownership) };
    let placement = Placement { provider: placed.provider, node: placed.node, generation: placed.generation };
    let budget = Duration::from_millis(budget_ms);
    match room {
        Some(room) => core.hub().call_in(room, placement, reference, operation, budget).await,
        None => core.hub().call(placement, reference, operation, budget).await,
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
