//! A provider without a backend: sandboxes in memory, and faults on demand.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use palisade_core::operation::{Declaration, Method, Operation, Support};
use palisade_core::outcome::{Answer, Failed, Failure};
use palisade_core::units::Generation;
use palisade_core::wire::payload::{
    Bootstrap, Checkpoint, Command, CommandResult, Compute, ComputeState, Diagnostic, Info, Reference, Resume, Sample,
};
use tokio::sync::Notify;

use super::machines::{self, Machines};
use crate::workspace::Policy;
use crate::{Context, NotReady, Provider, flattened};

/// What happens to one native call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The call reaches the backend, takes effect there and is not answered until [`FaultProvider::release`].
    Hang,
    /// The call is answered that much later.
    Slow(Duration),
    /// The call has no effect and fails.
    Fail(Failure),
    /// The call takes effect, and its answer is lost.
    LostAnswer,
    /// The resource of the name belongs to somebody else.
    ForeignOwner,
}

/// A scriptable provider. Every method's next call meets the oldest fault that was scripted for it.
pub struct FaultProvider {
    generation: Generation,
    declaration: Declaration,
    workspace: Policy,
    state: Mutex<State>,
    dispatched: Notify,
    released: Notify,
}

#[derive(Default)]
struct State {
    faults: BTreeMap<Method, VecDeque<Fault>>,
    calls: Vec<(Method, Reference)>,
    commands: Vec<Command<'static>>,
    observed: Vec<palisade_core::wire::payload::ObservationTarget<'static>>,
    machines: Machines,
    not_ready: Option<Diagnostic>,
    checkpoint: Option<Checkpoint<'static>>,
    sample: Option<Sample<'static>>,
    executing: usize,
    executing_most: usize,
}

impl FaultProvider {
    /// A provider of `generation` that observes and suspends, and supports no preparation.
    ///
    /// # Panics
    /// Never: the reason is a reason code.
    #[must_use]
    pub fn suspending(generation: Generation) -> Self {
        let preparation = Support::Unsupported { reason: "test_has_no_preparation".to_owned() };
        let declaration = Declaration::of_groups(&Support::Supported, &Support::Supported, &preparation);
        Self::new(generation).with_declaration(declaration.expect("the reason is a reason code"))
    }

    /// A provider of `generation` that observes, and supports neither checkpoints nor preparation.
    #[must_use]
    pub fn new(generation: Generation) -> Self {
        let declaration = default_declaration();
        Self {
            generation,
            declaration,
            workspace: Policy::NoStorage,
            state: Mutex::default(),
            dispatched: Notify::new(),
            released: Notify::new(),
        }
    }

    /// Declares something else.
    #[must_use]
    pub fn with_declaration(mut self, declaration: Declaration) -> Self {
        self.declaration = declaration;
        self
    }

    /// Treats workspace bindings differently.
    #[must_use]
    pub fn with_workspace(mut self, policy: Policy) -> Self {
        self.workspace = policy;
        self
    }

    /// Scripts the next unscripted call of `method`.
    pub fn script(&self, method: Method, fault: Fault) {
        self.state().faults.entry(method).or_default().push_back(fault);
    }

    /// Ends when a call with [`Fault::Hang`] has reached the backend; one such call ends one wait.
    pub async fn dispatched(&self) {
        self.dispatched.notified().await;
    }

    /// Answers one hanging call.
    pub fn release(&self) {
        self.released.notify_one();
    }

    /// What the probe says from now on; `None` is ready.
    pub fn set_not_ready(&self, diagnostic: Option<Diagnostic>) {
        self.state().not_ready = diagnostic;
    }

    /// The compatibility tokens that a successful probe returns from now on.
    pub fn set_checkpoint(&self, checkpoint: Option<Checkpoint<'static>>) {
        self.state().checkpoint = checkpoint;
    }

    /// What `observe` measures from now on.
    pub fn set_sample(&self, sample: Sample<'static>) {
        self.state().sample = Some(sample);
    }

