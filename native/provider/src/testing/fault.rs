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
    sandboxes: BTreeMap<Reference, String>,
    not_ready: Option<Diagnostic>,
    checkpoint: Option<Checkpoint<'static>>,
    sample: Option<Sample<'static>>,
    executing: usize,
    executing_most: usize,
}

impl FaultProvider {
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

    /// Sandboxes that exist now.
    #[must_use]
    pub fn sandboxes(&self) -> Vec<Reference> {
        self.state().sandboxes.keys().copied().collect()
    }

    /// The largest number of calls that were in the backend at once.
    #[must_use]
    pub fn executing_most(&self) -> usize {
        self.state().executing_most
    }

    /// Changes a sandbox's native state, for example to `exited`; `None` makes it disappear.
    pub fn set_native_state(&self, reference: Reference, state: Option<&str>) {
        let mut inner = self.state();
        match state {
            Some(state) => inner.sandboxes.insert(reference, state.to_owned()),
            None => inner.sandboxes.remove(&reference),
        };
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
        let create = |state: &mut State| match state.sandboxes.entry(context.reference) {
            std::collections::btree_map::Entry::Occupied(_) => Err(Failure::Exists),
            std::collections::btree_map::Entry::Vacant(vacant) => {
                vacant.insert("running".to_owned());
                Ok(())
            }
        };
        match self.native(context, Method::Create, create).await {
            Ok(()) => Ok(Answer::Info(info(context.reference, "running"))),
            Err(failure) => Err(failure.into()),
        }
    }

    async fn inspect(&self, context: Context, method: Method) -> Result<Answer<'static>, Failed<'static>> {
        let look = |state: &mut State| state.sandboxes.get(&context.reference).cloned().ok_or(Failure::NotFound);
        let state = self.native(context, method, look).await?;
        Ok(Answer::Info(info(context.reference, &state)))
    }

    async fn kill(&self, context: Context) -> Result<Answer<'static>, Failed<'static>> {
        let remove = |state: &mut State| {
            state.sandboxes.remove(&context.reference);
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
        command: Command<'static>,
    ) -> Result<Answer<'static>, Failed<'static>> {
        let run = |state: &mut State| {
            if !state.sandboxes.contains_key(&context.reference) {
                return Err(Failure::NotFound);
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
            let running = state.sandboxes.get(&context.reference).is_some_and(|state| state == "running");
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
        let restored = self.native(context, Method::Resume, |_| Ok(())).await;
        let state = Box::new(compute_state(Compute { id: "test-restored".into(), ..resume.target }));
        match restored {
            Ok(()) => Ok(Answer::State(state)),
            Err(Failure::Unconfirmed) => Err(Failed { failure: Failure::Unconfirmed, info: None, state: Some(state) }),
            Err(failure) => Err(failure.into()),
        }
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
            Operation::RunCommand(command) | Operation::RunCommandCompute { command, .. } => {
                self.command(context, method, command).await
            }
            Operation::Observe(target) => self.sample(context, *target).await,
            Operation::Initial => {
                self.native(context, method, |_| Ok(())).await?;
                Ok(Answer::Compute(Compute {
                    generation: 0,
                    name: "test-g0".into(),
                    id: "".into(),
                    restored_from: None,
                }))
            }
            Operation::NewCompute { generation, snapshot } => {
                self.native(context, method, |_| Ok(())).await?;
                let name = format!("test-g{generation}").into();
                Ok(Answer::Compute(Compute {
                    generation: generation.get(),
                    name,
                    id: "".into(),
                    restored_from: snapshot,
                }))
            }
            Operation::GetCompute(compute) | Operation::ResumeCompute(compute) => {
                self.native(context, method, |_| Ok(())).await?;
                Ok(Answer::State(Box::new(compute_state(compute))))
            }
            Operation::Suspend(suspend) => {
                self.native(context, method, |_| Ok(())).await?;
                let state = ComputeState { source_stopped: true, ..compute_state(suspend.source) };
                Ok(Answer::State(Box::new(state)))
            }
            Operation::Resume(resume) => self.resume(context, *resume).await,
            Operation::KillCompute(_) | Operation::DeleteSnapshot(_) | Operation::SavePreparation(_) => {
                self.native(context, method, |_| Ok(())).await?;
                Ok(Answer::Done)
            }
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
        provider_id: format!("test-{}", reference.allocation).into(),
        state: state.to_owned().into(),
        bootstrap_complete: state == "running",
        create_settled: false,
    }
}

fn compute_state(compute: Compute<'static>) -> ComputeState<'static> {
    let id = if compute.id.is_empty() { "test-compute".into() } else { compute.id.clone() };
    ComputeState {
        compute: Compute { id, ..compute },
        status: "running".into(),
        bootstrap_complete: true,
        snapshot: None,
        source_stopped: false,
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
