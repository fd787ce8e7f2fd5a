//! Suspending, restoring and waking the compute of one environment.

use palisade_core::admin::node::ComputePhase;
use palisade_core::lifecycle::compute::{Asked, State, Step, Verdict};
use palisade_core::limits::{BUDGET_DEFAULT_MS, CAPTURE_BUDGET_MS, KILL_BUDGET_MS};
use palisade_core::operation::Operation;
use palisade_core::outcome::Answer;
use palisade_core::units::Id;
use palisade_core::wire::payload::Compute;

use super::environment::{Task, call};
use crate::hub::Outcome;
use crate::store::Result;
use crate::store::held::Held;
use crate::store::work::Work;

impl Task {
    /// One step of the compute: commits what the step needs, asks, and stores what came of it.
    pub(super) async fn compute(&mut self, work: &Work, step: Step) -> Result<()> {
        let Some(held) = &work.compute else { return Ok(()) };
        let advanced = match step {
            Step::Quiesce | Step::Return => match held.state.committed(step) {
                Some(next) => self.core.store().set_compute(self.lease.epoch, work, next).await?.is_some(),
                None => false,
            },
            Step::Expire => self.expire(work).await?,
            Step::Suspend | Step::Restore => self.hand_over(work, step).await?,
            Step::Identify => self.identify(work).await?,
            Step::Plan | Step::Replan => self.plan(work, step).await?,
            Step::LookSuspend | Step::StopSource | Step::LookRestore | Step::Thaw | Step::RemoveLeftover => {
                self.ask_compute(work, step).await?
            }
        };
        self.lifecycle.handle_compute(self.now(), advanced);
        Ok(())
    }

    async fn expire(&mut self, work: &Work) -> Result<bool> {
        let expired = self.core.store().expire(self.lease.epoch, work).await?;
        if expired {
            tracing::info!(environment = %work.environment, "a suspended sandbox was kept for as long as promised; it is removed");
        }
        Ok(expired)
    }

    /// The operation is durable before the hub sees it, so that nobody ever sends it a second time.
    async fn hand_over(&mut self, work: &Work, step: Step) -> Result<bool> {
        let fresh = Id::from_random(rand::random());
        let Some(held) = self.core.store().hand_over(self.lease.epoch, work, fresh).await? else { return Ok(false) };
        let mut handed = work.clone();
        handed.compute = Some(held);
        self.ask_compute(&handed, step).await
    }

    async fn ask_compute(&mut self, work: &Work, step: Step) -> Result<bool> {
        let Some((operation, budget_ms)) = question(work, step) else { return Ok(false) };
        let outcome = call(&self.core, work, operation, budget_ms, None).await;
        self.conclude_compute(work, step, None, &outcome).await
    }

    async fn identify(&mut self, work: &Work) -> Result<bool> {
        let named = call(&self.core, work, Operation::Initial, BUDGET_DEFAULT_MS, None).await;
        let Ok(Answer::Compute(named)) = named else {
            self.unanswered(Step::Identify, &named);
            return Ok(false);
        };
        let outcome = call(&self.core, work, Operation::GetCompute(named.clone()), BUDGET_DEFAULT_MS, None).await;
        self.conclude_compute(work, Step::Identify, Some(&named), &outcome).await
    }

    /// A target that may exist is removed before another one gets a name.
    async fn plan(&mut self, work: &Work, step: Step) -> Result<bool> {
        let Some(held) = &work.compute else { return Ok(false) };
        if let (Step::Replan, State::Restoring { target, .. }) = (step, &held.state) {
            let removed = call(&self.core, work, Operation::KillCompute(target.clone()), KILL_BUDGET_MS, None).await;
            if !matches!(removed, Ok(Answer::Done)) {
                self.unanswered(step, &removed);
                return Ok(false);
            }
        }
        let Some((generation, snapshot)) = held.state.plan() else { return Ok(false) };
        let operation = Operation::NewCompute { generation, snapshot: Some(snapshot) };
        let outcome = call(&self.core, work, operation, BUDGET_DEFAULT_MS, None).await;
        self.conclude_compute(work, step, None, &outcome).await
    }

