//! What a provider call came to, on both sides of the wire (wire §6, §2.11, §3.4).

use crate::limits::STREAM_MAX_BYTES;
use crate::operation::{Asked, Method, is_reason};
use crate::units::Id;
use crate::wire::frame::{Frame, Response};
use crate::wire::payload::{CommandResult, Compute, ComputeState, Info, Reference, Sample, Text, UnsupportedEvidence};
use crate::wire::{self, IntoOwned};

/// The result of a call that succeeded.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Answer<'a> {
    /// `create`, `info`, `renew`.
    Info(Info<'a>),
    /// `initial`, `new_compute`.
    Compute(Compute<'a>),
    /// `compute`, `resume_compute`, `suspend`, `resume`.
    State(Box<ComputeState<'a>>),
    /// `command`, `command_compute`.
    Command(CommandResult<'a>),
    /// `observe`.
    Sample(Sample<'a>),
    /// `restore_preparation`.
    Restored(bool),
    /// `kill`, `kill_compute`, `delete_snapshot`, `save_preparation`.
    Done,
}

/// Why a call did not succeed. Whatever is not certain is one of the two unconfirmed kinds.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Failure {
    /// Declared unsupported; settles nothing and allows no replay.
    #[error("operation {method} is unsupported: {reason}")]
    Unsupported {
        /// Provider method name.
        method: String,
        /// Reason code.
        reason: String,
    },
    /// A repeatable read found nothing to report.
    #[error("no observation is available")]
    ObservationUnavailable,
    /// The sandbox is not running.
    #[error("the sandbox is not running")]
    RuntimeNotRunning,
    /// Rejected input or drifted configuration.
    #[error("the request or the sandbox's configuration is invalid")]
    Invalid,
    /// Foreign or replaced resource: never delete, never adopt.
    #[error("the resource belongs to somebody else")]
    Ownership,
    /// Duplicate create: observe the original.
    #[error("the sandbox exists already")]
    Exists,
    /// Missing observation; not proof of absence.
    #[error("no such sandbox was seen")]
    NotFound,
    /// The command may or may not have run.
    #[error("the command's outcome is unknown")]
    CommandUnconfirmed,
    /// A definite outcome of `resume`.
    #[error("the checkpoint cannot be used")]
    CheckpointUnusable,
    /// The outcome is unknown.
    #[error("the outcome is unknown")]
    Unconfirmed,
}

/// A failure with the evidence that may travel beside it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Failed<'a> {
    /// What happened.
    pub failure: Failure,
    /// A `CreateSettled` receipt, when the failure carries one (wire §2.11).
    pub info: Option<Info<'a>>,
    /// Target evidence of a failed resume (wire §3.4).
    pub state: Option<Box<ComputeState<'a>>>,
}

impl IntoOwned for Answer<'_> {
    type Owned = Answer<'static>;

    fn into_owned(self) -> Answer<'static> {
        match self {
            Self::Info(info) => Answer::Info(info.into_owned()),
            Self::Compute(compute) => Answer::Compute(compute.into_owned()),
            Self::State(state) => Answer::State(state.into_owned()),
            Self::Command(result) => Answer::Command(result.into_owned()),
            Self::Sample(sample) => Answer::Sample(sample.into_owned()),
            Self::Restored(restored) => Answer::Restored(restored),
            Self::Done => Answer::Done,
        }
    }
}

impl IntoOwned for Failed<'_> {
    type Owned = Failed<'static>;

    fn into_owned(self) -> Failed<'static> {
        Failed { failure: self.failure, info: self.info.into_owned(), state: self.state.into_owned() }
    }
}

impl From<Failure> for Failed<'_> {
    fn from(failure: Failure) -> Self {
        Self { failure, info: None, state: None }
    }
}

