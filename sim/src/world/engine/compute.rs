//! The operations of a provider with checkpoints, one durable step at a time.

use palisade_core::operation::{Call, Operation};
use palisade_core::outcome::{Answer, Failed, Failure};
use palisade_core::wire::payload::{Resume, Suspend};

use super::checkpoints;
use crate::sabotage::Sabotage;
use crate::world::World;

impl World {
    /// One step of an operation on an incarnation or a snapshot.
    pub(super) fn compute_step(&mut self, host: usize, number: u64, call: &Call<'static>, phase: u8) {
        let (reference, allocation) = (call.reference, call.reference.allocation);
        match &call.operation {
            Operation::Initial => {
                self.finish(host, number, Ok(Answer::Compute(checkpoints::name(reference, 0, None))), 1);
            }
            Operation::NewCompute { generation, snapshot } => {
                let named = checkpoints::name(reference, generation.get(), snapshot.clone());
                self.finish(host, number, Ok(Answer::Compute(named)), 1);
            }
            Operation::GetCompute(compute) => {
                let answer = self.hosts[host].engine.look_at(reference, compute);
                self.finish(host, number, answer, 1);
            }
            Operation::ResumeCompute(compute) => {
                let answer = self.hosts[host].engine.thaw(reference, compute);
                if answer.is_ok() {
                    self.books.incarnation_runs(host, allocation, compute.generation);
                }
                self.finish(host, number, answer, 1);
            }
            Operation::KillCompute(compute) => {
                if self.engine_refuses("fault: incarnation not removed") {
                    return self.finish(host, number, Err(Failure::Unconfirmed.into()), 1);
                }
                let killed = self.hosts[host].engine.kill_incarnation(reference, compute);
                if killed == Ok(true) {
                    self.books.incarnation_removed(host, allocation, compute.generation);
                }
                self.finish(host, number, killed.map(|_| Answer::Done).map_err(Into::into), 1);
            }
            Operation::DeleteSnapshot(snapshot) => {
                if self.engine_refuses("fault: snapshot not removed") {
                    return self.finish(host, number, Err(Failure::Unconfirmed.into()), 1);
                }
                let deleted = self.hosts[host].engine.delete_snapshot(allocation, snapshot);
                if deleted == Ok(true) {
                    self.books.snapshot_removed(host, allocation, &snapshot.operation_id);
                }
                self.finish(host, number, deleted.map(|_| Answer::Done).map_err(Into::into), 1);
            }
            Operation::Suspend(suspend) => self.suspend_step(host, number, call, suspend, phase),
            Operation::Resume(resume) => self.resume_step(host, number, call, resume, phase),
            _ => self.finish(host, number, Err(Failure::Unconfirmed.into()), 1),
        }
    }

    fn engine_refuses(&mut self, fault: &'static str) -> bool {
        // Captures and restores are few, and fail in more ways than anything else.
        let refuses = self.luck.chance(2 * self.weather.failing_engine);
        if refuses {
            self.cover.hit(fault);
        }
        refuses
    }

    /// The snapshot is complete first; then the source stops. A node that dies in between leaves both, or ends it.
    fn suspend_step(&mut self, host: usize, number: u64, call: &Call<'static>, suspend: &Suspend<'static>, phase: u8) {
        let (reference, allocation) = (call.reference, call.reference.allocation);
        if suspend.observe_only {
            let answer = self.hosts[host].engine.captured(reference, suspend);
            return self.finish(host, number, answer, 1);
        }
        if phase == 0 {
            let goes_on = self.luck.chance(300);
            if self.engine_refuses("fault: suspend refused by the engine") {
                return self.finish(host, number, Err(Failure::Unconfirmed.into()), 1);
            }
            let generation = call.deployment_generation;
            if let Err(failure) = self.hosts[host].engine.capture(reference, suspend, generation, goes_on) {
                return self.finish(host, number, Err(failure.into()), 1);
            }
            self.books.captured(host, allocation, suspend.source.generation, &suspend.operation_id);
            return self.work_on(host, number, 2_500);
        }
        if self.engine_refuses("fault: captured source not stopped") {
            return self.finish(host, number, Err(Failure::Unconfirmed.into()), 1);
        }
        self.hosts[host].engine.stop_source(allocation, suspend);
        self.books.source_stopped(allocation, suspend.source.generation, &suspend.operation_id);
        let answer = self.hosts[host].engine.captured(reference, suspend);
        self.finish(host, number, answer, 1);
    }

