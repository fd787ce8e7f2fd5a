//! Suspending, restoring and waking the compute of one environment, as the owner does it (deployment §4.4).

use palisade_core::lifecycle::compute::{Asked, State as Compute, Step, Verdict};
use palisade_core::lifecycle::{Change, Outcome, Step as Whole};
use palisade_core::limits::{BUDGET_DEFAULT_MS, CAPTURE_BUDGET_MS, KILL_BUDGET_MS};
use palisade_core::operation::Operation;
use palisade_core::outcome::Answer;
use palisade_core::wire::IntoOwned as _;

use super::calls::Ask;
use crate::coverage::names;
use crate::sabotage::Sabotage;
use crate::world::store::Held;
use crate::world::{World, note};

impl World {
    /// One step: commits what the step needs, asks, and stores what came of it.
    pub(super) fn compute(&mut self, core: usize, session: usize, serial: u64, step: Step) {
        self.cover.hit(names::compute_step(step));
        let Some(held) = self.compute_held(core, session, serial) else { return };
        match step {
            Step::Quiesce | Step::Return => match held.state.committed(step) {
                Some(next) => self.ask_for(core, session, serial, Ask::SetCompute(Box::new(held), Box::new(next))),
                None => self.compute_moved(core, session, serial, false),
            },
            Step::Expire => self.ask_for(core, session, serial, Ask::Expire(Box::new(held))),
            Step::Suspend | Step::Restore => {
                let fresh = self.core_id();
                self.ask_for(core, session, serial, Ask::HandOver(Box::new(held), step, fresh));
            }
            Step::Identify => self.ask_compute(core, session, serial, step, Operation::Initial, BUDGET_DEFAULT_MS),
            Step::Replan => match held.state {
                Compute::Restoring { target, .. } => {
                    self.ask_compute(core, session, serial, step, Operation::KillCompute(target), KILL_BUDGET_MS);
                }
                _ => self.compute_moved(core, session, serial, false),
            },
            Step::Plan => self.plan(core, session, serial, step),
            Step::LookSuspend | Step::StopSource | Step::LookRestore | Step::Thaw | Step::RemoveLeftover => {
                self.question(core, session, serial, step);
            }
        }
    }

    fn compute_held(&mut self, core: usize, session: usize, serial: u64) -> Option<Held> {
        self.task(core, session, serial)?.work.as_ref()?.compute.clone()
    }

    fn ask_compute(
        &mut self,
        core: usize,
        session: usize,
        serial: u64,
        step: Step,
        operation: Operation<'static>,
        budget_ms: u64,
    ) {
        self.call(core, session, serial, Whole::Compute(step), operation, budget_ms);
    }

    /// Asks for the name of the next incarnation.
    fn plan(&mut self, core: usize, session: usize, serial: u64, step: Step) {
        let planned = self.compute_held(core, session, serial).and_then(|held| held.state.plan());
        match planned {
            Some((generation, snapshot)) => {
                let operation = Operation::NewCompute { generation, snapshot: Some(snapshot) };
                self.ask_compute(core, session, serial, step, operation, BUDGET_DEFAULT_MS);
            }
            None => self.compute_moved(core, session, serial, false),
        }
    }

    /// What a step asks with one call.
    fn question(&mut self, core: usize, session: usize, serial: u64, step: Step) {
        let work = self.task(core, session, serial).and_then(|task| task.work.clone());
        let asked = work.and_then(|work| {
            let (state, reference) = (work.compute?.state, work.reference?);
            let replays = self.sabotage == Some(Sabotage::CoreSendsCaptureAgain);
            let drops = self.sabotage == Some(Sabotage::CoreDropsSnapshotEarly);
            Some(match step {
                Step::Suspend | Step::LookSuspend => {
                    let suspend = state.suspend(reference, step == Step::LookSuspend && !replays)?;
                    (Operation::Suspend(Box::new(suspend)), CAPTURE_BUDGET_MS)
                }
                Step::Restore if drops => match state {
                    Compute::Restoring { snapshot, .. } => (Operation::DeleteSnapshot(*snapshot), KILL_BUDGET_MS),
                    _ => return None,
                },
                Step::Restore | Step::LookRestore => {
                    let resume = state.resume(reference, step == Step::LookRestore && !replays)?;
                    (Operation::Resume(Box::new(resume)), CAPTURE_BUDGET_MS)
                }
                Step::StopSource => (Operation::KillCompute(state.current()?.clone()), KILL_BUDGET_MS),
                Step::Thaw => (Operation::ResumeCompute(state.current()?.clone()), BUDGET_DEFAULT_MS),
                Step::RemoveLeftover => (state.leftovers().first()?.removal(), KILL_BUDGET_MS),
                Step::Identify | Step::Quiesce | Step::Return | Step::Plan | Step::Replan | Step::Expire => {
                    return None;
                }
            })
        });
        match asked {
            Some((operation, budget_ms)) => self.ask_compute(core, session, serial, step, operation, budget_ms),
            None => self.compute_moved(core, session, serial, false),
        }
    }

