//! The container engine of a host, and what the provider makes of it. It outlives the node process.

mod checkpoints;
mod compute;

use std::collections::{BTreeMap, BTreeSet};

use palisade_core::operation::{Call, Class, Method, Operation};
use palisade_core::outcome::{self, Answer, Failed, Failure};
use palisade_core::session::lanes::Ticket;
use palisade_core::units::{Generation, Id, Millis};
use palisade_core::wire::payload::{CommandResult, Info, Reference, Sample};

use super::{World, note};
use crate::clock::Time;
use crate::coverage::names;
use crate::plan::{Party, Trap};
use crate::sabotage::Sabotage;

/// Everything in one engine.
#[derive(Debug, Default)]
pub(crate) struct Engine {
    /// Ours, by allocation.
    pub(crate) sandboxes: BTreeMap<Id, Sandbox>,
    /// Containers of somebody else.
    pub(crate) strangers: u32,
    images: BTreeSet<Generation>,
    operations: BTreeMap<u64, Running>,
    next: u64,
    pub(crate) down_until: Time,
    /// What this process knows of creations (decision 34).
    creations: BTreeMap<Id, Creation>,
    checkpoints: checkpoints::Checkpoints,
}

#[derive(Debug, Clone)]
pub(crate) struct Sandbox {
    pub(crate) generation: Generation,
    pub(crate) running: bool,
    paused: bool,
    provider_id: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Creation {
    Running,
    Ended,
    /// Of an earlier process; absent at every look since then.
    Lost(Option<Millis>),
}

/// An operation of the provider.
#[derive(Debug)]
struct Running {
    life: u32,
    ticket: Ticket,
    call: Call<'static>,
    deadline: Millis,
    phase: u8,
    /// Its node is gone: what is under way still ends, nothing else begins.
    orphaned: bool,
    not_before: Time,
    answer: Option<Result<Answer<'static>, Failed<'static>>>,
}

/// What happens in an engine.
#[derive(Debug, Clone, Copy)]
pub(crate) enum EngineEvent {
    Operation(u64),
    Run(u64),
}

const ABSENCE_SETTLES_AFTER_MS: u64 = 300_000;
/// An engine that still creates after its client died is done this long after.
const ORPHANED_CREATE_MAX_MS: u64 = 120_000;

impl Engine {
    pub(crate) fn new() -> Self {
        Self { strangers: super::STRANGERS, ..Self::default() }
    }

    pub(crate) fn import(&mut self, generation: Generation) {
        self.images.insert(generation);
    }

    pub(crate) fn remove_image(&mut self, generation: Generation) {
        self.images.remove(&generation);
    }

    /// Whether the image is there; `None` when the engine does not answer.
    pub(crate) fn image(&self, generation: Generation, now: Time) -> Option<bool> {
        (!self.is_down(now)).then(|| self.images.contains(&generation))
    }

    pub(crate) const fn is_down(&self, now: Time) -> bool {
        self.down_until > now
    }

    /// Some image disappears.
    pub(crate) fn lose_image(&mut self, number: u64) {
        let at = crate::random::index(number % self.images.len().max(1) as u64);
        if let Some(generation) = self.images.iter().nth(at).copied() {
            self.images.remove(&generation);
        }
    }

    /// Whether a helper process of an operation holds the shared lease of `generation`.
    pub(crate) fn shares(&self, generation: Generation) -> bool {
        self.operations.values().any(|running| running.call.deployment_generation == generation)
    }

    pub(crate) fn uses(&self, generation: Generation) -> bool {
        self.sandboxes.values().any(|sandbox| sandbox.generation == generation) || self.kept_for_checkpoints(generation)
    }

    pub(crate) fn is_busy(&self) -> bool {
        !self.operations.is_empty()
    }

    /// A new process knows of no creation.
    pub(crate) fn begin_process(&mut self) {
        self.creations.clear();
    }

    /// A fault that is planted: a start removes what it does not know.
    pub(crate) fn lose_one(&mut self) -> Option<Id> {
        self.sandboxes.pop_first().map(|(id, _)| id)
    }