    /// The target exists before it runs, and perhaps it never does.
    fn resume_step(&mut self, host: usize, number: u64, call: &Call<'static>, resume: &Resume<'static>, phase: u8) {
        let (reference, allocation) = (call.reference, call.reference.allocation);
        let known = phase == 0 && self.hosts[host].engine.evidence(reference, &resume.target).is_some();
        if resume.observe_only || known {
            let answer = self.hosts[host].engine.resumed(reference, resume);
            return self.finish(host, number, answer, 1);
        }
        if phase == 0 {
            if self.engine_refuses("fault: resume refused by the engine") {
                let unusable = self.luck.chance(500);
                let failure = if unusable { Failure::CheckpointUnusable } else { Failure::Unconfirmed };
                return self.refuse_resume(host, number, call, failure);
            }
            let generation = call.deployment_generation;
            if let Err(failure) = self.hosts[host].engine.restore(reference, resume, generation, number) {
                return self.refuse_resume(host, number, call, failure);
            }
            let origin = &resume.snapshot.operation_id;
            self.books.incarnation_made(host, allocation, resume.target.generation, origin);
            return self.work_on(host, number, 2_500);
        }
        let runs = !self.engine_refuses("fault: what was restored does not start");
        self.hosts[host].engine.restored(allocation, &resume.target, runs);
        if runs {
            self.books.incarnation_runs(host, allocation, resume.target.generation);
            if self.sabotage == Some(Sabotage::EngineStartsSourceAgain) {
                self.books.incarnation_runs(host, allocation, resume.snapshot.source_generation);
            }
            let answer = self.hosts[host].engine.resumed(reference, resume);
            return self.finish(host, number, answer, 1);
        }
        let unusable = self.luck.chance(500);
        let failure = if unusable { Failure::CheckpointUnusable } else { Failure::Unconfirmed };
        self.refuse_resume(host, number, call, failure);
    }

    /// What exists of the target is named beside the failure, so that it can be removed.
    fn refuse_resume(&mut self, host: usize, number: u64, call: &Call<'static>, failure: Failure) {
        let Operation::Resume(resume) = &call.operation else { return };
        let state = self.hosts[host].engine.evidence(call.reference, &resume.target);
        if state.is_some() {
            self.cover.hit("evidence beside a failed resume");
        }
        self.finish(host, number, Err(Failed { failure, info: None, state }), 1);
    }

    /// The node died in the middle of a capture or a restore: what is under way ends at once, or leaves what there is.
    pub(super) fn orphan_compute(&mut self, host: usize, number: u64, call: &Call<'static>) {
        if self.luck.chance(500) {
            self.cover.hit("fault: capture or restore ended with its node");
            return self.drop_operation(host, number);
        }
        let allocation = call.reference.allocation;
        match &call.operation {
            Operation::Suspend(suspend) => {
                self.hosts[host].engine.stop_source(allocation, suspend);
                self.books.source_stopped(allocation, suspend.source.generation, &suspend.operation_id);
            }
            Operation::Resume(resume) => {
                self.hosts[host].engine.restored(allocation, &resume.target, true);
                self.books.incarnation_runs(host, allocation, resume.target.generation);
            }
            _ => {}
        }
        self.cover.hit("fault: capture or restore outlives its node");
        self.drop_operation(host, number);
    }

    fn work_on(&mut self, host: usize, number: u64, usual: u64) {
        self.next_phase(host, number, 1);
        let took = self.engine_latency(host, usual);
        self.operation_later(host, number, took);
    }
}