    /// The operation is durable: only now the hub sees it.
    pub(super) fn handed_over(&mut self, core: usize, session: usize, serial: u64, step: Step, held: Option<Held>) {
        let Some(held) = held else { return self.compute_moved(core, session, serial, false) };
        if let Some(work) = self.task(core, session, serial).and_then(|task| task.work.as_mut()) {
            work.compute = Some(held);
        }
        self.question(core, session, serial, step);
    }

    /// An answer. Two steps ask twice: for a name and then for what has it, and for a removal before the next name.
    pub(super) fn compute_answered(
        &mut self,
        core: usize,
        session: usize,
        serial: u64,
        step: Step,
        outcome: &Outcome<'static>,
    ) {
        let Some(task) = self.task(core, session, serial) else { return };
        let named = task.named.take();
        match (step, outcome, &named) {
            (Step::Identify, Ok(Answer::Compute(first)), None) => {
                let first = first.clone().into_owned();
                task.named = Some(first.clone());
                let operation = Operation::GetCompute(first);
                return self.ask_compute(core, session, serial, step, operation, BUDGET_DEFAULT_MS);
            }
            (Step::Replan, Ok(Answer::Done), _) => return self.plan(core, session, serial, step),
            _ => {}
        }
        let fresh = self.core_id();
        let Some(work) = self.task(core, session, serial).and_then(|task| task.work.clone()) else { return };
        let Some(held) = &work.compute else { return self.compute_moved(core, session, serial, false) };
        let now = self.core_now(core);
        let ending = work.is_ending();
        let asked = Asked { state: &held.state, step, named: named.as_ref(), fresh, ending };
        let verdict = asked.conclude(outcome);
        if let (Step::LookSuspend, Some(task)) = (step, self.task(core, session, serial)) {
            let (handed_ms, told) = (held.facts(false).handed_ms, verdict != Verdict::Unknown);
            task.lifecycle.handle_capture_look(now, handed_ms, outcome, told);
        }
        let held = Box::new(held.clone());
        match verdict {
            Verdict::Unknown => {
                self.cover.hit("compute: nothing new");
                self.compute_moved(core, session, serial, false);
            }
            Verdict::Store(next) => {
                note!(self, "core {core}, session {session}: compute is {:?}", next.phase());
                self.cover.hit(names::phase(next.phase()));
                self.ask_for(core, session, serial, Ask::SetCompute(held, next));
            }
            Verdict::GiveUp(last) => {
                self.cover.hit("compute: given up");
                self.ask_for(core, session, serial, Ask::GiveUp(held, last));
            }
        }
    }

    /// Whether the state of the compute moved; the facts say what follows.
    pub(super) fn compute_moved(&mut self, core: usize, session: usize, serial: u64, advanced: bool) {
        let now = self.core_now(core);
        if let Some(task) = self.task(core, session, serial) {
            task.lifecycle.handle_compute(now, advanced);
        }
        self.ask_for(core, session, serial, Ask::Work);
    }

    /// Removes everything that there may be, one after the other; whatever is not confirmed is asked for again.
    pub(super) fn remove(&mut self, core: usize, session: usize, serial: u64) {
        let forgets = self.sabotage == Some(Sabotage::CoreForgetsFailedTarget);
        let Some(task) = self.task(core, session, serial) else { return };
        let held = task.work.as_ref().and_then(|work| work.compute.as_ref());
        let removals = held.map_or_else(|| vec![Operation::Kill], |held| held.state.removals());
        task.removals = removals.into();
        if forgets && matches!(held.map(|held| &held.state), Some(Compute::Restoring { .. })) {
            task.removals.pop_front();
        }
        self.remove_next(core, session, serial);
    }

    /// Whether another removal was asked for.
    pub(super) fn remove_next(&mut self, core: usize, session: usize, serial: u64) -> bool {
        let next = self.task(core, session, serial).and_then(|task| task.removals.pop_front());
        let Some(removal) = next else { return false };
        self.call(core, session, serial, Whole::Kill, removal, KILL_BUDGET_MS);
        true
    }

    /// Looks for the incarnation that should be running: the first one is the allocation itself.
    pub(super) fn look_for(
        &mut self,
        core: usize,
        session: usize,
        serial: u64,
        step: Whole,
        first: Operation<'static>,
    ) {
        let held = self.compute_held(core, session, serial);
        let later = held.and_then(|held| held.state.current().cloned()).filter(|current| current.generation > 0);
        let operation = later.map_or(first, Operation::GetCompute);
        self.call(core, session, serial, step, operation, BUDGET_DEFAULT_MS);
    }

    /// What a look shows, whichever way it was taken.
    pub(super) fn looked(
        &mut self,
        core: usize,
        session: usize,
        serial: u64,
        step: Whole,
        outcome: &Outcome<'static>,
    ) -> Vec<Change> {
        let now = self.core_now(core);
        let held = self.compute_held(core, session, serial);
        let later = held.and_then(|held| held.state.current().cloned()).filter(|current| current.generation > 0);
        let Some(task) = self.task(core, session, serial) else { return Vec::new() };
        match later {
            Some(current) => task.lifecycle.conclude_look(now, step, &current, outcome),
            None => task.lifecycle.conclude(now, step, outcome),
        }
    }
}