    /// Records a look at an absent sandbox: true when that settles its creation.
    fn absent(&mut self, allocation: Id, now: Millis) -> bool {
        match self.creations.entry(allocation).or_insert(Creation::Lost(None)) {
            Creation::Ended => true,
            Creation::Running => false,
            Creation::Lost(since) => now.since(*since.get_or_insert(now)) >= ABSENCE_SETTLES_AFTER_MS,
        }
    }

    fn unsettle(&mut self, allocation: Id) {
        let creation = self.creations.entry(allocation).or_insert(Creation::Lost(None));
        if matches!(creation, Creation::Lost(_)) {
            *creation = Creation::Lost(None);
        }
    }
}

impl World {
    /// The provider begins an operation.
    pub(super) fn execute(&mut self, host: usize, ticket: Ticket, call: Call<'static>, deadline: Millis) {
        let now = self.host_now(host);
        self.cover.hit(names::executed(call.operation.method()));
        let allocation = call.reference.allocation;
        note!(self, "host {host} executes {} {}", call.operation.method(), super::core::short(call.id));
        self.books.executing(
            host,
            &call.id.to_string(),
            call.operation.method().operation(),
            call.deployment_generation.get(),
            now.0,
        );
        if matches!(call.operation, Operation::Create(_)) {
            self.hosts[host].engine.creations.insert(allocation, Creation::Running);
        }
        let life = self.hosts[host].life;
        let engine = &mut self.hosts[host].engine;
        engine.next += 1;
        let number = engine.next;
        let running = Running { life, ticket, call, deadline, phase: 0, orphaned: false, not_before: 0, answer: None };
        engine.operations.insert(number, running);
        self.effect(Party::Node(host), Trap::Executed);
        let took = self.engine_latency(host, 40);
        self.operation_later(host, number, took);
    }

    fn engine_latency(&mut self, host: usize, usual: u64) -> u64 {
        let luck = &mut self.hosts[host].luck;
        if luck.chance(self.weather.slow_engine) {
            self.cover.hit("fault: engine slow");
            2_000 + luck.below(130_000)
        } else {
            1 + luck.below(usual)
        }
    }

    fn operation_later(&mut self, host: usize, number: u64, ms: u64) {
        self.queue.push(self.now + ms, super::Event::Engine(host, EngineEvent::Operation(number)));
    }

    pub(super) fn engine_event(&mut self, host: usize, event: EngineEvent) {
        match event {
            EngineEvent::Operation(number) => self.operation_step(host, number),
            EngineEvent::Run(number) => self.run_step(host, number),
        }
    }

    /// One more step of an operation, or its end.
    fn operation_step(&mut self, host: usize, number: u64) {
        let now = self.now;
        let Some(running) = self.hosts[host].engine.operations.get_mut(&number) else { return };
        if running.not_before > now {
            return;
        }
        if running.orphaned && (running.phase > 0 && running.answer.is_some()) {
            return self.drop_operation(host, number);
        }
        if let Some(answer) = running.answer.take() {
            return self.answer_operation(host, number, answer);
        }
        if self.hosts[host].engine.is_down(self.now) {
            return self.unreachable(host, number);
        }
        let Some(running) = self.hosts[host].engine.operations.get(&number) else { return };
        let (call, phase, orphaned) = (running.call.clone(), running.phase, running.orphaned);
        match &call.operation {
            Operation::Create(_) => self.create_step(host, number, &call, phase, orphaned),
            Operation::GetInfo | Operation::Renew => self.look(host, number, call.reference),
            Operation::Kill => self.kill(host, number, call.reference.allocation),
            Operation::RunCommand(_) | Operation::RunCommandCompute { .. } => {
                self.command_step(host, number, &call, phase);
            }
            Operation::Observe(_) => self.sample(host, number, call.reference.allocation),
            _ => self.compute_step(host, number, &call, phase),
        }
    }

    /// The engine does not answer: an operation fails without an effect, or waits for it.
    fn unreachable(&mut self, host: usize, number: u64) {
        self.cover.hit("fault: engine down during an operation");
        let until = self.hosts[host].engine.down_until;
        let now = self.host_now(host);
        let Some(running) = self.hosts[host].engine.operations.get(&number) else { return };
        let (allocation, method, phase) =
            (running.call.reference.allocation, running.call.operation.method(), running.phase);
        let reads = running.call.operation.class() == Class::Read || method == Method::Renew || constructs(method);
        let over = running.deadline <= now;
        if reads {
            self.hosts[host].engine.unsettle(allocation);
        }
        if reads || over && phase == 0 && method != Method::Create {
            return self.finish(host, number, Err(outcome::unknown(method).into()), 1);
        }
        let wait = until - self.now + 1;
        self.operation_later(host, number, wait);
    }

