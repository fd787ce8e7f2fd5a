//! From a request that decodes to a call that may run (wire §3.1).

use super::{Call, Method, Operation};
use crate::limits::{BUDGET_MAX_MS, BUDGET_MIN_MS, PREPARATION_KEY_MAX_BYTES, STDIN_MAX_BYTES};
use crate::units::{Generation, Id};
use crate::wire::frame::Request;
use crate::wire::payload::{Command, ObservationTarget, RawReference, Reference, Text, Workspace};

macro_rules! flaws {
    ($($(#[$doc:meta])* $name:ident = $text:literal),+ $(,)?) => {
        /// Why a request is answered `invalid`; [`Flaw::text`] is stable and holds no content.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Flaw { $($(#[$doc])* $name),+ }

        impl Flaw {
            /// The stable text.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text),+ }
            }
        }
    };
}

flaws! {
    /// `id` is no UUID.
    Id = "the id is not a UUID",
    /// `operation` is none of the seventeen.
    Operation = "unknown operation",
    /// `timeout_ms` outside 1 … 120 000.
    Timeout = "timeout_ms is outside 1 to 120000",
    /// `reference` holds something else than three UUIDs.
    Reference = "the reference is not three UUIDs",
    /// An argument that the operation requires is absent.
    MissingArgument = "an argument of the operation is missing",
    /// An argument that the operation does not take.
    ForeignArgument = "an argument that the operation does not take",
    /// An argument names another sandbox than `reference`.
    OtherReference = "an argument names another sandbox than the reference",
    /// `generation` of `new_compute` outside 1 … 2^63 − 1.
    Generation = "the generation is outside 1 to 2^63 - 1",
    /// `Stdin` above 52 428 832 bytes.
    Stdin = "standard input is longer than 52428832 bytes",
    /// `key` is not 1 to 256 bytes of printable ASCII without space.
    Key = "the key is not 1 to 256 printable ASCII characters",
    /// `SessionID` or `ProviderKey` of an observation target is no UUID.
    ObservationId = "an identifier of the observation target is not a UUID",
    /// `Mode` is not `openai_hosted`.
    Mode = "the mode is not openai_hosted",
    /// `TokenUsage` is not `null`.
    TokenUsage = "token usage is not null",
    /// A workspace binding of another tenant, Environment or configuration, or a malformed one.
    Workspace = "the workspace binding is not one of this sandbox",
}

impl std::fmt::Display for Flaw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.text())
    }
}

/// A request that is answered `invalid`; the connection stays open and the sequence is consumed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Invalid<'a> {
    /// The request's `id`, to be echoed unchanged.
    pub id: Text<'a>,
    /// What is wrong.
    pub flaw: Flaw,
}

impl<'a> Call<'a> {
    /// Applies the request validation of wire §3.1.
    pub fn accept(mut request: Request<'a>) -> Result<Self, Invalid<'a>> {
        let id = std::mem::take(&mut request.id);
        match accept(&id, request) {
            Ok(call) => Ok(call),
            Err(flaw) => Err(Invalid { id, flaw }),
        }
    }

    /// The same validation for a call that is about to be sent.
    pub fn verify(&self) -> Result<(), Flaw> {
        require((BUDGET_MIN_MS..=BUDGET_MAX_MS).contains(&self.timeout_ms), Flaw::Timeout)?;
        self.operation.verify(&self.reference)
    }
}

fn require(holds: bool, flaw: Flaw) -> Result<(), Flaw> {
    if holds { Ok(()) } else { Err(flaw) }
}

fn accept<'a>(id: &str, request: Request<'a>) -> Result<Call<'a>, Flaw> {
    let id = Id::parse(id).map_err(|_| Flaw::Id)?;
    let method = Method::from_operation(&request.operation).ok_or(Flaw::Operation)?;
    let call = Call {
        id,
        deployment_generation: request.deployment_generation,
        reference: Reference::parse(&request.reference).ok_or(Flaw::Reference)?,
        timeout_ms: u64::try_from(request.timeout_ms).map_err(|_| Flaw::Timeout)?,
        operation: Arguments::of(request).operation(method)?,
    };
    call.verify()?;
    Ok(call)
}

impl Reference {
    /// Three canonical UUIDs.
    #[must_use]
    pub fn parse(raw: &RawReference<'_>) -> Option<Self> {
        Some(Self {
            tenant: Id::parse(&raw.tenant_id).ok()?,
            environment: Id::parse(&raw.environment_id).ok()?,
            allocation: Id::parse(&raw.allocation_id).ok()?,
        })
    }
}

/// The arguments of a request. Taking one leaves `None`, so what is left over was not asked for.
struct Arguments<'a>(Request<'a>);

impl<'a> Arguments<'a> {
    const fn of(request: Request<'a>) -> Self {
        Self(request)
    }