    /// Every native call so far, in order.
    #[must_use]
    pub fn calls(&self) -> Vec<(Method, Reference)> {
        self.state().calls.clone()
    }

    /// Native calls of `method` so far.
    #[must_use]
    pub fn count(&self, method: Method) -> usize {
        self.state().calls.iter().filter(|(called, _)| *called == method).count()
    }

    /// Every command that took effect, in order.
    #[must_use]
    pub fn commands(&self) -> Vec<Command<'static>> {
        self.state().commands.clone()
    }

    /// Every observation target that arrived, in order.
    #[must_use]
    pub fn observed(&self) -> Vec<palisade_core::wire::payload::ObservationTarget<'static>> {
        self.state().observed.clone()
    }

    /// Sandboxes of which something exists now, snapshots included.
    #[must_use]
    pub fn sandboxes(&self) -> Vec<Reference> {
        self.state().machines.references()
    }

    /// The incarnations of a sandbox that exist now, with their native states.
    #[must_use]
    pub fn incarnations(&self, reference: Reference) -> Vec<(u64, String)> {
        self.state().machines.incarnations(reference)
    }

    /// The snapshots of a sandbox that exist now.
    #[must_use]
    pub fn snapshots(&self, reference: Reference) -> usize {
        self.state().machines.snapshots(reference)
    }

    /// The largest number of calls that were in the backend at once.
    #[must_use]
    pub fn executing_most(&self) -> usize {
        self.state().executing_most
    }

    /// Changes the native state of a sandbox's first incarnation, for example to `exited`; `None` makes it disappear.
    pub fn set_native_state(&self, reference: Reference, state: Option<&str>) {
        self.state().machines.set(reference, state);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One native call: counts it, then lets it have `effect` as its fault says.
    async fn native<T>(
        &self,
        context: Context,
        method: Method,
        effect: impl FnOnce(&mut State) -> Result<T, Failure> + Send,
    ) -> Result<T, Failure> {
        let fault = {
            let mut state = self.state();
            state.calls.push((method, context.reference));
            state.faults.get_mut(&method).and_then(VecDeque::pop_front)
        };
        let _executing = Executing::start(self);
        match fault {
            None => effect(&mut self.state()),
            Some(Fault::Slow(delay)) => {
                tokio::time::sleep(delay).await;
                in_time(context, effect(&mut self.state()))
            }
            Some(Fault::Fail(failure)) => Err(failure),
            Some(Fault::LostAnswer) => effect(&mut self.state()).and(Err(Failure::Unconfirmed)),
            Some(Fault::ForeignOwner) => Err(Failure::Ownership),
            Some(Fault::Hang) => self.hang(context, method, effect).await,
        }
    }

    /// A creation's effect comes with its late answer and is never taken back; other waits end at the deadline.
    async fn hang<T>(
        &self,
        context: Context,
        method: Method,
        effect: impl FnOnce(&mut State) -> Result<T, Failure> + Send,
    ) -> Result<T, Failure> {
        self.dispatched.notify_one();
        if method == Method::Create {
            self.released.notified().await;
            return in_time(context, effect(&mut self.state()));
        }
        match tokio::time::timeout_at(context.deadline.into(), self.released.notified()).await {
            Ok(()) => in_time(context, effect(&mut self.state())),
            Err(_) => Err(Failure::Unconfirmed),
        }
    }

    async fn create(
        &self,
        context: Context,
        bootstrap: &Bootstrap<'static>,
    ) -> Result<Answer<'static>, Failed<'static>> {
        self.workspace.bind("Create", context.reference, bootstrap.workspace.as_ref()).await?;
        let create = |state: &mut State| state.machines.create(context.reference);
        match self.native(context, Method::Create, create).await {
            Ok(()) => Ok(Answer::Info(info(context.reference, "running"))),
            Err(failure) => Err(failure.into()),
        }
    }

    async fn inspect(&self, context: Context, method: Method) -> Result<Answer<'static>, Failed<'static>> {
        let look = |state: &mut State| state.machines.first(context.reference).ok_or(Failure::NotFound);
        let state = self.native(context, method, look).await?;
        Ok(Answer::Info(info(context.reference, &state)))
    }

    async fn kill(&self, context: Context) -> Result<Answer<'static>, Failed<'static>> {
        let remove = |state: &mut State| {
            state.machines.set(context.reference, None);
            Ok(())
        };
        self.native(context, Method::Kill, remove).await?;
        Ok(Answer::Done)
    }

    /// Echoes its standard input; a first argument `exit` ends with the second as the exit code.
    async fn command(
        &self,
        context: Context,
        method: Method,
        compute: Option<Compute<'static>>,
        command: Command<'static>,
    ) -> Result<Answer<'static>, Failed<'static>> {
        let run = |state: &mut State| {
            match &compute {
                None => drop(state.machines.first(context.reference).ok_or(Failure::NotFound)?),
                Some(compute) if state.machines.look(context.reference, compute)?.status == "running" => {}
                Some(_) => return Err(Failure::NotFound),
            }
            let result = echo(&command);
            state.commands.push(command);
            Ok(result)
        };
        match self.native(context, method, run).await {
            Ok(result) => Ok(Answer::Command(result)),
            Err(Failure::Unconfirmed) => Err(Failure::CommandUnconfirmed.into()),
            Err(failure) => Err(failure.into()),
        }
    }

    async fn sample(
        &self,
        context: Context,
        target: palisade_core::wire::payload::ObservationTarget<'static>,
    ) -> Result<Answer<'static>, Failed<'static>> {
        let measure = |state: &mut State| {
            let running = state.machines.is_running(context.reference);
            let suspended = target.instance.compute_phase != "running";
            state.observed.push(target);
            if !running || suspended {
                return Err(Failure::RuntimeNotRunning);
            }
            state.sample.clone().ok_or(Failure::ObservationUnavailable)
        };
        Ok(Answer::Sample(self.native(context, Method::Observe, measure).await?))
    }

    async fn resume(&self, context: Context, resume: Resume<'static>) -> Result<Answer<'static>, Failed<'static>> {
        self.workspace.bind("Resume", context.reference, resume.workspace.as_ref()).await?;
        let target = resume.target.clone();
        let restore = |state: &mut State| state.machines.resume(context.reference, &resume);
        match self.native(context, Method::Resume, restore).await {
            Ok(state) => Ok(Answer::State(Box::new(state))),
            // Evidence of what exists travels beside the failure.
            Err(Failure::Unconfirmed) => {
                let seen = self.state().machines.named(context.reference, &target).map(Box::new);
                Err(Failed { failure: Failure::Unconfirmed, info: None, state: seen })
            }
            Err(failure) => Err(failure.into()),
        }
    }

    /// An operation on one incarnation.
    async fn compute(
        &self,
        context: Context,
        method: Method,
        effect: impl FnOnce(&mut Machines) -> Result<ComputeState<'static>, Failure> + Send,
    ) -> Result<Answer<'static>, Failed<'static>> {
        let state = self.native(context, method, |state| effect(&mut state.machines)).await?;
        Ok(Answer::State(Box::new(state)))
    }

    async fn done(
        &self,
        context: Context,
        method: Method,
        effect: impl FnOnce(&mut Machines) -> Result<(), Failure> + Send,
    ) -> Result<Answer<'static>, Failed<'static>> {
        self.native(context, method, |state| effect(&mut state.machines)).await?;
        Ok(Answer::Done)
    }
}