    /// The operation's last effect happened; its answer follows.
    fn finish(&mut self, host: usize, number: u64, answer: Result<Answer<'static>, Failed<'static>>, ms: u64) {
        let lost = self.luck.chance(self.weather.lost_answers);
        if let Some(running) = self.hosts[host].engine.operations.get_mut(&number) {
            let method = running.call.operation.method();
            running.answer = Some(if lost && is_lost(method) { Err(outcome::unknown(method).into()) } else { answer });
            running.phase = 9;
        }
        let hangs = if lost { 1_000 + self.luck.below(20_000) } else { 0 };
        if lost {
            self.cover.hit("fault: answer of the engine lost");
        }
        self.operation_later(host, number, ms + hangs);
    }

    fn answer_operation(&mut self, host: usize, number: u64, answer: Result<Answer<'static>, Failed<'static>>) {
        let Some(running) = self.hosts[host].engine.operations.remove(&number) else { return };
        let allocation = running.call.reference.allocation;
        if matches!(running.call.operation, Operation::Create(_)) && !running.orphaned {
            self.hosts[host].engine.creations.insert(allocation, Creation::Ended);
        }
        self.cover.hit(names::provider_answer(&answer));
        self.books.executed(host, &running.call.id.to_string(), &answer);
        let now = self.host_now(host);
        if self.hosts[host].life == running.life && self.hosts[host].process.is_some() {
            self.with_machine(host, |machine| machine.handle_result(now, running.ticket, answer));
            if self.hosts[host].frozen_until <= self.now {
                self.drive_node(host);
            }
        }
    }

    fn with_machine(&mut self, host: usize, act: impl FnOnce(&mut palisade_core::session::node::Node)) {
        if let Some(process) = &mut self.hosts[host].process {
            act(&mut process.machine);
        }
    }

    fn create_step(&mut self, host: usize, number: u64, call: &Call<'static>, phase: u8, orphaned: bool) {
        let allocation = call.reference.allocation;
        let fails = self.luck.chance(self.weather.failing_engine);
        match phase {
            0 if fails && !orphaned => {
                self.cover.hit("fault: create refused by the engine");
                let info = info(call.reference, "", "absent", false, true);
                let failure = self.luck.pick(&[0, 1, 2]);
                let failure = match failure {
                    0 => Failure::Invalid,
                    1 => Failure::Unconfirmed,
                    _ => Failure::Unsupported {
                        method: "Create".into(),
                        reason: "external_workspace_unsupported".into(),
                    },
                };
                let receipt = self.luck.chance(700).then_some(info);
                self.finish(host, number, Err(Failed { failure, info: receipt, state: None }), 1);
            }
            0 => {
                let exists = self.hosts[host].engine.sandboxes.contains_key(&allocation);
                if exists {
                    return self.finish(host, number, Err(Failure::Exists.into()), 1);
                }
                let provider_id = format!("native-{number}");
                let sandbox =
                    Sandbox { generation: call.deployment_generation, running: false, paused: false, provider_id };
                self.hosts[host].engine.sandboxes.insert(allocation, sandbox);
                self.books.sandbox_created(host, allocation, self.now);
                self.next_phase(host, number, 1);
                let took = self.engine_latency(host, 1_500);
                self.operation_later(host, number, took);
            }
            _ if orphaned => self.drop_operation(host, number),
            _ if fails => {
                self.cover.hit("fault: sandbox does not start");
                let id = self.hosts[host].engine.sandboxes.get(&allocation).map(|sandbox| sandbox.provider_id.clone());
                let receipt = id.map(|id| info(call.reference, &id, "created", false, true));
                self.finish(host, number, Err(Failed { failure: Failure::Unconfirmed, info: receipt, state: None }), 1);
            }
            _ => {
                let Some(sandbox) = self.hosts[host].engine.sandboxes.get_mut(&allocation) else {
                    return self.finish(host, number, Err(Failure::Unconfirmed.into()), 1);
                };
                sandbox.running = true;
                let answer = info(call.reference, &sandbox.provider_id, "running", true, true);
                self.books.incarnation_runs(host, allocation, 0);
                self.finish(host, number, Ok(Answer::Info(answer)), 1);
            }
        }
    }