    fn operation(mut self, method: Method) -> Result<Operation<'a>, Flaw> {
        let request = &mut self.0;
        let operation = match method {
            Method::Create => Operation::Create(taken(&mut request.bootstrap)?),
            Method::GetInfo => Operation::GetInfo,
            Method::Renew => Operation::Renew,
            Method::Kill => Operation::Kill,
            Method::RunCommand => Operation::RunCommand(taken(&mut request.command)?),
            Method::Observe => Operation::Observe(taken(&mut request.observation)?),
            Method::Initial => Operation::Initial,
            Method::NewCompute => Operation::NewCompute {
                generation: Generation::new(taken(&mut request.generation)?).ok_or(Flaw::Generation)?,
                snapshot: request.snapshot.take(),
            },
            Method::GetCompute => Operation::GetCompute(taken(&mut request.compute)?),
            Method::KillCompute => Operation::KillCompute(taken(&mut request.compute)?),
            Method::ResumeCompute => Operation::ResumeCompute(taken(&mut request.compute)?),
            Method::RunCommandCompute => Operation::RunCommandCompute {
                compute: taken(&mut request.compute)?,
                command: taken(&mut request.command)?,
            },
            Method::Suspend => Operation::Suspend(taken(&mut request.suspend)?),
            Method::Resume => Operation::Resume(taken(&mut request.resume)?),
            Method::DeleteSnapshot => Operation::DeleteSnapshot(taken(&mut request.snapshot)?),
            Method::RestorePreparation => Operation::RestorePreparation(taken(&mut request.key)?.into_owned()),
            Method::SavePreparation => Operation::SavePreparation(taken(&mut request.key)?.into_owned()),
        };
        require(self.is_empty(), Flaw::ForeignArgument)?;
        Ok(operation)
    }

    const fn is_empty(&self) -> bool {
        let Request { bootstrap, compute, generation, command, suspend, resume, snapshot, observation, key, .. } =
            &self.0;
        bootstrap.is_none()
            && compute.is_none()
            && generation.is_none()
            && command.is_none()
            && suspend.is_none()
            && resume.is_none()
            && snapshot.is_none()
            && observation.is_none()
            && key.is_none()
    }
}

fn taken<T>(argument: &mut Option<T>) -> Result<T, Flaw> {
    argument.take().ok_or(Flaw::MissingArgument)
}

impl Operation<'_> {
    fn verify(&self, reference: &Reference) -> Result<(), Flaw> {
        match self {
            Self::Create(bootstrap) => {
                let (tenant, environment) = (&bootstrap.tenant_id, &bootstrap.environment_id);
                let same = reference.is_written(tenant, environment, &bootstrap.allocation_id);
                require(same, Flaw::OtherReference)?;
                workspace(bootstrap.workspace.as_ref(), reference)
            }
            Self::RunCommand(command) | Self::RunCommandCompute { command, .. } => stdin(command),
            Self::Observe(target) => observation(target, reference),
            Self::Suspend(suspend) => require(reference.is(&suspend.reference), Flaw::OtherReference),
            Self::Resume(resume) => {
                require(reference.is(&resume.reference), Flaw::OtherReference)?;
                workspace(resume.workspace.as_ref(), reference)
            }
            Self::RestorePreparation(key) | Self::SavePreparation(key) => require(is_key(key), Flaw::Key),
            Self::GetInfo
            | Self::Renew
            | Self::Kill
            | Self::Initial
            | Self::NewCompute { .. }
            | Self::GetCompute(_)
            | Self::KillCompute(_)
            | Self::ResumeCompute(_)
            | Self::DeleteSnapshot(_) => Ok(()),
        }
    }
}

fn stdin(command: &Command<'_>) -> Result<(), Flaw> {
    require(command.stdin.as_ref().is_none_or(|bytes| bytes.len() <= STDIN_MAX_BYTES), Flaw::Stdin)
}

fn is_key(key: &str) -> bool {
    (1..=PREPARATION_KEY_MAX_BYTES).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The rules of wire §2.10.
fn observation(target: &ObservationTarget<'_>, reference: &Reference) -> Result<(), Flaw> {
    let instance = &target.instance;
    let same = reference.is_written(&target.tenant_id, &target.environment_id, &instance.allocation_id);
    require(same, Flaw::OtherReference)?;
    let ids = Id::parse(&target.session_id).is_ok() && Id::parse(&instance.provider_key).is_ok();
    require(ids, Flaw::ObservationId)?;
    require(target.mode == "openai_hosted", Flaw::Mode)?;
    require(!target.token_usage_present, Flaw::TokenUsage)
}

/// The rules of wire §2.15.
fn workspace(binding: Option<&Workspace<'_>>, reference: &Reference) -> Result<(), Flaw> {
    let Some(binding) = binding else {
        return Ok(());
    };
    let own = Id::parse(&binding.tenant_id) == Ok(reference.tenant)
        && Id::parse(&binding.environment_id) == Ok(reference.environment);
    let formed = Id::parse(&binding.object_id).is_ok() && Id::parse(&binding.configuration_id).is_ok();
    let configured = binding.attachment_configuration_id == binding.configuration_id;
    let known = is_adapter(&binding.adapter) && binding.kind == "host_directory";
    require(own && formed && configured && known, Flaw::Workspace)
}

/// An adapter's name takes no part in any path.
fn is_adapter(name: &str) -> bool {
    name.as_bytes().split_first().is_some_and(|(first, rest)| {
        first.is_ascii_alphanumeric()
            && rest.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
    })
}