#[async_trait]
impl Provider for FaultProvider {
    fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    async fn execute(
        &self,
        context: Context,
        operation: Operation<'static>,
    ) -> Result<Answer<'static>, Failed<'static>> {
        let method = operation.method();
        match operation {
            Operation::Create(bootstrap) => self.create(context, &bootstrap).await,
            Operation::GetInfo | Operation::Renew => self.inspect(context, method).await,
            Operation::Kill => self.kill(context).await,
            Operation::RunCommand(command) => self.command(context, method, None, command).await,
            Operation::RunCommandCompute { compute, command } => {
                self.command(context, method, Some(compute), command).await
            }
            Operation::Observe(target) => self.sample(context, *target).await,
            Operation::Initial => {
                self.native(context, method, |_| Ok(())).await?;
                Ok(Answer::Compute(machines::name(context.reference, 0, None)))
            }
            Operation::NewCompute { generation, snapshot } => {
                self.native(context, method, |_| Ok(())).await?;
                Ok(Answer::Compute(machines::name(context.reference, generation.get(), snapshot)))
            }
            Operation::GetCompute(compute) => {
                self.compute(context, method, |machines| machines.look(context.reference, &compute)).await
            }
            Operation::ResumeCompute(compute) => {
                self.compute(context, method, |machines| machines.thaw(context.reference, &compute)).await
            }
            Operation::Suspend(suspend) => {
                self.compute(context, method, |machines| machines.suspend(context.reference, &suspend)).await
            }
            Operation::Resume(resume) => self.resume(context, *resume).await,
            Operation::KillCompute(compute) => {
                self.done(context, method, |machines| machines.kill(context.reference, &compute)).await
            }
            Operation::DeleteSnapshot(snapshot) => {
                self.done(context, method, |machines| machines.delete(context.reference, &snapshot)).await
            }
            Operation::SavePreparation(_) => self.done(context, method, |_| Ok(())).await,
            Operation::RestorePreparation(_) => {
                self.native(context, method, |_| Ok(())).await?;
                Ok(Answer::Restored(false))
            }
        }
    }