/// What a caller of Core is told when no answer will come (wire §6.3, §3.4). An observation that its caller did not end
/// itself is only unavailable.
#[must_use]
pub const fn uncertain(method: Method, ended_by_caller: bool) -> Failure {
    match method {
        Method::Observe if !ended_by_caller => Failure::ObservationUnavailable,
        method => unknown(method),
    }
}

/// The failure that says "nobody knows" for this method.
#[must_use]
pub const fn unknown(method: Method) -> Failure {
    if method.is_command() { Failure::CommandUnconfirmed } else { Failure::Unconfirmed }
}

/// Whether `info` settles the creation of exactly `reference`: it can no longer change resources (wire §2.11).
#[must_use]
pub fn is_receipt(info: &Info<'_>, reference: &Reference) -> bool {
    let described = match &*info.state {
        "absent" => info.provider_id.is_empty() && !info.bootstrap_complete,
        _ => !info.provider_id.is_empty(),
    };
    reference.is(&info.reference) && info.create_settled && described
}

/// Whether `state` is cleanup evidence of the incarnation that a failed `resume` was to create (wire §3.4).
#[must_use]
pub fn is_target_evidence(state: &ComputeState<'_>, target: &Compute<'_>) -> bool {
    let Compute { generation, name, id, restored_from } = &state.compute;
    !id.is_empty() && *generation == target.generation && *name == target.name && *restored_from == target.restored_from
}

/// The message that answers a call which the node carried out (wire §3.2 step 8, §6.1). A result that cannot travel, because
/// a stream is too long, a value is none that decodes or the frame does not fit, becomes the unknown outcome of its method
/// (decision 12).
#[must_use]
pub fn respond(connection: Id, asked: &Asked, outcome: Result<Answer<'_>, Failed<'_>>) -> Vec<u8> {
    let encoded = |response| {
        let response = Response { connection_id: Some(connection), ..response };
        wire::encode(&Frame::Response(Box::new(response)))
    };
    let response = unchecked(asked, outcome).filter(|response| response.command.as_ref().is_none_or(streams_fit));
    response.and_then(|response| encoded(response).ok()).unwrap_or_else(|| {
        let refusal = refusal(asked.id.to_string().into(), &unknown(asked.method));
        encoded(refusal).expect("a code and an identifier encode")
    })
}

/// The response before anybody looked whether it can travel; `None` when the answer is not one of this method.
fn unchecked<'a>(asked: &Asked, outcome: Result<Answer<'a>, Failed<'a>>) -> Option<Response<'a>> {
    match outcome {
        Ok(answer) => success(asked, answer),
        Err(failed) => Some(failure(asked, failed)),
    }
}

/// Whether a failure may come of this method (wire §3.5). What may not says nothing that could be relied on: it is an
/// unknown outcome, on both sides.
#[must_use]
pub const fn may_come(method: Method, failure: &Failure) -> bool {
    match failure {
        Failure::CommandUnconfirmed => method.is_command(),
        Failure::ObservationUnavailable | Failure::RuntimeNotRunning => matches!(method, Method::Observe),
        Failure::CheckpointUnusable => matches!(method, Method::Resume),
        Failure::Unsupported { .. }
        | Failure::Invalid
        | Failure::Ownership
        | Failure::Exists
        | Failure::NotFound
        | Failure::Unconfirmed => true,
    }
}

/// A response that carries a code and nothing else, also for a request that was never accepted.
#[must_use]
pub fn refusal<'a>(id: Text<'a>, failure: &Failure) -> Response<'a> {
    Response { id, error_code: Some(code(failure).into()), ..Response::default() }
}

/// The wire's name of a failure (wire §6.1).
#[must_use]
pub const fn code(failure: &Failure) -> &'static str {
    match failure {
        Failure::Unsupported { .. } => "unsupported",
        Failure::ObservationUnavailable => "observation_unavailable",
        Failure::RuntimeNotRunning => "runtime_not_running",
        Failure::Invalid => "invalid",
        Failure::Ownership => "ownership",
        Failure::Exists => "exists",
        Failure::NotFound => "not_found",
        Failure::CommandUnconfirmed => "command_unconfirmed",
        Failure::CheckpointUnusable => "checkpoint_unusable",
        Failure::Unconfirmed => "unconfirmed",
    }
}