    fn next_phase(&mut self, host: usize, number: u64, phase: u8) {
        if let Some(running) = self.hosts[host].engine.operations.get_mut(&number) {
            running.phase = phase;
        }
    }

    fn look(&mut self, host: usize, number: u64, reference: Reference) {
        let now = self.host_now(host);
        let allocation = reference.allocation;
        let engine = &mut self.hosts[host].engine;
        let settled = engine.creations.get(&allocation) == Some(&Creation::Ended);
        let answer = match engine.sandboxes.get(&allocation).cloned() {
            Some(sandbox) => {
                engine.unsettle(allocation);
                let state = if sandbox.running { "running" } else { "exited" };
                let running = sandbox.running;
                Ok(Answer::Info(info(reference, &sandbox.provider_id, state, running, settled || running)))
            }
            None if engine.absent(allocation, now) => Ok(Answer::Info(info(reference, "", "absent", false, true))),
            None => Err(Failure::NotFound.into()),
        };
        self.finish(host, number, answer, 1);
    }

    fn kill(&mut self, host: usize, number: u64, allocation: Id) {
        if self.luck.chance(self.weather.failing_engine) {
            self.cover.hit("fault: kill refused by the engine");
            return self.finish(host, number, Err(Failure::Unconfirmed.into()), 1);
        }
        if self.hosts[host].engine.sandboxes.remove(&allocation).is_some() {
            self.books.sandbox_removed(host, allocation);
        }
        if self.sabotage == Some(Sabotage::EnginePrunesStrangers) {
            self.hosts[host].engine.strangers = 0;
        }
        self.finish(host, number, Ok(Answer::Done), 1);
    }

    fn command_step(&mut self, host: usize, number: u64, call: &Call<'static>, phase: u8) {
        let allocation = call.reference.allocation;
        let engine = &self.hosts[host].engine;
        let (command, incarnation, running) = match &call.operation {
            Operation::RunCommand(command) => {
                (command, 0, engine.sandboxes.get(&allocation).map(|sandbox| sandbox.running))
            }
            Operation::RunCommandCompute { compute, command } => {
                (command, compute.generation, engine.may_run(call.reference, compute).ok())
            }
            _ => return,
        };
        let turn = command.args.last().map(ToString::to_string).unwrap_or_default();
        let refused = phase == 0 && self.luck.chance(self.weather.failing_engine / 2);
        match (phase, running) {
            (0, Some(true)) if refused => {
                self.cover.hit("fault: command refused by the engine");
                let failure = match self.luck.below(3) {
                    0 => Failure::Invalid,
                    1 => Failure::Ownership,
                    _ => Failure::Unsupported {
                        method: call.operation.method().name().into(),
                        reason: "commands_not_supported".into(),
                    },
                };
                self.finish(host, number, Err(failure.into()), 1);
            }
            (0, None) => self.finish(host, number, Err(Failure::NotFound.into()), 1),
            (0, Some(false)) => self.finish(host, number, Err(Failure::RuntimeNotRunning.into()), 1),
            (0, Some(true)) => {
                self.books.command_started(host, &turn);
                self.books.incarnation_used(host, allocation, incarnation);
                self.next_phase(host, number, 1);
                let took = self.engine_latency(host, 900);
                let now = self.host_now(host);
                let left = self.hosts[host].engine.operations.get(&number).map_or(0, |held| held.deadline.since(now));
                let took = if took > left { left + self.luck.below(9_000) } else { took };
                self.operation_later(host, number, took);
            }
            (_, Some(true)) => {
                let now = self.host_now(host);
                let late = self.hosts[host].engine.operations.get(&number).is_some_and(|held| held.deadline <= now);
                if late {
                    return self.finish(host, number, Err(Failure::CommandUnconfirmed.into()), 1);
                }
                let exit_code = i64::from(turn.bytes().map(u32::from).sum::<u32>() % 3);
                let stdout = format!("out {turn}");
                self.books.command_ended(&turn, &stdout, exit_code);
                let result = CommandResult { stdout: stdout.into(), stderr: "".into(), exit_code };
                self.finish(host, number, Ok(Answer::Command(result)), 1);
            }
            (_, None | Some(false)) => self.finish(host, number, Err(Failure::CommandUnconfirmed.into()), 1),
        }
    }