    async fn probe(&self) -> Result<Option<Checkpoint<'static>>, NotReady> {
        let state = self.state();
        match state.not_ready {
            Some(diagnostic) => Err(NotReady { diagnostic, detail: "scripted".to_owned() }),
            None => Ok(state.checkpoint.clone()),
        }
    }

    fn generation(&self) -> Generation {
        self.generation
    }
}

/// Counts a call as executing while it lives.
struct Executing<'a>(&'a FaultProvider);

impl<'a> Executing<'a> {
    fn start(provider: &'a FaultProvider) -> Self {
        let mut state = provider.state();
        state.executing += 1;
        state.executing_most = state.executing_most.max(state.executing);
        Self(provider)
    }
}

impl Drop for Executing<'_> {
    fn drop(&mut self) {
        self.0.state().executing -= 1;
    }
}

fn default_declaration() -> Declaration {
    let unsupported = |reason: &str| Support::Unsupported { reason: reason.to_owned() };
    let (checkpoint, preparation) = (unsupported("test_has_no_checkpoints"), unsupported("test_has_no_preparation"));
    Declaration::of_groups(&Support::Supported, &checkpoint, &preparation).expect("the reasons are reason codes")
}

fn in_time<T>(context: Context, answer: Result<T, Failure>) -> Result<T, Failure> {
    if Instant::now() >= context.deadline { answer.and(Err(Failure::Unconfirmed)) } else { answer }
}

fn info(reference: Reference, state: &str) -> Info<'static> {
    Info {
        reference: flattened(reference),
        provider_id: machines::native_id(reference, 0).into(),
        state: state.to_owned().into(),
        bootstrap_complete: state == "running",
        create_settled: false,
    }
}

fn echo(command: &Command<'_>) -> CommandResult<'static> {
    let exit_code = match command.args.first().map(AsRef::as_ref) {
        Some("exit") => command.args.get(1).and_then(|code| code.parse().ok()).unwrap_or(1),
        Some(_) | None => 0,
    };
    let stdout = command.stdin.as_deref().map(String::from_utf8_lossy).unwrap_or_default().into_owned();
    CommandResult { stdout: stdout.into(), stderr: "".into(), exit_code }
}