    /// What is known must become durable: a store that fails is asked again for as long as it takes. `true`: the state
    /// of the compute moved.
    async fn conclude_compute(
        &mut self,
        work: &Work,
        step: Step,
        named: Option<&Compute<'static>>,
        outcome: &Outcome,
    ) -> Result<bool> {
        let Some(held @ Held { state, .. }) = &work.compute else { return Ok(false) };
        let asked = Asked { state, step, named, fresh: Id::from_random(rand::random()), ending: work.is_ending() };
        let verdict = asked.conclude(outcome);
        if step == Step::LookSuspend {
            let (handed_ms, told) = (held.facts(false).handed_ms, verdict != Verdict::Unknown);
            self.lifecycle.handle_capture_look(self.now(), handed_ms, outcome, told);
        }
        if verdict == Verdict::Unknown {
            self.unanswered(step, outcome);
            return Ok(false);
        }
        loop {
            let written = match verdict.clone() {
                Verdict::Unknown => return Ok(false),
                Verdict::Store(next) => self.store_state(work, *next).await,
                Verdict::GiveUp(last) => self.give_up(work, *last).await,
            };
            match written {
                Err(error) => self.interrupted(error).await?,
                written => return written,
            }
        }
    }

    async fn store_state(&self, work: &Work, next: State) -> Result<bool> {
        let phase = next.phase();
        let stored = self.core.store().set_compute(self.lease.epoch, work, next).await?;
        let moved = work.compute.as_ref().is_some_and(|held| held.state.phase() != phase);
        if stored.is_some() && moved {
            tracing::info!(environment = %work.environment, ?phase, "the compute of a sandbox changed its phase");
            if phase == ComputePhase::Suspended {
                // Somebody may wait for its place.
                self.core.wake_owner();
            }
        }
        Ok(stored.is_some())
    }

    async fn give_up(&self, work: &Work, last: State) -> Result<bool> {
        let given_up = self.core.store().give_up(self.lease.epoch, work, last).await?;
        if given_up {
            tracing::error!(environment = %work.environment, "a suspended sandbox cannot be restored; it is removed");
        }
        Ok(given_up)
    }

    fn unanswered(&self, step: Step, outcome: &Outcome) {
        let environment = self.environment;
        match outcome {
            Ok(_) => tracing::info!(%environment, ?step, "a question about compute was answered with nothing new"),
            Err(error) => tracing::info!(%environment, ?step, %error, "a question about compute was not answered"),
        }
    }
}

/// What a step asks, with its budget.
fn question(work: &Work, step: Step) -> Option<(Operation<'static>, u64)> {
    let (state, reference) = (&work.compute.as_ref()?.state, work.reference()?);
    match step {
        Step::Suspend | Step::LookSuspend => {
            let suspend = state.suspend(reference, step == Step::LookSuspend)?;
            Some((Operation::Suspend(Box::new(suspend)), CAPTURE_BUDGET_MS))
        }
        Step::Restore | Step::LookRestore => {
            let resume = state.resume(reference, step == Step::LookRestore)?;
            Some((Operation::Resume(Box::new(resume)), CAPTURE_BUDGET_MS))
        }
        Step::StopSource => Some((Operation::KillCompute(state.current()?.clone()), KILL_BUDGET_MS)),
        Step::Thaw => Some((Operation::ResumeCompute(state.current()?.clone()), BUDGET_DEFAULT_MS)),
        Step::RemoveLeftover => Some((state.leftovers().first()?.removal(), KILL_BUDGET_MS)),
        Step::Identify | Step::Quiesce | Step::Return | Step::Plan | Step::Replan | Step::Expire => None,
    }
}