/// `None` when the answer is not one of this method.
fn success<'a>(asked: &Asked, answer: Answer<'a>) -> Option<Response<'a>> {
    let mut response = Response { id: asked.id.to_string().into(), ..Response::default() };
    match (Expected::of(asked.method), answer) {
        (Expected::Info, Answer::Info(info)) => response.info = Some(info),
        (Expected::Compute, Answer::Compute(compute)) => response.compute = Some(compute),
        (Expected::State, Answer::State(state)) => response.state = Some(state),
        (Expected::Command, Answer::Command(result)) => response.command = Some(result),
        (Expected::Sample, Answer::Sample(sample)) => response.sample = Some(sample),
        (Expected::Restored, Answer::Restored(restored)) => response.restored = Some(restored),
        (Expected::Nothing, Answer::Done) => {}
        _ => return None,
    }
    Some(response)
}

fn failure<'a>(asked: &Asked, failed: Failed<'a>) -> Response<'a> {
    let Failed { failure, info, state } = failed;
    let failure = if may_come(asked.method, &failure) { failure } else { unknown(asked.method) };
    let mut response = refusal(asked.id.to_string().into(), &failure);
    if let Failure::Unsupported { method, reason } = failure {
        response.unsupported =
            Some(UnsupportedEvidence { operation: Some(method.into()), reason: Some(reason.into()) });
    }
    response.info = info.filter(|info| carries_receipt(asked, info));
    response.state = state.filter(|state| carries_evidence(asked, state));
    response
}

fn carries_receipt(asked: &Asked, info: &Info<'_>) -> bool {
    Expected::of(asked.method) == Expected::Info && is_receipt(info, &asked.reference)
}

fn carries_evidence(asked: &Asked, state: &ComputeState<'_>) -> bool {
    asked.method == Method::Resume && asked.target.as_ref().is_some_and(|target| is_target_evidence(state, target))
}

fn streams_fit(result: &CommandResult<'_>) -> bool {
    result.stdout.len() <= STREAM_MAX_BYTES && result.stderr.len() <= STREAM_MAX_BYTES
}

/// The result member of a success (wire §3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Expected {
    Info,
    Compute,
    State,
    Command,
    Sample,
    Restored,
    Nothing,
}

impl Expected {
    const fn of(method: Method) -> Self {
        match method {
            Method::Create | Method::GetInfo | Method::Renew => Self::Info,
            Method::Initial | Method::NewCompute => Self::Compute,
            Method::GetCompute | Method::ResumeCompute | Method::Suspend | Method::Resume => Self::State,
            Method::RunCommand | Method::RunCommandCompute => Self::Command,
            Method::Observe => Self::Sample,
            Method::RestorePreparation => Self::Restored,
            Method::Kill | Method::KillCompute | Method::DeleteSnapshot | Method::SavePreparation => Self::Nothing,
        }
    }
}

/// What Core's caller is told of a response (wire §3.4, §6.2). Whatever is not certain is an unknown outcome.
pub fn judge<'a>(asked: &Asked, response: Response<'a>) -> Result<Answer<'a>, Failed<'a>> {
    let outcome = match response.error_code {
        None => accepted(asked, response).map_err(Failed::from),
        Some(_) => Err(rejected(asked, response)),
    };
    outcome.map_err(|failed| match (asked.method, &failed.failure) {
        (Method::Observe, Failure::Unconfirmed) => Failure::ObservationUnavailable.into(),
        _ => failed,
    })
}