    fn sample(&mut self, host: usize, number: u64, allocation: Id) {
        let answer = match self.hosts[host].engine.sandboxes.get(&allocation).map(|sandbox| sandbox.running) {
            None => Err(Failure::ObservationUnavailable.into()),
            Some(false) => Err(Failure::RuntimeNotRunning.into()),
            Some(true) => Ok(Answer::Sample(Sample {
                observed_at: "2026-10-01T08:00:09Z".into(),
                started_at: None,
                cpu_usage_seconds_total: Some(1.0),
                cpu_capacity_cores: Some(2.0),
                cpu_utilization_ratio: None,
                memory_usage_bytes: Some(0),
                memory_limit_bytes: Some(1 << 30),
                disk_usage_bytes: None,
                disk_limit_bytes: None,
            })),
        };
        let took = self.engine_latency(host, 400);
        self.finish(host, number, answer, took);
    }

    /// The node is gone: an engine ends what it has begun, but not later than it can.
    pub(super) fn orphan_operations(&mut self, host: usize) {
        let now = self.now;
        let numbers: Vec<u64> = self.hosts[host].engine.operations.keys().copied().collect();
        for number in numbers {
            let Some(running) = self.hosts[host].engine.operations.get_mut(&number) else { continue };
            running.orphaned = true;
            let begun = running.phase == 0 && running.answer.is_none();
            let create = matches!(running.call.operation, Operation::Create(_));
            let moves = matches!(running.call.operation, Operation::Suspend(_) | Operation::Resume(_));
            if moves && running.phase == 1 {
                let call = running.call.clone();
                self.orphan_compute(host, number, &call);
            } else if begun && !create {
                self.drop_operation(host, number);
            } else if create && begun {
                // The call under way ends some time, with or without an effect.
                let gone = self.luck.chance(500);
                let late = self.luck.below(ORPHANED_CREATE_MAX_MS);
                if gone {
                    self.drop_operation(host, number);
                } else if let Some(running) = self.hosts[host].engine.operations.get_mut(&number) {
                    running.not_before = now + late;
                    self.cover.hit("fault: create outlives its node");
                    self.queue.push(now + late, super::Event::Engine(host, EngineEvent::Operation(number)));
                }
            }
        }
    }

    /// An operation ends without an answer.
    fn drop_operation(&mut self, host: usize, number: u64) {
        if let Some(running) = self.hosts[host].engine.operations.remove(&number) {
            self.books.operation_gone(host, &running.call.id.to_string());
        }
    }

    /// The power goes: nothing runs any more, what was created is still there.
    pub(super) fn reboot_engine(&mut self, host: usize) {
        for number in self.hosts[host].engine.operations.keys().copied().collect::<Vec<u64>>() {
            self.drop_operation(host, number);
        }
        self.hosts[host].engine.down_until = 0;
        self.stop_sandboxes(host, None);
    }

    /// What runs stops, and keeps what is in it.
    pub(super) fn stop_sandboxes(&mut self, host: usize, only: Option<Id>) {
        self.hosts[host].engine.stop_all(only);
        self.books.incarnations_stopped(host, only);
    }
}

/// Whether the effect of such an operation stays when nobody hears of it.
const fn is_lost(method: Method) -> bool {
    method.is_command() || matches!(method, Method::Suspend | Method::Resume)
}

/// Constructs a name, and changes nothing.
const fn constructs(method: Method) -> bool {
    matches!(method, Method::Initial | Method::NewCompute)
}

fn info(reference: Reference, id: &str, state: &str, complete: bool, settled: bool) -> Info<'static> {
    Info {
        reference: reference.into(),
        provider_id: id.to_owned().into(),
        state: state.to_owned().into(),
        bootstrap_complete: complete,
        create_settled: settled,
    }
}