/// The answer of a success, when it holds exactly the result of its method and that result is sound.
fn accepted<'a>(asked: &Asked, response: Response<'a>) -> Result<Answer<'a>, Failure> {
    let Response { unsupported: None, info, compute, state, command, sample, restored, .. } = response else {
        return Err(Failure::Unconfirmed);
    };
    let answer = match (info, compute, state, command, sample, restored) {
        (Some(info), None, None, None, None, None) => Answer::Info(info),
        (None, Some(compute), None, None, None, None) => Answer::Compute(compute),
        (None, None, Some(state), None, None, None) => Answer::State(state),
        (None, None, None, Some(result), None, None) => Answer::Command(result),
        (None, None, None, None, Some(sample), None) => Answer::Sample(sample),
        (None, None, None, None, None, Some(restored)) => Answer::Restored(restored),
        (None, None, None, None, None, None) => Answer::Done,
        _ => return Err(Failure::Unconfirmed),
    };
    if is_sound(asked, &answer) { Ok(answer) } else { Err(unknown(asked.method)) }
}

fn is_sound(asked: &Asked, answer: &Answer<'_>) -> bool {
    match (Expected::of(asked.method), answer) {
        (Expected::Info, Answer::Info(info)) => {
            let named = !info.provider_id.is_empty() && asked.reference.is(&info.reference);
            named || is_receipt(info, &asked.reference)
        }
        (Expected::State, Answer::State(state)) => !state.compute.id.is_empty(),
        (Expected::Command, Answer::Command(result)) => streams_fit(result),
        (Expected::Compute, Answer::Compute(_))
        | (Expected::Sample, Answer::Sample(_))
        | (Expected::Restored, Answer::Restored(_))
        | (Expected::Nothing, Answer::Done) => true,
        _ => false,
    }
}

/// The failure a code stands for, with the evidence that may stay beside it. A result member that a failure of this
/// method never carries makes the whole response an unknown outcome.
fn rejected<'a>(asked: &Asked, response: Response<'a>) -> Failed<'a> {
    let Response { error_code, unsupported, info, compute, state, command, sample, restored, .. } = response;
    let foreign = compute.is_some()
        || command.is_some()
        || sample.is_some()
        || restored.is_some()
        || (info.is_some() && Expected::of(asked.method) != Expected::Info)
        || (state.is_some() && asked.method != Method::Resume);
    if foreign {
        return Failure::Unconfirmed.into();
    }
    Failed {
        failure: told(asked.method, &error_code.unwrap_or_default(), unsupported),
        info: info.filter(|info| carries_receipt(asked, info)),
        state: state.filter(|state| carries_evidence(asked, state)),
    }
}

fn told(method: Method, code: &str, evidence: Option<UnsupportedEvidence<'_>>) -> Failure {
    let failure = match (code, evidence) {
        ("unsupported", Some(evidence)) => unsupported(method, evidence),
        ("observation_unavailable", None) => Failure::ObservationUnavailable,
        ("runtime_not_running", None) => Failure::RuntimeNotRunning,
        ("invalid", None) => Failure::Invalid,
        ("ownership", None) => Failure::Ownership,
        ("exists", None) => Failure::Exists,
        ("not_found", None) => Failure::NotFound,
        ("command_unconfirmed", None) => Failure::CommandUnconfirmed,
        ("checkpoint_unusable", None) => Failure::CheckpointUnusable,
        _ => Failure::Unconfirmed,
    };
    if may_come(method, &failure) { failure } else { Failure::Unconfirmed }
}

/// Evidence counts only for exactly the method that was asked and with a well-formed reason.
fn unsupported(asked: Method, evidence: UnsupportedEvidence<'_>) -> Failure {
    match evidence {
        UnsupportedEvidence { operation: Some(method), reason: Some(reason) }
            if method == asked.name() && is_reason(&reason) =>
        {
            Failure::Unsupported { method: method.into_owned(), reason: reason.into_owned() }
        }
        UnsupportedEvidence { .. } => Failure::Unconfirmed,
    }
}
